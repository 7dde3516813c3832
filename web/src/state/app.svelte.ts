// The page's state: which conversation is open, its history and live documents, and the stream that feeds them.
// It draws from the server's answers and events only. All values are replaced, never changed in place.

import { api, Problem } from "../wire/api";
import type { Agent, DurableEvent, Message, Page, Request, Run, RunDocument, RunStatusPayload } from "../wire/types";
import { Connection, type State } from "../live/connection";
import type { LiveRun } from "../live/document";
import * as past from "../live/history";
import { documentOf, isLive, usedTokens } from "../text/status";
import { Actions, type Took } from "./actions.svelte";
import { Caller } from "./caller.svelte";
import { Documents } from "./documents.svelte";
import { Grants } from "./grants.svelte";
import { Lists } from "./lists.svelte";
import { Seen } from "./seen";
import { throttle } from "./throttle";

const RETRY_MS = 3_000;
const LOOK_MS = 1_000;

class App extends Actions {
  lists = new Lists();
  grants = new Grants();
  caller = new Caller(this.lists, (conversation) => void this.go(conversation));
  agents = $state.raw<Agent[]>([]);
  /** The conversation in focus; null is the first screen. */
  open = $state<string | null>(null);
  history = $state.raw<past.History | null>(null);
  loading = $state(false);
  /** Why the open conversation cannot be shown; `missing` where it does not exist (any more). */
  problem = $state.raw<{ text: string; missing: boolean } | null>(null);
  /** Requests that somebody else decided while their cards were shown here, until they are put away. */
  settled = $state.raw<Request[]>([]);
  stream = $state<State>("connecting");
  retryAt = $state<number | null>(null);

  run = $derived(this.history ? past.liveRun(this.history) : null);
  last = $derived(this.history ? past.lastRun(this.history) : null);

