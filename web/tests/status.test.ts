import { describe as group, expect, test } from "vitest";
import { contextUse, describe, elapsed, retriesText, sentence } from "../src/text/status";
import type { RunDocument, RunStatus } from "../src/wire/types";

const NOW = Date.parse("2026-01-01T12:00:00Z");
const ago = (s: number): string => new Date(NOW - s * 1000).toISOString();
const doc = (status: RunStatus, extra: Partial<RunDocument> = {}): RunDocument => ({
  run_id: "r", conversation_id: "c", status, reason: "claimed", error: null, run_version: 1, created_at: ago(110), started_at: ago(102), finished_at: null,
  attempt: 1, crashes: 0, wait: null, stop: null, requests: [], followups: [], ...extra,
});
const said = (d: RunDocument): string => {
  const line = describe(d, NOW);
  return [line.glyph, line.word, sentence(line)].filter(Boolean).join(" | ");
};

group("the one line of a run", () => {
  test.each<[string, RunDocument, string]>([
    ["queued", doc("queued", { reason: "created", wait: { reason: "no_worker" } }), "◌ | Queued | waiting for a free worker"],
    ["backoff", doc("queued", { reason: "retry_backoff", wait: { reason: "backoff", until: ago(-4) } }), "◌ | Queued | tries again in 4 s"],
    ["rate limited", doc("queued", { reason: "rate_limited", wait: { reason: "rate_limited", until: ago(-60) } }), "● | Rate limited | model answers again in 60 s"],
    ["owner lost", doc("queued", { reason: "owner_lost" }), "◌ | Queued | its worker was lost, nothing else is"],
    ["tool", doc("running", { current: { kind: "tool", name: "fetch", progress: { value: 2, total: 3, message: "page 2 of 3" } } }), "● | Running | fetch page 2 of 3"],
    ["model", doc("running", { model: "m", current: { kind: "model", name: "m" }, text: { message_id: "1", length: 1, content: "a" } }), "● | Running | m is answering"],
    ["worker silent", doc("running", { owner: { kind: "worker", seen_at: ago(8), takeover_at: ago(-5) } }), "! | Worker silent | 8 s without a sign · takeover in 5 s, nothing is lost"],
    ["model slow", doc("running", { model: "m", current: { kind: "model", name: "m" }, stall: { kind: "model", since: ago(30) } }), "◔ | Model slow | m silent for 30 s"],
    ["tool silent", doc("running", { current: { kind: "tool", name: "t" }, stall: { kind: "tool", since: ago(30) } }), "◔ | Tool silent | t silent for 30 s"],
    ["retry inside", doc("running", { retries: { count: 1, last: { code: "MODEL_RATE_LIMITED", attempt: 2, of_attempts: 5, next_at: ago(-4) } } }), "● | Rate limited | model answers again in 4 s · attempt 2 of 5"],
    ["approval", doc("waiting_input", { requests: [{ id: "1", run_id: "r", kind: "approval", tool: "pay" }] }), "▲ | Needs you | approve pay"],
    ["approval of what is forbidden by now", doc("waiting_input", { requests: [{ id: "1", run_id: "r", kind: "approval", tool: "pay", decisions: ["deny"] }] }), "▲ | Needs you | deny pay"],
    ["stopping", doc("cancelling", { stop: { waiting_for: { tool: "pay", since: ago(12), until: ago(-3) } } }), "◧ | Stopping | waiting for pay to finish, 12 s of 15 s"],
    ["place in line", doc("queued", { reason: "created", wait: { reason: "no_worker", place: 3 } }), "◌ | Queued | waiting for a free worker · 3rd in line"],
    ["busy", doc("queued", { reason: "created", wait: { reason: "capacity" } }), "◌ | Queued | all workers are busy"],
    ["stalled, again", doc("queued", { reason: "stalled", wait: { reason: "backoff", until: ago(-4) } }), "◌ | Queued | nothing had moved for too long · tries again in 4 s"],
    ["decided", doc("queued", { reason: "decision_recorded", wait: { reason: "no_worker" } }), "◌ | Queued | decided · waiting for a free worker"],
    ["arguments", doc("running", { current: { kind: "tool", name: "fetch", summary: "{\"url\":\"https://a.b/c\"}" } }), "● | Running | fetch url = https://a.b/c"],
    ["two requests, one with an end", doc("waiting_input", { requests: [{ id: "1", run_id: "r", kind: "approval", tool: "pay" }, { id: "2", run_id: "r", kind: "question", expires_at: ago(-90) }] }), "▲ | Needs you | approve pay · 1 more · 90 s left"],
    ["question", doc("waiting_input", { requests: [{ id: "1", run_id: "r", kind: "question", prompt: "Which \u202eone?" }] }), "▲ | Needs you | Which ⟨U+202E⟩one?"],
    ["unknown outcome", doc("waiting_input", { requests: [{ id: "1", run_id: "r", kind: "tool_outcome_unknown", tool: "pay" }] }), "▲ | Needs you | outcome of pay unknown"],
    ["stop accepted", doc("cancelling", { stop: { cause: "cancel_requested", delivered_at: null } }), "◧ | Stopping | accepted, on its way to the worker"],
    ["stop delivered", doc("cancelling", { stop: { cause: "cancel_requested", delivered_at: ago(1) } }), "◧ | Stopping | delivered, closing what is open"],
    ["superseded", doc("cancelling", { stop: { cause: "superseded", delivered_at: ago(1), waiting_for: { tool: "pay" } } }), "◧ | Stopping | a newer message takes its place · waiting for pay to finish"],
    ["done", doc("completed", { line: "3 tasks filed" }), "✓ | Done | 3 tasks filed"],
    ["stopped", doc("cancelled", { reason: "cancelled_by_user", stop: { unknown_calls: ["pay"] } }), "■ | Stopped | by you · pay may have happened"],
    ["stopped with many", doc("cancelled", { reason: "cancelled_by_user", stop: { unknown_calls: ["pay", "mail"] } }), "■ | Stopped | by you · 2 calls may have happened"],
    ["stopped in mid-sentence", doc("cancelled", { reason: "cancel_requested", stop: { by: "user" }, usage: { output: 30 } }), "■ | Stopped | by you, after 30 tokens"],
    ["stopped too late", doc("cancelled", { reason: "cancel_requested", stop: { by: "user", outcome: "after_work_done" }, usage: { output: 30 } }), "■ | Stopped | by you, after its work was done"],
    ["stopped from above", doc("cancelled", { reason: "cancelled_by_parent", stop: { by: "parent" } }), "■ | Stopped | with its parent run"],
    ["failed", doc("failed", { error: { code: "MODEL_AUTH", message: "Set the key." } }), "✕ | Failed | the model's server refused the key · nothing is lost"],
    ["failed in its own words", doc("failed", { error: { code: "AGENT_FAILURE", message: "No such file." } }), "✕ | Failed | No such file · nothing is lost"],
    ["interrupted", doc("interrupted", { reason: "superseded" }), "‖ | Interrupted | a newer message took its place"],
    ["expired", doc("expired", { reason: "queue_deadline" }), "⊘ | Expired | no worker was free in time"],
  ])("%s", (_, document, expected) => expect(said(document)).toBe(expected));

  test("a worker is silent when the server says so, however long it was not seen", () => {
    expect(describe(doc("running", { owner: { kind: "worker", seen_at: ago(60), takeover_at: null } }), NOW).word).toBe("Running");
  });


  test("time runs from the start, and stands still after the end", () => {
    expect(elapsed(doc("running"), NOW)).toBe("1:42");
    expect(elapsed(doc("completed", { finished_at: ago(100) }), NOW)).toBe("0:02");
    expect(elapsed(doc("queued", { started_at: null }), NOW)).toBe("1:50");
  });

  test("no two statuses share both glyph and word", () => {
    const all: RunDocument[] = [
      doc("queued"), doc("running"), doc("waiting_input"), doc("cancelling"), doc("completed"), doc("failed"), doc("cancelled"), doc("interrupted"), doc("expired"),
      doc("queued", { reason: "rate_limited" }), doc("running", { stall: { kind: "tool", since: ago(9) } }), doc("running", { stall: { kind: "model", since: ago(9) } }),
      doc("running", { owner: { kind: "worker", seen_at: ago(8), takeover_at: ago(-5) } }), doc("running", { retries: { count: 1, last: { code: "MODEL_BAD_RESPONSE", next_at: ago(-4) } } }),
    ];
    const marks = all.map((d) => describe(d, NOW)).map((line) => `${line.glyph} ${line.word}`);
    expect(new Set(marks).size).toBe(all.length);
  });

  test("a context without a known limit says what is used, and an unknown one nothing", () => {
    expect(contextUse(doc("running", { context: { used: 13_700, limit: 32_768, percent: 41.8 } }))).toBe("ctx 42 %");
    expect(contextUse(doc("running", { context: { used: 3_120, limit: null, percent: null } }))).toBe("ctx 3.1k");
    expect(contextUse(doc("running", { context: { used: null, limit: null, percent: null } }))).toBeNull();
  });

  test("retries say how many and why", () => {
    expect(retriesText(doc("running", { retries: { count: 1, last: { of: "model", code: "MODEL_RATE_LIMITED" } } }))).toBe("1 model retry (rate limited)");
    expect(retriesText(doc("running", { retries: { count: 0, last: null } }))).toBeNull();
  });

  test("the line of an end shows no marks of markdown", () => {
    expect(said(doc("completed", { line: "## A **bold** `word`" }))).toBe("✓ | Done | A bold word");
    expect(said(doc("completed", { line: "2 * 3 * 4 is 24" }))).toBe("✓ | Done | 2 * 3 * 4 is 24");
  });

  test("a tool's name cannot turn the line around", () => {
    expect(describe(doc("running", { current: { kind: "tool", name: "a\u202eb" } }), NOW).strong).toBe("a⟨U+202E⟩b");
  });
});
