// Markdown of a model as blocks and pieces the page draws itself. No HTML is ever made of it: markup in the text
// stays text, images become links, and a link keeps its address only when it is http, https or mailto. Pure.
//
// A long answer arrives in many small pieces. `MarkdownStream` reads only the last blocks again, so a frame costs
// what its end costs, not what the whole answer costs.

import { Lexer, type Token, type Tokens } from "marked";

export type { Token, Tokens };

export interface Block { key: number; token: Token }

const OPTIONS = { gfm: true, breaks: false };

function lex(source: string): Token[] {
  return new Lexer(OPTIONS).lex(source);
}

/** A line that may define a reference, which can change blocks before it. */
const DEFINITION = /^ {0,3}\[[^\]]+\]:/m;

export class MarkdownStream {
  #source = "";
  #blocks: Block[] = [];
  #next = 0;
  #lexed = "";

  /** The blocks of `source`. Blocks that did not change are the same objects as before. */
  update(source: string): Block[] {
    const text = source.replace(/\r\n?/g, "\n");
    if (text === this.#source && this.#lexed === text) return this.#blocks;
    const grows = text.startsWith(this.#source) && this.#source !== "" && !DEFINITION.test(text);
    if (grows) this.#append(text);
    else this.#whole(text);
    this.#source = text;
    return this.#blocks;
  }

  #whole(text: string): void {
    this.#blocks = lex(text).map((token) => ({ key: this.#next++, token }));
    this.#lexed = text;
  }

  #append(text: string): void {
    // A block can still change while text is added after it; the one before it can only be joined with it.
    let keep = this.#blocks.length;
    for (let solid = 0; keep > 0 && solid < 2; keep--) if (this.#blocks[keep - 1]?.token.type !== "space") solid += 1;
    while (keep > 0 && this.#blocks[keep - 1]?.token.type === "space") keep -= 1;
    const kept = this.#blocks.slice(0, keep);
    const start = kept.reduce((sum, block) => sum + block.token.raw.length, 0);
    if (kept.map((block) => block.token.raw).join("") !== text.slice(0, start)) return this.#whole(text);
    const dropped = this.#blocks.slice(keep);
    const fresh = lex(text.slice(start)).map((token, i) => {
      const old = dropped[i];
      if (old && old.token.type === token.type) return old.token.raw === token.raw ? old : { key: old.key, token: shared(old.token, token) };
      return { key: this.#next++, token };
    });
    this.#blocks = [...kept, ...fresh];
    this.#lexed = text;
  }
}

/** The new token with every part of the old one that did not change: of a list that grows, all items but the last. */
function shared<T extends object>(old: Part | undefined, token: T): T {
  const fresh: Part = token;
  if (!old || old.type !== fresh.type || old.loose !== fresh.loose || String(old.align) !== String(fresh.align)) return token;
  if (old.raw === fresh.raw && old.text === fresh.text) return old as T;
  for (const name of ["tokens", "items", "header"] as const) {
    const [before, after] = [old[name], fresh[name]];
    if (Array.isArray(before) && Array.isArray(after)) fresh[name] = after.map((part, i) => shared(before[i], part));
  }
  const rows = old.rows;
  if (rows && fresh.rows) fresh.rows = fresh.rows.map((row, i) => row.map((cell, j) => shared(rows[i]?.[j], cell)));
  return token;
}

/** What the lexer's tokens and the cells of its tables have, as far as it is compared here. */
interface Part {
  type?: unknown; raw?: unknown; text?: unknown; loose?: unknown; align?: unknown;
  tokens?: Part[] | undefined; items?: Part[] | undefined; header?: Part[] | boolean | undefined; rows?: Part[][] | undefined;
}

/** The address a link may keep, or null. Written addresses with control characters or other schemes are not links. */
export function safeHref(href: string): string | null {
  const text = href.trim();
  // eslint-disable-next-line no-control-regex
  if (/[\u0000-\u001f\u007f\u200e\u200f\u202a-\u202e\u2066-\u2069]/.test(text)) return null;
  return /^(https?:\/\/|mailto:)/i.test(text) ? text : null;
}

/** Entities in text that the lexer leaves as written, such as `&amp;`. */
export function plain(text: string): string {
  if (!text.includes("&")) return text;
  return text.replace(/&(#\d{1,7}|#[xX][\da-fA-F]{1,6}|\w{2,8});/g, (whole, name: string) => {
    const code = name.startsWith("#") ? Number(/[xX]/.test(name[1] ?? "") ? `0x${name.slice(2)}` : name.slice(1)) : NaN;
    if (!Number.isNaN(code)) return code > 0 && code <= 0x10ffff && (code < 0xd800 || code > 0xdfff) ? String.fromCodePoint(code) : "\ufffd";
    return ENTITIES[name] ?? whole;
  });
}

const ENTITIES: Record<string, string> = {
  amp: "&", lt: "<", gt: ">", quot: "\"", apos: "'", nbsp: "\u00a0", copy: "©", hellip: "…", mdash: "—", ndash: "–", rarr: "→", larr: "←",
  times: "×", deg: "°", plusmn: "±", euro: "€", middot: "·", bull: "•", laquo: "«", raquo: "»", le: "≤", ge: "≥", ne: "≠",
};
