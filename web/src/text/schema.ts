// A JSON Schema as the fields of a form, and the form's entries as an answer. Pure.
//
// Read are objects, text, numbers, yes or no, choices (`enum`, `const`, `oneOf` of constants) and lists of these, with
// references inside the schema. What is beyond that makes the whole schema unreadable here (`null`): the person then
// writes JSON. The server alone decides whether an answer fits; this only helps to write one. Patterns are shown and
// never carried out: a bad one could hold up the page.

export type Schema = Record<string, unknown>;

interface Common { title: string; about: string; required: boolean; initial: unknown }
export type Field = Common &
  (
    | { kind: "text"; long: boolean; pattern: string | null; least: number; most: number | null }
    | { kind: "number"; whole: boolean; least: number | null; most: number | null; above: number | null; below: number | null }
    | { kind: "yes" }
    | { kind: "choice"; options: Option[] }
    | { kind: "many"; options: Option[]; least: number; most: number | null }
    | { kind: "list"; item: Field; least: number; most: number | null }
    | { kind: "group"; fields: [string, Field][] }
  );

export interface Option { label: string; value: unknown }

/** What a person has entered so far, in the form's own terms: text, a tick, an option's place, or parts of these. */
export type Entry = string | boolean | boolean[] | Entry[] | { [name: string]: Entry };

/** Faults by the path of their field, such as `/labels/0`; the root is "". */
export type Faults = Map<string, string>;

const DEEPEST = 6;

export function fieldOf(schema: Schema): Field | null {
  return read(schema, "", true, schema, 0);
}

function read(given: unknown, name: string, required: boolean, root: Schema, depth: number): Field | null {
  const schema = resolve(given, root);
  if (schema === null || depth > DEEPEST) return null;
  const common: Common = {
    title: text(schema["title"]) || name, about: text(schema["description"]), required, initial: schema["default"],
  };
  const options = optionsOf(schema, root);
  if (options) return { ...common, kind: "choice", options };
  const one = alternative(schema, root);
  if (one) {
    const field = read({ ...one, ...pick(schema, ["title", "description", "default"]) }, name, false, root, depth + 1);
    return field && { ...field, required: false };
  }
  if (["anyOf", "oneOf", "allOf", "not", "if"].some((word) => word in schema)) return null;
  switch (typeOf(schema)) {
    case "string":
      return {
        ...common, kind: "text", long: number(schema["maxLength"]) === null || (number(schema["maxLength"]) ?? 0) > 200,
        pattern: text(schema["pattern"]) || null, least: number(schema["minLength"]) ?? 0, most: number(schema["maxLength"]),
      };
    case "number":
    case "integer":
      return {
        ...common, kind: "number", whole: typeOf(schema) === "integer", least: number(schema["minimum"]), most: number(schema["maximum"]),
        above: number(schema["exclusiveMinimum"]), below: number(schema["exclusiveMaximum"]),
      };
    case "boolean":
      return { ...common, kind: "yes" };
    case "array": {
      if (!("items" in schema) || "prefixItems" in schema) return null;
      const bounds = { least: number(schema["minItems"]) ?? 0, most: number(schema["maxItems"]) };
      const item = read(schema["items"], "", true, root, depth + 1);
      if (item === null) return null;
      if (item.kind === "choice") return { ...common, kind: "many", options: item.options, ...bounds };
      return { ...common, kind: "list", item, ...bounds };
    }
    case "object": {
      const properties = schema["properties"];
      if (!isSchema(properties) || Object.keys(properties).length === 0) return null;
      const needed = Array.isArray(schema["required"]) ? schema["required"] : [];
      const fields: [string, Field][] = [];
      for (const [key, part] of Object.entries(properties)) {
        const field = read(part, key, needed.includes(key), root, depth + 1);
        if (field === null) return null;
        fields.push([key, field]);
      }
      return { ...common, kind: "group", fields };
    }
    default:
      return null;
  }
}

/** Follows references inside the schema; null where one leads nowhere, or it is no schema at all. */
function resolve(given: unknown, root: Schema): Schema | null {
  let at = given;
  for (let hops = 0; hops < 8; hops++) {
    if (!isSchema(at)) return null;
    const reference = at["$ref"];
    if (typeof reference !== "string") return at;
    if (!reference.startsWith("#/")) return null;
    let target: unknown = root;
    for (const part of reference.slice(2).split("/")) {
      const key = part.replaceAll("~1", "/").replaceAll("~0", "~");
      target = isSchema(target) && Object.hasOwn(target, key) ? target[key] : null;
    }
    const { $ref: _, ...beside } = at;
    at = isSchema(target) ? { ...target, ...beside } : null;
  }
  return null;
}

function optionsOf(schema: Schema, root: Schema): Option[] | null {
  if (Array.isArray(schema["enum"])) return schema["enum"].map((value) => ({ label: labelOf(value), value }));
  if ("const" in schema) return [{ label: text(schema["title"]) || labelOf(schema["const"]), value: schema["const"] }];
  const either = schema["oneOf"] ?? schema["anyOf"];
  if (!Array.isArray(either) || either.length === 0) return null;
  const parts = either.map((part) => resolve(part, root));
  if (!parts.every((part) => part !== null && "const" in part)) return null;
  return parts.map((part) => ({ label: text(part?.["title"]) || labelOf(part?.["const"]), value: part?.["const"] }));
}

