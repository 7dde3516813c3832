// One place per browser that holds the connections to the server, and the tabs that listen to it. It runs in a shared
// worker, in one tab for all, or in a tab for itself; it knows neither which, nor what an event means beyond its
// number and whether it calls a person.
//
// A browser allows six connections per host over all its tabs. So there are few: at most `MOST_FOCUSED` streams with a
// visible conversation in focus, and one without a focus where nothing is visible. All carry the durable events; what
// comes by several ways is told apart by its number. A tab names the number it stands at and gets what is behind it,
// from memory or, where that does not reach back, the advice to read anew (`reset`).

import type { Frame } from "../wire/sse";
import type { DurableEvent } from "../wire/types";
import { Stream, type State } from "./stream";

/** What a tab says. */
export type ToHub =
  /** Here I am, or I have changed. `cursor`: events up to it are in what I show; null: I could not read yet. */
  | { kind: "attend"; cursor: number | null; focus: string | null; visible: boolean }
  /** I am still here. */
  | { kind: "alive" }
  /** Time may have passed unnoticed, or the network changed. */
  | { kind: "doubt" }
  | { kind: "leave" };

/** What the hub says. */
export type FromHub =
  /** A durable event; each once, in the order of their numbers. */
  | { kind: "event"; event: DurableEvent }
  /** A frame of the conversation in focus. */
  | { kind: "frame"; name: string; data: unknown }
  /** Whether frames of the conversation come now; `whole`: its document comes first, without being asked for. */
  | { kind: "focus"; conversation: string; live: boolean; whole: boolean }
  | { kind: "state"; state: State; retryAt: number | null }
  /** What is behind your number cannot be told one by one: read anew, then attend with the number you read. */
  | { kind: "reset" }
  /** Nobody looks at this browser now, and this calls a person: you tell them. null: perhaps, somewhere in what is read. */
  | { kind: "call"; event: DurableEvent | null }
  /** I do not know you (any more): attend. */
  | { kind: "who" };

export interface Tab { post(message: FromHub): void }

interface Client {
  tab: Tab; cursor: number | null; focus: string | null; visible: boolean;
  /** When it was last shown and last heard, by a counter and in ms. */
  shown: number; heard: number;
  told: string; focused: string;
}

export const MOST_FOCUSED = 3;
/** Behind this many events nobody is told them one by one: reading anew is shorter. */
export const FAR = 300;
const KEPT = 500;
/** Timers of a hidden tab may run once a minute only; whoever is not heard for three is gone. */
const GONE_MS = 180_000;
const TICK_MS = 5_000;

export class Hub {
  #clients = new Map<string, Client>();
  #streams = new Map<string | null, Stream>();
  /** The newest number delivered, and the number from which on everything is kept. */
  #head: number | null = null;
  #floor = 0;
  #kept: DurableEvent[] = [];
  #count = 0;
  #tick: ReturnType<typeof setInterval> | null = null;
  #ticked = 0;

  /** `lone`: a hub for one tab only, which holds nothing while that tab is hidden. */
  constructor(private readonly lone = false) {}

  /** Someone says something; `tab` is the way back to them. */
  take(id: string, tab: Tab, message: ToHub): void {
    if (message.kind === "leave") return this.#leave(id);
    const client = this.#clients.get(id);
    if (message.kind === "attend") return this.#attend(id, tab, message, client);
    if (!client) return tab.post({ kind: "who" });
    client.heard = Date.now();
    if (message.kind === "doubt") this.doubt();
  }

