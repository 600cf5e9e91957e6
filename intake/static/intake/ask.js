/** One question to the server: POST it, then hand on the events of the answer. */
import { eventsOf } from "./sse.js";

const UNREACHABLE = "Recollect cannot be reached. Check the connection, then try again.";
const BROKEN_OFF = "The connection broke off before the answer was complete.";
const TRANSIENT = new Set([403, 408, 429, 502, 503, 504]);

export class Failure extends Error {
  constructor({ code, detail, retryable }) {
    super(detail);
    this.code = code;
    this.retryable = Boolean(retryable);
  }
}

/**
 * Asking again with the same body and key never makes a second turn of it.
 *
 * Yields {type, data} with data parsed; throws Failure, or an AbortError when `signal` fires.
 *
 * The body is read to its end, also after the last event: a reader who leaves early looks like one who has gone away.
 */
export async function* ask({ endpoint, body, key, csrfToken, signal }) {
  const response = await post(endpoint, { body, key, csrfToken, signal });
  if (!isEventStream(response)) throw await failureOf(response);
  let isOver = false;
  try {
    for await (const { type, data } of eventsOf(response.body)) {
      isOver ||= type === "done" || type === "error";
      yield { type, data: JSON.parse(data) };
    }
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  if (!isOver) throw new Failure({ code: "broken_off", detail: BROKEN_OFF, retryable: true });
}

async function post(endpoint, { body, key, csrfToken, signal }) {
  const headers = { "Content-Type": "application/json", Accept: "text/event-stream", Prefer: "blocks", "X-CSRFToken": csrfToken };
  try {
    return await fetch(endpoint, {
      method: "POST",
      headers: { ...headers, "Idempotency-Key": key },
      body: JSON.stringify(body),
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure({ code: "unreachable", detail: UNREACHABLE, retryable: true });
  }
}

function isEventStream(response) {
  return response.ok && response.headers.get("Content-Type")?.startsWith("text/event-stream");
}

/** A problem document says what happened; a proxy's or framework's page does not, so its status speaks. */
async function failureOf(response) {
  const problem = await response.json().catch(() => null);
  if (!problem?.detail) {
    const detail = response.status === 403
      ? "This page has expired. Try again, or reload it; what you wrote is kept."
      : `The server answered ${response.status}. Try again in a moment.`;
    return new Failure({ code: `http_${response.status}`, detail, retryable: TRANSIENT.has(response.status) });
  }
  const fields = Object.values(problem.errors ?? {}).flat();
  return new Failure({ ...problem, detail: [problem.detail, ...fields].join(" ") });
}
