/** What can be done with the chat that is open by a key or in the palette, and the list of all keys under `?`. */
import { HOME } from "./dom.js";
import { gettext } from "./language.js";
import { canChooseModel, chooseModel } from "./window.js";

const IS_MAC = /Mac|iPhone|iPad/.test(navigator.platform);

/**
 * `key`: a letter, with Ctrl or ⌘ and Shift; or an arrow, with Alt; empty for the palette alone. `find` gives what can be done on this page: an address to
 * go to, a function to call, or nothing. The template of the list names the same keys.
 */
export const COMMANDS = [
  { key: "o", icon: "new", title: gettext("New chat"), isPage: true, find: () => HOME },
  { key: "y", icon: "temporary", title: gettext("New temporary chat"), isPage: true, find: () => `${HOME}?temporary=1` },
  { key: "c", icon: "copy", title: gettext("Copy the last answer"), words: "clipboard", find: lastCopy },
  { key: "m", icon: "tune", title: gettext("Switch the model"), words: "choose language model", find: () => canChooseModel() && chooseModel },
  { key: "", icon: "folder", title: gettext("Move to project …"), words: "folder", find: moving },
  { key: "a", icon: "archive", title: gettext("Archive this chat"), words: "hide away", find: archiving },
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
  if (!key) return [];
  if (key.length > 1) return [IS_MAC ? "⌥" : gettext("Alt"), key === "ArrowDown" ? "↓" : "↑"];
  return [IS_MAC ? "⌘" : gettext("Ctrl"), gettext("Shift"), key.toUpperCase()];
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
    dialog = document.querySelector("template[data-template=shortcuts]").content.firstElementChild.cloneNode(true);
    document.body.append(dialog);
    dialog.addEventListener("keydown", (event) => event.stopPropagation());
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog) dialog.close();
    });
    if (IS_MAC) for (const key of dialog.querySelectorAll("[data-command-key]")) key.textContent = "⌘";
    if (IS_MAC) for (const key of dialog.querySelectorAll("[data-option-key]")) key.textContent = "⌥";
  }
  if (!dialog.open) dialog.showModal();
}
