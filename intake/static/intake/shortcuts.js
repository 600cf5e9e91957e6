/** The keys that people know from elsewhere: Ctrl or ⌘ K and B, `/`, `?` (the last two not while one writes), and those of commands. */
import { isComposing } from "./dom.js";
import { carryOut, commandOf, openShortcuts } from "./shortcuts_list.js";

/** `toggleChats` collapses the list of chats, and brings it back. */
export function listenForShortcuts({ toggleChats }) {
  // Fetched once the page is there, so that one can type as soon as the keys are pressed.
  (window.requestIdleCallback ?? setTimeout)(() => import("./palette.js").catch(() => {}));
  const key = document.querySelector("[data-palette-key]");
  if (key && /Mac|iPhone|iPad/.test(navigator.platform)) key.textContent = "⌘ K";
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || isComposing(event)) return;
    const isCommand = (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey;
    if (isCommand && event.key.toLowerCase() === "k") {
      event.preventDefault();
      openPalette();
      return;
    }
    if (isCommand && event.key.toLowerCase() === "b" && !document.querySelector("dialog[open]")) {
      event.preventDefault();
      toggleChats();
      return;
    }
    const command = document.querySelector("dialog[open]") ? null : commandOf(event);
    // With Alt an arrow moves through what one writes.
    if (command && !(event.altKey && isWriting(event.target) && event.target.value)) {
      if (carryOut(command)) event.preventDefault();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isWriting(event.target) || document.querySelector("dialog[open]")) return;
    if (event.key === "/") goToField(event);
    else if (event.key === "?") {
      event.preventDefault();
      openShortcuts();
    }
  });
  for (const opener of document.querySelectorAll("[data-palette-opener]")) {
    opener.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      openPalette();
    });
  }
}

/** Offline, before it was fetched, there is none. */
export async function openPalette() {
  (await import("./palette.js").catch(() => null))?.openPalette();
}

/** The page's own search, or the message, or else the search over everything. */
function goToField(event) {
  event.preventDefault();
  const field = document.querySelector("[data-search-field], [data-composer] textarea");
  if (!field || !field.checkVisibility()) return openPalette();
  field.focus();
  if (field.matches("input")) field.select();
}

function isWriting(element) {
  return element.isContentEditable || element.matches("textarea, select, input:not([type=radio], [type=checkbox])");
}
