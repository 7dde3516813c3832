// The shared worker: one hub for all tabs of this browser. A tab's port is its name.

import { Hub, type FromHub, type ToHub } from "./hub";

const hub = new Hub();
let count = 0;

(globalThis as unknown as { onconnect: (event: MessageEvent) => void }).onconnect = (event) => {
  const port = event.ports[0];
  if (!port) return;
  const id = String(++count);
  const tab = { post: (message: FromHub) => port.postMessage(message) };
  port.onmessage = ({ data }: MessageEvent<ToHub>) => hub.take(id, tab, data);
};

addEventListener("online", () => hub.doubt());
