// Makes characters visible that could make text look like something it is not: control characters and the
// ones that turn reading direction. Pure.

export interface Piece { text: string; hidden: boolean }

// C0 and C1 controls except tab and line feed; soft hyphen, zero-width and direction marks, embeddings, overrides,
// isolates, invisible operators, variation and tag characters, the byte order mark, line and paragraph separators.
const HIDDEN =
  // eslint-disable-next-line no-control-regex
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]|\udb40[\udc00-\udfff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** The text in pieces; a hidden character becomes its code point, such as `U+202E`. */
export function visible(text: string): Piece[] {
  const pieces: Piece[] = [];
  let from = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (match.index > from) pieces.push({ text: text.slice(from, match.index), hidden: false });
    const code = match[0].codePointAt(0) ?? 0;
    pieces.push({ text: `U+${code.toString(16).toUpperCase().padStart(4, "0")}`, hidden: true });
    from = match.index + match[0].length;
  }
  if (from < text.length) pieces.push({ text: text.slice(from), hidden: false });
  return pieces;
}

/** JSON with its hidden characters written as JSON writes them, such as `\u202e`: it can be edited, and means the same. */
export function escapedJson(value: unknown): string {
  const units = (text: string): string => text.split("").map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`).join("");
  return (JSON.stringify(value, null, 2) ?? "").replace(HIDDEN, units);
}

/** Whether a text, a name or any text inside a value has hidden characters. */
export function hides(value: unknown): boolean {
  if (typeof value === "string") return visible(value).some((piece) => piece.hidden);
  return typeof value === "object" && value !== null && Object.entries(value).some(([name, one]) => hides(name) || hides(one));
}

/** The same as one string, for places that hold only a string, such as an accessible name. */
export function visibleText(text: string): string {
  return visible(text).map((piece) => (piece.hidden ? `⟨${piece.text}⟩` : piece.text)).join("");
}
