// What the line of a helper says: a subagent, a workflow or a job in the background. The same order as the line of a
// run: glyph, status, what now, elapsed, tokens. Pure. A workflow may be any object: what is not there, or is not what
// its name promises, is left out.

import type { Usage } from "../wire/types";
import { span } from "./format";
import { known } from "./known";
import { usedTokens, type Tone } from "./status";

export interface HelperLine {
  title: string; tone: Tone; glyph: string; word: string; pulse: boolean; what: string; numbers: string[];
  /** How many of its tasks are done. */
  plan: { done: number; all: number } | null;
  below: Record<string, unknown>[];
}

const RUNNING: [Tone, string, string] = ["run", "●", "running"];
const STATUSES: Record<string, [Tone, string, string]> = {
  queued: ["calm", "◌", "queued"], pending: ["calm", "◌", "queued"],
  running: RUNNING, active: RUNNING, working: RUNNING,
  waiting: ["ask", "▲", "needs you"], waiting_input: ["ask", "▲", "needs you"],
  stalled: ["ask", "◔", "silent"], cancelling: ["stop", "◧", "stopping"],
  done: ["ok", "✓", "done"], completed: ["ok", "✓", "done"], finished: ["ok", "✓", "done"],
  failed: ["bad", "✕", "failed"], error: ["bad", "✕", "failed"],
  cancelled: ["stop", "■", "stopped"], stopped: ["stop", "■", "stopped"],
  interrupted: ["stop", "‖", "interrupted"], expired: ["stop", "⊘", "expired"],
};

export function describeHelper(id: string, helper: unknown, now: number): HelperLine {
  const given = record(helper) ?? {};
  const status = text(given["status"]);
  const [tone, glyph, word] = known(STATUSES, status) ?? ["stop", "○", status.replaceAll("_", " ")];
  const ended = tone === "ok" || tone === "bad" || word === "stopped";
  const current = text(given["current"]) || text(record(given["current"])?.["name"]);
  const plan = Array.isArray(given["plan"]) ? given["plan"] : [];
  return {
    title: text(given["title"]) || text(given["name"]) || id, tone, glyph, word, pulse: word === "running",
    what: (ended ? "" : current) || text(given["line"]) || text(given["summary"]),
    numbers: [took(given, now, ended), usedTokens(usage(given["usage"]))].filter((n) => n !== null),
    plan: plan.length ? { done: plan.filter((item) => record(item)?.["status"] === "done").length, all: plan.length } : null,
    below: ["subagents", "workflows", "background"].map((name) => record(given[name])).filter((some) => some !== null && Object.keys(some).length > 0) as Record<string, unknown>[],
  };
}

function took(helper: Record<string, unknown>, now: number, ended: boolean): string | null {
  const from = moment(helper["started_at"]) ?? moment(helper["since"]);
  if (typeof helper["ms"] === "number") return span(helper["ms"]);
  if (from === null) return null;
  const to = moment(helper["finished_at"]);
  if (to !== null) return span(to - from);
  return ended ? null : span(now - from);
}

function usage(value: unknown): Usage {
  const count = (name: string): number => (typeof record(value)?.[name] === "number" ? (record(value)?.[name] as number) : 0);
  return { input: count("input"), output: count("output") };
}

function moment(value: unknown): number | null {
  const at = typeof value === "string" ? Date.parse(value) : NaN;
  return Number.isNaN(at) ? null : at;
}

const text = (value: unknown): string => (typeof value === "string" ? value : "");
const record = (value: unknown): Record<string, unknown> | null =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : null;
