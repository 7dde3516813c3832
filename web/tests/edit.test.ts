import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { inexact } from "../src/text/arguments";
import { editing } from "../src/text/edit";
import { alike, blank, collect, type Entry, type Field, type Schema } from "../src/text/schema";
import { escapedJson, hides } from "../src/text/visible";

const MAIL: Schema = {
  type: "object", required: ["to", "body"],
  properties: {
    to: { type: "array", items: { type: "string" }, minItems: 1 }, body: { type: "string" }, subject: { type: "string", maxLength: 80 },
    urgent: { type: "boolean", default: true }, copies: { type: "integer", default: 1 }, kind: { enum: ["note", "bill"] },
    about: { type: "object", required: ["order"], properties: { order: { type: "integer" }, gift: { type: "boolean" } } },
    means: { oneOf: [{ type: "object", properties: { by: { const: "card" }, number: { type: "string" } } }, { type: "object", properties: { by: { const: "cash" } } }] },
  },
};
const FULL = {
  to: ["a@example.org"], body: "Dear all,\n\nso it is.", subject: "It", urgent: false, copies: 2, kind: "bill", about: { order: 7, gift: true },
  means: { by: "card", number: "1" },
};
const kinds = (field: Field): Record<string, string> => (field.kind === "group" ? Object.fromEntries(field.fields.map(([name, part]) => [name, part.kind])) : { "": field.kind });
const through = (schema: Schema | null, args: unknown, change: Record<string, Entry> = {}): unknown => {
  const field = editing(schema, args);
  const entry = blank(field, args);
  const { value, faults } = collect(field, typeof entry === "string" ? entry : { ...(entry as Record<string, Entry>), ...change });
  return faults.size ? Object.fromEntries(faults) : value;
};

describe("arguments that are changed in a form", () => {
  test("have their own fields, filled in as they are", () => {
    expect(kinds(editing(MAIL, FULL))).toEqual({ to: "list", body: "text", subject: "text", urgent: "yes", copies: "number", kind: "choice", about: "group", means: "variant" });
    expect(blank(editing(MAIL, FULL), FULL)).toMatchObject({ to: ["a@example.org"], body: FULL.body, urgent: false, copies: "2", kind: "1", about: { order: "7", gift: true }, means: { pick: "0" } });
    expect(through(MAIL, FULL)).toEqual(FULL);
    expect(through(MAIL, FULL, { copies: "3", body: "" })).toEqual({ ...FULL, copies: 3, body: "" });
    expect(through(MAIL, FULL, { copies: "many" })).toEqual({ "/copies": "A number is needed." });
  });

  test("get nothing that was not there: a default is a hint, and a tick that nobody set stays away", () => {
    const args = { to: ["a"], body: "x" };
    expect(through(MAIL, args)).toEqual(args);
    expect(kinds(editing(MAIL, args))["urgent"]).toBe("choice");
    expect(through(MAIL, args, { urgent: "1" })).toEqual({ ...args, urgent: false });
    const field = editing(MAIL, args);
    expect(field.kind === "group" && Object.fromEntries(field.fields)["copies"]?.about).toBe("if left out: 1");
    const cc = editing({ type: "object", properties: { cc: { type: "string", default: "" } } }, {});
    expect(cc.kind === "group" && Object.fromEntries(cc.fields)["cc"]?.about).toBe("if left out: empty");
  });

  test("that a field cannot carry, or would not show, are JSON: nothing is lost and nothing hides", () => {
    const args = { to: [], body: "gpj\u202eexe", subject: "", extra: { deep: [1, null] }, copies: "two" };
    const field = editing(MAIL, args);
    expect(kinds(field)).toMatchObject({ to: "json", body: "json", subject: "json", extra: "json", copies: "json", kind: "choice" });
    expect((blank(field, args) as Record<string, Entry>)["body"]).toBe('"gpj\\u202eexe"');
    expect(through(MAIL, args)).toEqual(args);
  });

  test("are one field of JSON without a schema, or where they do not fit it", () => {
    for (const [schema, args] of [[null, { a: 1 }], [{}, { a: 1 }], [MAIL, { body: "x" }], [MAIL, [1]]] as const) {
      expect(editing(schema, args)).toMatchObject({ kind: "json", title: "Arguments" });
      expect(through(schema, args)).toEqual(args);
    }
  });

  test("come out as they went in, whatever they are", () => {
    const odd = fc.dictionary(fc.constantFrom(...Object.keys(FULL), "else", "__proto__"), fc.oneof(fc.jsonValue(), fc.constantFrom(...Object.values(FULL))));
    fc.assert(fc.property(odd, (args) => alike(through(MAIL, args), JSON.parse(JSON.stringify(args)))));
  });
});

test("a number that a browser cannot hold is known", () => {
  expect([9007199254740992, { a: [-1e20] }, 9007199254740991, 0.1, "9007199254740993", null].map(inexact)).toEqual([true, true, false, false, false, false]);
});

test("hidden characters in JSON are written out, and mean the same", () => {
  expect(escapedJson({ "a\u200b": "\u202e😀\n" })).toBe('{\n  "a\\u200b": "\\u202e😀\\n"\n}');
  expect([hides({ a: ["\u0001"] }), hides({ "\u202e": 1 }), hides(["plain\ntext", 1, null, true])]).toEqual([true, true, false]);
  fc.assert(fc.property(fc.jsonValue(), (value) => alike(JSON.parse(escapedJson(value)), JSON.parse(JSON.stringify(value)))));
});
