// The page's own state machine for documents, driven line by line: one JSON array of [device, kind, value] in, one JSON
// array out with the devices that now wait for the document. `end` answers the canonical form of each document.

import { createInterface } from "node:readline";
import { registerHooks } from "node:module";

registerHooks({
  resolve: (name, context, next) => next(name.startsWith(".") && !/\.\w+$/.test(name) ? `${name}.ts` : name, context),
});
const live = await import("../../web/src/live/document.ts");

const canonical = (value) =>
  value === null || typeof value !== "object" ? JSON.stringify(value)
  : Array.isArray(value) ? `[${value.map(canonical).join(",")}]`
  : `{${Object.keys(value).sort(byCodePoint).map((key) => `${JSON.stringify(key)}:${canonical(value[key])}`).join(",")}}`;
// As Python sorts: by code point, not by UTF-16 unit.
const points = (text) => Array.from(text, (character) => character.codePointAt(0));
function byCodePoint(a, b) {
  const [left, right] = [points(a), points(b)];
  for (let at = 0; at < Math.min(left.length, right.length); at++) if (left[at] !== right[at]) return left[at] - right[at];
  return left.length - right.length;
}

let runs = new Map();
for await (const line of createInterface({ input: process.stdin })) {
  const stale = new Set();
  const ended = {};
  for (const [device, kind, value] of JSON.parse(line)) {
    if (kind === "begin") {
      runs = new Map();
    } else if (kind === "run.document") {
      const run = live.snapshot(runs.get(device), value);
      runs.set(device, run);
      if (live.waits(run)) stale.add(device);
    } else if (kind === "end") {
      const run = runs.get(device);
      ended[device] = [run.version, canonical(run.document)];
    } else {
      const kept = runs.get(device);
      const outcome = kind === "run.text" ? live.text(kept, value) : live.patch(kept, value);
      if (outcome === "stale") stale.add(device);
      else if (outcome !== "same") runs.set(device, outcome);
    }
  }
  process.stdout.write(JSON.stringify([[...stale], ended]) + "\n");
}
