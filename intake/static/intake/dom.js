/** Small helpers that several modules share. */

/** While an input method composes, Enter accepts its suggestion (229 is what older engines report then). */
export function isComposing(event) {
  return event.isComposing || event.keyCode === 229;
}

export function clone(name) {
  return document.querySelector(`template[data-template="${name}"]`).content.firstElementChild.cloneNode(true);
}

export function part(element, name) {
  return element.querySelector(`[data-part="${name}"]`);
}

/** Elements of HTML that the server made and sanitised; the parser's document runs nothing. */
export function parseHtml(html) {
  return new DOMParser().parseFromString(html, "text/html");
}

/** Another page of this site, to take parts from, without its list of chats; null when it cannot be had. */
export async function fetchPage(url) {
  try {
    const response = await fetch(url, { headers: { "X-Recollect-Part": "main" } });
    return response.ok ? parseHtml(await response.text()) : null;
  } catch {
    return null;
  }
}

/** The address of the start page: "/", or "/recollect/" below a path of a site (`PUBLIC_URL`). Every address begins with it. */
export const HOME = document.documentElement.dataset.home ?? "/";

/** The token of this session, or nothing. The cookie is asked each time: logging in elsewhere in this browser changes it. */
export function csrfCookie() {
  const begins = `${document.documentElement.dataset.csrfCookie ?? "csrftoken"}=`;
  return document.cookie.split(/;\s*/).find((each) => each.startsWith(begins))?.slice(begins.length) ?? "";
}

// In which a page says for whom it was made (intake/accounts/identity.py).
const FOR = "X-Recollect-For";
/** A request with it gets the server's sentences in the page's language; programs get English (core/text.py). */
export const IN_PAGE_LANGUAGE = { "X-Recollect-Language": document.documentElement.lang };

/** For whom this page was made; a page of nobody becomes a visitor's with the first message. */
export function pagePerson() {
  return document.documentElement.dataset.for ?? "";
}

/** `fetch` for what changes something: it says for whom the page was made, and offers to log in if that is over. */
export async function write(url, { csrfToken, headers = {}, ...options }) {
  const madeFor = pagePerson() ? { [FOR]: pagePerson() } : {};
  const response = await fetch(url, { ...options, headers: { "X-CSRFToken": csrfToken, ...IN_PAGE_LANGUAGE, ...madeFor, ...headers } });
  const becomes = response.headers.get(FOR);
  if (becomes) become(becomes);
  if (response.status === 401) offerLogin();
  return response;
}

/** As `write`, for a file: `onProgress` is told which share of it is sent. `fetch` tells nobody. */
export function upload(url, { csrfToken, body, onProgress, signal }) {
  const request = new XMLHttpRequest();
  request.open("POST", url);
  const madeFor = pagePerson() ? { [FOR]: pagePerson() } : {};
  for (const [name, value] of Object.entries({ "X-CSRFToken": csrfToken, ...IN_PAGE_LANGUAGE, ...madeFor })) request.setRequestHeader(name, value);
  request.upload.addEventListener("progress", ({ loaded, total }) => total && onProgress(loaded / total));
  signal.addEventListener("abort", () => request.abort());
  return new Promise((resolve, reject) => {
    request.addEventListener("load", () => {
      const becomes = request.getResponseHeader(FOR);
      if (becomes) become(becomes);
      if (request.status === 401) offerLogin();
      resolve({ status: request.status, data: parsed(request.responseText) });
    });
    request.addEventListener("error", () => reject(new TypeError("network")));
    request.addEventListener("abort", () => reject(new DOMException("", "AbortError")));
    request.send(body);
  });
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

function become(person) {
  document.documentElement.dataset.for = person;
  for (const field of document.querySelectorAll('input[name="page_for"]')) field.value = person;
}

/** Above the page, which keeps all that was typed; the log-in leads back to it. */
function offerLogin() {
  if (document.querySelector("[data-logged-out]")) return;
  const notice = clone("logged-out");
  notice.querySelector("a").search = new URLSearchParams({ next: location.pathname + location.search });
  (document.querySelector("main") ?? document.body).prepend(notice);
}
