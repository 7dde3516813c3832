import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { CodeStream, highlight } from "../src/text/highlight";
import { MarkdownStream, plain, safeHref, type Token } from "../src/text/markdown";
import { visible, visibleText } from "../src/text/visible";
import { money, span, tokens } from "../src/text/format";

describe("markdown", () => {
  const shape = (source: string, pieces: string[]): Token[] => {
    const stream = new MarkdownStream();
    for (const piece of pieces) stream.update(piece);
    return stream.update(source).map((block) => block.token);
  };

  test("in pieces gives what the whole gives", () => {
    const line = fc.constantFrom(
      "# Title", "plain *text* and `code`", "- one", "- two", "  more of it", "1. first", "> quoted", "```py", "x = 1", "```", "", "", "| a | b |",
      "|---|---|", "| 1 | 2 |", "---", "<b>html</b>", "[link](https://a.b)", "![i](https://a.b/c.png)", "    indented", "===", "<!--", "-->", "<pre>", "</pre>", "<div>", "[x]: https://c.d", "use [x]", "~~~", "* * *", "😀 é",
    );
    fc.assert(
      fc.property(fc.array(line, { maxLength: 24 }), fc.array(fc.nat(300), { maxLength: 12 }), (lines, cuts) => {
        const source = lines.join("\n");
        const pieces = cuts.filter((c) => c < source.length).toSorted((a, b) => a - b).map((c) => source.slice(0, c));
        expect(shape(source, pieces)).toEqual(shape(source, []));
      }),
      { numRuns: 600 },
    );
  });

  test("keeps the items of a list that grows, and the rows of a table, the same objects", () => {
    const stream = new MarkdownStream();
    const first = (tokens: Token): unknown => "items" in tokens ? (tokens.items as unknown[])[0] : "rows" in tokens ? (tokens.rows as unknown[][])[0]?.[0] : null;
    for (const [before, after] of [["- one\n- tw", "- one\n- two\n- three"], ["| a |\n|---|\n| 1 |\n| 2", "| a |\n|---|\n| 1 |\n| 2 |\n| 3 |"]] as const) {
      const old = stream.update(before).at(-1);
      const now = stream.update(after).at(-1);
      expect(old && first(old.token)).toBeTruthy();
      expect(now && first(now.token)).toBe(old && first(old.token));
    }
  });

  test("keeps finished blocks the same objects while text is added", () => {
    const stream = new MarkdownStream();
    const first = stream.update("one\n\ntwo\n\nthree\n\nfour")[0];
    expect(stream.update("one\n\ntwo\n\nthree\n\nfour five")[0]).toBe(first);
  });

  test.each(["javascript:alert(1)", "JaVaScRiPt:alert(1)", "java\nscript:alert(1)", "data:text/html,x", "vbscript:x", "/v1/me", "//evil.example", "https://a.b/\u202egpj", ""])(
    "makes no link of %j", (href) => expect(safeHref(href)).toBeNull(),
  );

  test.each(["https://a.b/c?d=e#f", "http://localhost:1", "mailto:a@b.c", "HTTPS://A.B"])("keeps %s", (href) => expect(safeHref(href)).toBe(href));

  test("reads entities as text", () => {
    expect(plain("a &amp; b &lt;i&gt; &#39; &#x202e; &nope; &#xd800;")).toBe("a & b <i> ' \u202e &nope; \ufffd");
  });
});

