import fc from "fast-check";
import { describe, expect, test } from "vitest";
import * as live from "../src/live/document";
import { applyPatch, PatchError } from "../src/live/patch";
import type { PatchOp, RunDocument } from "../src/wire/types";

const document = (extra: Partial<RunDocument> = {}): RunDocument => ({
  run_id: "r", conversation_id: "c", status: "running", reason: "claimed", error: null, run_version: 3, created_at: "2026-01-01T00:00:00Z",
  started_at: null, finished_at: null, attempt: 1, crashes: 0, wait: null, stop: null, requests: [], followups: [], text: null, plan: [], ...extra,
});
const start = (extra: Partial<RunDocument> = {}): live.LiveRun => ({ version: 10, document: document(extra) });
const done = (outcome: live.Outcome): live.LiveRun => {
  if (outcome === "same" || outcome === "stale") throw new Error(`expected a value, got ${outcome}`);
  return outcome;
};

describe("streamed text", () => {
  const chunk = (offset: number, text: string, message_id = "m"): live.TextFrame => ({ run_id: "r", message_id, offset, text });

  test("counts offsets in UTF-16 code units", () => {
    let run = done(live.text(start(), chunk(0, "a😀")));
    expect(run.document.text?.length).toBe(3);
    run = done(live.text(run, chunk(3, "é")));
    expect(run.document.text).toEqual({ message_id: "m", length: 4, content: "a😀é" });
    expect(live.text(run, chunk(3, "é"))).toBe("same");
  });

  test("asks for the document when a piece is missing", () => {
    const run = (): live.LiveRun => done(live.text(start(), chunk(0, "abc")));
    expect(live.text(run(), chunk(5, "x"))).toBe("stale");
    expect(live.text(run(), chunk(4, "x", "other"))).toBe("stale");
  });

  test("starts anew with a new message", () => {
    const run = done(live.text(start(), chunk(0, "abc")));
    expect(done(live.text(run, chunk(0, "x", "n"))).document.text).toEqual({ message_id: "n", length: 1, content: "x" });
  });

  test("gives the whole text from overlapping and repeated pieces in order", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme", minLength: 1, maxLength: 60 }), fc.array(fc.tuple(fc.nat(8), fc.nat(8))), (whole, steps) => {
        let run = start();
        let end = 0;
        for (const [back, on] of [...steps, [0, whole.length] as const]) {
          const from = Math.max(0, end - back);
          const to = Math.min(whole.length, Math.max(end, from + on));
          const outcome = live.text(run, chunk(from, whole.slice(from, to)));
          expect(outcome).not.toBe("stale");
          if (outcome !== "same" && outcome !== "stale") run = outcome;
          end = run.document.text?.content.length ?? 0;
        }
        expect(run.document.text?.content).toBe(whole);
      }),
    );
  });
});

describe("the server part", () => {
  test("is ignored when it is older", () => {
    expect(live.server(start(), { run_id: "r", run_version: 2, status: "queued" })).toBe("same");
  });

  test("replaces what it names and leaves the content part", () => {
    const run = done(live.server(start({ plan: [{ id: "1", title: "a", status: "done" }] }), { run_id: "r", run_version: 4, status: "cancelling" }));
    expect(run.document.status).toBe("cancelling");
    expect(run.document.plan).toHaveLength(1);
    expect(run.version).toBe(10);
  });
});

describe("patches", () => {
  const frame = (base: number, version: number, patch: PatchOp[]): live.PatchFrame => ({ run_id: "r", base_version: base, version, patch });

  test("apply at their base version only", () => {
    const op: PatchOp[] = [{ op: "replace", path: "/plan", value: [{ id: "1", title: "a", status: "active" }] }];
    const run = done(live.patch(start(), frame(10, 11, op)));
    expect(run.version).toBe(11);
    expect(run.document.plan?.[0]?.title).toBe("a");
    expect(live.patch(run, frame(10, 11, op))).toBe("same");
    expect(live.patch(run, frame(12, 13, op))).toBe("stale");
  });

  test("that do not fit ask for the document", () => {
    expect(live.patch(start(), frame(10, 11, [{ op: "remove", path: "/nothing" }]))).toBe("stale");
  });

  test("a snapshot keeps a newer server part and a longer text that are here already", () => {
    const here = { version: 12, document: document({ run_version: 5, status: "completed", text: { message_id: "m", length: 4, content: "abcd" } }) };
    const run = live.snapshot(here, { version: 11, run_version: 4, document: document({ run_version: 4, text: { message_id: "m", length: 2, content: "ab" } }) });
    expect(run.document.status).toBe("completed");
    expect(run.document.text?.content).toBe("abcd");
    expect(run.version).toBe(12);
  });
});

