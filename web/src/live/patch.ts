// RFC 6902 as far as run documents use it: add, replace, remove, test. Pure: the input document is never changed,
// and a patch applies as a whole or not at all.

import type { PatchOp } from "../wire/types";

export class PatchError extends Error {}

type Json = Record<string, unknown> | unknown[];

/** The document after all operations. Parts no operation touches are shared with the input. Throws `PatchError`. */
export function applyPatch<T extends object>(document: T, patch: readonly PatchOp[]): T {
  let root: unknown = document;
  for (const op of patch) root = applyOne(root, pointer(op.path), op);
  return root as T;
}

function pointer(path: string): string[] {
  if (path === "") return [];
  if (!path.startsWith("/")) throw new PatchError(`not a JSON pointer: ${path}`);
  return path.slice(1).split("/").map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
}

function applyOne(node: unknown, path: string[], op: PatchOp): unknown {
  const [key, ...rest] = path;
  if (key === undefined) {
    if (op.op === "test") {
      if (!same(node, op.value)) throw new PatchError("test failed");
      return node;
    }
    if (op.op === "remove") throw new PatchError("the root cannot be removed");
    return op.value;
  }
  if (typeof node !== "object" || node === null) throw new PatchError(`nothing at ${op.path}`);
  return Array.isArray(node) ? inArray(node, key, rest, op) : inObject(node as Record<string, unknown>, key, rest, op);
}

function inObject(node: Record<string, unknown>, key: string, rest: string[], op: PatchOp): Json {
  // Names such as __proto__ are data here, never the prototype.
  const has = Object.prototype.hasOwnProperty.call(node, key);
  if (rest.length > 0) {
    if (!has) throw new PatchError(`nothing at ${op.path}`);
    return define(node, key, applyOne(node[key], rest, op));
  }
  if (op.op === "add") return define(node, key, op.value);
  if (!has) throw new PatchError(`nothing at ${op.path}`);
  if (op.op === "replace") return define(node, key, op.value);
  if (op.op === "remove") return Object.fromEntries(Object.entries(node).filter(([name]) => name !== key));
  if (!same(node[key], op.value)) throw new PatchError("test failed");
  return node;
}

function define(node: Record<string, unknown>, key: string, value: unknown): Record<string, unknown> {
  const copy = { ...node };
  Object.defineProperty(copy, key, { value, enumerable: true, configurable: true, writable: true });
  return copy;
}

function inArray(node: unknown[], key: string, rest: string[], op: PatchOp): Json {
  const adding = op.op === "add" && rest.length === 0;
  if (adding && key === "-") return [...node, op.value];
  if (!/^(0|[1-9]\d*)$/.test(key)) throw new PatchError(`not an index: ${op.path}`);
  const index = Number(key);
  if (index > node.length || (index === node.length && !adding)) throw new PatchError(`nothing at ${op.path}`);
  if (adding) return node.toSpliced(index, 0, op.value);
  if (rest.length > 0) return node.with(index, applyOne(node[index], rest, op));
  if (op.op === "replace") return node.with(index, op.value);
  if (op.op === "remove") return node.toSpliced(index, 1);
  if (!same(node[index], op.value)) throw new PatchError("test failed");
  return node;
}

function same(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) || Array.isArray(b)) {
    return Array.isArray(a) && Array.isArray(b) && a.length === b.length && a.every((item, i) => same(item, b[i]));
  }
  const left = a as Record<string, unknown>;
  const right = b as Record<string, unknown>;
  const keys = Object.keys(left);
  return keys.length === Object.keys(right).length && keys.every((k) => Object.hasOwn(right, k) && same(left[k], right[k]));
}
