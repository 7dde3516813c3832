// The content of a message as text. It is text already, except for agents that take an object or a list. Pure.

export function asText(content: unknown): string {
  if (typeof content === "string") return content;
  if (content === null || content === undefined) return "";
  if (Array.isArray(content)) return content.map(part).filter((text) => text !== "").join("\n\n");
  return JSON.stringify(content, null, 2);
}

/** A part of a list: text parts as their text, everything else as it is. */
function part(value: unknown): string {
  if (typeof value === "string") return value;
  if (typeof value === "object" && value !== null && "text" in value && typeof value.text === "string") return value.text;
  return JSON.stringify(value, null, 2);
}
