// A small highlighter: splits source into words, strings, numbers and comments by a few facts about each
// language. Pure, linear in the text, and it returns pieces, never HTML. What it does not know stays plain.

export type Kind = "plain" | "keyword" | "string" | "number" | "comment" | "name" | "added" | "removed";
export interface Token { kind: Kind; text: string }

interface Language { line?: string[]; block?: [string, string][]; quotes: string; triple?: boolean; words: Set<string>; nocase?: boolean }

const words = (text: string): Set<string> => new Set(text.split(" "));

const C_WORDS =
  "auto break case char class const constexpr continue default delete do double else enum explicit extern false final float for friend goto if inline int long namespace new noexcept nullptr operator override private protected public return short signed sizeof static static_cast struct switch template this throw true try typedef typename union unsigned using virtual void volatile while";
const JS_WORDS =
  "abstract any as async await boolean break case catch class const continue declare default delete do else enum export extends false finally for from function get if implements import in instanceof interface is keyof let namespace never new null number of private protected public readonly return satisfies set static string super switch this throw true try type typeof undefined unknown var void while yield";
const cLike = (keywords: string, extra: Partial<Language> = {}): Language => ({
  line: ["//"], block: [["/*", "*/"]], quotes: "\"'", words: words(keywords), ...extra,
});

const LANGUAGES = new Map<string, Language>(Object.entries({
  python: {
    line: ["#"], quotes: "\"'", triple: true,
    words: words("and as assert async await break case class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return self True try type while with yield"),
  },
  javascript: cLike(JS_WORDS, { quotes: "\"'`" }),
  json: { quotes: "\"", words: words("true false null") },
  shell: {
    line: ["#"], quotes: "\"'",
    words: words("case do done elif else esac exit export fi for function if in local return set then until while cd echo sudo"),
  },
  sql: {
    line: ["--"], block: [["/*", "*/"]], quotes: "'\"", nocase: true,
    words: words("add all alter and as asc begin between by cascade case check column commit constraint create cross default delete desc distinct drop else end exists explain foreign from full group having if in index inner insert into is join key left like limit not null offset on or order outer primary references returning right rollback select set table then transaction union unique update using values view when where with"),
  },
  c: cLike(C_WORDS),
  java: cLike("abstract assert boolean break byte case catch char class const continue default do double else enum extends final finally float for if implements import instanceof int interface long native new null package private protected public record return sealed short static super switch synchronized this throw throws true false try var void volatile while"),
  go: cLike("break case chan const continue default defer else fallthrough for func go goto if import interface map nil package range return select struct switch true false type var string int int64 error bool byte", { quotes: "\"'`" }),
  rust: cLike("as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while", { quotes: "\"" }),
  yaml: { line: ["#"], quotes: "\"'", words: words("true false null yes no on off") },
  css: { block: [["/*", "*/"]], quotes: "\"'", words: words("important media supports import from to root var calc") },
  html: { block: [["<!--", "-->"]], quotes: "\"'", words: words("") },
} satisfies Record<string, Language>));

const ALIASES = new Map(Object.entries({
  py: "python", python3: "python", pycon: "python", js: "javascript", jsx: "javascript", ts: "javascript", tsx: "javascript",
  typescript: "javascript", mjs: "javascript", svelte: "html", vue: "html", xml: "html", svg: "html", json5: "json", jsonc: "javascript",
  jsonl: "json", sh: "shell", bash: "shell", zsh: "shell", console: "shell", dockerfile: "shell", makefile: "shell", toml: "yaml", ini: "yaml",
  yml: "yaml", cpp: "c", "c++": "c", h: "c", hpp: "c", cs: "java", csharp: "java", kotlin: "java", swift: "java", golang: "go", rs: "rust",
  scss: "css", less: "css", postgresql: "sql", sqlite: "sql", mysql: "sql",
}));

/** Longer code stays plain: colour is not worth a pause. */
const LIMIT = 60_000;

export function highlight(code: string, language: string): Token[] {
  return from(0, code, language) ?? [{ kind: "plain", text: code }];
}

/** Code that grows: only its last lines are read again, and the pieces before them stay the same objects. */
export class CodeStream {
  #code = "";
  #language = "";
  #tokens: Token[] = [];

