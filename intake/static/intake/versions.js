/** Versions of turns: going from one to another, another wording of a message, and what is said of an answer. */
import { HOME, clone, fetchPage, isComposing, part, write } from "./dom.js";
import { gettext } from "./language.js";

const UNREACHABLE = gettext("No connection to Recollect. Try again.");

/** Shows `‹ 2/3 ›` for a turn with this number, its versions being the numbers in `versions`. */
export function showPlace(element, { path, number, versions }) {
  const place = versions.indexOf(number);
  part(element, "versions").hidden = versions.length < 2;
  part(element, "place").textContent = `${place + 1}/${versions.length}`;
  for (const [name, other] of [["before", versions[place - 1]], ["after", versions[place + 1]]]) {
    const link = element.querySelector(`[data-version="${name}"]`);
    if (other) link.href = `${path}?turn=${other}#turn-${other}`;
    else link.removeAttribute("href");
    link.ariaDisabled = other ? null : "true";
  }
}

/** Another version takes the turn's place, and what follows it that of what followed. Without scripts it is a link. */
export function listenForVersions(thread, { csrfToken, isBusy, announce, prepare }) {
  thread.addEventListener("click", async (event) => {
    const link = event.target.closest("[data-version]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    if (!link.hasAttribute("href") || isBusy()) return;
    const { ok } = await post(chooseAddress(link), csrfToken());
    const page = ok ? await fetchPage(link.href) : null;
    const chosen = page?.getElementById(link.hash.slice(1));
    if (!chosen || page.querySelector("[data-later]")) return location.assign(link.href);
    replace(link.closest(".turn"), [chosen, ...followingSiblings(chosen)]);
    chosen.parentElement.querySelectorAll(".turn").forEach(prepare);
    history.replaceState(null, "", link.pathname);
    announce(versionInWords(chosen));
    focusAgain(chosen, link.dataset.version);
  });
}

function chooseAddress(link) {
  const [, conversation] = /\/c\/([^/]+)\//.exec(link.pathname);
  return `${HOME}api/v1/conversations/${conversation}/turns/${link.hash.replace("#turn-", "")}/choose/`;
}

function replace(turn, elements) {
  for (const element of followingSiblings(turn)) element.remove();
  turn.replaceWith(...elements);
}

export function followingSiblings(element) {
  const found = [];
  for (let next = element.nextElementSibling; next; next = next.nextElementSibling) found.push(next);
  return found;
}

/** The arrow that was pressed, or the other at the end of the row. */
function focusAgain(turn, name) {
  const arrows = [...turn.querySelectorAll("[data-version][href]")];
  (arrows.find((arrow) => arrow.dataset.version === name) ?? arrows[0])?.focus({ preventScroll: true });
}

/** A new chat that goes on from a turn. */
export function listenForBranching(thread, { csrfToken, announce }) {
  thread.addEventListener("click", async (event) => {
    const button = event.target.closest('[data-action="branch"]');
    if (!button) return;
    button.disabled = true;
    const { ok, data } = await post(button.dataset.href, csrfToken());
    button.disabled = false;
    if (ok) location.assign(`${HOME}c/${data.conversationId}/`);
    else complain(button.closest(".turn"), data.detail, announce);
  });
}

/** The message becomes a field in its place; `onSend` is given the new wording. */
export function rephrase(element, { onSend }) {
  if (element.querySelector("[data-rephrase]")) return;
  const said = part(element, "said");
  const form = clone("rephrase");
  const input = form.querySelector("textarea");
  const grow = () => {
    input.style.height = "auto";
    input.style.height = `${input.scrollHeight + input.offsetHeight - input.clientHeight}px`;
  };
  const close = () => {
    form.remove();
    said.hidden = false;
    element.querySelector('[data-action="rephrase"]').focus({ preventScroll: true });
  };
  input.value = said.textContent;
  said.hidden = true;
  said.after(form);
  grow();
  input.focus();
  input.setSelectionRange(input.value.length, input.value.length);
  input.addEventListener("input", grow);
  form.querySelector("[data-cancel]").addEventListener("click", close);
  form.addEventListener("keydown", (event) => {
    if (isComposing(event)) return;
    if (event.key === "Escape") {
      event.stopPropagation();
      close();
    } else if (event.key === "Enter" && !event.shiftKey && event.target === input) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (input.value.trim() || part(element, "files").childElementCount) onSend(input.value.trim());
  });
}

function complain(turn, detail, announce) {
  const line = document.createElement("p");
  line.className = "notice notice-error";
  line.textContent = detail;
  turn.append(line);
  announce(detail);
}

async function post(address, csrfToken) {
  try {
    const response = await write(address, { method: "POST", csrfToken });
    const data = await response.json().catch(() => ({}));
    return { ok: response.ok, data: { detail: gettext("The server answered %(status)s. Try again in a moment.", { status: response.status }), ...data } };
  } catch {
    return { ok: false, data: { detail: UNREACHABLE } };
  }
}

function versionInWords(turn) {
  const [place, count] = part(turn, "place").textContent.split("/");
  return gettext("Version %(place)s of %(count)s", { place, count });
}
