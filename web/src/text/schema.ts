// A JSON Schema as the fields of a form, and the form's entries as an answer. Pure.
//
// Read are objects, text, numbers, yes or no, choices (`enum`, `const`, `oneOf` of constants or of objects told apart by
// a constant), and lists of these, with references inside the schema. For what is beyond that the person writes JSON. The server alone decides whether an answer fits; this only helps to write one. Patterns are shown and
// never carried out: a bad one could hold up the page.

import { escapedJson } from "./visible";

export type Schema = Record<string, unknown>;

interface Common { title: string; about: string; required: boolean; initial: unknown }
export type Field = Common &
  (
    /** `empty`: with nothing in it, it is the empty text. */
    | { kind: "text"; long: boolean; pattern: string | null; least: number; most: number | null; empty?: boolean }
    | { kind: "number"; whole: boolean; least: number | null; most: number | null; above: number | null; below: number | null }
    | { kind: "yes" }
    | { kind: "choice"; options: Option[] }
    | { kind: "many"; options: Option[]; least: number; most: number | null }
    | { kind: "list"; item: Field; least: number; most: number | null }
    | { kind: "group"; fields: [string, Field][] }
    | { kind: "tuple"; items: Field[] }
    | { kind: "variant"; variants: { label: string; field: Field }[] }
    /** A constant: nothing to enter. */
    | { kind: "fixed"; value: unknown }
    /** `schema` null: there is none to show. */
    | { kind: "json"; schema: unknown }
  );

export interface Option { label: string; value: unknown }

/** What a person has entered so far, in the form's own terms: text, a tick, an option's place, or parts of these. */
export type Entry = string | boolean | boolean[] | Entry[] | { [name: string]: Entry };

/** Faults by the path of their field, such as `/labels/0`; the root is "". */
export type Faults = Map<string, string>;

const DEEPEST = 6;
/** A form of more fields than these is none; schemas may also be their own parts, without an end. */
const MOST_FIELDS = 200;

interface Whole { root: Schema; left: number }

export function fieldOf(schema: Schema): Field {
  const whole: Whole = { root: schema, left: MOST_FIELDS };
  const field = read(schema, "", true, whole, 0);
  return whole.left < 0 ? { kind: "json", title: text(schema["title"]), about: "", required: true, initial: schema["default"], schema } : field;
}

function read(given: unknown, name: string, required: boolean, whole: Whole, depth: number): Field {
  const schema = resolve(given, whole.root) ?? {};
  whole.left -= 1;
  const common: Common = {
    title: text(schema["title"]) || name, about: text(schema["description"]), required, initial: schema["default"],
  };
  return (depth <= DEEPEST && whole.left >= 0 && form(schema, name, common, whole, depth)) || { ...common, kind: "json", schema: given };
}

