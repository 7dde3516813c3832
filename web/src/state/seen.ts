// Tells the server up to which event this person has seen a conversation: what stands on a visible page is seen.
// The mark is a convenience: one that is lost is set by the next event or by opening the conversation again.

import { api } from "../wire/api";
import { throttle } from "./throttle";

const INTERVAL_MS = 2_000;

export class Seen {
  #known = new Map<string, number>();
  #due = new Map<string, number>();

  /** `noted` is told which conversation the server has marked. */
  constructor(private readonly noted: (conversation: string) => void, private readonly page: Document = document) {}

  look(conversation: string, seq: number): void {
    if (this.page.hidden || seq <= (this.#known.get(conversation) ?? 0)) return;
    this.#due.set(conversation, seq);
    this.#tell();
  }

  #tell = throttle(async () => {
    const due = [...this.#due];
    this.#due.clear();
    for (const [conversation, seq] of due) {
      try {
        await api.seen(conversation, seq);
        this.#known.set(conversation, seq);
        if (!this.#due.has(conversation)) this.noted(conversation);
      } catch {
        // See above.
      }
    }
  }, INTERVAL_MS);
}
