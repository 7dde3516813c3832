// When this page was told of an owner, by the server's clock. Silence of an owner counts only as far as the server has
// told it: what the page itself did not hear, on a cut line or asleep, says nothing of the owner.

import { serverNow } from "../wire/api";
import type { Owner } from "../wire/types";

const told = new WeakMap<Owner, number>();

/** Of the very object the server sent: each answer and frame brings a new one. */
export function toldAt(owner: Owner | null | undefined): number {
  if (!owner) return 0;
  const at = told.get(owner) ?? serverNow();
  told.set(owner, at);
  return at;
}
