// A server of event streams that a test plays by hand, behind `fetch`.

import { vi } from "vitest";

export interface Opened {
  url: URL;
  /** Text as the server would write it. */
  say(text: string): void;
  end(): void;
  closed: boolean;
}

export class Played {
  streams: Opened[] = [];
  /** What the next opening is answered with instead of a stream. */
  answers: number[] = [];

  install(): void {
    vi.stubGlobal("fetch", (path: string, init: { signal: AbortSignal }) => this.#answer(path, init.signal));
  }

  /** Those that are open now. */
  get open(): Opened[] {
    return this.streams.filter((stream) => !stream.closed);
  }

  get last(): Opened {
    const stream = this.streams.at(-1);
    if (!stream) throw new Error("nothing was opened");
    return stream;
  }

  focused(conversation: string): Opened {
    const stream = this.open.find((each) => each.url.searchParams.get("focus") === conversation);
    if (!stream) throw new Error(`no stream has ${conversation} in focus`);
    return stream;
  }

  async #answer(path: string, signal: AbortSignal): Promise<Response> {
    const status = this.answers.shift();
    if (status === 0) throw new TypeError("connection refused");
    if (status !== undefined) return new Response("{}", { status });
    let controller: ReadableStreamDefaultController<Uint8Array>;
    const body = new ReadableStream<Uint8Array>({ start: (given) => void (controller = given) });
    const opened: Opened = {
      url: new URL(path, "http://played"), closed: false,
      say: (text) => controller.enqueue(new TextEncoder().encode(text)),
      end: () => {
        if (opened.closed) return;
        opened.closed = true;
        controller.close();
      },
    };
    signal.addEventListener("abort", () => {
      if (opened.closed) return;
      opened.closed = true;
      controller.error(signal.reason);
    });
    this.streams.push(opened);
    return new Response(body, { status: 200 });
  }
}

export const hello = (seq: number, id?: number): string =>
  `${id === undefined ? "" : `id: ${id}\n`}event: hello\ndata: {"seq":${seq}}\n\n`;

export const fact = (seq: number, type = "message.created", payload: object = {}, conversation = "c"): string =>
  `id: ${seq}\nevent: ${type}\ndata: ${JSON.stringify({ seq, type, conversation_id: conversation, run_id: null, at: "2026-11-29T13:46:04.123456Z", payload })}\n\n`;

export const frame = (name: string, data: object): string => `event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;

/** Until everything that was begun by microtasks and streams is through. */
export async function settled(): Promise<void> {
  for (let i = 0; i < 40; i++) await vi.advanceTimersByTimeAsync(0);
}
