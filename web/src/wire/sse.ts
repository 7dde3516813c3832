// Decoder of the server-sent event format: bytes of text in, whole frames out.
// It knows the format only; what an event means is decided elsewhere.

export interface Frame { id: string | null; event: string; data: string }

/** Feeds on text in any pieces and returns the frames each piece completes. Comments (heartbeats) yield nothing. */
export class FrameDecoder {
  #rest = "";
  #id: string | null = null;
  #event = "";
  #data: string[] = [];
  #start = true;

  push(text: string): Frame[] {
    if (this.#start && text.length > 0) {
      this.#start = false;
      if (text.charCodeAt(0) === 0xfeff) text = text.slice(1);
    }
    const frames: Frame[] = [];
    const buffer = this.#rest + text;
    let from = 0;
    for (;;) {
      const end = nextBreak(buffer, from);
      if (end === null) break;
      const frame = this.#line(buffer.slice(from, end.at));
      if (frame) frames.push(frame);
      from = end.next;
    }
    this.#rest = buffer.slice(from);
    return frames;
  }

  #line(line: string): Frame | null {
    if (line === "") {
      const frame = this.#data.length ? { id: this.#id, event: this.#event || "message", data: this.#data.join("\n") } : null;
      this.#id = null;
      this.#event = "";
      this.#data = [];
      return frame;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return null;
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (field === "data") this.#data.push(value);
    else if (field === "event") this.#event = value;
    else if (field === "id" && !value.includes("\0")) this.#id = value;
    return null;
  }
}

/** The next line end: LF, CR LF or CR. A CR at the very end waits for the piece that may hold its LF. */
function nextBreak(text: string, from: number): { at: number; next: number } | null {
  for (let i = from; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === 10) return { at: i, next: i + 1 };
    if (code === 13) {
      if (i + 1 === text.length) return null;
      return { at: i, next: text.charCodeAt(i + 1) === 10 ? i + 2 : i + 1 };
    }
  }
  return null;
}
