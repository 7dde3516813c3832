import { describe, expect, test } from "vitest";
import { outcome } from "../src/text/decided";
import { wayOf } from "../src/text/stop";
import type { Request, RunDocument, RunStatus, Stop } from "../src/wire/types";

const NOW = Date.parse("2026-01-01T12:00:00Z");
const ago = (s: number): string => new Date(NOW - s * 1000).toISOString();
const doc = (status: RunStatus, stop: Stop, extra: Partial<RunDocument> = {}): RunDocument => ({
  run_id: "r", conversation_id: "c", status, reason: "cancel_requested", error: null, run_version: 1, created_at: ago(110), started_at: ago(102), finished_at: null,
  attempt: 1, crashes: 0, wait: null, stop, requests: [], followups: [], ...extra,
});
const way = (d: RunDocument): string[] => wayOf(d, NOW).map(({ glyph, lead, tool, rest }) => [glyph, lead, tool, rest].filter(Boolean).join(" ").replace(/\d\d:\d\d/, "HH:MM"));

describe("the way of a stop", () => {
  const accepted = { by: "user", accepted_at: ago(13) };
  const delivered = { ...accepted, delivered_at: ago(12.5) };

  test("goes no further than the server has said", () => {
    expect(way(doc("cancelling", accepted))).toEqual(["✓ accepted HH:MM by you", "● on its way to the worker for 13 s"]);
    expect(way(doc("cancelling", delivered))).toEqual(["✓ accepted HH:MM by you", "✓ delivered after 500 ms", "● closing what is open"]);
  });

  test("names the call it waits for, how long, and what comes then", () => {
    const waiting = { ...delivered, waiting_for: { tool: "pay\u202e", since: ago(12), until: ago(-3) } };
    expect(way(doc("cancelling", waiting)).slice(2)).toEqual(["● waiting for pay⟨U+202E⟩ to finish, 12 s of 15 s", "○ then it is not waited for any longer"]);
    expect(way(doc("cancelling", { ...waiting, waiting_for: { tool: "pay" } }))[2]).toBe("● waiting for pay to finish");
  });

  test.each<[string, RunDocument, string[]]>([
    ["by itself", doc("cancelled", { ...delivered, outcome: "acknowledged" }, { finished_at: ago(12) }), ["✓ delivered after 500 ms", "✓ ended after 1.0 s"]],
    ["by force", doc("cancelled", { ...accepted, accepted_at: ago(20), delivered_at: ago(20), forced_at: ago(5), outcome: "forced" }), ["✓ delivered after 0 ms", "■ not waited for any longer after 15.0 s"]],
    ["after its work", doc("cancelled", { ...delivered, outcome: "after_work_done" }), ["✓ delivered after 500 ms", "✓ its work was done by then"]],
    ["without an owner", doc("cancelled", { ...accepted, outcome: "acknowledged" }, { finished_at: ago(13) }), ["✓ ended after 0 ms"]],
  ])("ends %s", (_, document, expected) => expect(way(document).slice(1)).toEqual(expected));

  test("says who and why", () => {
    expect(way(doc("cancelling", { by: "admin", comment: "wrong\u200bone" }))[0]).toBe("✓ accepted by an administrator · “wrong⟨U+200B⟩one”");
    expect(way(doc("cancelling", { by: "constructor" }))[0]).toBe("✓ accepted by constructor");
    expect(wayOf({ ...doc("running", {}), stop: null }, NOW)).toEqual([]);
  });
});

describe("what became of a question", () => {
  const request: Request = { id: "q", run_id: "r", kind: "approval", status: "decided", decided_by: "ann", decided_at: ago(60) };
  const said = (change: Partial<Request>): string | null => outcome({ ...request, ...change }, NOW)?.replace(/\d\d:\d\d/, "HH:MM") ?? null;

  test.each<[Partial<Request>, string | null]>([
    [{ status: "open" }, null],
    [{ status: "void" }, "Withdrawn: the run went on or ended without an answer."],
    [{ status: "expired" }, "Nobody answered in time."],
    [{ decision: { decision: "approve" } }, "Approved by ann at HH:MM"],
    [{ decision: { decision: "approve", grant: "call" } }, "Approved by ann at HH:MM, always for exactly this call"],
    [{ decision: { decision: "approve", grant: "tool" } }, "Approved by ann at HH:MM, always for this tool here"],
    [{ decision: { decision: "edit", arguments: { n: 1 } } }, "Approved with other arguments by ann at HH:MM"],
    [{ decision: { decision: "deny", comment: "no\u202e" } }, "Denied by ann at HH:MM · “no⟨U+202E⟩”"],
    [{ kind: "question", decision: { decision: "deny" } }, "Declined by ann at HH:MM"],
    [{ kind: "question", decision: { decision: "answer", answer: { n: 1 } } }, 'Answered by ann at HH:MM: {"n":1}'],
    [{ decided_by: "policy", decision: { decision: "deny", comment: null } }, "Denied by the policy, as nobody answered in time, at HH:MM"],
    [{ kind: "tool_outcome_unknown", status: "consumed", decision: { decision: "retry" } }, "Called again by ann at HH:MM"],
    [{ kind: "tool_outcome_unknown", decision: { decision: "mark_done", answer: "paid" } }, "Marked as done by ann at HH:MM: paid"],
    [{ kind: "tool_outcome_unknown", decision: { decision: "skip", answer: null } }, "Skipped by ann at HH:MM"],
  ])("%j", (change, expected) => expect(said(change)).toBe(expected));
});
