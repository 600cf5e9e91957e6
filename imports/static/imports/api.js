/** The API of imports; every failure is a sentence, with the code and the whole problem of the server. */

import { write } from "../intake/dom.js";
import { gettext } from "../intake/language.js";

const UNREACHABLE = gettext("No connection to Recollect. Check your network.");
const TRANSIENT = new Set([408, 425, 429, 500, 502, 503, 504]);

export class ImportFailure extends Error {
  constructor({ detail, code = "", retryable = false, isProxys = false, ...more }) {
    super(detail);
    // The answer came from a proxy in between, which takes less at once than this product.
    this.isTooMuchForProxy = isProxys && more.status === 413;
    this.code = code;
    this.retryable = retryable;
    this.more = more;
  }
}

export class ImportsApi {
  constructor(endpoint, csrfToken) {
    this.endpoint = endpoint;
    this.csrfToken = csrfToken;
  }

  begin(file) {
    return this.#ask("POST", this.endpoint, { body: { filename: file.name, bytes: file.size } });
  }

  read(id) {
    return this.#ask("GET", this.#path(id));
  }

  preview(id, query) {
    return this.#ask("GET", `${this.#path(id, "preview")}?${new URLSearchParams(query)}`);
  }

  start(id, choice) {
    return this.#ask("POST", this.#path(id, "start"), { body: choice });
  }

  cancel(id) {
    return this.#ask("POST", this.#path(id, "cancel"));
  }

  undo(id, force) {
    return this.#ask("POST", this.#path(id, "undo"), { body: { force } });
  }

  /** One chunk, which begins at the byte `first`. */
  put(url, chunk, { first, total, signal }) {
    const headers = {
      "Content-Type": "application/octet-stream",
      "Content-Range": `bytes ${first}-${first + chunk.size - 1}/${total}`,
    };
    return this.#ask("PUT", url, { chunk, headers, signal });
  }

  eventsPath(id) {
    return this.#path(id, "events");
  }

  #path(id, part) {
    return `${this.endpoint}${encodeURIComponent(id)}/${part ? `${part}/` : ""}`;
  }

  async #ask(method, url, { body, chunk, headers = {}, signal } = {}) {
    const json = body === undefined ? {} : { "Content-Type": "application/json" };
    let response;
    try {
      response = await write(url, {
        method,
        signal,
        csrfToken: this.csrfToken,
        headers: { Accept: "application/json", ...json, ...headers },
        body: body === undefined ? chunk : JSON.stringify(body),
      });
      if (response.ok) return response.status === 204 ? null : await response.json();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ImportFailure({ detail: UNREACHABLE, code: "unreachable", retryable: true });
    }
    throw await failureOf(response);
  }
}

async function failureOf(response) {
  const problem = await response.json().catch(() => null);
  if (!problem?.detail) {
    const detail = gettext("The server answered %(status)s. Reload the page, and try again.", { status: response.status });
    return new ImportFailure({ detail, status: response.status, isProxys: true, retryable: TRANSIENT.has(response.status) });
  }
  const fields = Object.values(problem.errors ?? {}).flat().filter((sentence) => sentence !== problem.detail);
  return new ImportFailure({ ...problem, detail: [problem.detail, ...fields].join(" ") });
}
