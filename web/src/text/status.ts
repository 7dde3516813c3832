// What a run's one line says: glyph, word, what now or why it waits and until when. Pure, from the server's
// fields only; a status is never guessed from time or silence. `now` is the server's clock in ms.

import type { Current, Request, Run, RunDocument, RunStatus, Usage } from "../wire/types";
import { LIVE } from "../wire/types";
import { preview } from "./arguments";
import { clock, count, ordinal, rough, shortTokens, span, tokens } from "./format";
import { known } from "./known";
import { held, stopper, unknownCalls } from "./stop";
import { visibleText } from "./visible";

export type Tone = "run" | "ask" | "bad" | "ok" | "stop" | "calm";

export interface Line {
  tone: Tone; glyph: string; word: string;
  /** The sentence behind the word: its begin, a name to set apart (a tool, a call), and the rest. */
  lead: string; strong: string | null; what: string;
  pulse: boolean;
}

export const isLive = (status: RunStatus): boolean => LIVE.includes(status);
/** A run that waits, for a person or for a worker, does nothing meanwhile. */
export const isAtWork = (status: RunStatus): boolean => status === "running" || status === "cancelling";

const at = (iso: string | null | undefined): number | null => (iso ? Date.parse(iso) : null);

interface Said { lead?: string; strong?: string | null; what?: string; pulse?: boolean }

const line = (tone: Tone, glyph: string, word: string, said: string | Said = ""): Line => {
  const { lead = "", strong = null, what = "", pulse = false } = typeof said === "string" ? { what: said } : said;
  return { tone, glyph, word, lead, strong: strong === null ? null : visibleText(strong), what, pulse };
};

/** The sentence of a line without its word, for places that hold one string. */
export const sentence = ({ lead, strong, what }: Line): string => [lead, strong, what].filter(Boolean).join(" ");

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
    case "waiting_input": return needsYou(doc, now);
    case "cancelling": return stopping(doc, now);
    case "completed": return line("ok", "✓", "Done", unmarked(doc.line ?? ""));
    case "cancelled": return line("stop", "■", "Stopped", join(stopped(doc), mayHaveHappened(doc)));
    case "failed": return line("bad", "✕", "Failed", join(failure(doc), "nothing is lost"));
    case "interrupted": return line("stop", "‖", "Interrupted", join(known(INTERRUPTED, doc.reason) ?? words(doc.reason), mayHaveHappened(doc)));
    case "expired": return line("stop", "⊘", "Expired", join(known(EXPIRED, doc.reason) ?? words(doc.reason), mayHaveHappened(doc)));
  }
}

function queued(doc: RunDocument, now: number): Line {
  const wait = doc.wait;
  const until = at(wait?.until);
  const when = until !== null && until > now ? moment(until, now) : "";
  const place = wait?.place ? `${ordinal(wait.place)} in line` : null;
  if (wait?.reason === "rate_limited" || doc.reason === "rate_limited") {
    return line("run", "●", "Rate limited", join(when ? `model answers again ${when}` : "the model asked for a pause", tries(doc)));
  }
  const again = when && `goes on ${when}`;
  switch (doc.reason) {
    case "owner_lost": return line("calm", "◌", "Queued", join("its worker was lost, nothing else is", again));
    case "drained": return line("calm", "◌", "Queued", "the server is restarting · goes on by itself");
    case "stalled": return line("calm", "◌", "Queued", join("nothing had moved for too long", when && `tries again ${when}`, tries(doc)));
  }
  if (wait?.reason === "backoff" || doc.reason === "retry_backoff") {
    return line("calm", "◌", "Queued", join(when ? `tries again ${when}` : "tries again soon", tries(doc)));
  }
  if (wait?.reason === "capacity") return line("calm", "◌", "Queued", join("all workers are busy", place));
  const decided = doc.reason === "decision_recorded" ? "decided" : doc.reason === "default_decision" ? "nobody answered, the default counts" : null;
  return line("calm", "◌", "Queued", join(decided, "waiting for a free worker", place));
}

function running(doc: RunDocument, now: number): Line {
  // The server names the time of a takeover only where the owner is silent.
  const takeover = at(doc.owner?.takeover_at);
  if (takeover !== null) {
    const seen = at(doc.owner?.seen_at);
    const left = takeover > now ? `takeover in ${rough(takeover - now)}` : "takeover any moment";
    return line("bad", "!", "Worker silent", join(seen !== null && `${rough(now - seen)} without a sign`, `${left}, nothing is lost`));
  }
  const next = at(doc.retries?.last?.next_at);
  if (next !== null && next > now) {
    const limited = doc.retries?.last?.code === "MODEL_RATE_LIMITED";
    const what = limited ? `model answers again ${moment(next, now)}` : `tries again ${moment(next, now)}`;
    return line("run", "●", limited ? "Rate limited" : "Retrying", join(what, tries(doc)));
  }
  const current = doc.current ?? null;
  if (doc.stall) {
    const what = `silent for ${rough(now - Date.parse(doc.stall.since))}`;
    return doc.stall.kind === "tool"
      ? line("ask", "◔", "Tool silent", { strong: current?.name ?? null, what })
      : line("ask", "◔", "Model slow", { strong: doc.model || null, what });
  }
  // A run out of focus: what it does inside is not told.
  if (doc.current === undefined) return line("run", "●", "Running", { pulse: true });
  if (!current) return line("run", "●", "Running", { what: doc.steps?.length ? "between steps" : "starting", pulse: true });
  if (current.kind === "model") {
    return line("run", "●", "Running", { strong: modelName(doc, current), what: doc.text?.content ? "is answering" : "is reading", pulse: true });
  }
  return line("run", "●", "Running", { strong: current.name, what: progress(current), pulse: true });
}

