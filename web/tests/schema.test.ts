import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { blank, collect, fieldOf, type Entry, type Field, type Schema } from "../src/text/schema";

const form = (schema: Schema): Field => fieldOf(schema);
const answer = (schema: Schema, entry: Entry): unknown => {
  const { value, faults } = collect(form(schema), entry);
  return faults.size ? Object.fromEntries(faults) : value;
};
const DATE: Schema = {
  type: "object", required: ["project", "priority"],
  properties: {
    project: { type: "string", title: "Project" }, priority: { enum: ["low", "normal", "high"], default: "normal" },
    days: { type: "integer", minimum: 1 }, notify: { type: "boolean" }, labels: { type: "array", items: { type: "string" } },
    tags: { type: "array", items: { enum: ["a", "b"] } }, owner: { type: "object", required: ["name"], properties: { name: { type: "string" }, share: { type: "number" } } },
  },
};

describe("a form from a JSON Schema", () => {
  test("starts with defaults and nothing else", () => {
    expect(blank(form(DATE))).toEqual({ project: "", priority: "1", days: "", notify: false, labels: [], tags: [false, false], owner: { name: "", share: "" } });
  });

  test("gives the answer as the schema asks for it, and leaves out what was left empty", () => {
    const entry = { ...(blank(form(DATE)) as Record<string, Entry>), project: "notes" };
    expect(answer(DATE, entry)).toEqual({ project: "notes", priority: "normal", notify: false });
    expect(answer(DATE, { ...entry, days: " 3 ", labels: ["x", "y"], tags: [false, true], owner: { name: "Ann", share: "0.5" } })).toEqual({
      project: "notes", priority: "normal", notify: false, days: 3, labels: ["x", "y"], tags: ["b"], owner: { name: "Ann", share: 0.5 },
    });
  });

  test("says what is wrong, each at its place", () => {
    const entry = { ...(blank(form(DATE)) as Record<string, Entry>), priority: "", days: "0", labels: [""], owner: { name: "", share: "much" } };
    expect(answer(DATE, entry)).toEqual({
      "/project": "This is needed.", "/priority": "Choose one.", "/days": "At least 1.", "/labels/0": "This is needed.",
      "/owner/name": "This is needed.", "/owner/share": "A number is needed.",
    });
  });

  test.each<[string, Schema, Entry, unknown]>([
    ["a whole number", { type: "integer" }, "1.5", { "": "A whole number is needed." }],
    ["bounds", { type: "number", exclusiveMinimum: 0, maximum: 1 }, "0", { "": "More than 0." }],
    ["yes or no", { type: "boolean" }, true, true],
    ["a choice of any values", { enum: ["a", 1, null, { x: 1 }] }, "3", { x: 1 }],
    ["titled constants", { oneOf: [{ const: "y", title: "Yes" }, { const: "n", title: "No" }] }, "1", "n"],
    ["this or nothing", { anyOf: [{ type: "integer" }, { type: "null" }] }, "7", 7],
    ["a nullable type", { type: ["string", "null"] }, "x", "x"],
    ["a list of objects", { type: "array", items: { type: "object", properties: { n: { type: "integer" } } } }, [{ n: "1" }, { n: "2" }], [{ n: 1 }, { n: 2 }]],
    ["lengths", { type: "string", minLength: 3 }, "ab", { "": "At least 3 characters." }],
    ["too many", { type: "array", items: { enum: ["a", "b"] }, maxItems: 1 }, [true, true], { "": "At most 1." }],
    ["names like a prototype's", { type: "object", properties: { ["__proto__"]: { type: "string" } } }, { ["__proto__"]: "x" } as Record<string, Entry>, JSON.parse("{\"__proto__\": \"x\"}")],
  ])("reads %s", (_, schema, entry, expected) => expect(answer(schema, entry)).toEqual(expected));

  test("follows references inside the schema", () => {
    const schema = { $ref: "#/$defs/Trip", $defs: { Trip: { type: "object", properties: { to: { $ref: "#/$defs/City" } }, required: ["to"] }, City: { enum: ["Rome", "Oslo"] } } };
    expect(answer(schema, { to: "1" })).toEqual({ to: "Oslo" });
  });

  test("asks for one of several objects by what tells them apart, and for as many as there are", () => {
    const edit: Schema = { type: "object", properties: { type: { const: "edit" }, args: { type: "object" } }, required: ["type", "args"] };
    const reject: Schema = { type: "object", properties: { type: { const: "reject" }, message: { type: "string" } }, required: ["type"] };
    const approve: Schema = { type: "object", properties: { type: { const: "approve" } }, required: ["type"] };
    const turn: Schema = {
      type: "object", required: ["decisions"],
      properties: { decisions: { type: "array", prefixItems: [{ oneOf: [approve, edit, reject] }, { oneOf: [approve, reject] }], minItems: 2, maxItems: 2 } },
    };
    const entry = blank(form(turn)) as { decisions: { pick: string; parts: Record<string, Entry>[] }[] };
    expect(answer(turn, entry as unknown as Entry)).toEqual({ decisions: [{ type: "approve" }, { type: "approve" }] });
    const [first, second] = entry.decisions;
    if (!first || !second) throw new Error("two are asked for");
    first.pick = "1";
    second.pick = "1";
    (second.parts[1] ?? {})["message"] = "too early";
    expect(answer(turn, entry as unknown as Entry)).toEqual({ "/decisions/0/args": "This is needed." });
    (first.parts[1] ?? {})["args"] = '{"amount": 3}';
    expect(answer(turn, entry as unknown as Entry)).toEqual({ decisions: [{ type: "edit", args: { amount: 3 } }, { type: "reject", message: "too early" }] });
  });

  test.each<[string, Schema]>([
    ["free objects", { type: "object" }], ["open tuples", { type: "array", prefixItems: [{ type: "string" }] }],
    ["alternatives", { anyOf: [{ type: "string" }, { type: "number" }] }], ["references to elsewhere", { $ref: "https://a.b/c" }],
    ["circles", { $ref: "#/$defs/a", $defs: { a: { $ref: "#/$defs/a" } } }], ["anything", {}],
  ])("leaves %s to JSON", (_, schema) => {
    expect(fieldOf(schema).kind).toBe("json");
    expect(answer(schema, '{"a": [1]}')).toEqual({ a: [1] });
    expect(answer(schema, "{a}")).toEqual({ "": "This is no JSON. Text stands in double quotes." });
  });

  test("leaves a part that it cannot read to JSON, and the rest to the form", () => {
    const schema: Schema = { type: "object", properties: { a: true, b: { type: "integer" }, c: { $ref: "#" } } };
    expect(answer(schema, { ...(blank(form(schema)) as Record<string, Entry>), a: "[1]", b: "2" })).toEqual({ a: [1], b: 2 });
  });

  test("a schema that is its own part many times over makes no endless form", () => {
    const names = Array.from({ length: 20 }, (_, i) => [`p${i}`, { $ref: "#" }]);
    expect(fieldOf({ type: "object", properties: Object.fromEntries(names) }).kind).toBe("json");
  });

  test("never fails on any schema, nor on what it starts with", () => {
    const schema = fc.letrec((tie) => ({
      any: fc.oneof({ maxDepth: 4 }, tie("leaf"), tie("node")),
      leaf: fc.oneof(fc.constantFrom({ type: "string" }, { type: "integer", default: "x" }, { type: "boolean", default: 3 }, { enum: [] }, { enum: [1, "1"], default: [1] }, { const: 1 }, true, null, "x"), fc.jsonValue()),
      node: fc.oneof(
        fc.record({ type: fc.constant("object"), properties: fc.dictionary(fc.string(), tie("any")), required: fc.jsonValue(), default: fc.jsonValue() }),
        fc.record({ type: fc.constant("array"), items: tie("any"), minItems: fc.constantFrom(0, 2), default: fc.jsonValue() }),
        fc.record({ anyOf: fc.array(tie("any") as fc.Arbitrary<unknown>) }),
        fc.record({ type: fc.constant("array"), prefixItems: fc.array(tie("any") as fc.Arbitrary<unknown>), items: fc.constant(false) }),
        fc.record({ oneOf: fc.array(fc.record({ properties: fc.record({ t: fc.record({ const: fc.jsonValue() }), u: tie("any") as fc.Arbitrary<unknown> }) })) }),
      ),
    }));
    fc.assert(fc.property(schema.any, (any) => {
      const field = fieldOf(any as Schema);
      collect(field, blank(field));
    }), { numRuns: 200 });
  });
});