describe("hidden characters", () => {
  test.each([["\u202e", "U+202E"], ["\u200b", "U+200B"], ["\u0000", "U+0000"], ["\u001b", "U+001B"], ["\r", "U+000D"], ["\u2066", "U+2066"], ["\ufeff", "U+FEFF"], ["\ud800", "U+D800"], ["\u{e0041}", "U+E0041"]])(
    "%j is shown as %s", (char, name) => expect(visible(`a${char}b`)).toEqual([{ text: "a", hidden: false }, { text: name, hidden: true }, { text: "b", hidden: false }]),
  );

  test("ordinary text of any script, tabs and line feeds stay", () => {
    for (const text of ["a\tb\nc", "日本語", "עברית", "😀", "é"]) expect(visible(text)).toEqual([{ text, hidden: false }]);
  });

  test("nothing is lost: the pieces name every character", () => {
    fc.assert(fc.property(fc.string({ unit: "binary" }), (text) => {
      const back = visible(text).map((p) => (p.hidden ? String.fromCodePoint(parseInt(p.text.slice(2), 16)) : p.text)).join("");
      expect(back).toBe(text);
    }));
  });

  test("no turned direction is left in the text", () => {
    fc.assert(fc.property(fc.string({ unit: fc.constantFrom("a", "\u202e", "\u2067", "\u200f", " ") }), (text) => {
      expect(visibleText(text)).not.toMatch(/[\u200e\u200f\u202a-\u202e\u2066-\u2069]/);
    }));
  });
});

describe("the highlighter", () => {
  test("colours words, strings, numbers and comments", () => {
    expect(highlight("def f(x): # hi\n  return \"a\" + 1", "py").filter((t) => t.kind !== "plain")).toEqual([
      { kind: "keyword", text: "def" }, { kind: "name", text: "f" }, { kind: "comment", text: "# hi" }, { kind: "keyword", text: "return" },
      { kind: "string", text: "\"a\"" }, { kind: "number", text: "1" },
    ]);
  });

  test("leaves an unknown language plain", () => {
    expect(highlight("if x", "brainfuck")).toEqual([{ kind: "plain", text: "if x" }]);
  });

  test("in pieces gives what the whole gives", () => {
    const language = fc.constantFrom("python", "js", "json", "sh", "sql", "c", "go", "rust", "css", "html", "diff", "none");
    const piece = fc.constantFrom("a", "if ", "\"", "'", "`", "\\", "\n", "\\\n", "# ", "/*", "*/", "//", "1", ".", "<!--", "-->", "\"\"\"", "+", "- ");
    fc.assert(fc.property(fc.array(piece, { maxLength: 40 }), language, (pieces, name) => {
      const stream = new CodeStream();
      for (let i = 0; i <= pieces.length; i++) {
        const code = pieces.slice(0, i).join("");
        expect(stream.update(code, name)).toEqual(highlight(code, name));
      }
    }), { numRuns: 500 });
  });

  test("keeps the pieces of finished lines the same objects", () => {
    const stream = new CodeStream();
    const before = stream.update("def f():\n  return 1\n", "py")[0];
    expect(stream.update("def f():\n  return 1\n\nprint(", "py")[0]).toBe(before);
  });

  test("loses no character of any text in any language", () => {
    const language = fc.constantFrom("python", "js", "json", "sh", "sql", "c", "go", "rust", "yaml", "css", "html", "diff", "constructor", "");
    const code = fc.string({ unit: fc.constantFrom("a", "\"", "'", "`", "\\", "\n", "#", "/", "*", "-", "1", ".", " ", "<", "!", "😀") });
    fc.assert(fc.property(code, language, (text, name) => {
      expect(highlight(text, name).map((t) => t.text).join("")).toBe(text);
    }), { numRuns: 500 });
  });
});

describe("numbers", () => {
  test("spans", () => expect([0, 8_000, 102_000, 3_725_000, 2 * 86_400_000, -5].map(span)).toEqual(["0:00", "0:08", "1:42", "1:02:05", "2 d", "0:00"]));
  test("an unknown price shows nothing, and zero is zero", () => {
    expect(money({ currency: "USD", amount: null })).toBeNull();
    expect(money(null)).toBeNull();
    expect(money({ currency: "USD", amount: "0" })).toBe("$0.00");
    expect(money({ currency: "USD", amount: "0.0312" })).toBe("$0.031");
    expect(money({ currency: "EUR", amount: "2" })).toBe("EUR 2.00");
  });
  test("tokens", () => expect([1, 812, 18_200].map(tokens)).toEqual(["1 token", "812 tokens", "18.2k tokens"]));
});
