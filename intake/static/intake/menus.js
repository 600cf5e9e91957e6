/** Menu buttons (WAI-ARIA): a button with `data-menu-button`, and the popover with the role of a menu that it names or that comes after it. */

const GAP_PX = 4;
const EDGE_PX = 8;

// The menu, and its button, which stays known when the menu closes.
let opened = null;
let opener = null;

/** Also for those that are added later. Without scripts the browser itself opens a menu that has an id. */
export function listenForMenus() {
  document.addEventListener("click", onClick);
  document.addEventListener("keydown", onKey, true);
  // Its state is told to the menu alone, and so it is caught on the way.
  document.addEventListener("beforetoggle", onToggle, true);
  addEventListener("scroll", place, { passive: true, capture: true });
  addEventListener("resize", place);
}

function onClick(event) {
  const button = event.target.closest("[data-menu-button]");
  if (button) toggle(button, event);
  else event.target.closest('[role="menu"][popover] [role="menuitem"]:not([aria-disabled])')?.closest("[popover]").hidePopover();
}

/** At once: the next key belongs to the menu already, and the event comes later. */
function toggle(button, event) {
  // A copy of a template has no id, and a press on a menu's own button must not close it first.
  const menu = (button.popoverTargetElement ??= button.nextElementSibling);
  event.preventDefault();
  const isOver = opened === menu && opener === button;
  opened?.hidePopover();
  if (isOver) return;
  [opened, opener] = [menu, button];
  menu.showPopover();
  button.ariaExpanded = "true";
  place();
  entriesOf(menu)[0]?.focus({ preventScroll: true });
}

function onToggle({ target, newState }) {
  if (newState === "open" || target !== opened) return;
  opener.ariaExpanded = "false";
  opened = null;
}

function onKey(event) {
  const menu = event.target.closest?.('[role="menu"][popover]');
  if (!menu) {
    const button = event.target.closest?.("[data-menu-button]");
    if (button && ["ArrowDown", "ArrowUp"].includes(event.key) && !opened) {
      event.preventDefault();
      button.click();
    }
    return;
  }
  if (movesAmong(entriesOf(menu), event)) return;
  if (event.key === "Escape" || event.key === "Tab") {
    // Escape belongs to the menu alone, and stops no answer behind it; Tab goes on from the button.
    event.stopPropagation();
    if (event.key === "Escape") event.preventDefault();
    menu.hidePopover();
    opener.focus({ preventScroll: true });
  }
}

/** Whether the key moves the focus in a menu, from its end to its beginning too. */
export function movesAmong(entries, event) {
  const at = entries.indexOf(document.activeElement);
  const goes = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: entries.length - 1 }[event.key];
  if (goes === undefined) return false;
  event.preventDefault();
  entries[(goes + entries.length) % entries.length].focus();
  return true;
}

/** Above the button, since most are at the end of a text; below it where there is no room. */
function place() {
  if (!opened) return;
  const at = opener.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = opened;
  const above = at.top - height - GAP_PX;
  opened.style.top = `${above >= EDGE_PX ? above : Math.min(at.bottom + GAP_PX, innerHeight - height - EDGE_PX)}px`;
  opened.style.left = `${Math.max(EDGE_PX, Math.min(at.left, innerWidth - width - EDGE_PX))}px`;
}

/** The button of the menu that was opened last. */
export function menuButton() {
  return opener;
}

function entriesOf(menu) {
  return [...menu.querySelectorAll('[role^="menuitem"]')].filter((entry) => entry.checkVisibility());
}
