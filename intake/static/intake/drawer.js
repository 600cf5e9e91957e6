/**
 * The list of chats: on narrow screens a drawer, and the rest of the page is out of reach while it is open; on wide ones
 * it is collapsed and comes back. The server reads the cookie, so that nothing moves.
 */

import { HOME } from "./dom.js";

const YEAR_SECONDS = 31_536_000;
// As in shell.css.
const NARROW = matchMedia("(max-width: 52rem)");
// A finger has chosen its direction after this far; sideways is twice as far across as down.
const SLOP_PX = 12;
const SIDEWAYS = 2;
// A swipe of a third of the drawer moves it, and so does a quick one.
const ENOUGH = 1 / 3;
const QUICK_PX_PER_MS = 0.4;

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
  listenForSwipes(sidebar, { isOpen: () => sidebar.classList.contains("open"), setOpen });
  return toggle;
}

/** The drawer goes with the finger: open from anywhere in the page that does not itself go sideways, closed likewise. */
function listenForSwipes(sidebar, { isOpen, setOpen }) {
  let swipe = null;
  // Rightwards opens, and leftwards where the text goes that way.
  const sign = () => (getComputedStyle(sidebar).direction === "rtl" ? -1 : 1);
  const end = (event) => {
    if (!swipe || event.pointerId !== swipe.id) return;
    const { hasBegun, wasOpen, at, startedAt } = swipe;
    swipe = null;
    sidebar.classList.remove("dragged");
    sidebar.style.removeProperty("--drawn");
    if (!hasBegun || event.type === "pointercancel") return;
    const way = (event.clientX - at.x) * sign() * (wasOpen ? -1 : 1);
    const isQuick = way > SLOP_PX && way / (event.timeStamp - startedAt) > QUICK_PX_PER_MS;
    if (way > sidebar.offsetWidth * ENOUGH || isQuick) setOpen(!wasOpen);
  };
  addEventListener("pointerdown", (event) => {
    if (!NARROW.matches || event.pointerType !== "touch" || !event.isPrimary || goesSideways(event.target)) return;
    swipe = { id: event.pointerId, at: { x: event.clientX, y: event.clientY }, startedAt: event.timeStamp, wasOpen: isOpen(), hasBegun: false };
  });
  addEventListener("pointermove", (event) => {
    if (!swipe || event.pointerId !== swipe.id) return;
    const [across, down] = [(event.clientX - swipe.at.x) * sign(), event.clientY - swipe.at.y];
    if (!swipe.hasBegun) {
      if (Math.hypot(across, down) < SLOP_PX) return;
      const isOurs = Math.abs(across) > SIDEWAYS * Math.abs(down) && across > 0 !== swipe.wasOpen && getSelection().isCollapsed;
      if (!isOurs) return void (swipe = null);
      swipe.hasBegun = true;
      sidebar.classList.add("dragged");
    }
    const width = sidebar.offsetWidth;
    const drawn = Math.min(width, Math.max(0, across + (swipe.wasOpen ? width : 0)));
    sidebar.style.setProperty("--drawn", `${(drawn - width) * sign()}px`);
  });
  addEventListener("pointerup", end);
  addEventListener("pointercancel", end);
}

/** Code, tables and formulas are scrolled; the map is moved, and a field's text selected. */
function goesSideways(element) {
  for (let each = element; each instanceof Element; each = each.parentElement) {
    if (each.matches("input, textarea, select, canvas, iframe, dialog, [popover], [data-map-stage]")) return true;
    if (each.scrollWidth > each.clientWidth + 1 && ["auto", "scroll"].includes(getComputedStyle(each).overflowX)) return true;
  }
  return false;
}