  #connection = new Connection({
    event: (event) => this.#durable(event),
    frame: (name, data) => this.#documents.frame(name, data),
    focus: (conversation, live, whole) => this.#focused(conversation, live, whole),
    reset: () => {
      this.#anew = true;
      void this.#readAll();
    },
    state: (state, retryAt) => {
      const opened = state === "open" && this.stream !== "open";
      this.stream = state;
      this.retryAt = retryAt;
      if (opened) this.#wake();
    },
    call: (event) => {
      if (event) this.caller.call(event);
      else this.#callAfterwards = true;
    },
    shown: (visible) => visible && this.#wake(),
  });
  #documents = new Documents({
    open: () => this.open,
    has: (run) => this.history?.runs[run] !== undefined,
    stepped: () => this.#reread(),
  });
  #opening: AbortController | null = null;
  /** Events that come while the conversation is read: the read may be older than they are. */
  #meanwhile: DurableEvent[] | null = null;
  #reread = throttle(() => this.#load().then(() => undefined), 400);
  /** What a hidden page leaves for later: it reads nothing until it is shown. */
  #outdated = false;
  /** The next read of the conversation takes the place of what is here, versions and all. */
  #anew = false;
  /** Whoever does not look is told of what the next read finds. */
  #callAfterwards = false;
  /** Whether frames of the open conversation come by themselves. */
  #framed = false;
  #seen = new Seen((conversation) => this.lists.put(conversation));

  /** The live documents of the open conversation, by run. */
  get documents(): Record<string, LiveRun> {
    return this.#documents.all;
  }

  start(): void {
    addEventListener("popstate", () => void this.#show(idOf(location.pathname)));
    setInterval(() => this.#look(), LOOK_MS);
    this.open = this.lists.looking = idOf(location.pathname);
    void this.readAgents();
    void this.#readAll();
    this.#connection.start();
  }

  async go(conversation: string | null): Promise<void> {
    const path = conversation === null ? "/" : `/c/${conversation}`;
    if (location.pathname !== path) history.pushState(null, "", path);
    await this.#show(conversation);
  }

  retryNow(): void {
    this.#connection.doubt();
    this.#wake();
    if (this.open !== null && !this.history) void this.#load();
  }

  /** What a run's box draws: its live document where there is one, else what the lists say. */
  documentFor(run: Run): RunDocument {
    const kept = this.documents[run.id];
    if (!kept) return { ...documentOf(run), owner: run.owner ?? null };
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

  // --- what an action brought ----------------------------------------------------------------------------------

  protected take(conversation: string, { run, followup, message, request, conversation: changed }: Took): void {
    if (run) this.lists.putRun(run);
    if (request && request.status !== "open") this.lists.closeRequest(request.id);
    if (changed) this.lists.put(changed);
    let next = this.history;
    if (next?.conversation.id !== conversation) return;
    // A message that waits has no place in the history yet.
    if (message && run) next = { ...next, messages: past.putMessage(next.messages, message) };
    if (run) next = past.putRun(next, run);
    if (followup) next = past.putFollowup(next, followup);
    if (changed) next = { ...next, conversation: { ...next.conversation, ...changed } };
    this.history = next;
    if (this.stream !== "open") this.#reread();
  }

  putAway(request: string): void {
    this.settled = this.settled.filter((one) => one.id !== request);
  }

  protected overtaken(request: Request): void {
    this.settled = [...this.settled.filter((one) => one.id !== request.id), request];
  }

  protected allowed(conversation: string): void {
    if (conversation === this.open) void this.grants.read(conversation);
  }

  /** A card goes because somebody else was there: who and what is said in its place. */
  #noteClosed(request: Request): void {
    const shown = this.open === null ? this.lists.requests[request.id] !== undefined : this.open === request.conversation_id;
    if (!shown || !this.#asked(request) || this.decidedHere.has(request.id) || request.status === "void") return;
    this.overtaken(request);
  }

  #asked(request: Request): boolean {
    return this.lists.requests[request.id] !== undefined || (this.documents[request.run_id]?.document.requests ?? []).some((one) => one.id === request.id);
  }

  protected again(): void {
    this.#reread();
  }

  protected async gone(conversation: string): Promise<void> {
    this.lists.drop(conversation);
    if (this.open === conversation) await this.go(null);
  }

  // --- reading -------------------------------------------------------------------------------------------------

  /** Which agents there are and which model answers. A server that has just started may not know the model yet. */
  async readAgents(): Promise<void> {
    try {
      this.agents = (await api.agents()).items;
    } catch {
      // Asked again when the connection is there.
    }
  }

  /** Reads the lists and what is open. Events go on from the older of the two reads. */
  async #readAll(): Promise<void> {
    const read = await Promise.all([this.lists.load(), this.#load()]);
    const numbers = read.filter((seq) => seq !== null);
    this.#connection.attend(numbers.length > 0 ? Math.min(...numbers) : null);
    if (this.#callAfterwards && read[0] !== null) this.caller.callMany();
    this.#callAfterwards &&= read[0] === null;
    if (read[0] === null) setTimeout(() => !this.lists.loaded && void this.#readAll(), RETRY_MS);
  }

  /** The page is shown again, or the connection is back: reads what was put off or failed. */
  #wake(): void {
    this.lists.wake();
    this.#documents.wake();
    if (this.agents.length === 0) void this.readAgents();
    if (this.open === null || this.problem?.missing) return;
    if (this.#outdated || (!this.history && !this.loading)) this.#reread();
    this.#noteSeen();
  }

  async #show(conversation: string | null): Promise<void> {
    this.notice = null;
    this.problem = null;
    if (this.open !== conversation) {
      this.history = null;
      this.settled = [];
      this.grants.forget();
      this.#documents.clear();
      this.#framed = false;
    }
    this.open = this.lists.looking = conversation;
    if (conversation === null) {
      this.#opening?.abort();
      this.loading = false;
      this.#connection.focus(null);
      return;
    }
    await this.#load();
  }

  /** Reads the open conversation. Answers the number it stands at, or null where nothing came. */
  async #load(): Promise<number | null> {
    const id = this.open;
    if (id === null) return null;
    this.#outdated = document.hidden && this.history !== null;
    if (this.#outdated) return null;
    this.#opening?.abort();
    const opening = new AbortController();
    this.#opening = opening;
    this.loading = this.history === null;
    const meanwhile: DurableEvent[] = (this.#meanwhile = []);
    try {
      const [answer, found] = await Promise.all([api.conversation(id, opening.signal), api.runsOf(id, null, opening.signal)]);
      // A run that lives in the one read and not in the other ended or began in between: none may be older than the answer.
      const live = new Set(answer.runs.map((run) => run.id));
      const apart = found.items.some((run) => isLive(run.status) && !live.has(run.id));
      const runs = apart ? await api.runsOf(id, null, opening.signal) : found;
      if (opening.signal.aborted || this.open !== id) return null;
      if (this.#anew) this.#documents.clear();
      let next = past.fromAnswer(answer, this.#anew ? undefined : (this.history ?? undefined), runs);
      this.#anew = false;
      const later = meanwhile.filter((event) => event.conversation_id === id && event.seq > answer.seq);
      for (const event of later) next = past.applyEvent(next, event);
      this.history = next;
      for (const event of later) this.#follow(event);
      this.lists.put(answer.conversation);
      const last = past.lastRun(next);
      if (last) this.lists.putRun(last);
      this.#noteSeen();
      this.problem = null;
      if (this.grants.conversation !== id) void this.grants.read(id);
      this.#connection.focus(id);
      if (last && last.status !== "completed" && !this.documents[last.id]) this.#documents.read(last.id);
      return answer.seq;
    } catch (error) {
      if (opening.signal.aborted) return null;
      this.#failed(id, error instanceof Problem ? error : new Problem(0, "", String(error)));
      return null;
    } finally {
      if (this.#opening === opening) {
        this.loading = false;
        this.#meanwhile = null;
      }
    }
  }

  #failed(id: string, problem: Problem): void {
    const missing = problem.status === 404 || problem.status === 400 || problem.status === 422;
    if (missing) {
      this.history = null;
      this.#connection.focus(null);
    }
    if (!this.history) this.problem = { text: problem.message, missing };
    else setTimeout(() => this.open === id && this.#reread(), RETRY_MS);
  }

  /** Reads a run's document where it is not here. */
  readDocument(run: string): void {
    if (!this.documents[run]) this.#documents.read(run);
  }

  /** Once a second: what no frame and no event tells. */
  #look(): void {
    if (document.hidden) return;
    this.lists.watchRuns(this.open);
    if (this.run && !this.#framed && this.stream === "open") this.#documents.read(this.run.id);
  }

  #noteSeen(): void {
    if (this.open !== null && this.history && this.lists.find(this.open)?.unseen) this.#seen.look(this.open, this.history.seq);
  }

  // --- what comes ----------------------------------------------------------------------------------------------

  /** Frames come from now on. What was shown before may have missed some: it is read, unless it is sent anyway. */
  #focused(conversation: string, live: boolean, whole: boolean): void {
    if (conversation !== this.open) return;
    this.#framed = live;
    const shown = this.last;
    if (live && !whole && shown && (isLive(shown.status) || this.documents[shown.id])) this.#documents.read(shown.id);
  }

  #durable(event: DurableEvent): void {
    if (event.type === "request.closed") this.#noteClosed(event.payload["request"] as Request);
    if (event.type === "grant.changed" && event.conversation_id) this.allowed(event.conversation_id);
    this.lists.apply(event);
    this.#meanwhile?.push(event);
    if (event.type === "conversation.deleted" && String(event.payload["id"] ?? event.conversation_id) === this.open) {
      this.history = null;
      this.problem = { text: "This conversation was deleted.", missing: true };
      this.#connection.focus(null);
      return;
    }
    if (!this.history || this.open === null || event.conversation_id !== this.open) return;
    this.history = past.applyEvent(this.history, event);
    this.#noteSeen();
    this.#follow(event);
  }

  /** What an event of the open conversation asks for besides its place in the history. */
  #follow(event: DurableEvent): void {
    if (event.type !== "run.status") return;
    const { run, document } = event.payload as unknown as RunStatusPayload;
    if (this.documents[run.id] && document) this.#documents.server(document);
    else if (isLive(run.status)) this.#documents.read(run.id);
    // What was said and called on the way is read at the end; so is whether the run can be continued.
    if (!isLive(run.status)) {
      this.#documents.read(run.id);
      this.#reread();
    }
  }
}

function idOf(path: string): string | null {
  const match = /^\/c\/([^/]+)\/?$/.exec(path);
  return match?.[1] ? decodeURIComponent(match[1]) : null;
}

export const app = new App();
