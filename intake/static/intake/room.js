/** What every page beside the list of chats has in common: the list, its drawer, the ways to search, the way out. */
import { answering } from "./answering.js";
import { tellWhatIsCutOff } from "./cut_off.js";
import { HOME } from "./dom.js";
import { listenToDrawer } from "./drawer.js";
import { listenForChanges } from "./events.js";
import { listenForMenus } from "./menus.js";
import { Mover, showProjectOf } from "./projects.js";
import { listenForShortcuts } from "./shortcuts.js";
import { ChatMenu } from "./sidebar_items.js";
import { Selection } from "./sidebar_selection.js";
import { MANY, Sidebar } from "./sidebar.js";
import { listenForTheme } from "./theme.js";

const STATUS_MS = 8000;
const WORKER_AFTER_MS = 4000;

export const sidebarElement = document.querySelector("[data-sidebar]");
export const sidebar = new Sidebar(sidebarElement);

const toggleChats = listenToDrawer(sidebarElement);
listenForShortcuts({ toggleChats });
listenForMenus();
listenForTheme();
tellWhatIsCutOff();
const mover = new Mover(sidebar, { tell });
const move = (ids) => mover.ask(ids);
const selection = new Selection(sidebar, { confirm, tell, move });
const select = (item) => {
  if (!sidebarElement.checkVisibility({ visibilityProperty: true })) toggleChats();
  selection.begin(item);
};
new ChatMenu(sidebar, { confirm, tell, move, select });

// A draft belongs to whoever wrote it, not to the next person at this screen. Nor does a page of before: over plain http
// Safari keeps it for the way back, whatever its headers say.
document.querySelector("[data-logout]")?.addEventListener("submit", () => {
  sessionStorage.clear();
  localStorage.setItem("logged-out", Date.now());
  globalThis.caches?.delete("recollect-shared");
  answering.forget();
});

addEventListener("pageshow", ({ persisted }) => {
  if (persisted && performance.timeOrigin < Number(localStorage.getItem("logged-out"))) location.reload();
});

listenForChanges(sidebarElement.dataset.events, {
  onChange: async (ids) => {
    // An import brings hundreds: the list is fetched once for all of them.
    const isMany = ids.length > MANY;
    const open = document.querySelector("[data-chat]")?.dataset.conversation;
    if (isMany) await sidebar.refreshAll();
    for (const id of ids) {
      if (isMany && id !== open) {
        document.dispatchEvent(new CustomEvent("recollect:changed", { detail: { id, isGone: false } }));
        continue;
      }
      const item = await sidebar.refresh(id);
      if (item) showTitleOf(id, item.querySelector("a").textContent);
      if (item) showProject(id, item.dataset.project ?? "");
      document.dispatchEvent(new CustomEvent("recollect:changed", { detail: { id, isGone: item === undefined } }));
    }
  },
  onReturn: () => sidebar.refreshAll(),
});

// Secure addresses alone have workers; elsewhere the browser shows its own page when there is no connection.
// Once nothing else is being fetched.
setTimeout(() => navigator.serviceWorker?.register(`${HOME}worker.js`).catch(() => {}), WORKER_AFTER_MS);

let hiding = 0;
let answer = () => {};

const status = document.querySelector("[data-sidebar-status]");
const below = status.nextElementSibling;

/** A line under the list, or over the page where the list is not to be seen; with a way back if there is one. */
function tell(words, undo = null, renamed = null) {
  if (sidebarElement.checkVisibility({ visibilityProperty: true })) below.before(status);
  else document.body.append(status);
  const button = status.querySelector("button");
  status.hidden = false;
  status.querySelector("span").textContent = words;
  button.hidden = !undo;
  button.onclick = () => {
    status.hidden = true;
    undo();
  };
  clearTimeout(hiding);
  hiding = setTimeout(() => (status.hidden = true), STATUS_MS);
  if (renamed) showTitleOf(renamed.id, renamed.title);
}

/** The title of the chat that is open, if it is this one. */
function showTitleOf(id, title) {
  const heading = document.querySelector("[data-title]");
  if (!heading || document.querySelector("[data-chat]")?.dataset.conversation !== id) return;
  heading.textContent = title;
  document.title = `${title} · Recollect`;
}

/** It may have been moved elsewhere. */
function showProject(id, project) {
  const open = document.querySelector("[data-chat]");
  if (open?.dataset.conversation !== id || (open.dataset.project ?? "") === project) return;
  open.dataset.project = project;
  showProjectOf(open, sidebar.projects);
}

/**
 * Asks yes or no; a question that another one takes the place of is answered with no. `excerpt`: what it is about;
 * `more`: the words of a button that goes further, explained by `hint`, for which the answer is "more". `yes`, `no`: the
 * words of the buttons where they are not those of a deletion.
 */
export function confirm({ title, text, excerpt = "", hint = "", more = "", yes = "", no = "" }) {
  answer(false);
  const dialog = document.querySelector("[data-confirm]");
  dialog.querySelector("[data-confirm-title]").textContent = title;
  dialog.querySelector("[data-confirm-text]").textContent = text;
  for (const [name, words] of Object.entries({ excerpt, hint, more })) {
    const element = dialog.querySelector(`[data-confirm-${name}]`);
    element.textContent = words;
    element.hidden = !words;
  }
  for (const [value, words] of Object.entries({ yes, no })) {
    const button = dialog.querySelector(`button[value=${value}]`);
    button.dataset.usual ??= button.textContent;
    button.textContent = words || button.dataset.usual;
    if (value === "yes") button.classList.toggle("button-danger", !words);
  }
  dialog.returnValue = "";
  // Escape belongs to the dialog alone, and stops no answer behind it.
  dialog.onkeydown = (event) => event.stopPropagation();
  dialog.showModal();
  return new Promise((resolve) => {
    answer = resolve;
    // The end of an earlier question may be told when this one is already open.
    dialog.onclose = () => dialog.open || resolve(dialog.returnValue === "more" ? "more" : dialog.returnValue === "yes");
  });
}
