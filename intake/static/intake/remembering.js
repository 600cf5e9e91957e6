/** Keeping a message, or the selected part of it, as a record: from a turn's menu, with its kind, and with Undo. */
import { HOME, clone, part, write } from "./dom.js";
import { gettext, ngettext } from "./language.js";

const UNREACHABLE = gettext("No connection to Recollect. Try again.");

// A press on the menu may end the selection, so the last one is kept until something else is pressed.
let selected = { turn: null, text: "" };

export function listenForRemembering(thread, { csrfToken, announce }) {
  document.addEventListener("selectionchange", keepSelection);
  document.addEventListener("pointerdown", (event) => {
    if (!event.target.closest("[data-menu-button], [role=menu]")) selected = { turn: null, text: "" };
  });
  thread.addEventListener("toggle", ({ target, newState }) => newState === "open" && offer(target), true);
  thread.addEventListener("click", async (event) => {
    const button = event.target.closest('[data-action="remember"]');
    if (!button) return;
    const turn = button.closest(".turn");
    const { ok, data } = await send("", "POST", csrfToken(), contentFor(button, turn));
    if (ok) showKept(turn, data, { csrfToken, announce });
    else say(lineOf(turn), data.detail, announce);
  });
}

function keepSelection() {
  const selection = getSelection();
  const turns = [selection.anchorNode, selection.focusNode].map((node) => node?.parentElement?.closest(".turn"));
  const text = selection.toString().trim();
  if (!selection.isCollapsed && text && turns[0] && turns[0] === turns[1]) selected = { turn: turns[0], text };
}

/** A selection takes the place of the answer and of the message. */
function offer(menu) {
  const turn = menu.closest(".turn");
  for (const button of menu.querySelectorAll('[data-action="remember"]')) {
    const ofSelection = selected.turn === turn;
    const { of } = button.dataset;
    button.dataset.usual ??= button.lastChild.textContent;
    button.lastChild.textContent = ofSelection ? gettext("Remember the selection") : button.dataset.usual;
    button.hidden = ofSelection ? of === "said" : !textOf(turn, of);
  }
}

function textOf(turn, of) {
  return (of === "said" ? part(turn, "said").textContent : part(turn, "answer").dataset.markdown ?? "").trim();
}

function contentFor(button, turn) {
  const content = selected.turn === turn ? selected.text : textOf(turn, button.dataset.of);
  const conversation = part(turn, "link").pathname.split("/").at(-2);
  return { content, sourceConversation: conversation, sourceTurn: Number(turn.dataset.number) };
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