  /** Time may have passed unnoticed, or the network changed. */
  doubt(): void {
    for (const stream of this.#streams.values()) stream.doubt();
  }

  close(): void {
    this.#clients.clear();
    this.#arrange();
  }

  // --- tabs

  #attend(id: string, tab: Tab, message: ToHub & { kind: "attend" }, known: Client | undefined): void {
    const client = known ?? {
      tab, cursor: null, focus: null, visible: false, shown: 0, heard: 0, told: "", focused: "",
    };
    client.heard = Date.now();
    if (message.visible && (!client.visible || client.focus !== message.focus)) client.shown = ++this.#count;
    client.focus = message.focus;
    client.visible = message.visible;
    this.#clients.set(id, client);
    if (message.cursor !== null && message.cursor > (client.cursor ?? -1)) {
      client.cursor = message.cursor;
      if (this.#head === null) this.#startAt(message.cursor);
    }
    this.#bring(client);
    this.#arrange();
  }

  /** Gives a tab what is behind its number, or says that it has to read. */
  #bring(client: Client): void {
    if (client.cursor === null || this.#head === null || client.cursor >= this.#head) return;
    if (client.cursor < this.#floor) {
      client.cursor = this.#head;
      client.tab.post({ kind: "reset" });
      return;
    }
    for (const event of this.#kept) this.#tell(client, event);
  }

  #tell(client: Client, event: DurableEvent): void {
    if (client.cursor === null || event.seq <= client.cursor) return;
    client.cursor = event.seq;
    client.tab.post({ kind: "event", event });
  }

  #leave(id: string): void {
    if (this.#clients.delete(id)) this.#arrange();
  }

  // --- connections

  /** Opens and closes streams so that they fit what is looked at; new ones first, so that no event waits. */
  #arrange(): void {
    const wanted = this.#wanted();
    for (const focus of wanted) if (!this.#streams.has(focus)) this.#start(focus);
    for (const [focus, stream] of this.#streams) {
      if (wanted.has(focus)) continue;
      this.#streams.delete(focus);
      stream.close();
    }
    if (this.#clients.size === 0) this.#forget();
    if (this.#clients.size > 0 && this.#tick === null) {
      this.#ticked = Date.now();
      this.#tick = setInterval(() => this.#beat(), TICK_MS);
    }
    for (const client of this.#clients.values()) {
      this.#tellFocus(client);
      this.#tellState(client);
    }
  }

  #wanted(): Set<string | null> {
    const visible = [...this.#clients.values()].filter((client) => client.visible);
    if (this.#clients.size === 0 || (this.lone && visible.length === 0)) return new Set();
    const focuses = visible.sort((a, b) => b.shown - a.shown).flatMap((client) => client.focus ?? []);
    const wanted = new Set<string | null>([...new Set(focuses)].slice(0, MOST_FOCUSED));
    return wanted.size > 0 ? wanted : new Set([null]);
  }

  #start(focus: string | null): void {
    const stream = new Stream(focus, () => this.#head, {
      frame: (frame) => this.#frame(stream, frame),
      state: () => {
        if (this.#streams.get(focus) !== stream) return;
        for (const client of this.#clients.values()) {
          this.#tellFocus(client);
          this.#tellState(client);
        }
      },
      refused: (status) => this.#refused(stream, status),
    });
    this.#streams.set(focus, stream);
    stream.open();
  }

  #refused(stream: Stream, status: number): void {
    if (this.#streams.get(stream.focus) !== stream) return;
    this.#streams.delete(stream.focus);
    if (stream.focus !== null && (status === 404 || this.#head === null)) {
      // A conversation that is gone cannot be followed; its tabs hear of it by its event.
      for (const client of this.#clients.values()) if (client.focus === stream.focus) client.focus = null;
    } else {
      // Numbers of another log: whatever was read was another database.
      this.#forget();
      for (const client of this.#clients.values()) client.cursor = null;
      for (const client of this.#clients.values()) client.tab.post({ kind: "reset" });
    }
    this.#arrange();
  }

  #forget(): void {
    this.#head = null;
    this.#kept = [];
    if (this.#clients.size === 0 && this.#tick !== null) {
      clearInterval(this.#tick);
      this.#tick = null;
    }
  }

  #startAt(seq: number): void {
    this.#head = this.#floor = seq;
    this.#kept = [];
  }

  /** Finds out that the machine slept, and that a tab is gone without a word. */
  #beat(): void {
    const now = Date.now();
    const slept = now - this.#ticked > 3 * TICK_MS;
    this.#ticked = now;
    if (slept) {
      for (const client of this.#clients.values()) client.heard = now;
      this.doubt();
    }
    const gone = [...this.#clients].filter(([, client]) => now - client.heard > GONE_MS);
    for (const [id] of gone) this.#clients.delete(id);
    if (gone.length > 0) this.#arrange();
  }

  // --- what comes

  #frame(stream: Stream, frame: Frame): void {
    if (this.#streams.get(stream.focus) !== stream) return;
    let data: unknown;
    try {
      data = JSON.parse(frame.data);
    } catch {
      return;
    }
    const seq = frame.id !== null && /^\d+$/.test(frame.id) ? Number(frame.id) : null;
    if (frame.event === "hello") return this.#hello((data as { seq: number }).seq, seq);
    if (frame.event === "reset") return this.#jump(seq ?? this.#head ?? 0);
    if (seq !== null) return this.#event({ ...(data as DurableEvent), seq, type: frame.event });
    for (const client of this.#clients.values()) {
      if (client.visible && client.focus === stream.focus) client.tab.post({ kind: "frame", name: frame.event, data });
    }
  }

  #hello(newest: number, id: number | null): void {
    if (id !== null && this.#head === null) this.#startAt(id);
    if (this.#head !== null && newest - this.#head > FAR) {
      this.#jump(newest);
      for (const each of this.#streams.values()) each.open();
    }
  }

  /** On from here: what lies between is not told one by one. */
  #jump(seq: number): void {
    this.#startAt(seq);
    this.#call(null);
    for (const client of this.#clients.values()) {
      if (client.cursor === null || client.cursor >= seq) continue;
      client.cursor = seq;
      client.tab.post({ kind: "reset" });
    }
  }

  #event(event: DurableEvent): void {
    if (this.#head !== null && event.seq <= this.#head) return;
    this.#head = event.seq;
    this.#kept.push(event);
    if (this.#kept.length > KEPT) this.#floor = this.#kept.shift()?.seq ?? this.#floor;
    for (const client of this.#clients.values()) this.#tell(client, event);
    const run = event.payload?.["run"] as { finished_at?: string | null } | undefined;
    if (event.type === "request.opened" || (event.type === "run.status" && run?.finished_at)) this.#call(event);
  }

  #call(event: DurableEvent | null): void {
    const clients = [...this.#clients.values()];
    if (clients.some((client) => client.visible)) return;
    const last = clients.sort((a, b) => b.shown - a.shown)[0];
    last?.tab.post({ kind: "call", event });
  }

  // --- what tabs are told of the connection

  #streamOf(client: Client): Stream | undefined {
    return this.#streams.get(client.visible ? client.focus : null) ?? this.#streams.values().next().value;
  }

  #tellState(client: Client): void {
    const stream = this.#streamOf(client);
    const state = stream?.state ?? "paused";
    const retryAt = stream?.retryAt ?? null;
    const told = `${state} ${retryAt}`;
    if (told === client.told) return;
    client.told = told;
    client.tab.post({ kind: "state", state, retryAt });
  }

  /** Tells whether frames come, once for each stream that brings them or fails to. */
  #tellFocus(client: Client): void {
    const conversation = client.visible ? client.focus : null;
    const stream = conversation === null ? undefined : this.#streams.get(conversation);
    const live = stream?.state === "open";
    const now = conversation === null ? "" : `${conversation} ${live}`;
    if (now === client.focused) return;
    // Who comes to a stream that is open already has missed the document that it began with.
    const whole = live && client.focused === `${conversation} false`;
    client.focused = now;
    if (conversation !== null) client.tab.post({ kind: "focus", conversation, live, whole });
  }
}