function needsYou(doc: RunDocument, now: number): Line {
  const [request, ...others] = doc.requests;
  if (!request) return line("ask", "▲", "Needs you", reasonWords(doc.reason));
  const more = others.length > 0 ? `${others.length} more` : null;
  const asked = asks(request);
  const first = doc.requests.map((r) => at(r.expires_at)).filter((t) => t !== null).sort((a, b) => a - b)[0];
  const until = first === undefined ? null : expiry(first, now);
  const rest = join(more, until);
  return line("ask", "▲", "Needs you", { ...asked, what: asked.strong && !asked.what && rest ? `· ${rest}` : join(asked.what, rest) });
}

/** Until when an answer counts: `until 14:05`, `90 s left`. The server alone ends it; the page only reads the clock. */
export function expiry(until: number, now: number): string {
  if (until <= now) return "its time is over";
  return until - now < 120_000 ? `${rough(until - now)} left` : `until ${clock(new Date(until).toISOString(), now)}`;
}

/** What a request asks for, as the pieces of a line. */
export function asks(request: Request): { lead: string; strong: string | null; what: string } {
  if (request.kind === "approval") return { lead: leaveWord(request), strong: request.tool ?? request.prompt ?? "what is shown", what: "" };
  if (request.kind === "question") return { lead: "", strong: null, what: visibleText(request.prompt || "a question") };
  return { lead: "outcome of", strong: request.tool ?? "a call", what: "unknown" };
}

/** What is to be done about a call: where it may not be called any more, it cannot be approved. */
function leaveWord({ decisions }: Request): string {
  if (!decisions || decisions.includes("approve")) return "approve";
  return decisions.every((one) => one === "deny") && decisions.length > 0 ? "deny" : "decide about";
}

function stopping(doc: RunDocument, now: number): Line {
  const stop = doc.stop;
  const cause = known(STOPPING, stop?.cause) ?? null;
  const wait = stop?.waiting_for;
  if (!wait) return line("stop", "◧", "Stopping", join(cause, stop && !stop.delivered_at ? "accepted, on its way to the worker" : "delivered, closing what is open"));
  return line("stop", "◧", "Stopping", { lead: cause ? `${cause} · waiting for` : "waiting for", strong: wait.tool, what: held(wait, now) });
}

/** How long it has run (or waited, or took), as `1:42`. */
export function elapsed(doc: RunDocument, now: number): string {
  const from = doc.status === "queued" ? doc.created_at : (doc.started_at ?? doc.created_at);
  return span((doc.finished_at ? Date.parse(doc.finished_at) : now) - Date.parse(from));
}

/** How full the model's context is; where its limit is not known, how much is used. */
export function contextUse(doc: RunDocument): string | null {
  const { percent, used } = doc.context ?? {};
  if (percent !== null && percent !== undefined) return `ctx ${Math.round(percent)} %`;
  return used ? `ctx ${shortTokens(used)}` : null;
}

export function usedTokens(usage: Usage | null | undefined): string | null {
  const sum = (usage?.input ?? 0) + (usage?.output ?? 0);
  return sum > 0 ? tokens(sum) : null;
}

/** The error in a few words; where its code is not known, in the server's. */
function failure(doc: RunDocument): string {
  const code = typeof doc.error === "object" ? doc.error?.code : undefined;
  return known(FAILED, code) ?? (errorText(doc) ?? doc.line ?? "").replace(/\.$/, "");
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
  return visibleText(done?.message || part || preview(current.summary));
}

function modelName(doc: RunDocument, current: Current): string {
  return doc.model || current.name || "the model";
}

function tries(doc: RunDocument): string | null {
  const last = doc.retries?.last;
  return last?.attempt && last.of_attempts ? `attempt ${last.attempt} of ${last.of_attempts}` : null;
}

/** How often something was tried again, and why the last time. */
export function retriesText(doc: RunDocument): string | null {
  const { count: n, last } = doc.retries ?? { count: 0 };
  if (!n) return null;
  const why = last?.code ? ` (${known(RETRIED, last.code) ?? visibleText(words(last.code.toLowerCase()))})` : "";
  const of = visibleText(last?.of || "model");
  return `${count(n, `${of} retry`, `${of} retries`)}${why}`;
}

const RETRIED: Record<string, string> = {
  MODEL_RATE_LIMITED: "rate limited", MODEL_UNAVAILABLE: "not reachable", MODEL_BAD_RESPONSE: "broken answer", STALLED: "silent",
};

/** By whom, and when in its work. */
function stopped(doc: RunDocument): string {
  const by = stopper(doc.stop?.by ?? doc.reason.replace("cancelled_by_", ""));
  if (!by) return "";
  const said = doc.usage?.output;
  if (doc.stop?.outcome === "after_work_done") return `${by}, after its work was done`;
  return said ? `${by}, after ${tokens(said)}` : by;
}

function mayHaveHappened(doc: RunDocument): string | null {
  const [one, ...more] = unknownCalls(doc);
  if (one === undefined) return null;
  return `${more.length ? count(more.length + 1, "call") : visibleText(one)} may have happened`;
}

/** A moment ahead: soon as a span, later as a time of day (and a day, where it is not today). */
function moment(until: number, now: number): string {
  return until - now < 120_000 ? `in ${rough(until - now)}` : `at ${clock(new Date(until).toISOString(), now)}`;
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
