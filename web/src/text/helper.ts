// What the line of a helper says: a subagent, a workflow or a job in the background. The same order as the line of a
// run: glyph, status, what now, elapsed, tokens. Pure; what its owner did not tell is left out.

import type { Helper, Usage } from "../wire/types";
import { span } from "./format";
import { known } from "./known";
import { usedTokens, type Tone } from "./status";

export interface HelperLine { tone: Tone; glyph: string; word: string; pulse: boolean; what: string; numbers: string[] }

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

export function describeHelper(helper: Helper, now: number): HelperLine {
  const status = helper.status ?? "";
  const [tone, glyph, word] = known(STATUSES, status) ?? ["stop", "○", status.replaceAll("_", " ")];
  const current = typeof helper.current === "string" ? helper.current : helper.current?.name;
  const ended = tone === "ok" || tone === "bad" || word === "stopped";
  return {
    tone, glyph, word, pulse: word === "running",
    what: (ended ? helper.line : current || helper.line) ?? "",
    numbers: [took(helper, now, ended), usedTokens(helper.usage as Usage | null | undefined)].filter((n) => n !== null),
  };
}

function took(helper: Helper, now: number, ended: boolean): string | null {
  if (helper.ms !== null && helper.ms !== undefined) return span(helper.ms);
  const from = helper.started_at ?? helper.since;
  if (!from) return null;
  if (helper.finished_at) return span(Date.parse(helper.finished_at) - Date.parse(from));
  return ended ? null : span(now - Date.parse(from));
}
