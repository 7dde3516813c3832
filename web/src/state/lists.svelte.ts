// What the left column shows: conversations, and which runs are live. Read by REST, kept current by durable
// events; runs out of focus are read again at most every 5 s while the page is visible.

import { api, Problem } from "../wire/api";
import type { Conversation, DurableEvent, Run, RunStatusPayload } from "../wire/types";
import { isLive } from "../text/status";
import { throttle } from "./throttle";

const REFRESH_MS = 5_000;

export class Lists {
  conversations = $state.raw<Conversation[]>([]);
  /** The newest known run of a conversation, by conversation. */
  runs = $state.raw<Record<string, Run>>({});
  more = $state.raw<string | null>(null);
  loaded = $state(false);
  problem = $state<string | null>(null);

  needsYou = $derived(this.conversations.filter((c) => (c.open_requests ?? 0) > 0));
  running = $derived.by(() => {
    const asked = new Set(this.needsYou.map((c) => c.id));
    return Object.values(this.runs)
      .filter((run) => isLive(run.status) && !asked.has(run.conversation_id))
      .sort((a, b) => (a.created_at < b.created_at ? 1 : -1));
  });
  rest = $derived.by(() => {
    const above = new Set([...this.needsYou.map((c) => c.id), ...this.running.map((r) => r.conversation_id)]);
    return this.conversations.filter((c) => !above.has(c.id));
  });

  refresh = throttle(() => this.load(), REFRESH_MS);

  async load(): Promise<void> {
    if (document.hidden) return;
    try {
      const [page, live] = await Promise.all([api.conversations(), api.liveRuns()]);
      const fresh = new Set(page.items.map((c) => c.id));
      const oldest = page.items.at(-1)?.updated_at;
      // Pages read earlier stay below the newest page; what the newest page should hold and does not is gone.
      const below = page.next_cursor && oldest ? this.conversations.filter((c) => !fresh.has(c.id) && c.updated_at < oldest) : [];
      this.conversations = [...page.items, ...below];
      if (below.length === 0) this.more = page.next_cursor;
      const runs = Object.fromEntries(Object.entries(this.runs).filter(([, run]) => !isLive(run.status)));
      for (const run of live.items) runs[run.conversation_id] = newer(this.runs[run.conversation_id], run);
      this.runs = runs;
      this.loaded = true;
      this.problem = null;
    } catch (error) {
      this.problem = error instanceof Problem ? error.message : String(error);
    }
  }

  async loadMore(): Promise<void> {
    const page = await api.conversations(this.more);
    const have = new Set(this.conversations.map((c) => c.id));
    this.conversations = [...this.conversations, ...page.items.filter((c) => !have.has(c.id))];
    this.more = page.next_cursor;
  }

  apply(event: DurableEvent): void {
    if (event.type === "run.status") {
      const { run, conversation } = event.payload as unknown as RunStatusPayload;
      this.putRun(run);
      if (conversation) this.put(conversation);
    } else if (event.type === "conversation.changed") this.put(event.payload["conversation"] as Conversation);
    else if (event.type === "conversation.deleted") this.drop(String(event.payload["id"] ?? event.conversation_id));
    this.refresh();
  }

  putRun(run: Run): void {
    const old = this.runs[run.conversation_id];
    this.runs = { ...this.runs, [run.conversation_id]: old && old.id === run.id ? newer(old, run) : latest(old, run) };
  }

  put(conversation: Conversation): void {
    const old = this.conversations.find((c) => c.id === conversation.id);
    const merged = { ...old, ...conversation };
    this.conversations = [merged, ...this.conversations.filter((c) => c.id !== conversation.id)].sort((a, b) =>
      a.updated_at < b.updated_at ? 1 : a.updated_at > b.updated_at ? -1 : 0,
    );
  }

  /** The server has taken note that this conversation was seen as it is. */
  markSeen(id: string): void {
    this.conversations = this.conversations.map((c) => (c.id === id ? { ...c, unseen: false } : c));
  }

  drop(id: string): void {
    this.conversations = this.conversations.filter((c) => c.id !== id);
    const { [id]: _, ...runs } = this.runs;
    this.runs = runs;
  }

  title(id: string): string {
    return this.conversations.find((c) => c.id === id)?.title || "Untitled";
  }
}

const newer = (old: Run | undefined, run: Run): Run => (old && old.id === run.id && old.version > run.version ? old : run);
const latest = (old: Run | undefined, run: Run): Run => (old && old.created_at > run.created_at ? old : run);
