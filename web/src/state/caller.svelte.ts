// Calls a person who does not look: a notification of the system when something needs them, failed, or is done, while no
// tab of this browser is shown. Which tab does it is decided elsewhere; whether it may, the person and the browser say.

import type { DurableEvent, Request, Run } from "../wire/types";
import { unmarked } from "../text/status";
import { visibleText } from "../text/visible";
import type { Lists } from "./lists.svelte";

const KEPT = "dromos.calls";
/** What comes at once after an absence is told as one. */
const TOGETHER_MS = 300;
const MOST_AT_ONCE = 3;

export interface Call { title: string; body: string; conversation: string }

/** `blocked`: the browser was told never to ask, or never to show. `unable`: it cannot. */
export type CallState = "off" | "on" | "blocked" | "unable";

export class Caller {
  state = $state<CallState>(current());
  #due: Call[] = [];
  #timer: ReturnType<typeof setTimeout> | null = null;

  constructor(private readonly lists: Lists, private readonly go: (conversation: string | null) => void) {
    addEventListener("storage", (event) => event.key === KEPT && (this.state = current()));
  }

  /** By a person's own click, which a browser wants to see before it asks. */
  async turn(on: boolean): Promise<void> {
    if (on && this.state !== "unable") await Notification.requestPermission();
    try {
      localStorage.setItem(KEPT, on ? "on" : "off");
    } catch {
      // Asked again after a reload.
    }
    const now = current();
    this.state = on && now === "off" ? "on" : now;
  }

  call(event: DurableEvent): void {
    if (this.state !== "on") return;
    const call = callOf(event, (id) => this.lists.title(id));
    if (!call) return;
    this.#due = [...this.#due.filter((due) => due.conversation !== call.conversation), call];
    this.#timer ??= setTimeout(() => this.#tell(), TOGETHER_MS);
  }

  /** After an absence: what calls is in the lists, and was not told one by one. */
  callMany(): void {
    const { unseen } = this.lists;
    if (this.state === "on" && unseen > 0) this.#show(unseen === 1 ? "A conversation calls you" : `${unseen} conversations call you`, "", null);
  }

  #tell(): void {
    this.#timer = null;
    const due = this.#due;
    this.#due = [];
    if (due.length <= MOST_AT_ONCE) for (const call of due) this.#show(call.title, call.body, call.conversation);
    else this.#show(`${due.length} conversations call you`, due.map((call) => call.title).join("\n"), null);
  }

  #show(title: string, body: string, conversation: string | null): void {
    try {
      // One per conversation: what is newer takes the place of what was said before.
      const shown = new Notification(title, { body, tag: `dromos ${conversation ?? "many"}`, icon: "/favicon.svg" });
      shown.onclick = () => {
        window.focus();
        shown.close();
        this.go(conversation);
      };
    } catch {
      this.state = "unable";
    }
  }
}

function current(): CallState {
  if (typeof Notification !== "function") return "unable";
  if (Notification.permission === "denied") return "blocked";
  try {
    return localStorage.getItem(KEPT) === "on" && Notification.permission === "granted" ? "on" : "off";
  } catch {
    return "off";
  }
}

/** What a person is told of an event; null where it does not call them. What models and tools wrote is only text here. */
export function callOf(event: DurableEvent, titleOf: (conversation: string) => string): Call | null {
  const conversation = event.conversation_id;
  if (!conversation) return null;
  const call = (word: string, body: string): Call => ({
    title: `${word}: ${visibleText(titleOf(conversation))}`, body: visibleText(body), conversation,
  });
  if (event.type === "request.opened") {
    const request = event.payload["request"] as Request;
    const asked = typeof request.prompt === "string" ? request.prompt : "";
    return call("Needs you", asked || (request.kind === "approval" ? `approve ${request.tool ?? "a call"}` : "the outcome of a call is unknown"));
  }
  if (event.type !== "run.status") return null;
  const run = event.payload["run"] as Run;
  switch (run.status) {
    case "completed":
      return call("Done", unmarked(run.line ?? ""));
    case "failed":
      return call("Failed", run.error_message ?? "");
    case "expired":
      return call("Expired", "");
    case "interrupted":
      // What a newer message replaced was replaced by the person.
      return run.reason === "superseded" ? null : call("Interrupted", run.error_message ?? "");
    default:
      return null;
  }
}
