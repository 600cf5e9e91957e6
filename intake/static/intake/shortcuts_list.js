/** What can be done with the chat that is open by a key or in the palette, and the list of all keys under `?`. */
import { HOME } from "./dom.js";
import { gettext } from "./language.js";
import { canChooseModel, chooseModel } from "./window.js";

// The list of all keys; on a Mac they have other names.
const LIST = document.querySelector("template[data-template=shortcuts]").content;
if (/Mac|iPhone|iPad/.test(navigator.platform)) {
  for (const key of LIST.querySelectorAll("[data-command-key]")) key.textContent = "⌘";
  for (const key of LIST.querySelectorAll("[data-option-key]")) key.textContent = "⌥";
}

/**
 * `key`: a letter, with Ctrl or ⌘ and Shift; or an arrow, with Alt; empty for the palette alone. `find` gives what can be done on this page: an address to
 * go to, a function to call, or nothing. The template of the list names the same keys.
 */
export const COMMANDS = [
  { key: "o", icon: "new", isPage: true, find: () => HOME },
  { key: "y", icon: "temporary", isPage: true, find: () => `${HOME}?temporary=1` },
  { key: "c", icon: "copy", words: "clipboard", find: lastCopy },
  { key: "m", icon: "tune", words: "choose language model", find: () => (canChooseModel() ? chooseModel : null) },
  { key: "", icon: "folder", words: "folder", find: moving },
  { key: "a", icon: "archive", words: "hide away", find: archiving },
  { key: "ArrowDown", icon: "right", title: gettext("Next chat"), words: "go switch", find: () => chatBeside(1) },
  { key: "ArrowUp", icon: "left", title: gettext("Previous chat"), words: "go switch", find: () => chatBeside(-1) },
];

/** The command that a key asks for, if any. */
export function commandOf(event) {
  const isCommand = (event.ctrlKey || event.metaKey) && event.shiftKey && !event.altKey;
  const isBeside = event.altKey && !event.ctrlKey && !event.metaKey && !event.shiftKey;
  return COMMANDS.find(({ key }) => (key.length > 1 ? isBeside && event.key === key : isCommand && isLetter(event, key)));
}

/** The keys as they are shown. */
export function keysOf({ key }) {
  const keys = [...LIST.querySelectorAll(`[data-command="${key.replace(/Down|Up/, "")}"] kbd`)].map(({ textContent }) => textContent);
  return keys.filter((name) => name !== { ArrowDown: "↑", ArrowUp: "↓" }[key]);
}

/** In the words of the list, or of the menu of a chat. */
export function titleOf({ key, title }) {
  if (title) return title;
  if (key === "?") return LIST.querySelector("h2").textContent;
  return key ? LIST.querySelector(`[data-command="${key}"] dt`).textContent : document.querySelector('[data-item-do="move"]').textContent;
}

/** Whether there was something to do. */
export function carryOut({ find }) {
  const found = find();
  if (typeof found === "string") location.assign(found);
  else found?.();
  return Boolean(found);
}

/** By what is printed on the key; where letters are not Latin, by its place. */
function isLetter(event, letter) {
  return event.key.toLowerCase() === letter || (!/^[a-z]$/i.test(event.key) && event.code === `Key${letter.toUpperCase()}`);
}

function lastCopy() {
  const button = [...document.querySelectorAll('[data-chat] .turn [data-action="copy"]:not([hidden])')].at(-1);
  return button && (() => button.click());
}

function archiving() {
  const id = keptChat();
  const detail = { id, path: `${HOME}c/${id}/` };
  return id && (() => document.dispatchEvent(new CustomEvent("recollect:archive", { detail })));
}

function moving() {
  const id = document.querySelector("[data-move]") && keptChat();
  return id && (() => document.dispatchEvent(new CustomEvent("recollect:move", { detail: { id } })));
}

/** The id of the open chat; none of a temporary one. */
function keptChat() {
  const chat = document.querySelector("[data-chat]");
  return chat && !("temporary" in chat.dataset) && chat.dataset.conversation;
}

/** From a page that is no chat, the next one is the first of the list. */
function chatBeside(step) {
  const links = [...document.querySelectorAll("[data-sidebar] [data-all-chats] [data-conversation-id] a")];
  return links[links.findIndex((link) => link.hasAttribute("aria-current")) + step]?.getAttribute("href");
}

let dialog = null;

export function openShortcuts() {
  if (!dialog) {
    dialog = LIST.firstElementChild.cloneNode(true);
    document.body.append(dialog);
    dialog.addEventListener("keydown", (event) => event.stopPropagation());
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog) dialog.close();
    });
  }
  if (!dialog.open) dialog.showModal();
}
