// What a run's one line says: glyph, word, what now or why it waits and until when. Pure, from the server's
// fields only; a status is never guessed from time or silence. `now` is the server's clock in ms.

import type { Current, Run, RunDocument, RunStatus, Usage } from "../wire/types";
import { LIVE } from "../wire/types";
import { clock, count, rough, span, tokens } from "./format";
import { visibleText } from "./visible";

export type Tone = "run" | "ask" | "bad" | "ok" | "stop" | "calm";

export interface Line {
  tone: Tone; glyph: string; word: string;
  /** A name to set apart (a tool, a call), then the rest of the sentence. */
  strong: string | null; what: string;
  pulse: boolean;
}

export const isLive = (status: RunStatus): boolean => LIVE.includes(status);

const at = (iso: string | null | undefined): number | null => (iso ? Date.parse(iso) : null);
const since = (iso: string | null | undefined, now: number): string | null => (iso ? rough(now - Date.parse(iso)) : null);
const line = (tone: Tone, glyph: string, word: string, what = "", strong: string | null = null, pulse = false): Line => ({
  tone, glyph, word, what, strong: strong === null ? null : visibleText(strong), pulse,
});

/** A run as the lists give it, in the shape the line is made of. It says nothing about what the run does inside. */
export function documentOf(run: Run): RunDocument {
  return {
    run_id: run.id, conversation_id: run.conversation_id, agent: run.agent ?? null, status: run.status, reason: run.reason,
    error: run.error_code || run.error_message ? { code: run.error_code ?? "", message: run.error_message ?? "" } : null,
    run_version: run.version, created_at: run.created_at, started_at: run.started_at, finished_at: run.finished_at,
    attempt: run.attempt, crashes: run.crashes, wait: run.wait, stop: run.stop, requests: [], followups: [],
    cost: run.cost ?? null, usage: run.usage ?? null, line: run.line ?? null,
  };
}

export function describe(doc: RunDocument, now: number): Line {
  switch (doc.status) {
    case "queued": return queued(doc, now);
    case "running": return running(doc, now);
    case "waiting_input": return needsYou(doc);
    case "cancelling": return stopping(doc, now);
    case "completed": return line("ok", "✓", "Done", unmarked(doc.line ?? ""));
    case "cancelled": return line("stop", "■", "Stopped", join(stopper(doc), unknownCalls(doc)));
    case "failed": return line("bad", "✕", "Failed", join(failure(doc), "nothing is lost"));
    case "interrupted": return line("stop", "‖", "Interrupted", join(INTERRUPTED[doc.reason] ?? words(doc.reason), unknownCalls(doc)));
    case "expired": return line("stop", "⊘", "Expired", EXPIRED[doc.reason] ?? words(doc.reason));
  }
}

function queued(doc: RunDocument, now: number): Line {
  const wait = doc.wait;
  const until = at(wait?.until);
  const left = until !== null && until > now ? until - now : null;
  const when = left === null ? "" : left < 120_000 ? `in ${rough(left)}` : `at ${clock(wait?.until ?? "")}`;
  if (wait?.reason === "rate_limited" || doc.reason === "rate_limited") {
    return line("run", "●", "Rate limited", join(when ? `model answers again ${when}` : "the model asked for a pause", tries(doc)));
  }
  if (doc.reason === "owner_lost") return line("calm", "◌", "Queued", join("its worker was lost, nothing else is", when && `goes on ${when}`));
  if (doc.reason === "drained") return line("calm", "◌", "Queued", "the server is restarting · goes on by itself");
  if (wait?.reason === "backoff" || doc.reason === "retry_backoff") {
    return line("calm", "◌", "Queued", join(when ? `tries again ${when}` : "tries again soon", tries(doc)));
  }
  if (wait?.reason === "capacity") return line("calm", "◌", "Queued", "all workers are busy");
  return line("calm", "◌", "Queued", "waiting for a free worker");
}

function running(doc: RunDocument, now: number): Line {
  const takeover = at(doc.owner?.takeover_at);
  if (takeover !== null) {
    const seen = since(doc.owner?.seen_at, now);
    const left = takeover > now ? `takeover in ${rough(takeover - now)}` : "takeover any moment";
    return line("bad", "!", "Worker silent", join(seen && `${seen} without a sign`, `${left}, nothing is lost`));
  }
  const next = at(doc.retries?.last?.next_at);
  if (next !== null && next > now) {
    const limited = doc.retries?.last?.code === "MODEL_RATE_LIMITED";
    const what = limited ? `model answers again in ${rough(next - now)}` : `tries again in ${rough(next - now)}`;
    return line("run", "●", limited ? "Rate limited" : "Retrying", join(what, tries(doc)));
  }
  const current = doc.current ?? null;
  if (doc.stall) {
    const silent = `silent for ${rough(now - Date.parse(doc.stall.since))}`;
    return doc.stall.kind === "tool"
      ? line("ask", "●", "Tool silent", silent, current?.name ?? null)
      : line("ask", "●", "Model slow", silent, doc.model ?? null);
  }
  if (!current) return line("run", "●", "Running", "starting", null, true);
  if (current.kind === "model") {
    return line("run", "●", "Running", doc.text?.content ? "is answering" : "is reading", modelName(doc, current), true);
  }
  return line("run", "●", "Running", progress(current), current.name, true);
}

