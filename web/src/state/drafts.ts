// What a person has typed and the server has not acknowledged yet, kept in this browser per conversation.
// A draft carries the key of its sending: the same text sent again, after a lost answer or a reload, is the same
// request. Changed text gets a new key.

import { newKey } from "../wire/api";

export interface Draft {
  text: string;
  /** The key and the exact text of a sending that was begun and not acknowledged; `as` is how it was sent. */
  tried: { key: string; text: string; as?: string } | null;
  /** The key of the conversation that is made for this draft, on the first screen. */
  creating: string | null;
}

const PREFIX = "dromos.draft.";
export const NEW = "new";
export const EMPTY: Draft = { text: "", tried: null, creating: null };

// Kept beside the storage, which a browser may refuse to a page.
const memory = new Map<string, Draft>();

export function loadDraft(conversation: string): Draft {
  const kept = memory.get(conversation);
  if (kept) return kept;
  try {
    const value = JSON.parse(localStorage.getItem(PREFIX + conversation) ?? "null") as Partial<Draft> | null;
    if (value && typeof value.text === "string") return { text: value.text, tried: value.tried ?? null, creating: value.creating ?? null };
  } catch {
    // Unreadable or forbidden: no draft.
  }
  return EMPTY;
}

export function saveDraft(conversation: string, draft: Draft): void {
  const empty = draft.text === "" && !draft.tried;
  if (empty) memory.delete(conversation);
  else memory.set(conversation, draft);
  try {
    if (empty) localStorage.removeItem(PREFIX + conversation);
    else localStorage.setItem(PREFIX + conversation, JSON.stringify(draft));
  } catch {
    // Full or forbidden: the copy in memory remains.
  }
}

/**
 * The draft with a key for sending its text: the old key if this very text was tried before in the same way, else a
 * new one. `as` is whatever else goes with the text (see `choices`): one key never stands for two requests.
 */
export function withKey(draft: Draft, text: string, as = ""): Draft & { tried: { key: string; text: string } } {
  const { tried } = draft;
  return { ...draft, tried: tried?.text === text && (tried.as ?? "") === as ? tried : { key: newKey(), text, as } };
}

/** Tells when another tab sent or changed a draft. Returns the function that ends the watching. */
export function watchDrafts(changed: (conversation: string, before: string | null, after: string | null) => void): () => void {
  const text = (value: string | null): string | null => {
    try {
      return value === null ? null : ((JSON.parse(value) as Draft).text ?? null);
    } catch {
      return null;
    }
  };
  const listen = (event: StorageEvent): void => {
    if (event.key?.startsWith(PREFIX)) changed(event.key.slice(PREFIX.length), text(event.oldValue), text(event.newValue));
  };
  addEventListener("storage", listen);
  return () => removeEventListener("storage", listen);
}
