// Tells the server up to which event this person has seen a conversation: what stands on a visible page is seen. It is
// told only where something there calls the person. A mark that is lost is set by the next look.

import { api } from "../wire/api";
import type { Conversation } from "../wire/types";
import { throttle } from "./throttle";

const INTERVAL_MS = 2_000;

export class Seen {
  #known = new Map<string, number>();
  #due = new Map<string, number>();

  /** `noted` gets the conversation as the server has it then. */
  constructor(private readonly noted: (conversation: Conversation) => void, private readonly page: Document = document) {
    // What was looked at is seen, also by somebody who goes at once.
    addEventListener("pagehide", () => void this.#send());
  }

  look(conversation: string, seq: number): void {
    if (this.page.hidden || seq <= (this.#known.get(conversation) ?? 0)) return;
    this.#due.set(conversation, seq);
    this.#tell();
  }

  #tell = throttle(() => this.#send(), INTERVAL_MS);

  async #send(): Promise<void> {
    const due = [...this.#due];
    this.#due.clear();
    for (const [conversation, seq] of due) {
      try {
        this.noted(await api.seen(conversation, seq));
        this.#known.set(conversation, seq);
      } catch {
        // See above.
      }
    }
  }
}
