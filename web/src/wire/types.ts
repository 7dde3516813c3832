// The shapes the server sends, as far as the page reads them. Types only: no defaults, no behaviour.
// Times are RFC 3339 UTC strings, lengths and offsets of text are UTF-16 code units.

export type RunStatus =
  | "queued" | "running" | "waiting_input" | "cancelling"
  | "completed" | "failed" | "cancelled" | "interrupted" | "expired";

export const LIVE: readonly RunStatus[] = ["queued", "running", "waiting_input", "cancelling"];

/** `place` is the place in the line, counted from 1, where the server says it. */
export interface Wait { reason: string; until?: string | null; then?: string | null; place?: number | null }

export interface Stop {
  cause?: string | null; by?: string | null; comment?: string | null;
  accepted_at?: string | null; delivered_at?: string | null; forced_at?: string | null; outcome?: string | null;
  waiting_for?: { tool: string; since?: string | null; until?: string | null } | null;
  unknown_calls?: unknown[];
}

export interface Cost { currency: string; amount: string | null; estimated?: boolean; limit?: string | null }

export interface Usage {
  input?: number; output?: number; cached?: number; reasoning?: number; model_calls?: number; tool_calls?: number;
}

export interface Run {
  id: string; conversation_id: string; agent?: string | null;
  status: RunStatus; reason: string; error_code: string | null; error_message: string | null;
  attempt: number; crashes: number; version: number;
  wait: Wait | null; stop: Stop | null;
  anchor_message_id: string | null; trigger_message_id?: string | null;
  resume_of?: string | null; retry_of?: string | null;
  created_at: string; started_at: string | null; finished_at: string | null;
  usage?: Usage | null; cost?: Cost | null; line?: string | null; steps?: number; model?: string | null;
  /** Who has it now, as lists and events tell it; undefined: not told. */
  owner?: Owner | null;
}

export interface Owner { kind: string; seen_at?: string | null; takeover_at?: string | null }

export interface ToolCall { id: string; name: string; args: unknown }

export interface Message {
  id: string; role: "user" | "assistant" | "tool" | "system" | null; kind: "text" | "run" | "tool";
  /** Text; for an agent without a message channel, the object or list the person sent. */
  content: unknown; status: string | null; run_id: string | null;
  tool_calls?: ToolCall[] | null; tool_call_id?: string | null; name?: string | null;
  interrupted?: boolean; created_at: string;
}

export interface Conversation {
  id: string; title: string | null; agent?: string | null; status?: string | null; line?: string | null;
  open_requests?: number; message_count?: number; created_at?: string; updated_at: string;
  /** A question was put or a run ended in it, and no device of this person has shown that yet. */
  unseen?: boolean;
}

export interface Followup {
  id: string; conversation_id: string; run_id: string | null; status: "waiting" | "held" | "applied" | "discarded";
  when_busy: string; content: unknown; position: number; version: number; created_at: string;
}

/** What becomes of a message while a run is live. */
export type WhenBusy = "queue" | "steer" | "interrupt" | "reject";

/** What goes with a message beside its text; null: the conversation's own. */
export interface Choice { mode: Exclude<WhenBusy, "reject">; agent: string | null; model: string | null }

export type Verdict = "approve" | "edit" | "deny" | "answer" | "retry" | "mark_done" | "skip";

/** How far leave for good reaches, within one conversation: exactly this call, or the whole tool. */
export type Leave = "call" | "tool";

/** A question to a person. A decision names its `version` and the digest of the arguments that were shown. */
export interface Request {
  id: string; run_id: string; conversation_id?: string; kind: string;
  tool?: string | null; tool_call_id?: string | null; arguments?: unknown; arguments_sha256?: string | null;
  prompt?: string | null; options?: unknown[] | null; answer_schema?: Record<string, unknown> | null;
  /** What it takes, and which leave for good may be given with `approve`. */
  decisions?: Verdict[]; grants?: Leave[];
  status?: "open" | "decided" | "consumed" | "void" | "expired"; version?: number;
  expires_at?: string | null; on_timeout?: string | null; opened_at?: string;
  decided_by?: string | null; decided_at?: string | null; comment?: string | null;
  decision?: { decision: Verdict; answer?: unknown; comment?: string | null; arguments?: unknown; grant?: Leave | null } | null;
  replaces?: string | null;
}

