/** Keeping a message as a record, with its kind and with Undo; and quoting or keeping what is selected. */
import { HOME, clone, part, write } from "./dom.js";
import { gettext, ngettext } from "./language.js";

const UNREACHABLE = gettext("No connection to Recollect. Try again.");

const EDGE_PX = 8;
// A press ends a selection before it is a click.
const SETTLED_MS = 250;

const bar = clone("selected");
let selected = "";

export function listenForRemembering(thread, { csrfToken, announce, quote }) {
  listenForSelection();
  thread.addEventListener("toggle", ({ target, newState }) => newState === "open" && offer(target), true);
  thread.addEventListener("click", async (event) => {
    const button = event.target.closest('[data-action="remember"], [data-action="quote"]');
    if (!button) return;
    const turn = button.closest(".turn");
    const content = textOf(turn, button.dataset.of);
    const hadFocus = bar.contains(document.activeElement);
    hideBar();
    getSelection().removeAllRanges();
    if (button.dataset.action === "quote") return quote(content);
    const conversation = part(turn, "link").pathname.split("/").at(-2);
    const { ok, data } = await send("", "POST", csrfToken(), { content, sourceConversation: conversation, sourceTurn: Number(turn.dataset.number) });
    if (ok) showKept(turn, data, { csrfToken, announce });
    else say(lineOf(turn), data.detail, announce);
    lineOf(turn).scrollIntoView({ block: "nearest" });
    if (hadFocus) (lineOf(turn).querySelector("a") ?? turn).focus({ preventScroll: true });
  });
}

/** A text that is selected in a turn gets a bar with what can be done with it; Tab leads there. */
function listenForSelection() {
  let isPressed = false;
  let waiting = 0;
  const look = ({ type }) => {
    if (type !== "selectionchange") isPressed = type === "pointerdown";
    clearTimeout(waiting);
    waiting = setTimeout(() => isPressed || bar.contains(document.activeElement) || showBar(), SETTLED_MS);
  };
  for (const name of ["selectionchange", "pointerdown", "pointerup", "pointercancel"]) document.addEventListener(name, look, true);
  // What is selected stays so.
  bar.addEventListener("mousedown", (event) => event.preventDefault());
  addEventListener("scroll", placeBar, { passive: true, capture: true });
  addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !bar.matches(":popover-open")) return;
    // Escape belongs to the bar alone, and stops no answer behind it.
    event.stopPropagation();
    if (bar.contains(document.activeElement)) bar.closest(".turn").focus({ preventScroll: true });
    hideBar();
  }, true);
}

function showBar() {
  const selection = getSelection();
  const elements = [selection.anchorNode, selection.focusNode].map((node) => (node?.closest ? node : node?.parentElement));
  const [from, to] = elements.map((element) => element?.closest(".turn"));
  const place = elements.map((element) => element?.closest('[data-part="answer"], [data-part="said"]')).find(Boolean);
  const text = selection.toString().trim();
  if (selection.isCollapsed || !text || !place || from !== to) return hideBar();
  if (bar.previousElementSibling !== place) place.after(bar);
  selected = text;
  offer(bar);
  bar.togglePopover(Boolean(bar.querySelector("button:not([hidden])")));
  placeBar();
}

function hideBar() {
  selected = "";
  if (bar.matches(":popover-open")) bar.hidePopover();
}

/** Below the text, where no system shows a menu of its own, and on glass below the handles too. */
function placeBar() {
  if (!bar.matches(":popover-open") || !getSelection().rangeCount) return;
  const at = getSelection().getRangeAt(0).getBoundingClientRect();
  const gap = matchMedia("(pointer: coarse)").matches ? 5 * EDGE_PX : EDGE_PX;
  bar.style.top = `${Math.max(EDGE_PX, Math.min(at.bottom + gap, innerHeight - bar.offsetHeight - EDGE_PX))}px`;
  bar.style.left = `${Math.max(EDGE_PX, Math.min(at.left, innerWidth - bar.offsetWidth - EDGE_PX))}px`;
}