  update(code: string, language: string): Token[] {
    if (code === this.#code && language === this.#language) return this.#tokens;
    const grows = language === this.#language && code.length <= LIMIT && this.#tokens.length > 1 && code.startsWith(this.#code);
    this.#tokens = (grows && this.#append(code)) || highlight(code, language);
    this.#code = code;
    this.#language = language;
    return this.#tokens;
  }

  #append(code: string): Token[] | null {
    const settled = lineStart(this.#code);
    let keep = 0;
    let at = 0;
    for (; keep < this.#tokens.length; keep++) {
      const next = at + (this.#tokens[keep]?.text.length ?? 0);
      if (next > settled || next === this.#code.length) break;
      at = next;
    }
    const fresh = from(at, code, this.#language);
    const [last, first] = [this.#tokens[keep - 1], fresh?.[0]];
    if (!fresh) return null;
    if (last && first && last.kind === first.kind && !isDiff(this.#language)) {
      return [...this.#tokens.slice(0, keep - 1), { kind: last.kind, text: last.text + first.text }, ...fresh.slice(1)];
    }
    return [...this.#tokens.slice(0, keep), ...fresh];
  }
}

/** Where the last line starts, that of a string which goes on over a line's end included. */
function lineStart(code: string): number {
  let at = code.lastIndexOf("\n", code.length - 1);
  while (at > 0 && code[at - 1] === "\\") at = code.lastIndexOf("\n", at - 1);
  return at + 1;
}

const isDiff = (language: string): boolean => ["diff", "patch"].includes(language.toLowerCase());

/** The pieces of `code` from `start` on; null where it stays plain. */
function from(start: number, code: string, language: string): Token[] | null {
  const name = language.toLowerCase();
  if (code.length > LIMIT) return null;
  if (isDiff(name)) return diff(code.slice(start));
  const facts = LANGUAGES.get(ALIASES.get(name) ?? name);
  return facts ? scan(code, facts, start) : null;
}

function diff(code: string): Token[] {
  return code.split(/(?<=\n)/).map((text) => ({
    kind: text.startsWith("+") ? "added" : text.startsWith("-") ? "removed" : text.startsWith("@@") ? "comment" : "plain",
    text,
  }));
}

const WORD = /[A-Za-z_$][\w$]*/y;
const NUMBER = /(?:0[xX][\da-fA-F_]+|0[bB][01_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)[a-zA-Z]*/y;

function scan(code: string, facts: Language, start: number): Token[] {
  const tokens: Token[] = [];
  const put = (kind: Kind, text: string): void => {
    const last = tokens[tokens.length - 1];
    if (last && last.kind === kind) last.text += text;
    else tokens.push({ kind, text });
  };
  let i = start;
  while (i < code.length) {
    const end = comment(code, i, facts) ?? string(code, i, facts);
    if (end !== null) {
      put(end.kind, code.slice(i, end.at));
      i = end.at;
      continue;
    }
    const number = match(NUMBER, code, i);
    if (number) {
      put("number", number);
      i += number.length;
      continue;
    }
    const word = match(WORD, code, i);
    if (word) {
      const known = facts.words.has(facts.nocase ? word.toLowerCase() : word);
      put(known ? "keyword" : code[i + word.length] === "(" ? "name" : "plain", word);
      i += word.length;
      continue;
    }
    put("plain", code[i] ?? "");
    i += 1;
  }
  return tokens;
}

function match(pattern: RegExp, code: string, at: number): string | null {
  pattern.lastIndex = at;
  return pattern.exec(code)?.[0] ?? null;
}

function comment(code: string, i: number, facts: Language): { kind: Kind; at: number } | null {
  for (const mark of facts.line ?? []) {
    if (code.startsWith(mark, i) && (mark !== "#" || i === 0 || /\s/.test(code[i - 1] ?? ""))) {
      const at = code.indexOf("\n", i);
      return { kind: "comment", at: at < 0 ? code.length : at };
    }
  }
  for (const [open, close] of facts.block ?? []) {
    if (code.startsWith(open, i)) {
      const at = code.indexOf(close, i + open.length);
      return { kind: "comment", at: at < 0 ? code.length : at + close.length };
    }
  }
  return null;
}

function string(code: string, i: number, facts: Language): { kind: Kind; at: number } | null {
  const quote = code[i] ?? "";
  if (!facts.quotes.includes(quote)) return null;
  const triple = quote.repeat(3);
  if (facts.triple && code.startsWith(triple, i)) {
    const at = code.indexOf(triple, i + 3);
    return { kind: "string", at: at < 0 ? code.length : at + 3 };
  }
  for (let j = i + 1; j < code.length; j++) {
    const c = code[j];
    if (c === "\\") j += 1;
    else if (c === quote) return { kind: "string", at: j + 1 };
    else if (c === "\n" && quote !== "`") return { kind: "plain", at: i + 1 };
  }
  return { kind: quote === "`" ? "string" : "plain", at: quote === "`" ? code.length : i + 1 };
}