/** What a person says to a request (`app.decide(request, decision)`). */
export interface Decision { decision: Verdict; answer?: unknown; comment?: string; arguments?: unknown; grant?: Leave }

/** Leave that was given for good, within a conversation: for exactly these arguments, or (null) for the whole tool. */
export interface Grant { id: string; conversation_id: string; tool: string; arguments: unknown; created_at: string }

/**
 * What became of it: the request as the server has it (decided by someone else, perhaps), or why nothing came, with the
 * faults of the answer by their path, such as `/answer/due`.
 */
export interface Decided { request: Request | null; problem: string | null; faults?: { path: string; message: string }[] }

export interface Step {
  id: string; kind: "model" | "tool" | "step"; name: string; status: string;
  summary?: string | null; started_at?: string | null; ms?: number | null; usage?: Usage | null;
}

export interface Current {
  kind: "model" | "tool" | "step"; name: string; summary?: string | null; since?: string | null;
  progress?: { value: number; total?: number | null; message?: string | null } | null;
}

export interface PlanItem { id: string; title: string; status: "pending" | "active" | "done" | "skipped" }

/** A subagent, a workflow or a job in the background, as far as its owner tells; helpers may have helpers. */
export interface Helper {
  title?: string | null; status?: string | null; current?: string | Current | null; line?: string | null;
  since?: string | null; started_at?: string | null; finished_at?: string | null; ms?: number | null; usage?: Usage | null;
  plan?: PlanItem[]; subagents?: Record<string, Helper>; workflows?: Record<string, Helper>; background?: Record<string, Helper>;
}

export interface LiveText { message_id: string | null; length: number; content: string }

/** `run_document.v1`: what a run is doing. The server part is read, never patched; the content part is patched. */
export interface RunDocument {
  schema?: string;
  run_id: string; conversation_id: string; agent?: string | null;
  status: RunStatus; reason: string; error: { code?: string; message?: string } | string | null; run_version: number;
  created_at: string; started_at: string | null; finished_at: string | null; attempt: number; crashes: number;
  owner?: Owner | null;
  wait: Wait | null; stop: Stop | null; requests: Request[]; followups: Followup[]; cost?: Cost | null;
  backend_policy?: { models?: string[] | null; providers?: string[] | null } | null;
  model?: string | null; activity_at?: string | null;
  stall?: { since: string; kind: "model" | "tool" } | null;
  context?: { used?: number | null; limit?: number | null; percent?: number | null } | null;
  usage?: Usage | null; current?: Current | null; text?: LiveText | null;
  plan?: PlanItem[];
  steps?: Step[];
  subagents?: Record<string, Helper>; workflows?: Record<string, Helper>; background?: Record<string, Helper>;
  retries?: {
    count: number;
    last?: { of?: string; code?: string; attempt?: number; of_attempts?: number; next_at?: string | null } | null;
  } | null;
  line?: string | null;
}

export interface PatchOp { op: "add" | "replace" | "remove" | "test"; path: string; value?: unknown }

export interface DocumentAnswer { version: number; run_version: number; document: RunDocument }

export interface ConversationAnswer {
  conversation: Conversation; messages: Message[]; runs: Run[]; requests: Request[]; followups: Followup[];
  resumable: boolean; seq: number;
  /** `before` for older messages; null where there are none. */
  next_cursor?: string | null;
}

/** Everything beside the open conversation, in one consistent read; events behind `seq` go on from there. */
export interface Overview {
  seq: number; unseen: number; conversations: Page<Conversation>; runs: Page<Run>; requests: Page<Request>;
  /** The conversations of those runs and requests that are not on the page. */
  also: Conversation[];
}

export interface Page<T> { items: T[]; next_cursor: string | null }

export interface Agent {
  name: string; description?: string | null; kind?: string; default?: boolean;
  model?: { name: string; source?: string | null; hint?: string | null } | null;
}

/** What a `run.status` event carries: the run, and the whole server part of its document. */
export interface RunStatusPayload {
  run: Run; document?: RunDocument; conversation?: Conversation;
  requests?: Request[]; followups?: Followup[]; owner?: Owner | null;
}

/** A durable event as the stream carries it. */
export interface DurableEvent {
  seq: number; type: string; conversation_id: string | null; run_id?: string | null; at: string;
  payload: Record<string, unknown>;
}
