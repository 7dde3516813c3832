// This tab's end of the event stream: says to the browser's hub what the tab looks at and where it stands, and hands on
// what comes. It knows nothing of what the events mean. The cursor is the number up to which events are in what the
// page shows; coming back with it loses nothing.

import type { DurableEvent } from "../wire/types";
import type { FromHub } from "./hub";
import { reachHub, type Reach } from "./reach";
import type { State } from "./stream";

export type { State } from "./stream";

export interface Listener {
  /** A durable event, in the order of their numbers. */
  event(event: DurableEvent): void;
  /** A frame of the conversation in focus. */
  frame(name: string, data: unknown): void;
  /** Whether frames of the conversation come; `whole`: its document follows by itself. */
  focus(conversation: string, live: boolean, whole: boolean): void;
  /** Read everything anew, then `attend` with the number that was read. */
  reset(): void;
  /** `retryAt` is in ms of this machine's clock, for the state `waiting`. */
  state(state: State, retryAt: number | null): void;
  /** Nobody looks at this browser: tell the person of the event, or, after a `reset` that follows, of what was read. */
  call(event: DurableEvent | null): void;
  /** The tab is shown, or is not. */
  shown(visible: boolean): void;
}

const ALIVE_MS = 30_000;

export class Connection {
  #cursor: number | null = null;
  #focus: string | null = null;
  #reach: Reach | null = null;
  #begun = false;

  constructor(private readonly listener: Listener) {}

  start(): void {
    if (this.#reach) return;
    this.#reach = reachHub((message) => this.#take(message));
    document.addEventListener("visibilitychange", () => {
      this.#attend();
      if (!document.hidden) this.doubt();
      this.listener.shown(!document.hidden);
    });
    addEventListener("online", () => this.doubt());
    addEventListener("pagehide", () => this.#reach?.post({ kind: "leave" }));
    addEventListener("pageshow", (event) => event.persisted && this.#attend());
    setInterval(() => this.#reach?.post({ kind: "alive" }), ALIVE_MS);
  }

  /** Everything up to `cursor` is in what the page shows; null where nothing could be read yet. */
  attend(cursor: number | null): void {
    this.#begun = true;
    if (cursor !== null) this.#cursor = Math.max(this.#cursor ?? 0, cursor);
    this.#attend();
  }

  /** Follows another conversation. */
  focus(conversation: string | null): void {
    if (this.#focus === conversation) return;
    this.#focus = conversation;
    this.#attend();
  }

  /** Something suggests that the connection may be dead. */
  doubt(): void {
    this.#reach?.post({ kind: "doubt" });
  }

  #attend(): void {
    if (!this.#begun) return;
    this.#reach?.post({ kind: "attend", cursor: this.#cursor, focus: this.#focus, visible: !document.hidden });
  }

  #take(message: FromHub): void {
    switch (message.kind) {
      case "event":
        if (message.event.seq <= (this.#cursor ?? -1)) return;
        this.#cursor = message.event.seq;
        return this.listener.event(message.event);
      case "frame":
        return this.listener.frame(message.name, message.data);
      case "focus":
        if (message.conversation === this.#focus) this.listener.focus(message.conversation, message.live, message.whole);
        return;
      case "reset":
        this.#cursor = null;
        return this.listener.reset();
      case "state":
        return this.listener.state(message.state, message.retryAt);
      case "call":
        return this.listener.call(message.event);
      case "who":
        return this.#attend();
    }
  }
}
