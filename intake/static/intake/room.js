/** What every page beside the list of chats has in common: the list, its drawer, the way to search, the way out. */
import { answering } from "./answering.js";
import { listenForSearch } from "./shortcuts.js";
import { listenToDrawer, Sidebar } from "./sidebar.js";

export const sidebarElement = document.querySelector("[data-sidebar]");
export const sidebar = new Sidebar(sidebarElement);

listenToDrawer(sidebarElement);
listenForSearch();

// A draft belongs to whoever wrote it, not to the next person at this screen.
document.querySelector("[data-logout]")?.addEventListener("submit", () => {
  sessionStorage.clear();
  answering.forget();
});