function needsYou(doc: RunDocument): Line {
  const request = doc.requests[0];
  const more = doc.requests.length > 1 ? `${doc.requests.length - 1} more` : null;
  if (!request) return line("ask", "▲", "Needs you", reasonWords(doc.reason));
  if (request.kind === "approval") return line("ask", "▲", "Needs you", join("to approve", more), request.tool ?? null);
  if (request.kind === "question") return line("ask", "▲", "Needs you", join(visibleText(request.prompt ?? "a question"), more));
  return line("ask", "▲", "Needs you", join("outcome unknown", more), request.tool ?? null);
}

function stopping(doc: RunDocument, now: number): Line {
  const wait = doc.stop?.waiting_for;
  if (!wait) return line("stop", "◧", "Stopping", STOPPING[doc.stop?.cause ?? ""] ?? "closing what is open");
  const start = at(wait.since);
  const end = at(wait.until);
  const how = start !== null && end !== null ? `, ${rough(Math.min(now, end) - start)} of ${rough(end - start)}` : "";
  return line("stop", "◧", "Stopping", `to finish${how}`, `waiting for ${wait.tool}`);
}

/** How long it has run (or waited, or took), as `1:42`. */
export function elapsed(doc: RunDocument, now: number): string {
  const from = doc.status === "queued" ? doc.created_at : (doc.started_at ?? doc.created_at);
  return span((doc.finished_at ? Date.parse(doc.finished_at) : now) - Date.parse(from));
}

export function contextPercent(doc: RunDocument): string | null {
  const percent = doc.context?.percent;
  return percent === null || percent === undefined ? null : `ctx ${Math.round(percent)} %`;
}

export function usedTokens(usage: Usage | null | undefined): string | null {
  const sum = (usage?.input ?? 0) + (usage?.output ?? 0);
  return sum > 0 ? tokens(sum) : null;
}

/** The error in a few words; where its code is not known, in the server's. */
function failure(doc: RunDocument): string {
  const code = typeof doc.error === "object" ? doc.error?.code : undefined;
  return FAILED[code ?? ""] ?? (errorText(doc) ?? doc.line ?? "").replace(/\.$/, "");
}

/** The error in the server's words, which say the cure. */
export function errorText(doc: RunDocument): string | null {
  const error = doc.error;
  if (!error) return null;
  if (typeof error === "string") return error;
  return error.message || (error.code ? words(error.code.toLowerCase()) : null);
}

/** A line of markdown without the marks of emphasis, code, headings, lists and quotes, which one line does not draw. */
export function unmarked(text: string): string {
  return text.replace(/^\s*(?:#{1,6}|[-*+>]|\d+\.)\s+/, "").replace(/\*\*|__|`+/g, "");
}

function progress(current: Current): string {
  const done = current.progress;
  const part = done && done.total ? `${done.value} of ${done.total}` : "";
  return visibleText(done?.message || current.summary || part);
}

function modelName(doc: RunDocument, current: Current): string {
  return doc.model || current.name || "the model";
}

function tries(doc: RunDocument): string | null {
  const last = doc.retries?.last;
  return last?.attempt && last.of_attempts ? `attempt ${last.attempt} of ${last.of_attempts}` : null;
}

function stopper(doc: RunDocument): string {
  const after = doc.stop?.outcome === "after_work_done" ? "after its work was done" : null;
  const by = doc.reason === "cancelled_by_admin" ? "by an administrator" : doc.reason === "cancelled_by_parent" ? "with its parent run" : "by you";
  return join(by, after);
}

function unknownCalls(doc: RunDocument): string | null {
  const n = doc.stop?.unknown_calls?.length ?? 0;
  return n > 0 ? `${count(n, "call")} may have happened` : null;
}

const INTERRUPTED: Record<string, string> = {
  owner_lost: "its worker was lost · nothing else is",
  adapter_disconnected: "its agent went away · nothing is lost",
  drained: "the server was stopped · nothing is lost",
  superseded: "a newer message took its place",
  budget_exceeded: "its budget is used up",
  agent_removed: "its agent was removed",
};

const FAILED: Record<string, string> = {
  MODEL_UNAVAILABLE: "the model's server cannot be reached",
  MODEL_AUTH: "the model's server refused the key",
  MODEL_RATE_LIMITED: "the model's server keeps asking for a pause",
  MODEL_BAD_RESPONSE: "the model's answer could not be used",
  CONTEXT_OVERFLOW: "the conversation is too long for the model",
  RECURSION_LIMIT: "the limit of steps is reached",
  STALLED: "nothing happened for too long",
  TOOL_UNAVAILABLE: "a tool cannot be reached",
  ATTEMPTS_EXHAUSTED: "every attempt lost its worker",
};

const EXPIRED: Record<string, string> = {
  queue_deadline: "no worker was free in time",
  input_deadline: "no answer came in time",
  run_deadline: "its time is used up",
};

const STOPPING: Record<string, string> = {
  superseded: "a newer message takes its place",
  budget_exceeded: "its budget is used up",
  run_deadline: "its time is used up",
};

const reasonWords = (reason: string): string =>
  ({ approval_required: "an approval", question_asked: "an answer", tool_outcome_unknown: "the outcome of a call is unknown" })[reason] ?? words(reason);
const words = (code: string): string => code.replaceAll("_", " ");
const join = (...parts: (string | null | undefined | false)[]): string => parts.filter(Boolean).join(" · ");
