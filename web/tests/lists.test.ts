import fc from "fast-check";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { Lists } from "../src/state/lists.svelte";
import { callOf } from "../src/state/caller.svelte";
import type { Conversation, DurableEvent, Overview, Request, Run } from "../src/wire/types";

const AT = (n: number): string => `2026-11-29T13:00:${String(n).padStart(2, "0")}Z`;

const conversation = (id: string, n: number, more: Partial<Conversation> = {}): Conversation => ({
  id, title: id.toUpperCase(), status: "completed", created_at: AT(0), updated_at: AT(n), unseen: false, ...more,
});
const run = (id: string, conversation: string, version: number, more: Partial<Run> = {}): Run => ({
  id, conversation_id: conversation, status: "running", reason: "claimed", error_code: null, error_message: null, attempt: 1,
  crashes: 0, version, wait: null, stop: null, anchor_message_id: null, created_at: AT(1), started_at: AT(1), finished_at: null, ...more,
});
const request = (id: string, conversation: string, n: number): Request => ({
  id, run_id: `run of ${conversation}`, conversation_id: conversation, kind: "question", prompt: "which?", status: "open", opened_at: AT(n),
});
const event = (seq: number, type: string, conversation_id: string, payload: Record<string, unknown>): DurableEvent => ({
  seq, type, conversation_id, run_id: null, at: AT(seq), payload,
});
const overview = (seq: number, more: Partial<Overview> = {}): Overview => ({
  seq, unseen: 0, conversations: { items: [], next_cursor: null }, also: [], runs: { items: [], next_cursor: null },
  requests: { items: [], next_cursor: null }, ...more,
});

/** Requests that wait for their answer; the oldest gets it. */
let asked: ((value: Overview) => void)[] = [];
const answer = (value: Overview): void => asked.shift()?.(value);

beforeEach(() => {
  asked = [];
  vi.stubGlobal("document", { hidden: false });
  vi.stubGlobal("fetch", () => new Promise((done) => asked.push((value) => done(new Response(JSON.stringify(value))))));
});

async function read(lists: Lists, value: Overview): Promise<void> {
  const loading = lists.load();
  answer(value);
  await loading;
}

const PAGE: Overview["conversations"] = {
  items: [conversation("a", 9), conversation("b", 8, { unseen: true }), conversation("c", 7, { status: "running" })], next_cursor: null,
};

