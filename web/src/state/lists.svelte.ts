// What the left column shows: conversations, what needs the person, what runs. Read once, kept by durable events, and
// read anew where those cannot tell; who has the runs out of focus is asked at most every 5 s while the page is shown.

import { api, Problem } from "../wire/api";
import type { Conversation, DurableEvent, Overview, Request, Run, RunStatusPayload } from "../wire/types";
import { isLive } from "../text/status";
import { throttle } from "./throttle";

const REFRESH_MS = 5_000;

export class Lists {
  /** Newest change first: the pages that were read, and what came since. */
  conversations = $state.raw<Conversation[]>([]);
  /** Those that are named by a run or a request, and too old for the pages. */
  #also = $state.raw<Record<string, Conversation>>({});
  /** The newest known run of a conversation, by conversation. */
  runs = $state.raw<Record<string, Run>>({});
  /** Open requests by id; `moreRequests` where there are more than these. */
  requests = $state.raw<Record<string, Request>>({});
  moreRequests = $state(false);
  /** How many conversations call this person, those that are not here included. */
  unseen = $state(0);
  /** Only these are shown: a list of its own, with pages of its own. */
  only = $state.raw<Conversation[] | null>(null);
  more = $state.raw<string | null>(null);
  #moreOnly = $state.raw<string | null>(null);
  /** The conversation that is open. */
  looking = $state<string | null>(null);
  loaded = $state(false);
  problem = $state<string | null>(null);

