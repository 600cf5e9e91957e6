/** Server-sent events out of text that arrives in pieces split anywhere (the "event stream" of the HTML standard). */
export class EventParser {
  #rest = "";
  #type = "";
  #id = null;
  #data = [];

  /** Takes the next piece of text; returns the events it completed, as {type, id, data}; `id` is null where there is none. */
  push(text) {
    this.#rest += text;
    // A carriage return at the very end may be half of a CRLF: it waits for what follows.
    const lines = this.#rest.split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    return lines.map((line) => this.#line(line)).filter(Boolean);
  }

  #line(line) {
    if (line === "") return this.#dispatch();
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.#type = value;
    if (field === "id") this.#id = value;
    if (field === "data") this.#data.push(value);
    return null;
  }

  #dispatch() {
    const event = { type: this.#type || "message", id: this.#id, data: this.#data.join("\n") };
    const isEmpty = this.#data.length === 0;
    this.#type = "";
    this.#id = null;
    this.#data = [];
    return isEmpty ? null : event;
  }
}

// The server sends something every fifteen seconds: a line that is silent for longer broke while the machine slept.
const SILENCE_MS = 40_000;

// The server closes the line right after its last event.
const CLOSING_MS = 5_000;

/**
 * The events of a response's body; the decoder keeps characters whole that were split between chunks. After an event
 * that `isLast` the server ends the request: to cancel it would show an aborted one in the browser's tools.
 */
export async function* eventsOf(body, isLast = () => false) {
  const parser = new EventParser();
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let isOver = false;
  try {
    for (;;) {
      const { value, done } = await within(SILENCE_MS, reader.read());
      if (done) return;
      for (const event of parser.push(value)) {
        isOver ||= isLast(event);
        yield event;
      }
    }
  } finally {
    if (isOver) readToTheEnd(reader);
    else reader.cancel().catch(() => {});
  }
}

async function readToTheEnd(reader) {
  const timer = setTimeout(() => reader.cancel().catch(() => {}), CLOSING_MS);
  try {
    while (!(await reader.read()).done);
  } catch {
    // The page leaves, or the line is lost: nothing more was to come.
  } finally {
    clearTimeout(timer);
  }
}

async function within(milliseconds, promise) {
  let timer;
  const silence = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("silent")), milliseconds);
  });
  try {
    return await Promise.race([promise, silence]);
  } finally {
    clearTimeout(timer);
  }
}
