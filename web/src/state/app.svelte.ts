// The page's state: which conversation is open, its history and live documents, and the stream that feeds them.
// It draws from the server's answers and events only. All values are replaced, never changed in place.

import { api, newKey, Problem } from "../wire/api";
import type {
  Agent, Choice, Decided, Decision, DocumentAnswer, DurableEvent, Followup, Message, Page, Request, Run, RunStatusPayload,
} from "../wire/types";
import { Connection, type State } from "../live/connection";
import * as live from "../live/document";
import * as past from "../live/history";
import { documentOf, isLive, usedTokens } from "../text/status";
import type { RunDocument } from "../wire/types";
import { UNCHOSEN } from "./choices.svelte";
import { Lists } from "./lists.svelte";
import { Seen } from "./seen";
import { throttle } from "./throttle";

const DURABLE = new Set([
  "run.status", "request.opened", "request.closed", "message.created", "message.updated", "followup.changed",
  "conversation.changed", "conversation.deleted",
]);

class App {
  lists = new Lists();
  agents = $state.raw<Agent[]>([]);
  /** The conversation in focus; null is the first screen. */
  open = $state<string | null>(null);
  history = $state.raw<past.History | null>(null);
  documents = $state.raw<Record<string, live.LiveRun>>({});
  loading = $state(false);
  /** Why the open conversation cannot be shown; `missing` where it does not exist (any more). */
  problem = $state.raw<{ text: string; missing: boolean } | null>(null);
  stream = $state<State>("connecting");
  retryAt = $state<number | null>(null);
  /** A short sentence about an action that failed, shown until it is closed or the next action. */
  notice = $state<string | null>(null);

  run = $derived(this.history ? past.liveRun(this.history) : null);
  last = $derived(this.history ? past.lastRun(this.history) : null);

