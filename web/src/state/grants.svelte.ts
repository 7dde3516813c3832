// What a person has allowed for good in one conversation: read when it may have changed, taken back one by one. Nothing
// goes from the list before the server has said so.

import { api, Problem } from "../wire/api";
import type { Grant } from "../wire/types";

export class Grants {
  /** The conversation that `items` belong to; null: nothing was read. */
  conversation = $state<string | null>(null);
  items = $state.raw<Grant[]>([]);
  more = $state<string | null>(null);
  problem = $state<string | null>(null);
  /** Which one is being taken back. */
  revoking = $state<string | null>(null);
  #reads = 0;

  /** Reads the newest; what was read of another conversation goes at once. */
  async read(conversation: string): Promise<void> {
    if (this.conversation !== conversation) this.forget();
    this.conversation = conversation;
    const mine = ++this.#reads;
    try {
      const page = await api.grants(conversation);
      if (mine !== this.#reads) return;
      this.items = page.items;
      this.more = page.next_cursor;
      this.problem = null;
    } catch (error) {
      if (mine === this.#reads) this.problem = words(error);
    }
  }

  async older(): Promise<void> {
    const { conversation, more } = this;
    if (conversation === null || more === null) return;
    const mine = ++this.#reads;
    try {
      const page = await api.grants(conversation, more);
      if (mine !== this.#reads) return;
      this.items = [...this.items, ...page.items];
      this.more = page.next_cursor;
    } catch (error) {
      if (mine === this.#reads) this.problem = words(error);
    }
  }

  async revoke(grant: Grant): Promise<void> {
    if (this.revoking !== null) return;
    this.revoking = grant.id;
    this.problem = null;
    try {
      await api.revoke(grant.id);
      this.items = this.items.filter((one) => one.id !== grant.id);
    } catch (error) {
      // Somebody else was first: that is what was wanted.
      if (error instanceof Problem && error.status === 404) this.items = this.items.filter((one) => one.id !== grant.id);
      else this.problem = words(error);
    } finally {
      this.revoking = null;
    }
  }

  forget(): void {
    this.#reads += 1;
    this.conversation = this.more = this.problem = null;
    this.items = [];
  }
}

const words = (error: unknown): string => (error instanceof Problem ? error.message : String(error));
