// The one event stream of this page: opens it, keeps it alive, and tells what arrives. It knows nothing of what
// the events mean. The cursor is the last durable number seen; reconnecting with it loses nothing.
//
// A stream is considered dead after 15 s without a byte (the server sends a heartbeat every 5 s). A hidden page holds
// no stream, because browsers allow six connections per host over all tabs; it comes back current when it is shown.

import { FrameDecoder, type Frame } from "../wire/sse";

export type State = "connecting" | "open" | "waiting" | "paused";

export interface Listener {
  frame(event: string, data: unknown, id: string | null): void;
  /** `retryAt` is in ms of this machine's clock, for the state `waiting`. */
  state(state: State, retryAt: number | null): void;
}

const SILENCE_MS = 15_000;
const BACKOFF_MS = [250, 500, 1_000, 2_000, 3_000];

export class Connection {
  #cursor: number | null = null;
  #focus: string | null = null;
  #abort: AbortController | null = null;
  #timer: ReturnType<typeof setTimeout> | null = null;
  #failures = 0;
  #running = false;

  constructor(private readonly listener: Listener, private readonly page: Document = document) {}

  start(): void {
    if (this.#running) return;
    this.#running = true;
    this.page.addEventListener("visibilitychange", this.#visibility);
    addEventListener("online", this.reconnect);
    this.#visibility();
  }

  stop(): void {
    this.#running = false;
    this.page.removeEventListener("visibilitychange", this.#visibility);
    removeEventListener("online", this.reconnect);
    this.#drop();
  }

  get cursor(): number | null {
    return this.#cursor;
  }

  /** Follows another conversation. `after` is used only while no durable number has been seen yet. */
  focus(conversation: string | null, after: number | null): void {
    const same = this.#focus === conversation && this.#abort !== null;
    this.#focus = conversation;
    this.#cursor ??= after;
    if (!same && this.#running && !this.page.hidden) this.reconnect();
  }

  /** Starts anew from a number the caller has read the whole state at. */
  restartAt(cursor: number | null): void {
    this.#cursor = cursor;
    if (this.#running && !this.page.hidden) this.reconnect();
  }

  /** Drops what there is and connects at once. */
  reconnect = (): void => {
    if (!this.#running || this.page.hidden) return;
    this.#drop();
    void this.#open();
  };

  #visibility = (): void => {
    if (this.page.hidden) {
      this.#drop();
      this.listener.state("paused", null);
    } else {
      this.#failures = 0;
      this.reconnect();
    }
  };

  #drop(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    this.#abort?.abort();
    this.#abort = null;
  }

  async #open(): Promise<void> {
    const abort = new AbortController();
    this.#abort = abort;
    this.listener.state("connecting", null);
    let watchdog = setTimeout(() => abort.abort("silent"), SILENCE_MS);
    const heard = (): void => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => abort.abort("silent"), SILENCE_MS);
    };
    try {
      const response = await fetch(this.#url(), {
        headers: { Accept: "text/event-stream" }, cache: "no-store", signal: abort.signal,
      });
      // A conversation that is gone cannot be followed, nor a cursor that is none: go on without it.
      if (response.status === 404) this.#focus = null;
      if (response.status === 400) this.#cursor = null;
      if (!response.ok || !response.body) throw new Error(`stream answered ${response.status}`);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      const decoder = new FrameDecoder();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        heard();
        for (const frame of decoder.push(value)) {
          if (abort.signal.aborted) return;
          this.#deliver(frame);
        }
      }
    } catch {
      // A cut, refused or silent stream: all the same here, it is opened again below.
    } finally {
      clearTimeout(watchdog);
    }
    if (this.#abort === abort) this.#later();
  }

  #url(): string {
    const params = new URLSearchParams();
    if (this.#focus !== null) params.set("focus", this.#focus);
    if (this.#cursor !== null) params.set("after", String(this.#cursor));
    const text = params.toString();
    return text ? `/v1/stream?${text}` : "/v1/stream";
  }

  #deliver(frame: Frame): void {
    if (frame.event === "hello") {
      this.#failures = 0;
      this.listener.state("open", null);
    }
    if (frame.id !== null && /^\d+$/.test(frame.id)) this.#cursor = Number(frame.id);
    let data: unknown;
    try {
      data = JSON.parse(frame.data);
    } catch {
      return;
    }
    this.listener.frame(frame.event, data, frame.id);
  }

  #later(): void {
    this.#abort = null;
    if (!this.#running || this.page.hidden) return;
    const delay = BACKOFF_MS[Math.min(this.#failures, BACKOFF_MS.length - 1)] ?? 3_000;
    this.#failures += 1;
    this.listener.state("waiting", Date.now() + delay);
    this.#timer = setTimeout(() => void this.#open(), delay);
  }
}
