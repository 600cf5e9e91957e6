/** One question to the server: POST it, then hand on the events of the answer, however often the line breaks. */
import { HOME, IN_PAGE_LANGUAGE, write } from "./dom.js";
import { gettext } from "./language.js";
import { eventsOf } from "./sse.js";

const UNREACHABLE = gettext("No connection to Recollect. Check your network and try again.");
const BROKEN_OFF = gettext("The connection was lost before the answer was complete.");
const TRANSIENT = new Set([403, 408, 429, 502, 503, 504]);
const FIRST_WAIT_MS = 300;
const LONGEST_WAIT_MS = 10_000;
// About ten minutes without a line.
const MOST_TRIES = 65;

export class Failure extends Error {
  /** `retryAfter`: in how many seconds trying again may help, if the server said so; `about`: what was too long. */
  constructor({ code, detail, retryable, retryAfter = null, reason = "", about = "" }) {
    super(detail);
    this.code = code;
    this.seconds = retryAfter;
    this.retryable = Boolean(retryable);
    this.reason = reason;
    this.about = about;
  }
}

/**
 * Asking again with the same body and key never makes a second turn of it.
 *
 * Yields {type, data} with data parsed; throws Failure, or an AbortError when `signal` fires. A `turn` event that comes
 * again means that the answer is told from the start once more.
 */
export async function* ask({ endpoint, body, key, csrfToken, signal }) {
  const response = await post(endpoint, { body, key, csrfToken, signal });
  if (!isEventStream(response)) throw await failureOf(response);
  const place = { turnId: null, lastId: null };
  if (yield* read(bodyOf(response), place)) return;
  if (place.turnId === null) throw new Failure({ code: "broken_off", detail: BROKEN_OFF, retryable: true });
  yield* follow({ ...place, signal });
}

/**
 * The events of the answer to a turn, from the start or behind the event `lastId`, to its end; `reconnecting` whenever
 * the line is lost.
 */
export async function* follow({ turnId, lastId = null, signal }) {
  const place = { turnId, lastId };
  for (let tries = 0; tries < MOST_TRIES; tries += 1) {
    const before = place.lastId;
    try {
      if (yield* read(await open(place, signal), place)) return;
      if (place.lastId !== before) tries = 0;
    } catch (error) {
      if (error.name === "AbortError" || (error instanceof Failure && !error.retryable)) throw error;
    }
    yield { type: "reconnecting" };
    await pause(Math.min(FIRST_WAIT_MS * 1.7 ** tries, LONGEST_WAIT_MS), signal);
  }
  throw new Failure({ code: "broken_off", detail: BROKEN_OFF, retryable: true });
}

/** Asks the server to end the answer; its readers hear of its end. */
export async function stop({ turnId, csrfToken }) {
  try {
    const response = await write(`${addressOf(turnId)}/stop`, { method: "POST", csrfToken });
    if (!response.ok) throw await failureOf(response);
  } catch (error) {
    if (error instanceof Failure) throw error;
    throw new Failure({ code: "unreachable", detail: UNREACHABLE, retryable: true });
  }
}

/** Yields what comes, and notes in `place` how far it came; returns whether that was all. */
async function* read(body, place) {
  try {
    for await (const { type, id, data: text } of eventsOf(body, isEnd)) {
      const data = JSON.parse(text);
      if (type === "turn") place.turnId = data.turnId ?? null;
      if (id !== null) place.lastId = id;
      yield { type, data };
      if (isEnd({ type })) return true;
    }
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  return false;
}

/** Chromium calls a response aborted that a script reads in pieces, however it ends; not one that was cloned before. */
function bodyOf(response) {
  response.clone().body.cancel().catch(() => {});
  return response.body;
}

const isEnd = ({ type }) => ["done", "waiting", "error"].includes(type);

async function open({ turnId, lastId }, signal) {
  const headers = { ...IN_PAGE_LANGUAGE, Accept: "text/event-stream", Prefer: "blocks" };
  const response = await fetch(`${addressOf(turnId)}/events`, {
    headers: lastId === null ? headers : { ...headers, "Last-Event-ID": lastId },
    signal,
    cache: "no-store",
  });
  if (!isEventStream(response)) throw await failureOf(response);
  return bodyOf(response);
}

function addressOf(turnId) {
  return `${HOME}api/v1/intake/turns/${turnId}`;
}

/** Shorter when the network comes back meanwhile; throws an AbortError when `signal` fires. */
function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const finish = () => {
      clearTimeout(timer);
      removeEventListener("online", finish);
      if (signal.aborted) reject(signal.reason);
      else resolve();
    };
    const timer = setTimeout(finish, milliseconds);
    addEventListener("online", finish);
    signal.addEventListener("abort", finish, { once: true });
  });
}

async function post(endpoint, { body, key, csrfToken, signal }) {
  const headers = { "Content-Type": "application/json", Accept: "text/event-stream", Prefer: "blocks" };
  try {
    return await write(endpoint, {
      method: "POST",
      csrfToken,
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
      ? gettext("This page has expired. Try again, or reload it; what you wrote is kept.")
      : gettext("The server answered %(status)s. Try again in a moment.", { status: response.status });
    return new Failure({ code: `http_${response.status}`, detail, retryable: TRANSIENT.has(response.status) });
  }
  const fields = Object.values(problem.errors ?? {}).flat();
  return new Failure({ ...problem, detail: [problem.detail, ...fields].join(" ") });
}
