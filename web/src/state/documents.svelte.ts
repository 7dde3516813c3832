// The live documents of the open conversation: read, kept current by frames, read again where a frame does not fit or
// nothing may ever come any more. It knows nothing of histories and lists.

import { api, Problem } from "../wire/api";
import type { DocumentAnswer, RunDocument } from "../wire/types";
import * as live from "../live/document";
import { isLive } from "../text/status";
import { throttle } from "./throttle";

const RETRY_MS = 3_000;

export interface Asks {
  /** The open conversation. */
  open(): string | null;
  /** Whether the open conversation has this run. */
  has(run: string): boolean;
  /** A step began or ended, or the run moved: the messages it left are rows, and not all of them are told. */
  stepped(): void;
}

export class Documents {
  all = $state.raw<Record<string, live.LiveRun>>({});
  #reading = new Map<string, () => void>();
  /** What a hidden page leaves for later. */
  #putOff = new Set<string>();

  constructor(private readonly asks: Asks) {}

  clear(): void {
    this.all = {};
    this.#putOff.clear();
  }

  /** The page is shown again. */
  wake(): void {
    const due = [...this.#putOff];
    this.#putOff.clear();
    for (const run of due) this.read(run);
  }

  /** Reads a run's document: one request at a time per run, at most four a second, until it is there. */
  read(run: string): void {
    let ask = this.#reading.get(run);
    if (!ask) {
      ask = throttle(async () => {
        if (document.hidden) {
          this.#putOff.add(run);
          return;
        }
        try {
          this.#snapshot(await api.document(run));
        } catch (error) {
          // What it shows may be old until this has worked: nothing else may ever come for it.
          const lasting = error instanceof Problem && error.status >= 400 && error.status < 500;
          if (!lasting) setTimeout(() => this.asks.has(run) && this.read(run), RETRY_MS);
        }
      }, 250);
      this.#reading.set(run, ask);
    }
    ask();
  }

  frame(name: string, data: unknown): void {
    switch (name) {
      case "run.document":
        return this.#snapshot(data as DocumentAnswer);
      case "run.text":
        return this.#step(data as live.TextFrame, live.text);
      case "run.patch":
        return this.#step(data as live.PatchFrame, live.patch);
      case "run.server":
        return this.#step(data as live.ServerPart, live.server);
    }
  }

  /** The whole server part, as the event of a status carries it. */
  server(part: live.ServerPart): void {
    const kept = this.all[part.run_id];
    if (kept) this.#put(part.run_id, live.server(kept, part));
  }

  #snapshot(answer: DocumentAnswer): void {
    const id = answer.document.run_id;
    if (answer.document.conversation_id === this.asks.open()) this.#put(id, live.snapshot(this.all[id], answer));
  }

  #step<F extends { run_id: string }>(frame: F, apply: (old: live.LiveRun, frame: F) => live.Outcome): void {
    const kept = this.all[frame.run_id];
    if (kept) this.#put(frame.run_id, apply(kept, frame));
    else if (this.asks.has(frame.run_id)) this.read(frame.run_id);
  }

  #put(run: string, outcome: live.Outcome): void {
    if (outcome === "same") return;
    if (outcome === "stale") return this.read(run);
    const before = this.all[run]?.document;
    this.all = { ...this.all, [run]: outcome };
    if (live.waits(outcome)) this.read(run);
    const { status } = outcome.document;
    const moved = before !== undefined && before.status !== status; // a step is told before its messages are stored
    if (moved || (isLive(status) && stepsOf(before) !== stepsOf(outcome.document))) this.asks.stepped();
  }
}

/** Tells how far the steps are; a document holds the newest 50 of them. */
function stepsOf(document: RunDocument | undefined): string {
  return (document?.steps ?? []).map((step) => `${step.id} ${step.status}`).join();
}
