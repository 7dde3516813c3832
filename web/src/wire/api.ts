// Calls of the HTTP surface. Each function is one request; errors become `Problem` with the server's own words.
// It keeps no state but the measured distance between this machine's clock and the server's.

import type {
  Agent, Choice, Conversation, ConversationAnswer, Decision, DocumentAnswer, Followup, Grant, Message, Overview, Page, Request, Run,
  Step,
} from "./types";
import { LIVE } from "./types";

/** A refused or failed request. `status` 0 means no answer came; the request may or may not have had its effect. */
export class Problem extends Error {
  constructor(readonly status: number, readonly code: string, detail: string, readonly body: Record<string, unknown> = {}) {
    super(detail);
    this.name = "Problem";
  }
}

let skewMs = 0;

/** Now, by the server's clock (to the second it tells in its Date header), in ms since the epoch. */
export function serverNow(): number {
  return Date.now() + skewMs;
}

/** A fresh key. `crypto.randomUUID` exists only on secure origins; the page is also opened by plain http from a phone. */
export function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");
}

/** `keepalive`: it is sent also where the page goes away meanwhile. */
interface Options { body?: unknown; key?: string; signal?: AbortSignal; timeoutMs?: number; keepalive?: boolean }

async function call<T>(method: string, path: string, { body, key, signal, timeoutMs = 30_000, keepalive = false }: Options = {}): Promise<T> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = key;
  const limit = AbortSignal.timeout(timeoutMs);
  const sent = Date.now();
  let response: Response;
  let text: string;
  try {
    response = await fetch(path, {
      method, headers, cache: "no-store", keepalive,
      signal: signal ? AbortSignal.any([signal, limit]) : limit,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    text = await response.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem(0, "unreachable", "The server did not answer. Check that it is running, then try again.");
  }
  noteClock(response.headers.get("Date"), sent);
  const data = parse(text);
  if (!response.ok) {
    const detail = data["detail"] ?? data["title"];
    throw new Problem(
      response.status,
      typeof data["code"] === "string" ? data["code"] : `http_${response.status}`,
      typeof detail === "string" && detail ? detail : `The server answered ${response.status}. Try again; its log says more.`,
      data,
    );
  }
  return data as T;
}

function parse(text: string): Record<string, unknown> {
  if (text === "") return {};
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

function noteClock(date: string | null, sent: number): void {
  const server = date ? Date.parse(date) : NaN;
  if (Number.isNaN(server)) return;
  // The header has whole seconds, and was written at some time since the request was sent: only a difference that
  // neither explains is one. An answer that was long on its way tells little, and changes nothing.
  const least = server - Date.now();
  const most = server + 1_000 - sent;
  skewMs = Math.min(Math.max(skewMs, least), most);
  if (least <= 0 && most >= 0) skewMs = 0;
}

const at = (id: string): string => encodeURIComponent(id);
const query = (values: Record<string, string | number | null | undefined>): string => {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value !== null && value !== undefined) params.set(name, String(value));
  const text = params.toString();
  return text ? `?${text}` : "";
};

export const api = {
  agents: () => call<Page<Agent>>("GET", "/v1/agents"),
  overview: () => call<Overview>("GET", "/v1/overview"),
  conversations: (cursor?: string | null, unseen = false) =>
    call<Page<Conversation>>("GET", `/v1/conversations${query({ limit: 50, cursor, unseen: unseen ? "true" : null })}`),
  liveRuns: () => call<Page<Run>>("GET", `/v1/runs?${LIVE.map((s) => `status=${s}`).join("&")}&limit=50`),
  runsOf: (conversation: string, cursor?: string | null, signal?: AbortSignal) =>
    call<Page<Run>>("GET", `/v1/runs${query({ conversation_id: conversation, limit: 50, cursor })}`, signal ? { signal } : {}),
  conversation: (id: string, signal?: AbortSignal) =>
    call<ConversationAnswer>("GET", `/v1/conversations/${at(id)}`, signal ? { signal } : {}),
  messages: (id: string, before?: string | null, limit = 50) =>
    call<Page<Message>>("GET", `/v1/conversations/${at(id)}/messages${query({ before, limit })}`),
  /** The conversation takes its title from the first message. */
  create: (key: string) => call<Conversation>("POST", "/v1/conversations", { body: {}, key }),
  rename: (id: string, title: string) => call<Conversation>("PATCH", `/v1/conversations/${at(id)}`, { body: { title } }),
  seen: (id: string, seq: number) =>
    call<Conversation>("PATCH", `/v1/conversations/${at(id)}`, { body: { seen_seq: seq }, keepalive: true }),
  remove: (id: string) => call<void>("DELETE", `/v1/conversations/${at(id)}`, { timeoutMs: 60_000 }),
  send: (id: string, content: string, key: string, { mode, agent, model }: Choice) =>
    call<{ message: Message; run?: Run; followup?: Followup }>("POST", `/v1/conversations/${at(id)}/messages`, {
      body: { content, when_busy: mode, ...(agent || model ? { run: { ...(agent && { agent }), ...(model && { model }) } } : {}) }, key,
    }),
  resume: (id: string, key: string) => call<{ run: Run }>("POST", `/v1/conversations/${at(id)}/continue`, { body: {}, key }),
  cancel: (run: string, key: string) => call<{ run: Run }>("POST", `/v1/runs/${at(run)}/cancel`, { body: {}, key }),
  decide: (request: Request, decision: Decision, key: string) =>
    call<{ request: Request; run: Run }>("POST", `/v1/requests/${at(request.id)}/decision`, {
      body: { ...decision, request_version: request.version, arguments_sha256: request.arguments_sha256 ?? null }, key,
    }),
  grants: (conversation: string, cursor?: string | null) =>
    call<Page<Grant>>("GET", `/v1/grants${query({ conversation_id: conversation, limit: 100, cursor })}`),
  revoke: (grant: string) => call<unknown>("DELETE", `/v1/grants/${at(grant)}`),
  run: (id: string) => call<Run>("GET", `/v1/runs/${at(id)}`),
  document: (run: string) => call<DocumentAnswer>("GET", `/v1/runs/${at(run)}/document`),
  steps: (run: string, cursor?: string | null) =>
    call<Page<Step>>("GET", `/v1/runs/${at(run)}/steps${query({ limit: 200, cursor })}`),
  editFollowup: (f: Followup, content: string) =>
    call<Followup>("PATCH", `/v1/followups/${at(f.id)}`, { body: { content, version: f.version } }),
  moveFollowup: (f: Followup, position: number) =>
    call<Followup>("PATCH", `/v1/followups/${at(f.id)}`, { body: { position, version: f.version } }),
  removeFollowup: (f: Followup) => call<Followup>("DELETE", `/v1/followups/${at(f.id)}${query({ version: f.version })}`),
  sendFollowup: (f: Followup, key: string) =>
    call<{ message?: Message; run?: Run; followup?: Followup }>("POST", `/v1/followups/${at(f.id)}/send`, { body: { version: f.version }, key }),
  exportUrl: (id: string) => `/v1/conversations/${at(id)}/export?format=md`,
};