  #connection = new Connection({
    frame: (event, data, id) => this.#frame(event, data, id),
    state: (state, retryAt) => {
      this.stream = state;
      this.retryAt = retryAt;
    },
  });
  #opening: AbortController | null = null;
  /** Events that come while the conversation is read: the read may be older than they are. */
  #meanwhile: DurableEvent[] | null = null;
  #reread = throttle(() => this.#load(), 400);
  #fetching = new Map<string, () => void>();
  #seen = new Seen((conversation) => this.lists.markSeen(conversation));
  #keys = new Map<string, string>();

  start(): void {
    addEventListener("popstate", () => void this.#show(idOf(location.pathname)));
    setInterval(() => {
      const elsewhere = this.lists.running.some((run) => run.conversation_id !== this.open);
      if (elsewhere && !document.hidden) this.lists.refresh();
    }, 5_000);
    void this.#show(idOf(location.pathname)).then(() => this.#connection.start());
  }

  async go(conversation: string | null): Promise<void> {
    const path = conversation === null ? "/" : `/c/${conversation}`;
    if (location.pathname !== path) history.pushState(null, "", path);
    await this.#show(conversation);
  }

  retryNow(): void {
    this.#connection.reconnect();
    if (this.open !== null && !this.history) void this.#load();
  }

  /** What a run's box draws: its live document where there is one, else what the lists say. */
  documentFor(run: Run): RunDocument {
    const kept = this.documents[run.id];
    if (!kept) return documentOf(run);
    const { document } = kept;
    const rest = { line: document.line ?? run.line ?? null, usage: usedTokens(document.usage) ? (document.usage ?? null) : (run.usage ?? null) };
    if (document.run_version >= run.version) return { ...document, ...rest };
    return { ...document, ...documentOf(run), ...rest, followups: document.followups, requests: document.requests };
  }

  async older(): Promise<void> {
    const before = this.history;
    if (!before?.before) return;
    const page = await api.messages(before.conversation.id, before.before, past.PAGE);
    const runs = await this.#runsFor(page.items, before);
    const now = this.history;
    if (now?.conversation.id === before.conversation.id && now.before === before.before) this.history = past.prependPage(now, page, runs);
  }

  /** The runs those older messages stand for: pages of runs, newest first, until none is missing. */
  async #runsFor(messages: Message[], { conversation, runs, olderRuns }: past.History): Promise<Page<Run>> {
    let known = runs;
    let cursor = olderRuns;
    while (cursor !== null && past.lacksRuns(messages, known)) {
      const page = await api.runsOf(conversation.id, cursor);
      known = past.addRuns(known, page.items);
      cursor = page.next_cursor;
    }
    return { items: Object.values(known), next_cursor: cursor };
  }

  // --- actions -------------------------------------------------------------------------------------------------

  async stop(run: string): Promise<void> {
    await this.#act(`cancel ${run}`, async (key) => this.#putRun((await api.cancel(run, key)).run));
  }

  async resume(conversation: string, run: string): Promise<void> {
    await this.#act(`continue ${run}`, async (key) => {
      this.#putRun((await api.resume(conversation, key)).run);
      this.#reread();
    });
  }

  /** A person's word on a request. It says what became of it, also where somebody else was first. */
  async decide(request: Request, decision: Decision): Promise<Decided> {
    const name = `decide ${request.id} ${request.version} ${JSON.stringify(decision)}`;
    const key = this.#keys.get(name) ?? newKey();
    this.#keys.set(name, key);
    try {
      const answer = await api.decide(request, decision, key);
      this.#keys.delete(name);
      this.#putRun(answer.run);
      return { request: answer.request, problem: null };
    } catch (error) {
      if (!(error instanceof Problem)) return { request: null, problem: String(error) };
      if (error.status === 409) this.#reread();
      const faults = error.body["errors"] as { path: string; message: string }[] | undefined;
      return { request: (error.body["request"] as Request | undefined) ?? null, problem: error.message, ...(faults && { faults }) };
    }
  }

  async editFollowup(followup: Followup, content: string): Promise<boolean> {
    return this.#act(null, async () => this.#putFollowup(await api.editFollowup(followup, content)));
  }

  async removeFollowup(followup: Followup): Promise<boolean> {
    return this.#act(null, async () => this.#putFollowup(await api.removeFollowup(followup)));
  }

  /** Puts it at a place among those that wait, counted from 0. */
  async moveFollowup(followup: Followup, place: number): Promise<boolean> {
    return this.#act(null, async () => this.#putFollowup(await api.moveFollowup(followup, place)));
  }

  async sendFollowup(followup: Followup): Promise<boolean> {
    return this.#act(`send ${followup.id}`, async (key) => {
      const answer = await api.sendFollowup(followup, key);
      if (answer.followup) this.#putFollowup(answer.followup);
      if (answer.run) this.#putRun(answer.run);
      this.#reread();
    });
  }

  async rename(conversation: string, title: string): Promise<boolean> {
    return this.#act(null, async () => {
      const changed = await api.rename(conversation, title);
      this.lists.put(changed);
      if (this.history?.conversation.id === conversation) {
        this.history = { ...this.history, conversation: { ...this.history.conversation, ...changed } };
      }
    });
  }

  async remove(conversation: string): Promise<boolean> {
    return this.#act(null, async () => {
      await api.remove(conversation);
      this.lists.drop(conversation);
      if (this.open === conversation) await this.go(null);
    });
  }

  /** Sends a message to an existing conversation. Throws `Problem`; the caller keeps the text and the key. */
  async send(conversation: string, content: string, key: string, choice: Choice = UNCHOSEN): Promise<void> {
    const answer = await api.send(conversation, content, key, choice);
    if (this.history?.conversation.id !== conversation) return;
    if (answer.run) {
      this.history = { ...this.history, messages: past.putMessage(this.history.messages, answer.message) };
      this.#putRun(answer.run);
    }
    if (answer.followup) this.#putFollowup(answer.followup);
    if (this.stream !== "open") this.#reread();
  }

  /** Makes a conversation. The same key always gives the same one. Throws `Problem`. */
  async create(key: string): Promise<string> {
    return (await api.create(key)).id;
  }

  /** Does it, with a key that stays the same until it has worked, and says what went wrong. */
  async #act(name: string | null, action: (key: string) => Promise<void>): Promise<boolean> {
    this.notice = null;
    const key = (name === null ? null : this.#keys.get(name)) ?? newKey();
    if (name !== null) this.#keys.set(name, key);
    try {
      await action(key);
      if (name !== null) this.#keys.delete(name);
      return true;
    } catch (error) {
      this.notice = error instanceof Problem ? error.message : String(error);
      if (error instanceof Problem && error.status === 409) this.#reread();
      return false;
    }
  }

  // --- reading -------------------------------------------------------------------------------------------------

  /** Which agents there are and which model answers. A server that has just started may not know the model yet. */
  async readAgents(): Promise<void> {
    try {
      this.agents = (await api.agents()).items;
    } catch {
      // Asked again on the next hello.
    }
  }

  async #show(conversation: string | null): Promise<void> {
    this.notice = null;
    this.problem = null;
    if (this.open !== conversation) {
      this.history = null;
      this.documents = {};
    }
    this.open = conversation;
    if (conversation === null) {
      this.#opening?.abort();
      this.loading = false;
      this.#connection.focus(null, null);
      return;
    }
    await this.#load();
  }

  async #load(): Promise<void> {
    const id = this.open;
    if (id === null) return;
    this.#opening?.abort();
    const opening = new AbortController();
    this.#opening = opening;
    this.loading = this.history === null;
    const meanwhile: DurableEvent[] = (this.#meanwhile = []);
    try {
      // The runs are read last, so that none of them is older than the read they are put to.
      const answer = await api.conversation(id, opening.signal);
      const runs = await api.runsOf(id, null, opening.signal);
      if (opening.signal.aborted || this.open !== id) return;
      let next = past.fromAnswer(answer, this.history ?? undefined, runs);
      const later = meanwhile.filter((event) => event.conversation_id === id && event.seq > answer.seq);
      for (const event of later) next = past.applyEvent(next, event);
      this.history = next;
      for (const event of later) this.#follow(event);
      this.#seen.look(id, next.seq);
      this.lists.put(answer.conversation);
      const last = past.lastRun(next);
      if (last) this.lists.putRun(last);
      this.problem = null;
      this.#connection.focus(id, answer.seq);
      if (last && last.status !== "completed" && !isLive(last.status) && !this.documents[last.id]) this.#fetch(last.id);
    } catch (error) {
      if (opening.signal.aborted) return;
      const problem = error instanceof Problem ? error : new Problem(0, "", String(error));
      const missing = problem.status === 404 || problem.status === 400 || problem.status === 422;
      if (!this.history || missing) {
        if (missing) this.history = null;
        this.problem = { text: problem.message, missing };
      }
      this.#connection.focus(missing ? null : id, null);
    } finally {
      if (this.#opening === opening) {
        this.loading = false;
        this.#meanwhile = null;
      }
    }
  }

  /** Reads a run's document again: one request at a time per run, at most four a second. */
  #fetch(run: string): void {
    let ask = this.#fetching.get(run);
    if (!ask) {
      ask = throttle(async () => {
        try {
          this.#snapshot(await api.document(run));
        } catch {
          // The next frame that does not fit asks again.
        }
      }, 250);
      this.#fetching.set(run, ask);
    }
    ask();
  }

  readDocument(run: string): void {
    if (!this.documents[run]) this.#fetch(run);
  }

  // --- frames --------------------------------------------------------------------------------------------------

  #frame(event: string, data: unknown, id: string | null): void {
    if (DURABLE.has(event)) return this.#durable({ ...(data as DurableEvent), type: event });
    switch (event) {
      case "hello":
        this.lists.refresh();
        if (this.open === null || this.agents.length === 0) void this.readAgents();
        // A stream from now on, not from a cursor: what happened before it has to be read.
        if (this.open !== null && !this.problem?.missing && (!this.history || id !== null)) this.#reread();
        return;
      case "reset":
        this.history = this.history ? { ...this.history, seq: 0 } : null;
        this.documents = {};
        this.lists.refresh();
        void this.#load();
        return;
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

  #durable(event: DurableEvent): void {
    this.lists.apply(event);
    this.#meanwhile?.push(event);
    if (event.type === "conversation.deleted" && String(event.payload["id"] ?? event.conversation_id) === this.open) {
      this.history = null;
      this.problem = { text: "This conversation was deleted.", missing: true };
      this.#connection.focus(null, null);
      return;
    }
    if (!this.history || this.open === null || event.conversation_id !== this.open) return;
    this.history = past.applyEvent(this.history, event);
    this.#seen.look(this.open, this.history.seq);
    this.#follow(event);
  }

  /** What an event of the open conversation asks for besides its place in the history. */
  #follow(event: DurableEvent): void {
    if (event.type !== "run.status") return;
    const payload = event.payload as unknown as RunStatusPayload;
    const { run } = payload;
    const kept = this.documents[run.id];
    if (kept) this.#put(run.id, live.server(kept, live.serverPartOf(payload)));
    else if (isLive(run.status)) this.#fetch(run.id);
    // What was said and called on the way is read at the end; so is whether the run can be continued.
    if (!isLive(run.status)) {
      this.#fetch(run.id);
      this.#reread();
    }
  }

  #snapshot(answer: DocumentAnswer): void {
    const id = answer.document.run_id;
    if (answer.document.conversation_id !== this.open) return;
    this.#put(id, live.snapshot(this.documents[id], answer));
  }

  #step<F extends { run_id: string }>(frame: F, apply: (old: live.LiveRun, frame: F) => live.Outcome): void {
    const kept = this.documents[frame.run_id];
    if (kept) this.#put(frame.run_id, apply(kept, frame));
    else if (this.history?.runs[frame.run_id]) this.#fetch(frame.run_id);
  }

  #put(run: string, outcome: live.Outcome): void {
    if (outcome === "same") return;
    if (outcome === "stale") return this.#fetch(run);
    const before = this.documents[run]?.document;
    this.documents = { ...this.documents, [run]: outcome };
    const after = outcome.document;
    // A step began or ended: the messages it left are rows without events, so they are read.
    if (isLive(after.status) && stepsOf(before) !== stepsOf(after)) this.#reread();
  }

  #putRun(run: Run): void {
    this.lists.putRun(run);
    if (this.history?.conversation.id === run.conversation_id) this.history = past.putRun(this.history, run);
  }

  #putFollowup(followup: Followup): void {
    if (this.history?.conversation.id === followup.conversation_id) this.history = past.putFollowup(this.history, followup);
  }
}

/** Tells how far the steps are; a document holds the newest 50 of them. */
function stepsOf(document: RunDocument | undefined): string {
  return (document?.steps ?? []).map((step) => `${step.id} ${step.status}`).join();
}

function idOf(path: string): string | null {
  const match = /^\/c\/([^/]+)\/?$/.exec(path);
  return match?.[1] ? decodeURIComponent(match[1]) : null;
}

export const app = new App();