describe("a gap", () => {
  const line = (base: number, version: number): live.PatchFrame =>
    ({ run_id: "r", base_version: base, version, patch: [{ op: "add", path: "/line", value: String(version) }] });
  const said = (offset: number, text: string, message_id = "m"): live.TextFrame => ({ run_id: "r", message_id, offset, text });
  const fetched = (version: number, text: RunDocument["text"] = null) => ({ version, run_version: 3, document: document({ line: String(version), text }) });

  test("asks once, and what arrives meanwhile is put in behind the document", () => {
    const run = start();
    expect(live.patch(run, line(11, 12))).toBe("stale");
    expect(live.patch(run, line(12, 13))).toBe("same");
    expect(live.text(run, said(0, "words"))).toBe("same");
    const healed = live.snapshot(run, fetched(12));
    expect(healed.version).toBe(13);
    expect(healed.document.line).toBe("13");
    expect(healed.document.text).toEqual({ message_id: "m", length: 5, content: "words" });
    expect(live.waits(healed)).toBe(false);
    expect(done(live.patch(healed, line(13, 14))).version).toBe(14);
  });

  test("within what was kept asks once more", () => {
    const run = start();
    live.patch(run, line(11, 12));
    live.patch(run, line(14, 15));
    const healed = live.snapshot(run, fetched(12));
    expect(live.waits(healed)).toBe(true);
    const whole = live.snapshot(healed, fetched(14));
    expect(whole.version).toBe(15);
    expect(live.waits(whole)).toBe(false);
  });

  test("is not asked for again at once where the answer was older than what is here", () => {
    const run = start();
    live.patch(run, line(11, 12));
    const old = live.snapshot(run, fetched(9));
    expect(live.waits(old)).toBe(false);
    expect(old.version).toBe(10);
    expect(live.patch(old, line(12, 13))).toBe("stale");
    expect(live.patch(old, line(13, 14))).toBe("same");
    expect(live.snapshot(old, fetched(12)).version).toBe(14);
  });

  test("keeps no text of messages that the document left behind", () => {
    const run = start({ text: { message_id: "m", length: 1, content: "x" } });
    expect(live.text(run, said(3, "lost"))).toBe("stale");
    live.text(run, said(0, "an", "n"));
    live.text(run, said(2, "swer", "n"));
    const healed = live.snapshot(run, fetched(10, { message_id: "n", length: 2, content: "an" }));
    expect(healed.document.text).toEqual({ message_id: "n", length: 6, content: "answer" });
  });

  test("that is never healed is asked for again, and does not grow for ever", () => {
    const run = start();
    let asked = 0;
    for (let version = 11; version < 3000; version++) if (live.patch(run, line(version, version + 1)) === "stale") asked++;
    expect(asked).toBeGreaterThan(1);
    expect(asked).toBeLessThan(10);
    expect(run.kept!.length).toBeLessThanOrEqual(513);
    expect(live.snapshot(run, fetched(3000)).version).toBe(3000);
  });

  test("survives a change of the server part", () => {
    const run = start();
    live.patch(run, line(11, 12));
    const changed = done(live.server(run, { run_id: "r", run_version: 4, status: "cancelling" }));
    expect(live.snapshot(changed, fetched(11)).version).toBe(12);
  });
});

describe("RFC 6902", () => {
  const tree = { a: { b: [1, 2, 3] }, "x/y": 1, "m~n": 2 };

  test("adds, replaces and removes in objects and arrays", () => {
    expect(applyPatch(tree, [{ op: "add", path: "/a/b/1", value: 9 }])).toMatchObject({ a: { b: [1, 9, 2, 3] } });
    expect(applyPatch(tree, [{ op: "add", path: "/a/b/-", value: 9 }])).toMatchObject({ a: { b: [1, 2, 3, 9] } });
    expect(applyPatch(tree, [{ op: "replace", path: "/a/b/0", value: 9 }])).toMatchObject({ a: { b: [9, 2, 3] } });
    expect(applyPatch(tree, [{ op: "remove", path: "/a/b/0" }])).toMatchObject({ a: { b: [2, 3] } });
    expect(applyPatch(tree, [{ op: "replace", path: "/x~1y", value: 3 }, { op: "remove", path: "/m~0n" }])).toEqual({ a: { b: [1, 2, 3] }, "x/y": 3 });
  });

  test("changes nothing of its input and shares what it did not touch", () => {
    const before = structuredClone(tree);
    const after = applyPatch(tree, [{ op: "replace", path: "/x~1y", value: 3 }]);
    expect(tree).toEqual(before);
    expect(after.a).toBe(tree.a);
  });

  test.each([
    [{ op: "replace", path: "/nope", value: 1 }], [{ op: "remove", path: "/a/b/3" }], [{ op: "add", path: "/a/b/4", value: 1 }],
    [{ op: "add", path: "/a/b/01", value: 1 }], [{ op: "add", path: "a", value: 1 }], [{ op: "test", path: "/x~1y", value: 2 }],
    [{ op: "replace", path: "/toString", value: 1 }],
  ] as [PatchOp][])("refuses %j", (op) => {
    expect(() => applyPatch(tree, [op])).toThrow(PatchError);
  });

  test("treats __proto__ as a plain name", () => {
    const after = applyPatch({ map: {} }, [{ op: "add", path: "/map/__proto__", value: { evil: true } }]);
    expect(({} as Record<string, unknown>)["evil"]).toBeUndefined();
    expect(Object.keys(after.map)).toEqual(["__proto__"]);
  });
});
