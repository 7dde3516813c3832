import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { listed, preview, whole } from "../src/text/arguments";
import { describeHelper } from "../src/text/helper";

const NOW = Date.parse("2026-01-01T12:00:00Z");
const ago = (s: number): string => new Date(NOW - s * 1000).toISOString();

describe("the line of a helper", () => {
  test("says what it does, for how long, with how many tokens", () => {
    const line = describeHelper("1", { title: "compare", status: "running", current: "memory__search", since: ago(21), usage: { input: 1500, output: 400 } }, NOW);
    expect([line.glyph, line.title, line.what, ...line.numbers]).toEqual(["●", "compare", "memory__search", "0:21", "1.9k tokens"]);
  });
  test("reads what it does now from an object too, and at its end what came of it", () => {
    expect(describeHelper("1", { status: "running", current: { kind: "tool", name: "fetch" } }, NOW).what).toBe("fetch");
    const ended = describeHelper("1", { status: "done", current: "fetch", line: "4 quotes agree", since: ago(60) }, NOW);
    expect([ended.glyph, ended.word, ended.what, ...ended.numbers]).toEqual(["✓", "done", "4 quotes agree"]);
  });
  test("tells those below it, and how far its plan is", () => {
    const line = describeHelper("1", { plan: [{ status: "done" }, { status: "active" }], workflows: { a: {} }, subagents: {} }, NOW);
    expect([line.plan, line.below]).toEqual([{ done: 1, all: 2 }, [{ a: {} }]]);
  });
  test("leaves out what is not known, and names a status it does not know", () => {
    expect(describeHelper("1", {}, NOW)).toEqual({ title: "1", tone: "stop", glyph: "○", word: "", pulse: false, what: "", numbers: [], plan: null, below: [] });
    expect(describeHelper("1", { status: "warming_up" }, NOW).word).toBe("warming up");
    expect(describeHelper("1", { status: "constructor" }, NOW).glyph).toBe("○");
  });
  test("never fails, whatever a workflow holds", () => {
    const names = ["title", "status", "current", "line", "since", "started_at", "finished_at", "ms", "usage", "plan", "subagents", "workflows", "background"];
    fc.assert(fc.property(fc.dictionary(fc.constantFrom(...names), fc.jsonValue()), (helper) => void describeHelper("1", helper, NOW)));
    for (const odd of [null, 3, "x", [1]]) expect(describeHelper("1", odd, NOW).title).toBe("1");
  });
});

describe("arguments", () => {
  test.each<[unknown, string]>([
    [{ url: "https://example.org/a/very/long/address/Write-ahead_logging", max: 3 }, "url = …/Write-ahead_logging · max = 3"],
    ["{\"a\": [1, 2]}", "a = [1,2]"],
    ["{\"cut\": \"off", "{\"cut\": \"off"],
    ["page 2", "page 2"],
    [null, ""], [undefined, ""], [{}, ""],
    [{ text: "x".repeat(60) }, `text = ${"x".repeat(35)}…`],
    [{ text: "two\nlines" }, "text = two lines"],
  ])("%j as one line", (value, expected) => expect(preview(value)).toBe(expected));

  test("are listed in full and in their order", () => {
    const body = "long ".repeat(200);
    expect(listed({ b: body, a: 1, deep: { x: null } })).toEqual([
      { name: "b", text: body, block: false }, { name: "a", text: "1", block: false }, { name: "deep", text: "{\"x\":null}", block: false },
    ]);
    expect(listed([1])).toBeNull();
    expect(whole(Array.from({ length: 40 }, (_, i) => i)).block).toBe(true);
  });
});
