// What a person has chosen beside the text: how a message meets a run that is live, which agent and model answer.
// Kept in this browser per conversation, so that a reload or another tab finds it again; the server never sees a
// choice before it is sent with a message.

import type { Choice } from "../wire/types";

const PREFIX = "dromos.choice.";
const MODES = ["queue", "steer", "interrupt"];

/** Nothing chosen: a message queues, the conversation's own agent and its model answer. */
export const UNCHOSEN: Choice = { mode: "queue", agent: null, model: null };

class Choices {
  /** By conversation; `new` (see `NEW` in drafts) is the first screen. */
  #kept = $state.raw<Record<string, Choice>>({});

  constructor() {
    if (typeof addEventListener !== "function") return;
    addEventListener("storage", (event) => {
      if (event.key?.startsWith(PREFIX)) this.#kept = { ...this.#kept, [event.key.slice(PREFIX.length)]: read(event.newValue) };
    });
  }

  of(conversation: string): Choice {
    return this.#kept[conversation] ?? stored(conversation);
  }

  /** Changes what is given; the rest stays as it was chosen. */
  set(conversation: string, change: Partial<Choice>): void {
    const choice = { ...this.of(conversation), ...change };
    this.#kept = { ...this.#kept, [conversation]: choice };
    try {
      if (choice.mode === "queue" && choice.agent === null && choice.model === null) localStorage.removeItem(PREFIX + conversation);
      else localStorage.setItem(PREFIX + conversation, JSON.stringify(choice));
    } catch {
      // Full or forbidden: remembered for this page only.
    }
  }
}

function stored(conversation: string): Choice {
  try {
    return read(localStorage.getItem(PREFIX + conversation));
  } catch {
    return UNCHOSEN;
  }
}

/** A stored choice; what cannot be read, or is not a choice any more, counts as nothing chosen. */
export function read(text: string | null): Choice {
  if (text === null) return UNCHOSEN;
  try {
    const value = JSON.parse(text) as Partial<Record<keyof Choice, unknown>> | null;
    const word = (name: keyof Choice): string | null => (typeof value?.[name] === "string" ? value[name] : null);
    const mode = word("mode") ?? "";
    return { mode: MODES.includes(mode) ? (mode as Choice["mode"]) : "queue", agent: word("agent"), model: word("model") };
  } catch {
    return UNCHOSEN;
  }
}

export const choices = new Choices();
