// What became of a question, in words: what was decided, by whom and when. Pure, from the server's fields only.

import type { Request } from "../wire/types";
import { clock } from "./format";
import { known } from "./known";
import { labelOf } from "./schema";
import { visibleText } from "./visible";

/** Whether it can be answered, as far as this device was told. */
export const isOpen = (request: Request): boolean => (request.status ?? "open") === "open";

const VERDICTS: Record<string, string> = {
  approve: "Approved", edit: "Approved with other arguments", answer: "Answered",
  retry: "Called again", mark_done: "Marked as done", skip: "Skipped",
};
const LEAVE: Record<string, string> = { call: ", always for exactly this call", tool: ", always for this tool here" };

/** Who decided, what, and when; null while it is open. */
export function outcome(request: Request, now: number): string | null {
  if (isOpen(request)) return null;
  if (request.status === "void") return "Withdrawn: the run went on or ended without an answer.";
  if (request.status === "expired") return "Nobody answered in time.";
  const { decision } = request;
  const verdict = decision?.decision ?? "answer";
  const what = verdict === "deny" ? (request.kind === "approval" ? "Denied" : "Declined") : (known(VERDICTS, verdict) ?? "Decided");
  const who = request.decided_by === "policy" ? " by the policy, as nobody answered in time," : request.decided_by ? ` by ${visibleText(request.decided_by)}` : "";
  const when = request.decided_at ? ` at ${clock(request.decided_at, now)}` : "";
  const said = decision?.answer !== undefined && decision.answer !== null ? `: ${visibleText(labelOf(decision.answer))}` : "";
  const comment = request.comment ?? decision?.comment;
  return `${what}${who}${when}${known(LEAVE, decision?.grant) ?? ""}${said}${comment ? ` · “${visibleText(comment)}”` : ""}`;
}

/** What was asked, in a few words. */
export function headingOf(request: Request): string {
  return request.prompt || ({ approval: "May this be done?", question: "A question" }[request.kind] ?? "The outcome of this call is unknown");
}