  /** The open requests of each conversation that has some, those first that were put first. */
  asked = $derived.by(() => {
    const by: Record<string, Request[]> = {};
    const sorted = Object.values(this.requests).sort((a, b) => compare(a.opened_at ?? "", b.opened_at ?? "") || compare(a.id, b.id));
    for (const request of sorted) if (request.conversation_id) (by[request.conversation_id] ??= []).push(request);
    return by;
  });
  needsYou = $derived(Object.keys(this.asked).map((id) => this.find(id) ?? unknown(id)));
  running = $derived.by(() =>
    Object.values(this.runs)
      .filter((run) => isLive(run.status) && !this.asked[run.conversation_id])
      .sort((a, b) => compare(b.created_at, a.created_at)),
  );
  #above = $derived(new Set([...Object.keys(this.asked), ...this.running.map((run) => run.conversation_id)]));
  rest = $derived((this.only ?? this.conversations).filter((c) => !this.#above.has(c.id)));
  /** How many of the rest have changed since the person looked; what stands above, or is looked at, is seen to. */
  changed = $derived.by(() => {
    const elsewhere = new Set(this.#above);
    if (this.looking) elsewhere.add(this.looking);
    return Math.max(0, this.unseen - [...elsewhere].filter((id) => this.find(id)?.unseen).length);
  });
  /** Whether the shown list has further pages. */
  further = $derived(this.only ? this.#moreOnly !== null : this.more !== null);

  /** Events up to this number are in what is here. */
  #seq = 0;
  /** Events that come while something is read: the read may be older than they are. */
  #meanwhile = new Set<DurableEvent[]>();
  #outdated = false;

  /** Reads everything anew, at most once in 5 s; a hidden page does so when it is shown. */
  refresh = throttle(async () => void (await this.load()), REFRESH_MS);
  /** Reads who has the live runs. */
  #readRuns = throttle(async () => {
    try {
      const page = await api.liveRuns();
      for (const run of page.items) this.putRun(run);
    } catch {
      // The next time tells.
    }
  }, REFRESH_MS);

  /** Reads everything. Answers the number it stands at, or null where nothing came. */
  async load(): Promise<number | null> {
    const meanwhile: DurableEvent[] = [];
    this.#meanwhile.add(meanwhile);
    this.#outdated = false;
    try {
      const overview = await api.overview();
      this.#take(overview);
      for (const event of meanwhile) this.#apply(event);
      return overview.seq;
    } catch (error) {
      this.problem = error instanceof Problem ? error.message : String(error);
      this.#outdated = true;
      return null;
    } finally {
      this.#meanwhile.delete(meanwhile);
    }
  }

  /** The page is shown again, or the connection is back: what could not be read is. */
  wake(): void {
    if (this.#outdated || !this.loaded) this.refresh();
  }

  /** Something runs out of focus: its owner is asked for. */
  watchRuns(open: string | null): void {
    if (!document.hidden && this.running.some((run) => run.conversation_id !== open)) this.#readRuns();
  }

  #take(overview: Overview): void {
    const { conversations: page, runs, requests } = overview;
    const fresh = new Set(page.items.map((c) => c.id));
    const oldest = page.items.at(-1)?.updated_at;
    // Pages read earlier stay below the newest page; what the newest page should hold and does not is gone.
    const below = page.next_cursor && oldest ? this.conversations.filter((c) => !fresh.has(c.id) && c.updated_at < oldest) : [];
    this.conversations = [...page.items, ...below];
    if (below.length === 0) this.more = page.next_cursor;
    this.#also = Object.fromEntries(overview.also.map((c) => [c.id, c]));
    const ended = Object.entries(this.runs).filter(([, run]) => !isLive(run.status));
    const known = this.runs;
    this.runs = { ...Object.fromEntries(ended), ...Object.fromEntries(runs.items.map((run) => [run.conversation_id, newer(known[run.conversation_id], run)])) };
    this.requests = Object.fromEntries(requests.items.map((request) => [request.id, request]));
    this.moreRequests = requests.next_cursor !== null;
    this.unseen = overview.unseen;
    this.#seq = overview.seq;
    this.loaded = true;
    this.problem = null;
  }

  /** A page more of what is shown. Throws `Problem`. */
  async loadMore(): Promise<void> {
    const { only } = this;
    const page = await api.conversations(only ? this.#moreOnly : this.more, only !== null);
    const add = (list: Conversation[]): Conversation[] => {
      const have = new Set(list.map((c) => c.id));
      return [...list, ...page.items.filter((c) => !have.has(c.id))];
    };
    if (only) {
      if (this.only === null) return;
      this.only = add(this.only);
      this.#moreOnly = page.next_cursor;
    } else {
      this.conversations = add(this.conversations);
      this.more = page.next_cursor;
    }
  }

  /** Shows only what calls the person, or everything again. Throws `Problem`. */
  async showUnseen(on: boolean): Promise<void> {
    if (!on) {
      this.only = null;
      return;
    }
    const page = await api.conversations(null, true);
    this.only = page.items;
    this.#moreOnly = page.next_cursor;
  }

  apply(event: DurableEvent): void {
    for (const each of this.#meanwhile) each.push(event);
    this.#apply(event);
  }

  #apply(event: DurableEvent): void {
    if (event.seq <= this.#seq) return;
    this.#seq = event.seq;
    const id = event.conversation_id ?? "";
    switch (event.type) {
      case "run.status": {
        const { run, conversation, document } = event.payload as unknown as RunStatusPayload;
        this.putRun({ ...run, owner: document?.owner ?? null });
        if (conversation) this.put({ ...conversation, line: run.line ?? null });
        else if (run.status === "queued" && run.attempt === 0) this.#change(id, { status: run.status, updated_at: event.at });
        else this.#change(id, { status: run.status });
        break;
      }
      case "request.opened":
        this.requests = { ...this.requests, [(event.payload["request"] as Request).id]: event.payload["request"] as Request };
        this.#change(id, { unseen: true });
        break;
      case "request.closed": {
        const { [(event.payload["request"] as Request).id]: _, ...open } = this.requests;
        this.requests = open;
        break;
      }
      case "conversation.changed": {
        const conversation = event.payload["conversation"] as Conversation;
        // What an older page holds may have called until now: only the server knows.
        if (!this.find(id) && conversation.created_at !== conversation.updated_at) this.#outOfReach();
        this.put(conversation);
        break;
      }
      case "conversation.deleted":
        this.drop(String(event.payload["id"] ?? id));
        return;
    }
    if (id && !this.find(id)) this.#outOfReach();
  }

  /** Something happened to what is not here. */
  #outOfReach(): void {
    if (document.hidden) this.#outdated = true;
    else this.refresh();
  }

  putRun(run: Run): void {
    const old = this.runs[run.conversation_id];
    this.runs = { ...this.runs, [run.conversation_id]: old && old.id === run.id ? newer(old, run) : latest(old, run) };
  }

  /** The request is decided: it goes from the list when its event comes, or now where the answer was first. */
  closeRequest(id: string): void {
    const { [id]: _, ...open } = this.requests;
    this.requests = open;
  }

  put(conversation: Conversation): void {
    const old = this.find(conversation.id);
    const merged = { ...old, ...conversation };
    this.#count(old, merged);
    const rest = this.conversations.filter((c) => c.id !== conversation.id);
    this.conversations = [merged, ...rest].sort((a, b) => compare(b.updated_at, a.updated_at));
    if (this.only) this.only = this.only.map((c) => (c.id === merged.id ? merged : c));
  }

  #change(id: string, change: Partial<Conversation>): void {
    const old = this.find(id);
    if (old) this.put({ ...old, ...change });
  }

  #count(old: Conversation | undefined, now: Conversation | null): void {
    if (!this.loaded || !old) {
      if (now?.unseen) this.unseen += 1;
      return;
    }
    this.unseen = Math.max(0, this.unseen + Number(now?.unseen ?? false) - Number(old.unseen ?? false));
  }

  drop(id: string): void {
    const old = this.find(id);
    if (old) this.#count(old, null);
    const { [id]: _, ...runs } = this.runs;
    const { [id]: __, ...also } = this.#also;
    this.runs = runs;
    this.#also = also;
    this.conversations = this.conversations.filter((c) => c.id !== id);
    if (this.only) this.only = this.only.filter((c) => c.id !== id);
    this.requests = Object.fromEntries(Object.entries(this.requests).filter(([, request]) => request.conversation_id !== id));
  }

  find(id: string): Conversation | undefined {
    return this.conversations.find((c) => c.id === id) ?? this.#also[id] ?? this.only?.find((c) => c.id === id);
  }

  title(id: string): string {
    return this.find(id)?.title || "Untitled";
  }
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
const unknown = (id: string): Conversation => ({ id, title: null, updated_at: "" });
const newer = (old: Run | undefined, run: Run): Run => (old && old.id === run.id && old.version > run.version ? old : { ...run, owner: run.owner === undefined ? (old?.owner ?? null) : run.owner });
const latest = (old: Run | undefined, run: Run): Run => (old && old.created_at > run.created_at ? old : run);
