import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { FAR, Hub, MOST_FOCUSED, type FromHub, type ToHub } from "../src/live/hub";
import { SILENCE_MS } from "../src/live/stream";
import { fact, frame, hello, Played, settled } from "./played";

let server: Played;

beforeEach(() => {
  vi.useFakeTimers();
  server = new Played();
  server.install();
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

/** A tab as the hub knows it: what it heard, and how it speaks. */
class Tab {
  heard: FromHub[] = [];
  constructor(readonly hub: Hub, readonly name: string) {}

  say(message: ToHub): void {
    this.hub.take(this.name, { post: (back) => this.heard.push(back) }, message);
  }
  attend(cursor: number | null, focus: string | null = null, visible = true): this {
    this.say({ kind: "attend", cursor, focus, visible });
    return this;
  }
  get events(): number[] {
    return this.heard.flatMap((message) => (message.kind === "event" ? [message.event.seq] : []));
  }
  of<K extends FromHub["kind"]>(kind: K): (FromHub & { kind: K })[] {
    return this.heard.filter((message): message is FromHub & { kind: K } => message.kind === kind);
  }
}

const tab = (hub: Hub, name: string): Tab => new Tab(hub, name);
const focuses = (): (string | null)[] => server.open.map((each) => each.url.searchParams.get("focus")).sort();

describe("events", () => {
  it("come over one stream to all tabs, to each once and from its own number on", async () => {
    const hub = new Hub();
    const a = tab(hub, "a").attend(5);
    const b = tab(hub, "b").attend(7, null, false);
    await settled();
    expect(server.streams.map((each) => each.url.search)).toEqual(["?after=5"]);
    server.last.say(hello(5) + fact(6) + fact(7) + fact(8));
    await settled();
    expect(a.events).toEqual([6, 7, 8]);
    expect(b.events).toEqual([8]);
    expect(a.of("state").at(-1)).toEqual({ kind: "state", state: "open", retryAt: null });
  });

  it("that a later tab has not seen come from memory; one that is too far behind is told to read", async () => {
    const hub = new Hub();
    tab(hub, "a").attend(5);
    await settled();
    server.last.say(hello(5) + fact(6) + fact(8));
    await settled();
    const near = tab(hub, "near").attend(6);
    const far = tab(hub, "far").attend(3);
    expect(near.events).toEqual([8]);
    expect([far.events, far.of("reset").length]).toEqual([[], 1]);
    far.attend(8);
    server.last.say(fact(9));
    await settled();
    expect(far.events).toEqual([9]);
    expect(server.streams).toHaveLength(1);
  });

  it("come once where several streams bring them, and a stream that is opened anew asks behind the newest", async () => {
    const hub = new Hub();
    const a = tab(hub, "a").attend(1, "x");
    tab(hub, "b").attend(1, "y");
    await settled();
    server.focused("x").say(hello(1) + fact(2) + fact(3));
    server.focused("y").say(hello(1) + fact(2) + fact(3) + fact(4));
    await settled();
    server.focused("x").say(fact(4) + fact(5));
    await settled();
    expect(a.events).toEqual([2, 3, 4, 5]);
    server.focused("y").end();
    await settled();
    await vi.advanceTimersByTimeAsync(300);
    expect(server.focused("y").url.searchParams.get("after")).toBe("5");
  });

  it("that are too many are not told one by one: all read anew, the stream goes on at the newest", async () => {
    const hub = new Hub();
    const a = tab(hub, "a").attend(10);
    await settled();
    server.last.say(hello(10 + FAR + 1) + fact(11));
    await settled();
    expect(a.events).toEqual([]);
    expect(a.of("reset")).toHaveLength(1);
    expect(a.of("call")).toEqual([]);
    expect(server.open.map((each) => each.url.search)).toEqual([`?after=${11 + FAR}`]);
    a.attend(11 + FAR);
    server.last.say(hello(11 + FAR) + fact(12 + FAR));
    await settled();
    expect(a.events).toEqual([12 + FAR]);
  });

  it("older than what the server keeps are read anew, once", async () => {
    const hub = new Hub();
    const a = tab(hub, "a").attend(10);
    await settled();
    server.last.say(hello(40) + 'id: 40\nevent: reset\ndata: {"reason":"cursor_too_old","seq":40}\n\n');
    await settled();
    expect(a.of("reset")).toHaveLength(1);
    a.attend(40);
    server.last.say(fact(41));
    await settled();
    expect(a.events).toEqual([41]);
  });

  it("of another log: a number that the server refuses is forgotten by all, and what it has is read", async () => {
    server.answers = [400];
    const hub = new Hub();
    const a = tab(hub, "a").attend(90);
    await settled();
    expect(a.of("reset")).toHaveLength(1);
    expect(server.open.map((each) => each.url.search)).toEqual([""]);
    server.last.say(hello(12, 12));
    a.attend(12);
    server.last.say(fact(13));
    await settled();
    expect(a.events).toEqual([13]);
  });

  it("wait for a tab that could not read yet", async () => {
    const hub = new Hub();
    const a = tab(hub, "a").attend(null);
    await settled();
    server.last.say(hello(3, 3) + fact(4));
    await settled();
    expect(a.events).toEqual([]);
    a.attend(3);
    expect(a.events).toEqual([4]);
  });
});

describe("focus", () => {
  it("has a stream for each of the visible conversations shown last, none for hidden ones, one without for none", async () => {
    const hub = new Hub();
    const tabs = ["p", "q", "r", "s"].map((name) => tab(hub, name).attend(1, name));
    await settled();
    expect(MOST_FOCUSED).toBe(3);
    expect(focuses()).toEqual(["q", "r", "s"]);
    tabs[3]?.attend(1, "s", false);
    await settled();
    expect(focuses()).toEqual(["p", "q", "r"]);
    for (const each of tabs) each.attend(1, each.name, false);
    await settled();
    expect(focuses()).toEqual([null]);
    for (const each of tabs) each.say({ kind: "leave" });
    await settled();
    expect(focuses()).toEqual([]);
  });

  it("is shared by tabs of one conversation; who comes later is told that the document was sent already", async () => {
    const hub = new Hub();
    const a = tab(hub, "a").attend(1, "x");
    await settled();
    server.last.say(hello(1) + frame("run.document", { run_id: "r" }));
    await settled();
    const b = tab(hub, "b").attend(1, "x");
    const hidden = tab(hub, "c").attend(1, "x", false);
    server.last.say(frame("run.text", { run_id: "r" }));
    await settled();
    expect(a.of("focus").at(-1)).toMatchObject({ live: true, whole: true });
    expect(b.of("focus").at(-1)).toMatchObject({ live: true, whole: false });
    expect(a.of("frame").map((each) => each.name)).toEqual(["run.document", "run.text"]);
    expect(b.of("frame").map((each) => each.name)).toEqual(["run.text"]);
    expect([hidden.of("frame"), hidden.of("focus")]).toEqual([[], []]);
    expect(server.streams).toHaveLength(1);
  });

  it("is told to have no frames while its stream is away or has no place", async () => {
    const hub = new Hub();
    const tabs = ["p", "q", "r", "s"].map((name) => tab(hub, name).attend(1, name));
    await settled();
    for (const each of server.open) each.say(hello(1));
    await settled();
    expect(tabs.map((each) => each.of("focus").at(-1)?.live)).toEqual([false, true, true, true]);
    expect(tabs[0]?.of("state").at(-1)?.state).toBe("open");
    server.focused("q").end();
    await settled();
    expect(tabs[1]?.of("focus").at(-1)).toMatchObject({ live: false });
  });

  it("on a conversation that is gone is given up, and events go on", async () => {
    const hub = new Hub();
    server.answers = [404];
    const a = tab(hub, "a").attend(1, "gone");
    await settled();
    expect(focuses()).toEqual([null]);
    server.last.say(hello(1) + fact(2, "conversation.deleted"));
    await settled();
    expect(a.events).toEqual([2]);
  });
});

describe("a dead connection", () => {
  it("that is silent for two and a half heartbeats is opened anew behind the last number", async () => {
    const hub = new Hub();
    const a = tab(hub, "a").attend(5);
    await settled();
    server.last.say(hello(5) + fact(6));
    await settled();
    await vi.advanceTimersByTimeAsync(SILENCE_MS - 100);
    server.last.say(":\n\n");
    await settled();
    await vi.advanceTimersByTimeAsync(SILENCE_MS - 100);
    expect(server.streams).toHaveLength(1);
    await vi.advanceTimersByTimeAsync(100 + 300);
    expect(server.streams.map((each) => each.url.search)).toEqual(["?after=5", "?after=6"]);
    server.last.say(hello(7) + fact(7));
    await settled();
    expect(a.events).toEqual([6, 7]);
  });

  it("is tried again, later each time, and at once when somebody asks", async () => {
    server.answers = [0, 0, 503];
    const hub = new Hub();
    const a = tab(hub, "a").attend(5);
    await settled();
    expect(a.of("state").at(-1)?.state).toBe("waiting");
    await vi.advanceTimersByTimeAsync(250);
    await vi.advanceTimersByTimeAsync(500);
    expect(a.of("state").at(-1)).toMatchObject({ state: "waiting", retryAt: Date.now() + 1_000 });
    a.say({ kind: "doubt" });
    await settled();
    server.last.say(hello(5));
    await settled();
    expect(a.of("state").at(-1)?.state).toBe("open");
  });

  it("is doubted after a sleep, but a lively one is not", async () => {
    const hub = new Hub();
    const a = tab(hub, "a").attend(5);
    await settled();
    server.last.say(hello(5));
    await settled();
    a.say({ kind: "doubt" });
    expect(server.streams).toHaveLength(1);
    await vi.advanceTimersByTimeAsync(9_000);
    server.last.say(":\n\n");
    await settled();
    vi.setSystemTime(Date.now() + 3_600_000); // asleep: the clock goes on, timers and sockets do not
    const spent = performance.now() + 3_600_000;
    vi.spyOn(performance, "now").mockReturnValue(spent);
    await vi.advanceTimersByTimeAsync(5_000);
    expect(server.streams).toHaveLength(2);
    expect(a.of("who")).toEqual([]); // nobody was forgotten for having slept
    vi.restoreAllMocks();
  });
});

describe("tabs", () => {
  it("that say nothing for three minutes are forgotten, and asked who they are when they speak again", async () => {
    const hub = new Hub();
    const a = tab(hub, "a").attend(5);
    const b = tab(hub, "b").attend(5);
    await settled();
    for (let spent = 0; spent < 190_000; spent += 4_000) {
      a.say({ kind: "alive" });
      server.last.say(":\n\n");
      await vi.advanceTimersByTimeAsync(4_000);
    }
    server.last.say(hello(5) + fact(6));
    await settled();
    expect([a.events, b.events]).toEqual([[6], []]);
    b.say({ kind: "alive" });
    expect(b.of("who")).toHaveLength(1);
    b.attend(5);
    expect(b.events).toEqual([6]);
  });

  it("on their own hold nothing while they are hidden", async () => {
    const hub = new Hub(true);
    const a = tab(hub, "a").attend(5, "x");
    await settled();
    server.last.say(hello(5) + fact(6));
    await settled();
    a.attend(6, "x", false);
    await settled();
    expect(focuses()).toEqual([]);
    expect(a.of("state").at(-1)?.state).toBe("paused");
    a.attend(6, "x", true);
    await settled();
    expect(server.open.map((each) => each.url.search)).toEqual(["?focus=x&after=6"]);
  });
});

describe("a call", () => {
  const ended = { run: { status: "failed", finished_at: "2026-11-29T13:46:04Z" } };

  it("goes to the tab that was shown last, and only while none is shown", async () => {
    const hub = new Hub();
    const a = tab(hub, "a").attend(1);
    const b = tab(hub, "b").attend(1);
    await settled();
    server.last.say(hello(1) + fact(2, "run.status", ended));
    await settled();
    for (const each of [a, b]) each.attend(2, null, false);
    await settled();
    server.last.say(fact(3, "run.status", { run: { status: "running", finished_at: null } }));
    server.last.say(fact(4, "request.opened", { request: { id: "q" } }) + fact(5, "run.status", ended) + fact(6));
    await settled();
    expect(a.of("call")).toEqual([]);
    expect(b.of("call").map((each) => each.event?.seq)).toEqual([4, 5]);
    server.last.say('id: 90\nevent: reset\ndata: {"reason":"cursor_too_old","seq":90}\n\n');
    await settled();
    expect(b.heard.slice(-2)).toEqual([{ kind: "call", event: null }, { kind: "reset" }]);
  });
});