describe("the lists", () => {
  it("put what needs a person first, in the order in which it was asked, then what runs, then the rest", async () => {
    const lists = new Lists();
    await read(lists, overview(5, {
      conversations: PAGE, also: [conversation("old", 1, { status: "waiting_input" })], unseen: 2,
      runs: { items: [run("r", "c", 2), run("run of old", "old", 4, { status: "waiting_input" })], next_cursor: null },
      requests: { items: [request("q2", "a", 4), request("q1", "old", 3)], next_cursor: null },
    }));
    expect(lists.needsYou.map((c) => c.title)).toEqual(["OLD", "A"]);
    expect(lists.running.map((r) => r.id)).toEqual(["r"]);
    expect(lists.rest.map((c) => c.id)).toEqual(["b"]);
    expect([lists.unseen, lists.changed]).toEqual([2, 2]);
    lists.apply(event(6, "request.opened", "b", { request: request("q3", "b", 6) }));
    expect([lists.unseen, lists.changed]).toEqual([2, 1]);
    lists.apply(event(7, "run.status", "a", { run: run("ra", "a", 2, { status: "completed", finished_at: AT(7) }), conversation: conversation("a", 9, { unseen: true }) }));
    expect([lists.unseen, lists.changed]).toEqual([3, 1]); // it needs the person, so it is listed above
    lists.apply(event(8, "request.closed", "a", { request: { ...request("q2", "a", 4), status: "decided" } }));
    expect(lists.changed).toBe(2);
    lists.looking = "a";
    expect(lists.changed).toBe(1);
  });

  it("follow events: a question comes and goes, a run ends and calls, a look takes the mark away", async () => {
    const lists = new Lists();
    await read(lists, overview(5, { conversations: PAGE, unseen: 1, runs: { items: [run("r", "c", 2)], next_cursor: null } }));
    lists.apply(event(6, "request.opened", "c", { request: request("q", "c", 6) }));
    expect([lists.needsYou.map((c) => c.id), lists.unseen]).toEqual([["c"], 2]);
    lists.apply(event(7, "request.closed", "c", { request: { ...request("q", "c", 6), status: "decided" } }));
    const end = run("r", "c", 5, { status: "completed", finished_at: AT(8), line: "It is seven." });
    lists.apply(event(8, "run.status", "c", { run: end, document: {}, conversation: conversation("c", 20, { unseen: true }) }));
    expect([lists.needsYou, lists.running]).toEqual([[], []]);
    expect(lists.rest.map((c) => [c.id, c.unseen, c.line])).toEqual([["c", true, "It is seven."], ["a", false, undefined], ["b", true, undefined]]);
    expect(lists.unseen).toBe(2);
    lists.apply(event(9, "conversation.changed", "c", { conversation: conversation("c", 20) }));
    expect(lists.unseen).toBe(1);
    lists.apply(event(10, "conversation.deleted", "b", { id: "b" }));
    expect([lists.unseen, lists.rest.map((c) => c.id)]).toEqual([0, ["c", "a"]]);
  });

  it("tell who has a run from events and keep it while a list says nothing newer", async () => {
    const lists = new Lists();
    await read(lists, overview(5, { conversations: PAGE }));
    lists.apply(event(6, "run.status", "c", { run: run("r", "c", 2), document: { owner: { kind: "adapter", seen_at: AT(6) } } }));
    lists.putRun(run("r", "c", 2));
    expect(lists.runs["c"]?.owner?.kind).toBe("adapter");
  });

  it("are the same whether events come before, during or after the read, and however often", async () => {
    // Each event is what the server's log says; the overview at number n holds exactly the first n of them.
    const kinds = fc.constantFrom("opened", "closed", "running", "ended", "seen");
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(kinds, fc.constantFrom("a", "b", "c")), { maxLength: 14 }), fc.nat(14), fc.nat(14), async (facts, readAt, startedAt) => {
        const log = facts.map(([kind, id], i) => {
          const seq = i + 1;
          if (kind === "opened") return event(seq, "request.opened", id, { request: request(`q${id}`, id, 1) });
          if (kind === "closed") return event(seq, "request.closed", id, { request: { ...request(`q${id}`, id, 1), status: "decided" } });
          if (kind === "seen") return event(seq, "conversation.changed", id, { conversation: conversation(id, 3) });
          const ended = kind === "ended";
          const of = run(`r${id}`, id, seq, ended ? { status: "completed", finished_at: AT(seq) } : {});
          return event(seq, "run.status", id, { run: of, document: { owner: null }, ...(ended ? { conversation: conversation(id, 3, { unseen: true }) } : {}) });
        });
        const at = Math.min(readAt, log.length);
        const started = Math.min(startedAt, at);

        const shown = (lists: Lists): unknown => [
          lists.needsYou.map((c) => c.id), lists.running.map((r) => [r.id, r.version]).sort(), lists.unseen,
          lists.conversations.map((c) => [c.id, c.unseen, c.status]).sort(),
        ];
        const start = { conversations: { items: ["a", "b", "c"].map((id) => conversation(id, 3, { status: "idle" })), next_cursor: null } };
        asked = []; // a list may have asked again, and was left without an answer
        const whole = new Lists();
        await read(whole, overview(0, start));
        for (const each of log.slice(0, at)) whole.apply(each);
        const served = overview(at, {
          conversations: { items: [...whole.conversations], next_cursor: null }, unseen: whole.unseen,
          runs: { items: Object.values(whole.runs).filter((r) => r.status === "running"), next_cursor: null },
          requests: { items: Object.values(whole.requests), next_cursor: null },
        });
        for (const each of log.slice(at)) whole.apply(each);

        asked = [];
        const raced = new Lists();
        const loading = raced.load();
        for (const each of log.slice(started)) raced.apply(each);
        answer(served);
        await loading;
        for (const each of log) raced.apply(each); // a replay brings nothing new
        expect(shown(raced)).toEqual(shown(whole));
      }),
      { numRuns: 200 },
    );
  });
});

describe("what a person is told who does not look", () => {
  const told = (payload: object, type = "run.status"): unknown => callOf(event(9, type, "c", payload as Record<string, unknown>), () => "Trip\u202e");

  it("names the conversation and what it needs, with hidden characters visible", () => {
    expect(told({ request: request("q", "c", 1) }, "request.opened")).toEqual({ title: "Needs you: Trip⟨U+202E⟩", body: "which?", conversation: "c" });
    expect(told({ request: { ...request("q", "c", 1), prompt: null, kind: "approval", tool: "pay" } }, "request.opened")).toMatchObject({ body: "approve pay" });
  });

  it("is the end of a run that the person did not bring about", () => {
    const end = (status: Run["status"], more: Partial<Run> = {}): unknown => told({ run: run("r", "c", 3, { status, finished_at: AT(3), ...more }) });
    expect(end("completed", { line: "**Seven.**" })).toMatchObject({ title: expect.stringMatching(/^Done: /) as string, body: "Seven." });
    expect(end("failed", { error_message: "No key." })).toMatchObject({ title: expect.stringMatching(/^Failed: /) as string, body: "No key." });
    expect(end("interrupted", { reason: "owner_lost" })).not.toBeNull();
    expect(end("interrupted", { reason: "superseded" })).toBeNull();
    expect(end("cancelled")).toBeNull();
    expect(end("running")).toBeNull();
  });
});
