import { beforeEach, describe, expect, it, vi } from "vitest";
import { Actions, type Took } from "../src/state/actions.svelte";
import type { Followup, Request } from "../src/wire/types";

interface Sent { method: string; path: string; key: string | null; body: unknown; answer(status: number, body: object): void; lose(): void }

let sent: Sent[] = [];

beforeEach(() => {
  sent = [];
  vi.stubGlobal("fetch", (path: string, init: { method: string; headers: Record<string, string>; body?: string }) =>
    new Promise((done, fail) => {
      sent.push({
        method: init.method, path, key: init.headers["Idempotency-Key"] ?? null, body: init.body ? (JSON.parse(init.body) as unknown) : null,
        answer: (status, body) => done(new Response(JSON.stringify(body), { status })),
        lose: () => fail(new TypeError("connection reset")),
      });
    }));
});

class Page extends Actions {
  taken: [string, Took][] = [];
  read = 0;
  left: string[] = [];
  late: Request[] = [];
  leave: string[] = [];
  protected take(conversation: string, answer: Took): void {
    this.taken.push([conversation, answer]);
  }
  protected again(): void {
    this.read += 1;
  }
  protected overtaken(request: Request): void {
    this.late.push(request);
  }
  protected allowed(conversation: string): void {
    this.leave.push(conversation);
  }
  protected gone(conversation: string): Promise<void> {
    this.left.push(conversation);
    return Promise.resolve();
  }
}

const last = (): Sent => sent.at(-1) ?? (() => { throw new Error("nothing was sent"); })();
const run = { id: "r", conversation_id: "c", status: "cancelling" };
const followup = { id: "f", conversation_id: "c", run_id: "r", status: "waiting", when_busy: "queue", content: "later", position: 1, version: 3, created_at: "" } as Followup;
const request: Request = { id: "q", run_id: "r", conversation_id: "c", kind: "approval", version: 2, arguments_sha256: "abc", status: "open" };

describe("an action", () => {
  it("is sent once however often it is clicked, and nothing is taken before the server has answered", async () => {
    const page = new Page();
    const clicks = [page.stop("r"), page.stop("r"), page.stop("r")];
    expect(sent.map((each) => each.path)).toEqual(["/v1/runs/r/cancel"]);
    expect(page.taken).toEqual([]);
    last().answer(202, { run });
    await Promise.all(clicks);
    expect(page.taken).toEqual([["c", { run }]]);
  });

  it("carries the same key again where its answer was lost, and another one after it worked", async () => {
    const page = new Page();
    const lost = page.stop("r");
    last().lose();
    await lost;
    expect(page.notice).toContain("did not answer");
    const again = page.stop("r");
    expect(page.notice).toBeNull();
    last().answer(202, { run });
    await again;
    const later = page.stop("r");
    last().answer(200, { run });
    await later;
    const keys = sent.map((each) => each.key);
    expect(keys[0]).toBeTruthy();
    expect(keys[1]).toBe(keys[0]);
    expect(keys[2]).not.toBe(keys[0]);
  });

  it("that is refused shows the server's words, and what is there is read where it has changed", async () => {
    const page = new Page();
    const edit = page.editFollowup(followup, "sooner");
    expect(last()).toMatchObject({ method: "PATCH", path: "/v1/followups/f", body: { content: "sooner", version: 3 } });
    last().answer(409, { code: "version_conflict", detail: "It was taken meanwhile; look again." });
    expect(await edit).toBe(false);
    expect([page.notice, page.read, page.taken]).toEqual(["It was taken meanwhile; look again.", 1, []]);
    const remove = page.removeFollowup(followup);
    last().answer(400, { code: "validation_failed", detail: "Give a version." });
    expect(await remove).toBe(false);
    expect([page.notice, page.read]).toEqual(["Give a version.", 1]);
  });

  it("on a conversation that somebody else deleted first has worked", async () => {
    const page = new Page();
    const removed = page.remove("c");
    last().answer(404, { code: "not_found", detail: "There is no such conversation." });
    expect([await removed, page.left, page.notice]).toEqual([true, ["c"], null]);
  });
});

describe("a decision", () => {
  it("names what was shown, and its answer is taken", async () => {
    const page = new Page();
    const decided = page.decide(request, { decision: "deny", comment: "not this" });
    expect(last().body).toEqual({ decision: "deny", comment: "not this", request_version: 2, arguments_sha256: "abc" });
    expect(last().key).toBeTruthy();
    const after = { ...request, status: "decided" };
    last().answer(200, { request: after, run });
    expect(await decided).toEqual({ request: after, problem: null });
    expect(page.taken).toEqual([["c", { request: after, run }]]);
  });

  it("that somebody else was first with tells who, takes the request as it is, and reads anew", async () => {
    const page = new Page();
    const decided = page.decide(request, { decision: "approve" });
    const theirs = { ...request, status: "decided", decided_by: "bert" };
    last().answer(409, { code: "already_decided", detail: "Bert denied it.", request: theirs });
    expect(await decided).toEqual({ request: theirs, problem: "Bert denied it." });
    expect(page.taken).toEqual([["c", { request: theirs }]]);
    expect([page.read, page.late]).toEqual([1, [theirs]]);
  });

  it("with leave for good says so once it was given", async () => {
    const page = new Page();
    const decided = page.decide(request, { decision: "approve", grant: "call" });
    expect(last().body).toMatchObject({ decision: "approve", grant: "call" });
    expect(page.leave).toEqual([]);
    last().answer(200, { request: { ...request, status: "decided" }, run });
    await decided;
    expect([page.leave, page.late]).toEqual([["c"], []]);
  });

  it("with a wrong answer says each fault at its place and leaves the request open", async () => {
    const page = new Page();
    const decided = page.decide(request, { decision: "answer", answer: { due: "soon" } });
    const errors = [{ code: "schema", path: "/answer/due", message: "write a date" }];
    last().answer(400, { code: "validation_failed", detail: "The answer does not fit.", errors });
    expect(await decided).toEqual({ request: null, problem: "The answer does not fit.", faults: errors });
    expect([page.read, page.taken]).toEqual([0, []]);
  });

  it("whose answer is lost is the same request when it is tried again; another decision is another", async () => {
    const page = new Page();
    for (const decision of ["approve", "approve", "deny"] as const) {
      const decided = page.decide(request, { decision });
      last().lose();
      await decided;
    }
    const [first, second, third] = sent.map((each) => each.key);
    expect(second).toBe(first);
    expect(third).not.toBe(first);
  });
});
