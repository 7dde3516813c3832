// The arguments of a call as a person reads them: a line to glance at, and names with values to check. Pure; what comes
// out is text that still has to be drawn with its hidden characters made visible.

/** A long value in a line: of an address or a path the end tells most, of a text its begin. */
const SHORT = 36;

/** One line of a call's arguments: `url = …/page · max = 3`. A text that holds JSON is read first. */
export function preview(value: unknown): string {
  const read = typeof value === "string" ? parsed(value) : value;
  if (read === null || read === undefined) return "";
  if (typeof read !== "object" || Array.isArray(read)) return short(read);
  return Object.entries(read).map(([name, one]) => `${name} = ${short(one)}`).join(" · ");
}

/** A summary that is cut is no JSON any more; it stays as it is. */
function parsed(text: string): unknown {
  if (!/^\s*[{[]/.test(text)) return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function short(value: unknown): string {
  const text = (typeof value === "string" ? value : JSON.stringify(value) ?? "").replace(/\s+/g, " ");
  if (text.length <= SHORT) return text;
  const tail = /^\w+:\/\/|^[./~]|^[A-Za-z]:\\/.test(text) ? text.slice(text.lastIndexOf("/", text.length - 2)) : "";
  return tail && tail.length < SHORT ? `…${tail}` : `${text.slice(0, SHORT - 1)}…`;
}

/** Whether a number inside is so large that its last digits are lost when a browser reads it. */
export function inexact(value: unknown): boolean {
  if (typeof value === "number") return Math.abs(value) > Number.MAX_SAFE_INTEGER;
  return typeof value === "object" && value !== null && Object.values(value).some(inexact);
}

/** JSON up to this length stays on one line. */
const LINE = 72;

export interface Argument {
  name: string; text: string;
  /** Its text is JSON of several lines. */
  block: boolean;
}

/** All arguments in full, in their order, under their names; null where there is nothing to name. */
export function listed(value: unknown): Argument[] | null {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return null;
  return Object.entries(value).map(([name, one]) => ({ name, ...whole(one) }));
}

export function whole(value: unknown): { text: string; block: boolean } {
  if (typeof value === "string") return { text: value, block: false };
  const line = JSON.stringify(value) ?? "";
  return line.length <= LINE ? { text: line, block: false } : { text: JSON.stringify(value, null, 2), block: true };
}
