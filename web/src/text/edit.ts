// A form in which the arguments of a call are changed. Pure. Nothing may change that the person did not touch: what is
// given comes out as it went in, what is not given stays away (a default is a hint, not an entry), and whatever a field
// cannot carry, or would not show, is written as JSON.

import { carries, fieldOf, isSchema, labelOf, type Field, type Schema } from "./schema";
import { hides } from "./visible";

/** The form for these arguments. Without a schema, or where they do not fit it, all of them are one field of JSON. */
export function editing(schema: Schema | null, args: unknown): Field {
  return fitted({ ...fieldOf(schema ?? {}), title: "Arguments", required: true }, args);
}

function fitted(field: Field, value: unknown): Field {
  const bare = untouched(field);
  if (bare.kind === "group" && isSchema(value)) {
    const named = new Set(bare.fields.map(([name]) => name));
    const beside = Object.keys(value).filter((name) => !named.has(name));
    const part = (name: string, inner: Field): Field => (Object.hasOwn(value, name) ? fitted(inner, value[name]) : absent(inner));
    const fields = bare.fields.map(([name, inner]): [string, Field] => [name, part(name, inner)]);
    const whole: Field = { ...bare, fields: [...fields, ...beside.map((name): [string, Field] => [name, json({ title: name, about: "", required: false })])] };
    return carries(whole, value) ? whole : json(field);
  }
  return carries(bare, value) && !hides(value) ? bare : json(field);
}

/** Without defaults, and without what a field in one line would lose. */
function untouched(field: Field): Field {
  const told = !field.required && field.initial !== undefined && field.initial !== null && field.kind !== "group";
  const about = told ? [field.about, `if left out: ${labelOf(field.initial) || "empty"}`].filter(Boolean).join(" · ") : field.about;
  const bare = { ...field, about, initial: undefined };
  switch (bare.kind) {
    case "text": return { ...bare, long: true, empty: bare.required && bare.least === 0 };
    case "list": return { ...bare, item: untouched(bare.item) };
    case "group": return { ...bare, fields: bare.fields.map(([name, inner]) => [name, untouched(inner)]) };
    case "tuple": return { ...bare, items: bare.items.map(untouched) };
    case "variant": return { ...bare, variants: bare.variants.map(({ label, field }) => ({ label, field: untouched(field) })) };
    default: return bare;
  }
}

/** What is not given can stay so: a tick cannot say that. */
function absent(field: Field): Field {
  if (field.required) return field;
  if (field.kind === "yes") return { ...field, kind: "choice", options: [{ label: "yes", value: true }, { label: "no", value: false }] };
  if (field.kind === "group") return { ...field, fields: field.fields.map(([name, inner]) => [name, absent(inner)]) };
  return field;
}

function json({ title, about, required }: Pick<Field, "title" | "about" | "required">): Field {
  return { kind: "json", title, about, required, initial: undefined, schema: null };
}
