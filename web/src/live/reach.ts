// How a tab reaches the hub of its browser, best first: in a shared worker; in one of the tabs, which the others find
// over a broadcast channel, where a browser has no shared workers; in the tab itself, which then holds a connection
// only while it is shown. It passes messages on and reads none of them.

import { newKey } from "../wire/api";
import workerUrl from "./hub.worker?sharedworker&url";
import { Hub, type FromHub, type ToHub } from "./hub";

export interface Reach {
  post(message: ToHub): void;
  close(): void;
}

type Receive = (message: FromHub) => void;
const NAME = "dromos.hub";

/** `receive` may be told `who` at any time: the hub is new, or another one. */
export function reachHub(receive: Receive): Reach {
  if (typeof SharedWorker === "function") return worker(receive);
  return sharedTab(receive);
}

function sharedTab(receive: Receive): Reach {
  // Web Locks are for secure origins only; by plain http from a phone each tab is on its own.
  return typeof BroadcastChannel === "function" && "locks" in navigator ? leader(receive) : alone(receive);
}

function worker(receive: Receive): Reach {
  let reach: Reach;
  let shared: SharedWorker;
  try {
    shared = new SharedWorker(trusted(workerUrl), { name: NAME });
  } catch {
    return sharedTab(receive);
  }
  const { port } = shared;
  reach = { post: (message) => port.postMessage(message), close: () => port.close() };
  port.onmessage = ({ data }: MessageEvent<FromHub>) => receive(data);
  shared.onerror = () => {
    // Its script could not be had; without it nothing would ever come.
    port.close();
    reach = sharedTab(receive);
    receive({ kind: "who" });
  };
  return { post: (message) => reach.post(message), close: () => reach.close() };
}

/** The page's policy lets no text become a script's address but this one. */
function trusted(url: string): string {
  type Policies = { createPolicy(name: string, rules: { createScriptURL: (text: string) => string }): { createScriptURL(text: string): string } };
  const policies = (globalThis as { trustedTypes?: Policies }).trustedTypes;
  if (!policies) return url;
  return policies.createPolicy("dromos-worker", {
    createScriptURL: (text) => {
      if (text !== workerUrl) throw new TypeError("only the page's own worker may be started");
      return text;
    },
  }).createScriptURL(url);
}

type Letter = { to: string; from: string; message: ToHub | FromHub };
const HUB = "hub";
const ALL = "all";

/** The tab that holds the lock keeps the hub for all; the lock goes on when it is closed. */
function leader(receive: Receive): Reach {
  const id = newKey();
  const channel = new BroadcastChannel(NAME);
  const end = new AbortController();
  let hub: Hub | null = null;
  const send = (to: string, message: ToHub | FromHub): void => channel.postMessage({ to, from: id, message } satisfies Letter);

  channel.onmessage = ({ data }: MessageEvent<Letter>) => {
    if (data.to === id || data.to === ALL) receive(data.message as FromHub);
    else if (data.to === HUB) hub?.take(data.from, { post: (message) => send(data.from, message) }, data.message as ToHub);
  };
  const lead = (): Promise<void> => {
    hub = new Hub();
    send(ALL, { kind: "who" });
    receive({ kind: "who" });
    return new Promise((done) => end.signal.addEventListener("abort", () => done()));
  };
  navigator.locks.request(NAME, { signal: end.signal }, lead).catch(() => undefined);
  return {
    // A letter to nobody is no loss: the next one who leads asks who there is.
    post: (message) => (hub ? hub.take(id, { post: receive }, message) : send(HUB, message)),
    close: () => {
      hub?.close();
      end.abort();
      channel.close();
    },
  };
}

function alone(receive: Receive): Reach {
  const hub = new Hub(true);
  return { post: (message) => hub.take(NAME, { post: receive }, message), close: () => hub.close() };
}