/** Of "this or nothing" the this. */
function alternative(schema: Schema, root: Schema): Schema | null {
  const type = schema["type"];
  if (Array.isArray(type)) {
    const some = type.filter((one) => one !== "null");
    return some.length === 1 && some.length < type.length ? { ...schema, type: some[0] } : null;
  }
  const either = schema["anyOf"] ?? schema["oneOf"];
  if (!Array.isArray(either)) return null;
  const some = either.map((part) => resolve(part, root)).filter((part) => part?.["type"] !== "null");
  return some.length === 1 && either.length === 2 ? (some[0] ?? null) : null;
}

const typeOf = (schema: Schema): string => text(schema["type"]) || ("properties" in schema ? "object" : "items" in schema ? "array" : "");
const isSchema = (value: unknown): value is Schema => typeof value === "object" && value !== null && !Array.isArray(value);
const text = (value: unknown): string => (typeof value === "string" ? value : "");
const number = (value: unknown): number | null => (typeof value === "number" && Number.isFinite(value) ? value : null);
export const labelOf = (value: unknown): string => (typeof value === "string" ? value : (JSON.stringify(value) ?? ""));
const pick = (schema: Schema, names: string[]): Schema => Object.fromEntries(names.filter((n) => n in schema).map((n) => [n, schema[n]]));

/** What a field shows before anybody has entered something: its default, else nothing. */
export function blank(field: Field, value: unknown = field.initial): Entry {
  switch (field.kind) {
    case "text": return typeof value === "string" ? value : "";
    case "number": return typeof value === "number" ? String(value) : "";
    case "yes": return value === true;
    case "choice": {
      const at = field.options.findIndex((option) => alike(option.value, value));
      return at >= 0 ? String(at) : field.required && field.options.length === 1 ? "0" : "";
    }
    case "many": return field.options.map((option) => Array.isArray(value) && value.some((one) => alike(one, option.value)));
    case "list": {
      const values: unknown[] = Array.isArray(value) ? value : Array.from({ length: field.least }, () => field.item.initial);
      return values.map((one) => blank(field.item, one));
    }
    case "group":
      return Object.fromEntries(field.fields.map(([name, part]) => [name, blank(part, isSchema(value) && Object.hasOwn(value, name) ? value[name] : part.initial)]));
  }
}

const alike = (a: unknown, b: unknown): boolean => a === b || (b !== undefined && JSON.stringify(a) === JSON.stringify(b));

/** The answer that the entries make, and what is wrong with them. A field left empty that may be is left out. */
export function collect(field: Field, entry: Entry): { value: unknown; faults: Faults } {
  const faults: Faults = new Map();
  return { value: take(field, entry, "", faults), faults };
}

function take(field: Field, entry: Entry, path: string, faults: Faults): unknown {
  const fault = (message: string): undefined => void faults.set(path, message);
  if (field.kind !== "yes" && isEmpty(field, entry)) {
    if (field.kind === "list" || field.kind === "many") {
      if (field.least > 0) return fault(atLeast(field.least));
      return field.required ? [] : undefined;
    }
    if (!field.required) return undefined;
    if (field.kind !== "group") return fault(field.kind === "choice" ? "Choose one." : "This is needed.");
  }
  switch (field.kind) {
    case "text": {
      const said = entry as string;
      if ([...said].length < field.least) return fault(`At least ${field.least} characters.`);
      if (field.most !== null && [...said].length > field.most) return fault(`At most ${field.most} characters.`);
      return said;
    }
    case "number": {
      const value = Number(String(entry).trim());
      if (!Number.isFinite(value)) return fault("A number is needed.");
      if (field.whole && !Number.isInteger(value)) return fault("A whole number is needed.");
      if (field.least !== null && value < field.least) return fault(`At least ${field.least}.`);
      if (field.most !== null && value > field.most) return fault(`At most ${field.most}.`);
      if (field.above !== null && value <= field.above) return fault(`More than ${field.above}.`);
      if (field.below !== null && value >= field.below) return fault(`Less than ${field.below}.`);
      return value;
    }
    case "yes": return entry === true;
    case "choice": return field.options[Number(entry)]?.value;
    case "many": {
      const chosen = field.options.filter((_, i) => (entry as boolean[])[i]).map((option) => option.value);
      if (chosen.length < field.least) return fault(atLeast(field.least));
      if (field.most !== null && chosen.length > field.most) return fault(`At most ${field.most}.`);
      return chosen;
    }
    case "list": {
      const entries = entry as Entry[];
      if (entries.length < field.least) return fault(atLeast(field.least));
      if (field.most !== null && entries.length > field.most) return fault(`At most ${field.most}.`);
      return entries.map((one, i) => take(field.item, one, `${path}/${i}`, faults));
    }
    case "group": {
      const answer: Record<string, unknown> = {};
      for (const [name, part] of field.fields) {
        const value = take(part, (entry as Record<string, Entry>)[name] ?? "", `${path}/${escaped(name)}`, faults);
        if (value !== undefined) Object.defineProperty(answer, name, { value, enumerable: true, configurable: true, writable: true });
      }
      return answer;
    }
  }
}

export const escaped = (name: string): string => name.replaceAll("~", "~0").replaceAll("/", "~1");
const atLeast = (n: number): string => `At least ${n}.`;

/** Nothing has been entered. A tick that is not set is an answer, except inside a group that is empty otherwise. */
function isEmpty(field: Field, entry: Entry): boolean {
  switch (field.kind) {
    case "yes": return entry === false;
    case "many": return !(entry as boolean[]).some(Boolean);
    case "list": return (entry as Entry[]).length === 0;
    case "group": return field.fields.every(([name, part]) => isEmpty(part, (entry as Record<string, Entry>)[name] ?? ""));
    default: return String(entry).trim() === "";
  }
}
