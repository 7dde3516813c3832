// What a person does to runs, requests, follow-ups and conversations. Nothing is drawn before the server has said it;
// an answer is taken like an event. A second click while the first is under way is the first; a repeat after a lost
// answer carries the same key, so it has one effect.

import { api, newKey, Problem } from "../wire/api";
import type { Choice, Conversation, Decided, Decision, Followup, Message, Request, Run } from "../wire/types";
import { isOpen } from "../text/decided";
import { UNCHOSEN } from "./choices.svelte";

/** What an answer brought. */
export interface Took { run?: Run | undefined; followup?: Followup | undefined; message?: Message | undefined; request?: Request | undefined; conversation?: Conversation | undefined }

export abstract class Actions {
  /** A short sentence about an action that failed, shown until it is closed or the next action. */
  notice = $state<string | null>(null);
  /** Requests that this page decided, or on which its word is on its way. */
  protected decidedHere = new Set<string>();
  #keys = new Map<string, string>();
  #going = new Map<string, Promise<boolean>>();

  /** Puts what the server answered where events put it. */
  protected abstract take(conversation: string, answer: Took): void;
  /** Somebody else has decided a request that was to be answered here. */
  protected abstract overtaken(request: Request): void;
  /** Leave for good was given. */
  protected abstract allowed(conversation: string): void;
  /** The server has something else than what is shown: read the open conversation. */
  protected abstract again(): void;
  /** The conversation is gone. */
  protected abstract gone(conversation: string): Promise<void>;

  async stop(run: string): Promise<void> {
    await this.#act(`cancel ${run}`, async (key) => {
      const answer = await api.cancel(run, key);
      this.take(answer.run.conversation_id, answer);
    });
  }

  async resume(conversation: string, run: string): Promise<void> {
    await this.#act(`continue ${run}`, async (key) => {
      this.take(conversation, await api.resume(conversation, key));
      this.again();
    });
  }

  /** A person's word on a request. It says what became of it, also where somebody else was first. */
  async decide(request: Request, decision: Decision): Promise<Decided> {
    const name = `decide ${request.id} ${request.version} ${JSON.stringify(decision)}`;
    this.decidedHere.add(request.id);
    try {
      const answer = await api.decide(request, decision, this.#key(name));
      this.#keys.delete(name);
      this.take(answer.run.conversation_id, answer);
      if (decision.grant) this.allowed(answer.run.conversation_id);
      return { request: answer.request, problem: null };
    } catch (error) {
      // Where no answer came, it may have been taken all the same.
      if (!(error instanceof Problem)) return { request: null, problem: String(error) };
      if (error.status !== 0) this.decidedHere.delete(request.id);
      const current = error.body["request"] as Request | undefined;
      if (current?.conversation_id) this.take(current.conversation_id, { request: current });
      if (current && !isOpen(current)) this.overtaken(current);
      if (error.status === 409 || error.status === 404) this.again();
      const faults = error.body["errors"] as { path: string; message: string }[] | undefined;
      return { request: current ?? null, problem: error.message, ...(faults && { faults }) };
    }
  }

  async editFollowup(followup: Followup, content: string): Promise<boolean> {
    return this.#withFollowup("edit", followup, content, () => api.editFollowup(followup, content));
  }

  async removeFollowup(followup: Followup): Promise<boolean> {
    return this.#withFollowup("remove", followup, "", () => api.removeFollowup(followup));
  }

  /** Puts it at a place among those that wait, counted from 0. */
  async moveFollowup(followup: Followup, place: number): Promise<boolean> {
    return this.#withFollowup("move", followup, String(place), () => api.moveFollowup(followup, place));
  }

  async sendFollowup(followup: Followup): Promise<boolean> {
    return this.#act(`send ${followup.id}`, async (key) => {
      this.take(followup.conversation_id, await api.sendFollowup(followup, key));
      this.again();
    });
  }

  async rename(conversation: string, title: string): Promise<boolean> {
    return this.#act(`rename ${conversation} ${title}`, async () => {
      this.take(conversation, { conversation: await api.rename(conversation, title) });
    });
  }

  async remove(conversation: string): Promise<boolean> {
    return this.#act(`delete ${conversation}`, async () => {
      try {
        await api.remove(conversation);
      } catch (error) {
        // Somebody else was first: that is what was wanted.
        if (!(error instanceof Problem) || error.status !== 404) throw error;
      }
      await this.gone(conversation);
    });
  }

  /**
   * Sends a message to an existing conversation: text and the way it meets a live run. Throws `Problem`; the caller
   * keeps the text and the key.
   */
  async send(conversation: string, content: string, key: string, choice: Choice = UNCHOSEN): Promise<void> {
    this.take(conversation, await api.send(conversation, content, key, choice));
  }

  /** Makes a conversation. The same key always gives the same one. Throws `Problem`. */
  async create(key: string): Promise<string> {
    return (await api.create(key)).id;
  }

  #withFollowup(what: string, followup: Followup, detail: string, call: () => Promise<Followup>): Promise<boolean> {
    return this.#act(`${what} ${followup.id} ${followup.version} ${detail}`, async () => {
      this.take(followup.conversation_id, { followup: await call() });
    });
  }

  #key(name: string): string {
    const key = this.#keys.get(name) ?? newKey();
    this.#keys.set(name, key);
    return key;
  }

  /** Does it once, with a key that stays the same until it has worked, and says what went wrong. */
  #act(name: string, action: (key: string) => Promise<void>): Promise<boolean> {
    const going = this.#going.get(name);
    if (going) return going;
    this.notice = null;
    const done = (async () => {
      try {
        await action(this.#key(name));
        this.#keys.delete(name);
        return true;
      } catch (error) {
        this.notice = error instanceof Problem ? error.message : String(error);
        if (error instanceof Problem && (error.status === 409 || error.status === 404)) this.again();
        return false;
      } finally {
        this.#going.delete(name);
      }
    })();
    this.#going.set(name, done);
    return done;
  }
}
