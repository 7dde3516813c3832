// One run's live document on this device: a snapshot, then what arrives after it. Pure.
//
// The content part moves by `version` (patches), the server part by `run_version`, the text by its length; the three
// are independent. A frame that does not fit answers `stale`: the caller fetches the document again, once; frames that
// arrive meanwhile are kept and put in behind it. A frame that is older than what is here changes nothing.

import type { DocumentAnswer, PatchOp, RunDocument } from "../wire/types";
import { applyPatch, PatchError } from "./patch";

export interface LiveRun {
  version: number; document: RunDocument;
  /** Frames behind a gap, while the document is fetched; these two are changed in place. */
  kept?: Frame[];
  /** The last answer was older than what is here: a newer one will be sent, and asking again at once brings the same. */
  outdated?: boolean;
}

export interface TextFrame { run_id: string; message_id: string; offset: number; text: string }
export interface PatchFrame { run_id: string; base_version: number; version: number; patch: PatchOp[] }
type Frame = TextFrame | PatchFrame;
export type ServerPart = Partial<RunDocument> & { run_id: string; run_version: number };

/** What a frame did: the next value, `same` where it brought nothing new, `stale` where the document must be fetched. */
export type Outcome = LiveRun | "same" | "stale";

/** Frames that are kept; after so many the document is asked for once more. */
const MOST_KEPT = 512;

/** Whether something is missing here that only a fetched document brings. */
export const waits = (run: LiveRun): boolean => behind(run) && !run.outdated;

const behind = (run: LiveRun): boolean => (run.kept?.length ?? 0) > 0;

const SERVER_FIELDS = [
  "status", "reason", "error", "run_version", "created_at", "started_at", "finished_at", "attempt", "crashes",
  "owner", "wait", "stop", "requests", "followups", "cost", "agent", "backend_policy",
] as const;

/** Takes a whole snapshot, but keeps a newer server part or a longer text that is already here. */
export function snapshot(old: LiveRun | undefined, answer: DocumentAnswer): LiveRun {
  const fresh: RunDocument = { ...answer.document, run_version: answer.run_version };
  if (!old) return { version: answer.version, document: fresh };
  const content = answer.version >= old.version ? fresh : old.document;
  const server = fresh.run_version >= old.document.run_version ? fresh : old.document;
  const before = old.document.text;
  const ahead = before && fresh.text && before.message_id === fresh.text.message_id && before.length > fresh.text.length;
  let run: LiveRun = {
    version: Math.max(answer.version, old.version),
    document: { ...content, ...serverPart(server), text: ahead ? before : (fresh.text ?? null) },
  };
  const kept = since(old.kept ?? [], run.document.text?.message_id ?? null);
  for (const [at, frame] of kept.entries()) {
    const outcome = put(run, frame);
    if (outcome === "stale") return { ...run, kept: kept.slice(at), outdated: answer.version <= old.version || isInside(frame, answer.version) };
    if (outcome !== "same") run = outcome;
  }
  return run;
}

/** Whether the version lies between the two that a patch connects: one that was saved, and never told. */
const isInside = (frame: Frame, version: number): boolean =>
  !("offset" in frame) && frame.base_version < version && version < frame.version;

/** The kept frames without what is surely text of messages before the one that is shown. */
function since(kept: Frame[], shown: string | null): Frame[] {
  const place = (fits: (frame: TextFrame) => boolean): number => kept.findIndex((frame) => "offset" in frame && fits(frame));
  const [ofShown, begun] = [place((frame) => frame.message_id === shown), place((frame) => frame.offset === 0)];
  const first = ofShown >= 0 ? ofShown : begun >= 0 ? begun : kept.length;
  return kept.filter((frame, at) => at >= first || !("offset" in frame));
}

/** Puts a server part (whole or in part) over the document, unless it is older. */
export function server(old: LiveRun, part: ServerPart): Outcome {
  if (part.run_version < old.document.run_version) return "same";
  return { ...old, document: { ...old.document, ...serverPart(part) } };
}

export const patch = (old: LiveRun, frame: PatchFrame): Outcome => step(old, frame);

/** Appends streamed text. A new message starts at 0; a piece already here in part adds only what is new. */
export const text = (old: LiveRun, frame: TextFrame): Outcome => step(old, frame);

function step(old: LiveRun, frame: Frame): Outcome {
  const waited = behind(old);
  const outcome = waited ? "stale" : put(old, frame);
  if (outcome !== "stale") return outcome;
  const kept = (old.kept ??= []);
  kept.push(frame);
  if (!waited || old.outdated) {
    old.outdated = false;
    return "stale";
  }
  if (kept.length <= MOST_KEPT) return "same";
  kept.splice(1, kept.length - 2);
  return "stale";
}

const put = (old: LiveRun, frame: Frame): Outcome => ("offset" in frame ? append(old, frame) : apply(old, frame));

function apply(old: LiveRun, frame: PatchFrame): Outcome {
  if (frame.version <= old.version) return "same";
  if (frame.base_version !== old.version) return "stale";
  try {
    return { version: frame.version, document: applyPatch(old.document, frame.patch) };
  } catch (error) {
    if (error instanceof PatchError) return "stale";
    throw error;
  }
}

function append(old: LiveRun, frame: TextFrame): Outcome {
  const before = old.document.text;
  const said = (content: string): LiveRun => ({
    version: old.version,
    document: { ...old.document, text: { message_id: frame.message_id, length: content.length, content } },
  });
  if (!before || before.message_id !== frame.message_id) return frame.offset === 0 ? said(frame.text) : "stale";
  const have = before.content.length;
  if (frame.offset > have) return "stale";
  const known = have - frame.offset;
  if (known >= frame.text.length) return "same";
  return said(before.content + frame.text.slice(known));
}

function serverPart(part: Partial<RunDocument>): Partial<RunDocument> {
  const picked: Record<string, unknown> = {};
  for (const field of SERVER_FIELDS) {
    const value = (part as Record<string, unknown>)[field];
    if (value !== undefined) picked[field] = value;
  }
  return picked as Partial<RunDocument>;
}
