// The way of a stop: accepted, delivered, what it waits for, how it ended. Pure, from the server's fields only; what the
// server has not said yet has not happened.

import type { RunDocument } from "../wire/types";
import { clock, rough, took } from "./format";
import { known } from "./known";
import { visibleText } from "./visible";

export interface Station {
  glyph: "✓" | "●" | "○" | "■";
  /** Words around the name of a call, which is set apart. */
  lead: string; tool: string | null; rest: string;
}

const at = (iso: string | null | undefined): number | null => (iso ? Date.parse(iso) : null);
const station = (glyph: Station["glyph"], lead: string, tool: string | null = null, rest = ""): Station => ({ glyph, lead, tool: tool === null ? null : visibleText(tool), rest });

/** By whom, from what the server calls them. */
export function stopper(who: string): string {
  if (who === "") return "";
  return known(STOPPERS, who) ?? `by ${visibleText(who)}`;
}

const STOPPERS: Record<string, string> = { user: "by you", cancel_requested: "by you", admin: "by an administrator", parent: "with its parent run" };

export function wayOf(doc: RunDocument, now: number): Station[] {
  const { stop } = doc;
  if (!stop) return [];
  const accepted = at(stop.accepted_at);
  const delivered = at(stop.delivered_at);
  const after = (then: number | null): string => (accepted === null || then === null ? "" : ` after ${took(Math.max(0, then - accepted))}`);
  const way = [station("✓", ["accepted", accepted !== null && clock(stop.accepted_at ?? "", now), stopper(stop.by ?? ""), stop.comment && `· “${visibleText(stop.comment)}”`].filter(Boolean).join(" "))];
  if (delivered !== null) way.push(station("✓", `delivered${after(delivered)}`));
  if (doc.status === "cancelling") {
    const wait = stop.waiting_for;
    if (wait) way.push(station("●", "waiting for", wait.tool, held(wait, now)), station("○", "then it is not waited for any longer"));
    else if (delivered === null) way.push(station("●", `on its way to the worker${accepted === null ? "" : ` for ${rough(now - accepted)}`}`));
    else way.push(station("●", "closing what is open"));
  } else if (stop.outcome === "forced") way.push(station("■", `not waited for any longer${after(at(stop.forced_at) ?? at(doc.finished_at))}`));
  else if (stop.outcome === "after_work_done") way.push(station("✓", "its work was done by then"));
  else if (doc.finished_at) way.push(station("✓", `ended${after(at(doc.finished_at))}`));
  return way;
}

/** How long a call has been waited for, of how long it will be at most. */
export function held(wait: { since?: string | null; until?: string | null }, now: number): string {
  const start = at(wait.since);
  const end = at(wait.until);
  if (start === null) return "to finish";
  return end === null ? `to finish, ${rough(now - start)}` : `to finish, ${rough(Math.min(now, end) - start)} of ${rough(end - start)}`;
}

/** Names of the calls of which nobody knows whether they happened. */
export const unknownCalls = (doc: RunDocument): string[] => (doc.stop?.unknown_calls ?? []).map(nameOf);

/** A call as the server tells it: its tool's name, alone or among other things. */
function nameOf(call: unknown): string {
  const named = typeof call === "object" && call !== null ? (call as Record<string, unknown>) : {};
  return String(named["tool"] ?? named["name"] ?? (typeof call === "string" ? call : "a call"));
}
