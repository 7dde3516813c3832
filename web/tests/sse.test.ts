import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { FrameDecoder, type Frame } from "../src/wire/sse";

const all = (pieces: string[]): Frame[] => {
  const decoder = new FrameDecoder();
  return pieces.flatMap((piece) => decoder.push(piece));
};

describe("the event stream decoder", () => {
  test("reads a durable event with its number", () => {
    expect(all(["id: 7\nevent: run.status\ndata: {\"a\":1}\n\n"])).toEqual([{ id: "7", event: "run.status", data: "{\"a\":1}" }]);
  });

  test("gives an ephemeral frame no number, even after a numbered one", () => {
    expect(all(["id: 7\ndata: 1\n\nevent: run.text\ndata: 2\n\n"]).map((f) => f.id)).toEqual(["7", null]);
  });

  test("yields nothing for heartbeats and for events without data", () => {
    expect(all([": beat\n\n", "event: x\n\n"])).toEqual([]);
  });

  test("joins data lines, takes every kind of line end and a byte order mark", () => {
    expect(all(["\ufeffdata: a\r\ndata: b\r\n\r\n", "data:c\r\r"]).map((f) => f.data)).toEqual(["a\nb"]);
    expect(all(["data: a\r", "\ndata: b\n\n"])).toEqual([{ id: null, event: "message", data: "a\nb" }]);
  });

  test("gives the same frames however the text is cut", () => {
    const text = "id: 1\r\nevent: a\r\ndata: x😀\r\ndata: y\r\n\r\n: beat\n\nevent: b\ndata: z\n\nid: 2\ndata: last\n\n";
    const whole = all([text]);
    fc.assert(
      fc.property(fc.array(fc.nat(text.length)), (cuts) => {
        const at = [0, ...cuts.toSorted((a, b) => a - b), text.length];
        expect(all(at.slice(1).map((end, i) => text.slice(at[i], end)))).toEqual(whole);
      }),
    );
  });
});