/** The field that a form has for it; null where only JSON will do. */
function form(schema: Schema, name: string, common: Common, whole: Whole, depth: number): Field | null {
  const { root } = whole;
  const { required } = common;
  if ("const" in schema && depth > 0 && required) return { ...common, kind: "fixed", value: schema["const"] };
  const options = optionsOf(schema, root);
  if (options) return { ...common, kind: "choice", options };
  const one = alternative(schema, root);
  if (one) {
    return { ...read({ ...one, ...pick(schema, ["title", "description", "default"]) }, name, false, whole, depth + 1), required: false };
  }
  const variants = variantsOf(schema, whole, depth);
  if (variants) return { ...common, kind: "variant", variants };
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
      const bounds = { least: number(schema["minItems"]) ?? 0, most: number(schema["maxItems"]) };
      const first = schema["prefixItems"];
      if (Array.isArray(first)) {
        if (bounds.most !== first.length && schema["items"] !== false) return null;
        return { ...common, kind: "tuple", items: first.map((part) => read(part, "", true, whole, depth + 1)) };
      }
      if (!("items" in schema)) return null;
      const item = read(schema["items"], "", true, whole, depth + 1);
      if (item.kind === "choice") return { ...common, kind: "many", options: item.options, ...bounds };
      return { ...common, kind: "list", item, ...bounds };
    }
    case "object": {
      const properties = schema["properties"];
      if (!isSchema(properties) || Object.keys(properties).length === 0) return null;
      const needed = Array.isArray(schema["required"]) ? schema["required"] : [];
      const fields: [string, Field][] = [];
      for (const [key, part] of Object.entries(properties)) {
        if (whole.left < 0) return null;
        fields.push([key, read(part, key, needed.includes(key), whole, depth + 1)]);
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
    if (reference !== "#" && !reference.startsWith("#/")) return null;
    let target: unknown = root;
    for (const part of reference.slice(2).split("/").filter(Boolean)) {
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

/** Objects of which one is meant, told apart by a constant that all of them have under one name. */
function variantsOf(schema: Schema, whole: Whole, depth: number): { label: string; field: Field }[] | null {
  const either = schema["oneOf"] ?? schema["anyOf"];
  if (!Array.isArray(either) || either.length === 0 || ("properties" in schema)) return null;
  const parts = either.map((part) => resolve(part, whole.root));
  const constants = (part: Schema | null): [string, unknown][] =>
    Object.entries(isSchema(part?.["properties"]) ? part["properties"] : {}).flatMap(([name, one]) => (isSchema(one) && "const" in one ? [[name, one["const"]]] : []));
  const shared = constants(parts[0] ?? null).find(([name]) => parts.every((part) => constants(part).some(([other]) => other === name)))?.[0];
  if (shared === undefined) return null;
  return parts.map((part) => ({
    label: text(part?.["title"]) || labelOf(constants(part).find(([name]) => name === shared)?.[1]),
    field: read({ ...part, title: "" }, "", true, whole, depth + 1),
  }));
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
export const isSchema = (value: unknown): value is Schema => typeof value === "object" && value !== null && !Array.isArray(value);
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
    case "tuple": return field.items.map((item, i) => blank(item, Array.isArray(value) ? value[i] : item.initial));
    case "variant": {
      const at = value === undefined ? -1 : field.variants.findIndex((variant) => carries(variant.field, value));
      return { pick: at >= 0 ? String(at) : field.required ? "0" : "", parts: field.variants.map((variant, i) => blank(variant.field, i === at ? value : undefined)) };
    }
    case "fixed": return "";
    case "json": return value === undefined ? "" : escapedJson(value);
    case "group":
      return Object.fromEntries(field.fields.map(([name, part]) => [name, blank(part, isSchema(value) && Object.hasOwn(value, name) ? value[name] : part.initial)]));
  }
}

/** The same JSON; the order of an object's members tells nothing. */
export function alike(a: unknown, b: unknown): boolean {
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return a === b;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const names = Object.keys(a);
  const of = (value: object, name: string): unknown => (value as Record<string, unknown>)[name];
  return names.length === Object.keys(b).length && names.every((name) => Object.hasOwn(b, name) && alike(of(a, name), of(b, name)));
}

/** Whether a value comes out of the field as it went in. */
export function carries(field: Field, value: unknown): boolean {
  const out = collect(field, blank(field, value));
  return out.faults.size === 0 && alike(out.value, value);
}

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
    if (!["group", "fixed", "tuple"].includes(field.kind)) return fault(field.kind === "choice" || field.kind === "variant" ? "Choose one." : "This is needed.");
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
    case "tuple": return field.items.map((item, i) => take(item, (entry as Entry[])[i] ?? "", `${path}/${i}`, faults));
    case "variant": {
      const at = Number(picked(entry));
      const variant = field.variants[at];
      return variant && take(variant.field, partsOf(entry)[at] ?? "", path, faults);
    }
    case "fixed": return field.value;
    case "json": {
      try {
        return JSON.parse(String(entry));
      } catch {
        return fault("This is no JSON. Text stands in double quotes.");
      }
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

export const picked = (entry: Entry): string => String((entry as { pick?: Entry }).pick ?? "");
export const partsOf = (entry: Entry): Entry[] => ((entry as { parts?: Entry }).parts as Entry[] | undefined) ?? [];
export const escaped = (name: string): string => name.replaceAll("~", "~0").replaceAll("/", "~1");
const atLeast = (n: number): string => `At least ${n}.`;

/** Nothing has been entered. A tick that is not set is an answer, except inside a group that is empty otherwise. */
function isEmpty(field: Field, entry: Entry): boolean {
  switch (field.kind) {
    case "yes": return entry === false;
    case "text": return !field.empty && String(entry).trim() === "";
    case "many": return !(entry as boolean[]).some(Boolean);
    case "list": return (entry as Entry[]).length === 0;
    case "tuple": return field.items.every((item, i) => isEmpty(item, (entry as Entry[])[i] ?? ""));
    case "variant": return picked(entry) === "";
    case "fixed": return true;
    case "group": return field.fields.every(([name, part]) => isEmpty(part, (entry as Record<string, Entry>)[name] ?? ""));
    default: return String(entry).trim() === "";
  }
}
