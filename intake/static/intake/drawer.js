/** The list of chats as a drawer on narrow screens: the rest of the page is out of reach while it is open. */

export function listenToDrawer(sidebar) {
  const button = document.querySelector("[data-drawer-button]");
  const backdrop = document.querySelector("[data-backdrop]");
  const setOpen = (isOpen) => {
    sidebar.classList.toggle("open", isOpen);
    button.setAttribute("aria-expanded", String(isOpen));
    backdrop.hidden = !isOpen;
    document.querySelector("[data-room]").inert = isOpen;
    (isOpen ? sidebar.querySelector("[data-drawer-close]") : button).focus();
  };
  button.addEventListener("click", () => setOpen(true));
  backdrop.addEventListener("click", () => setOpen(false));
  sidebar.querySelector("[data-drawer-close]").addEventListener("click", () => setOpen(false));
  sidebar.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !event.defaultPrevented && sidebar.classList.contains("open")) setOpen(false);
  });
}
