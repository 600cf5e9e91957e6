/**
 * The list of chats: on narrow screens a drawer, and the rest of the page is out of reach while it is open; on wide ones
 * it is collapsed and comes back. The server reads the cookie, so that nothing moves.
 */

import { HOME } from "./dom.js";

const YEAR_SECONDS = 31_536_000;
// As in shell.css.
const NARROW = matchMedia("(max-width: 52rem)");

/** Gives the function that does either, for the keys. */
export function listenToDrawer(sidebar) {
  const button = document.querySelector("[data-drawer-button]");
  const backdrop = document.querySelector("[data-backdrop]");
  const collapse = sidebar.querySelector("[data-collapse]");
  const page = document.documentElement;
  const setOpen = (isOpen) => {
    sidebar.classList.toggle("open", isOpen);
    button.setAttribute("aria-expanded", String(isOpen));
    backdrop.hidden = !isOpen;
    document.querySelector("[data-room]").inert = isOpen;
    (isOpen ? sidebar.querySelector("[data-drawer-close]") : button).focus();
  };
  const setCollapsed = (isCollapsed) => {
    const hadFocus = [sidebar, button].some((element) => element.contains(document.activeElement));
    if (isCollapsed) page.dataset.chats = "collapsed";
    else delete page.dataset.chats;
    document.cookie = `chats=${isCollapsed ? "collapsed" : ""}; path=${HOME}; max-age=${isCollapsed ? YEAR_SECONDS : 0}; samesite=lax`;
    // What is not shown loses the focus.
    if (hadFocus) (isCollapsed ? button : collapse).focus();
  };
  const toggle = () => {
    if (NARROW.matches) setOpen(!sidebar.classList.contains("open"));
    else setCollapsed(page.dataset.chats !== "collapsed");
  };
  button.addEventListener("click", toggle);
  collapse.addEventListener("click", toggle);
  backdrop.addEventListener("click", () => setOpen(false));
  sidebar.querySelector("[data-drawer-close]").addEventListener("click", () => setOpen(false));
  sidebar.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !event.defaultPrevented && sidebar.classList.contains("open")) setOpen(false);
  });
  return toggle;
}
