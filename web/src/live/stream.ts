// One connection to the server's event stream: opens it, notices when it has died, and opens it again. It knows the
// frames' form and nothing of what they mean, of tabs or of a page: it also runs in a worker.
//
// The server sends something at least every 5 s. Two and a half of these without a byte mean that nobody is there any
// more, whatever the socket says: a proxy that forgot the connection and a machine that slept look alike.

import { FrameDecoder, type Frame } from "../wire/sse";

export type State = "connecting" | "open" | "waiting" | "paused";

export interface StreamListener {
  frame(frame: Frame): void;
  /** `retryAt` is in ms of this machine's clock, for the state `waiting`. */
  state(state: State, retryAt: number | null): void;
  /** The server will not have this stream: 404 for its focus, 400 for its cursor. It is not opened again by itself. */
  refused(status: number): void;
}

export const HEARTBEAT_MS = 5_000;
export const SILENCE_MS = 2.5 * HEARTBEAT_MS;
const BACKOFF_MS = [250, 500, 1_000, 2_000, 3_000];

export class Stream {
  #abort: AbortController | null = null;
  #timer: ReturnType<typeof setTimeout> | null = null;
  #failures = 0;
  #heard = -Infinity;
  #state: State = "paused";
  #retryAt: number | null = null;

  /** `cursor` is asked at each opening: what was delivered meanwhile by whichever way is not asked for again. */
  constructor(readonly focus: string | null, private readonly cursor: () => number | null, private readonly listener: StreamListener) {}

  get state(): State {
    return this.#state;
  }

  get retryAt(): number | null {
    return this.#retryAt;
  }

  /** Drops what there is and connects at once. */
  open(): void {
    this.#drop();
    void this.#run();
  }

  close(): void {
    this.#drop();
    this.#tell("paused", null);
  }

  /** Something suggests that time has passed unnoticed: a stream that has been silent for a beat is opened anew. */
  doubt(): void {
    if (this.#state === "paused") return;
    const silent = performance.now() - this.#heard;
    if (this.#state === "open" && silent < 1.2 * HEARTBEAT_MS) return;
    this.#failures = 0;
    this.open();
  }

  #drop(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    this.#abort?.abort();
    this.#abort = null;
  }

  async #run(): Promise<void> {
    const abort = new AbortController();
    this.#abort = abort;
    this.#tell("connecting", null);
    let watchdog: ReturnType<typeof setTimeout> | undefined;
    const heard = (): void => {
      this.#heard = performance.now();
      clearTimeout(watchdog);
      watchdog = setTimeout(() => abort.abort("silent"), SILENCE_MS);
    };
    heard();
    try {
      const response = await fetch(this.#url(), {
        headers: { Accept: "text/event-stream" }, cache: "no-store", signal: abort.signal,
      });
      if (response.status === 404 || response.status === 400) {
        if (this.#abort !== abort) return;
        this.close();
        this.listener.refused(response.status);
        return;
      }
      if (!response.ok || !response.body) throw new Error(`the stream was answered with ${response.status}`);
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      const decoder = new FrameDecoder();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        heard();
        for (const frame of decoder.push(value)) {
          if (abort.signal.aborted) return;
          if (frame.event === "hello") {
            this.#failures = 0;
            this.#tell("open", null);
          }
          this.listener.frame(frame);
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
    const cursor = this.cursor();
    if (this.focus !== null) params.set("focus", this.focus);
    if (cursor !== null) params.set("after", String(cursor));
    const text = params.toString();
    return text ? `/v1/stream?${text}` : "/v1/stream";
  }

  #later(): void {
    this.#abort = null;
    const delay = BACKOFF_MS[Math.min(this.#failures, BACKOFF_MS.length - 1)] ?? 3_000;
    this.#failures += 1;
    this.#tell("waiting", Date.now() + delay);
    this.#timer = setTimeout(() => void this.#run(), delay);
  }

  #tell(state: State, retryAt: number | null): void {
    this.#state = state;
    this.#retryAt = retryAt;
    this.listener.state(state, retryAt);
  }
}