/** Only what is kept can be remembered, and quoted where a message can be written. */
function offer(menu) {
  const turn = menu.closest(".turn");
  for (const button of menu.querySelectorAll('[data-action="remember"]')) button.hidden = !turn.dataset.number || !textOf(turn, button.dataset.of);
  for (const button of menu.querySelectorAll('[data-action="quote"]')) button.hidden = document.querySelector(".dock").hidden;
}

function textOf(turn, of) {
  if (of === "selection") return selected;
  return (of === "said" ? part(turn, "said").textContent : part(turn, "answer").dataset.markdown ?? "").trim();
}

function showKept(turn, record, { csrfToken, announce }) {
  const line = clone("kept");
  const [link, kind, undo] = line.children;
  link.href = `${HOME}memory/records/${record.id}/`;
  kind.addEventListener("change", async () => {
    const { ok, data } = await send(`${record.id}/`, "PATCH", csrfToken(), { type: kind.value });
    if (!ok) say(lineOf(turn), data.detail, announce);
  });
  undo.addEventListener("click", async () => {
    const { ok, data } = await send(`${record.id}/`, "DELETE", csrfToken());
    if (!ok) return say(lineOf(turn), data.detail, announce);
    say(line, gettext("Not kept"), announce);
    turn.focus({ preventScroll: true });
  });
  lineOf(turn).replaceWith(line);
  announce(link.textContent);
}

/** Above the foot of the turn: a line that says what was kept. */
function lineOf(turn) {
  const present = part(turn, "kept");
  if (present) return present;
  const line = document.createElement("p");
  line.className = "kept";
  line.dataset.part = "kept";
  turn.querySelector(".turn-foot").before(line);
  return line;
}

function say(line, words, announce) {
  line.replaceChildren(words);
  announce(words);
}

async function send(path, method, csrfToken, body) {
  const headers = { "Content-Type": "application/json" };
  try {
    const response = await write(`${HOME}api/v1/memory/records/${path}`, { method, csrfToken, headers, ...(body && { body: JSON.stringify(body) }) });
    const data = await response.json().catch(() => ({}));
    const errors = Object.values(data.errors ?? {}).flat();
    return { ok: response.ok, data: { ...data, detail: errors[0] ?? data.detail ?? gettext("The server answered %(status)s. Try again in a moment.", { status: response.status }) } };
  } catch {
    return { ok: false, data: { detail: UNREACHABLE } };
  }
}

// --- What is proposed from this chat: one line, asked for once the page stands ---

const MOST_COUNTED = 50;

/** For a person who agreed that ended chats are read: the line comes too when that happens while the page is open. */
export function listenForProposals(main, thread, { announce }) {
  const id = main.dataset.conversation;
  if (!id || !("proposes" in main.dataset)) return;
  const look = () => showProposed(id, thread, announce);
  // Safari has no idle callback.
  (window.requestIdleCallback ?? setTimeout)(look);
  document.addEventListener("recollect:changed", ({ detail }) => detail.id === id && !detail.isGone && look());
}

async function showProposed(id, thread, announce) {
  const response = await fetch(`${HOME}api/v1/memory/proposals/?conversation=${id}&limit=${MOST_COUNTED}`).catch(() => null);
  if (!response?.ok) return;
  const count = (await response.json()).proposals.length;
  const present = document.querySelector("[data-proposed]");
  if (!count) return present?.remove();
  const line = present ?? thread.parentElement.insertBefore(document.createElement("p"), thread.nextSibling);
  const words = ngettext("%(count)s thing to remember?", "%(count)s things to remember?", count);
  if (line.textContent === words) return;
  line.className = "proposed-line";
  line.dataset.proposed = "";
  const link = document.createElement("a");
  link.href = `${HOME}memory/proposals/?chat=${id}`;
  link.textContent = words;
  line.replaceChildren(link);
  if (present) announce(words);
}
