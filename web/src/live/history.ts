// The history of one conversation on this device: one consistent read, then the durable events after it. Pure.
// Events at or before the read's `seq` are already in it; a run or follow-up never goes back to an older version.

import type { ConversationAnswer, Conversation, DurableEvent, Followup, Message, Page, Run, RunStatusPayload } from "../wire/types";
import { LIVE } from "../wire/types";

export interface History {
  conversation: Conversation;
  messages: Message[];
  runs: Record<string, Run>;
  followups: Record<string, Followup>;
  resumable: boolean;
  seq: number;
  /** Where the page before the oldest message starts; null when all of it is here. */
  before: string | null;
  /** Where the page of the next older runs starts; null when all of them are here. */
  olderRuns: string | null;
  /** The message from which stretches are counted, so that older pages do not move their bounds. */
  first: string | null;
}

export interface Stretch { key: number; messages: Message[] }

/** How many messages a stretch holds: a page is a whole number of them. */
const STRETCH = 25;

/** The messages in stretches, counted forth and back from the message with id `first`. */
export function stretches(messages: readonly Message[], first: string | null): Stretch[] {
  const zero = Math.max(0, messages.findIndex((m) => m.id === first));
  const parts: Stretch[] = [];
  for (let i = 0; i < messages.length; ) {
    const key = Math.floor((i - zero) / STRETCH);
    const end = Math.min(messages.length, zero + (key + 1) * STRETCH);
    parts.push({ key, messages: messages.slice(i, end) });
    i = end;
  }
  return parts;
}

/** How many messages a page holds when the server does not say that there are more. */
export const PAGE = 50;

const NO_RUNS: Page<Run> = { items: [], next_cursor: null };

/** One read: the conversation, and its newest runs. What `old` holds beyond it stays. */
export function fromAnswer(answer: ConversationAnswer, old?: History, runs: Page<Run> = NO_RUNS): History {
  const keep = old && old.conversation.id === answer.conversation.id ? old : undefined;
  const have = new Set(keep?.messages.map((m) => m.id));
  const joined = answer.messages.some((m) => have.has(m.id));
  return {
    conversation: answer.conversation,
    messages: keep ? mergePage(keep.messages, answer.messages) : answer.messages,
    runs: addRuns(keep?.runs ?? {}, [...answer.runs, ...runs.items]),
    followups: byId(answer.followups),
    resumable: answer.resumable,
    seq: answer.seq,
    // A page read again that joins what is here says nothing about the pages before that.
    before: keep && joined ? keep.before : (answer.next_cursor ?? null),
    olderRuns: keep && joined ? keep.olderRuns : runs.next_cursor,
    first: keep && joined ? keep.first : (answer.messages[0]?.id ?? null),
  };
}

/** Puts an event into the history. Returns the same object when it brings nothing new. */
export function applyEvent(history: History, event: DurableEvent): History {
  if (event.conversation_id !== history.conversation.id || event.seq <= history.seq) return history;
  const next = { ...history, seq: event.seq };
  const payload = event.payload;
  switch (event.type) {
    case "message.created":
      return { ...next, messages: putMessage(history.messages, payload["message"] as Message) };
    case "message.updated":
      return { ...next, messages: changeMessage(history.messages, payload["message"] as Partial<Message>) };
    case "run.status": {
      // Follow-ups that a run takes over from the one before are told with it.
      const { run, document } = payload as unknown as RunStatusPayload;
      return (document?.followups ?? []).reduce(putFollowup, putRun(next, run));
    }
    case "followup.changed":
      return putFollowup(next, payload["followup"] as Followup);
    case "conversation.changed":
      return { ...next, conversation: { ...history.conversation, ...(payload["conversation"] as Conversation) } };
    default:
      return next;
  }
}

export function putRun(history: History, run: Run): History {
  const kept = newest(history.runs[run.id], run);
  if (kept !== run) return history;
  const runs = { ...history.runs, [run.id]: run };
  // Once something is live there is nothing to continue; after an end only the server knows, and it is asked.
  return { ...history, runs, resumable: history.resumable && !LIVE.includes(run.status) };
}

export function putFollowup(history: History, followup: Followup): History {
  const old = history.followups[followup.id];
  if (old && old.version > followup.version) return history;
  return { ...history, followups: { ...history.followups, [followup.id]: followup } };
}

export function putMessage(messages: Message[], message: Message): Message[] {
  const at = messages.findLastIndex((m) => m.id === message.id);
  return at < 0 ? [...messages, message] : messages.with(at, message);
}

/** Only what changed of a message travels; one that is not on the page is left for the page that brings it. */
export function changeMessage(messages: Message[], change: Partial<Message>): Message[] {
  return messages.map((message) => (message.id === change.id ? { ...message, ...change } : message));
}

/** The newest page put over what is here: older pages stay before it, later events after it. */
export function mergePage(old: Message[], page: Message[]): Message[] {
  if (page.length === 0) return old;
  const ids = new Set(page.map((m) => m.id));
  const first = old.findIndex((m) => ids.has(m.id));
  if (first < 0) {
    // No overlap: what is here is older than the page, with a gap between; only the page is known to be whole.
    return page;
  }
  const last = old.findLastIndex((m) => ids.has(m.id));
  return [...old.slice(0, first), ...page, ...old.slice(last + 1)];
}

/** Whether one of the messages stands for a run that is not known. */
export function lacksRuns(messages: readonly Message[], known: Record<string, Run>): boolean {
  return messages.some((m) => m.kind === "run" && m.run_id !== null && !known[m.run_id]);
}

/** An older page, and the runs read for it, put before what is here. */
export function prependPage(history: History, page: Page<Message>, runs: Page<Run> = NO_RUNS): History {
  const have = new Set(history.messages.map((m) => m.id));
  const fresh = page.items.filter((m) => !have.has(m.id));
  const messages = [...fresh, ...history.messages];
  return { ...history, messages, before: page.next_cursor, runs: addRuns(history.runs, runs.items), olderRuns: runs.next_cursor };
}

/** The run that is live, of which there is at most one. */
export function liveRun(history: History): Run | null {
  return Object.values(history.runs).find((run) => LIVE.includes(run.status)) ?? null;
}

/** The run that came last, live or ended. */
export function lastRun(history: History): Run | null {
  let last: Run | null = null;
  for (const run of Object.values(history.runs)) {
    if (!last || run.created_at > last.created_at || (run.created_at === last.created_at && run.id > last.id)) last = run;
  }
  return last;
}

/** Waiting and held follow-ups in their order. */
export function openFollowups(history: History): Followup[] {
  return Object.values(history.followups)
    .filter((f) => f.status === "waiting" || f.status === "held")
    .sort((a, b) => a.position - b.position || (a.id < b.id ? -1 : 1));
}

function newest(old: Run | undefined, run: Run): Run {
  return old && old.version > run.version ? old : run;
}

export function addRuns(known: Record<string, Run>, runs: readonly Run[]): Record<string, Run> {
  const all = { ...known };
  for (const run of runs) all[run.id] = newest(all[run.id], run);
  return all;
}

function byId<T extends { id: string }>(items: T[]): Record<string, T> {
  return Object.fromEntries(items.map((item) => [item.id, item]));
}
