import { describe, expect, test } from "vitest";
import * as past from "../src/live/history";
import type { ConversationAnswer, DurableEvent, Followup, Message, Run } from "../src/wire/types";

const message = (id: string, extra: Partial<Message> = {}): Message => ({
  id, role: "user", kind: "text", content: id, status: null, run_id: null, created_at: "2026-01-01T00:00:00Z", ...extra,
});
const run = (id: string, version: number, extra: Partial<Run> = {}): Run => ({
  id, conversation_id: "c", status: "running", reason: "claimed", error_code: null, error_message: null, attempt: 1, crashes: 0, version,
  wait: null, stop: null, anchor_message_id: null, created_at: "2026-01-01T00:00:00Z", started_at: null, finished_at: null, ...extra,
});
const followup = (id: string, version: number, extra: Partial<Followup> = {}): Followup => ({
  id, conversation_id: "c", run_id: "r", status: "waiting", when_busy: "queue", content: id, position: 1, version, created_at: "", ...extra,
});
const answer = (extra: Partial<ConversationAnswer> = {}): ConversationAnswer => ({
  conversation: { id: "c", title: "t", updated_at: "" }, messages: [message("1"), message("2")], runs: [], requests: [], followups: [],
  resumable: false, seq: 5, ...extra,
});
const event = (seq: number, type: string, payload: Record<string, unknown>, conversation_id = "c"): DurableEvent => ({
  seq, type, conversation_id, at: "", payload,
});
const ids = (history: past.History): string[] => history.messages.map((m) => m.id);

describe("the history", () => {
  test("takes events after its read and leaves those it already holds", () => {
    const start = past.fromAnswer(answer());
    expect(past.applyEvent(start, event(5, "message.created", { message: message("3") }))).toBe(start);
    expect(ids(past.applyEvent(start, event(6, "message.created", { message: message("3") })))).toEqual(["1", "2", "3"]);
    expect(past.applyEvent(start, event(6, "message.created", { message: message("3") }, "other"))).toBe(start);
  });

  test("takes the same message once, and its newer content", () => {
    let history = past.fromAnswer(answer());
    history = past.applyEvent(history, event(6, "message.created", { message: message("3") }));
    history = past.applyEvent(history, event(7, "message.updated", { message: message("3", { content: "new" }) }));
    expect(ids(history)).toEqual(["1", "2", "3"]);
    expect(history.messages[2]?.content).toBe("new");
  });

  test("learns from a run's status which follow-ups it has taken over, and never goes back to an older one", () => {
    let history = past.fromAnswer(answer({ followups: [followup("f", 1), followup("g", 4)] }));
    const document = { followups: [followup("f", 2, { run_id: "s" }), followup("g", 3, { run_id: "s" })] };
    history = past.applyEvent(history, event(6, "run.status", { run: run("s", 1, { status: "queued" }), document }));
    expect(past.openFollowups(history).map((f) => [f.id, f.run_id, f.version])).toEqual([["f", "s", 2], ["g", "r", 4]]);
    expect(past.liveRun(history)?.id).toBe("s");
  });

  test("is drawn in stretches whose bounds stay when older pages and newer messages come", () => {
    const many = (from: number, to: number): Message[] => Array.from({ length: to - from }, (_, i) => message(`${from + i}`));
    const start = past.stretches(many(100, 130), "100");
    expect(start.map((s) => [s.key, s.messages.length])).toEqual([[0, 25], [1, 5]]);
    const grown = past.stretches(many(60, 140), "100");
    expect(grown.map((s) => [s.key, s.messages.length])).toEqual([[-2, 15], [-1, 25], [0, 25], [1, 15]]);
    expect(grown[2]?.messages[0]?.id).toBe("100");
    expect(past.stretches([], null)).toEqual([]);
  });

  test("never takes a run or follow-up back to an older version", () => {
    let history = past.fromAnswer(answer({ runs: [run("r", 4)], followups: [followup("f", 2)] }));
    history = past.applyEvent(history, event(6, "run.status", { run: run("r", 3, { status: "queued" }) }));
    history = past.applyEvent(history, event(7, "followup.changed", { followup: followup("f", 1, { status: "held" }) }));
    expect(history.runs["r"]?.status).toBe("running");
    expect(history.followups["f"]?.status).toBe("waiting");
    expect(history.seq).toBe(7);
  });

  test("puts a newer page in order between older pages and later events", () => {
    const old = ["a", "b", "d", "x"].map((id) => message(id));
    expect(past.mergePage(old, [message("b"), message("c"), message("d")]).map((m) => m.id)).toEqual(["a", "b", "c", "d", "x"]);
    expect(past.mergePage(old, [message("z")]).map((m) => m.id)).toEqual(["z"]);
    expect(past.mergePage(old, [])).toBe(old);
  });

  test("puts an older page before, without repeating what is here", () => {
    const history = past.prependPage(past.fromAnswer(answer()), { items: [message("0"), message("1")], next_cursor: "more" });
    expect(ids(history)).toEqual(["0", "1", "2"]);
    expect(history.before).toBe("more");
  });

  test("knows where older messages are, also after the newest page is read again", () => {
    let history = past.fromAnswer(answer({ next_cursor: "p1" }));
    history = past.prependPage(history, { items: [message("0")], next_cursor: "p0" });
    expect(past.fromAnswer(answer({ next_cursor: "p1" }), history)).toMatchObject({ before: "p0" });
    expect(past.fromAnswer(answer({ messages: [message("9")], next_cursor: "p8" }), history)).toMatchObject({ before: "p8" });
  });

  test("offers nothing to continue once a run is live", () => {
    const history = past.fromAnswer(answer({ resumable: true }));
    expect(past.putRun(history, run("r", 1)).resumable).toBe(false);
  });

  test("lists open follow-ups by their position", () => {
    const history = past.fromAnswer(answer({ followups: [followup("b", 1, { position: 2 }), followup("a", 1), followup("z", 1, { status: "applied" })] }));
    expect(past.openFollowups(history).map((f) => f.id)).toEqual(["a", "b"]);
  });

  test("knows the live run and the last one", () => {
    const history = past.fromAnswer(answer({ runs: [run("2", 1, { created_at: "2026-01-02T00:00:00Z" })] }));
    const more = past.putRun(history, run("1", 1, { status: "failed" }));
    expect(past.liveRun(more)?.id).toBe("2");
    expect(past.lastRun(more)?.id).toBe("2");
  });
});
