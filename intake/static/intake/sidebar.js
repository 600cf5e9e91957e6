/** The list of chats: grouped by day in the reader's own zone, with more on request, and a drawer on narrow screens. */
import { fetchPage } from "./dom.js";
import { dayInWords } from "./times.js";

const TITLE_LENGTH = 80;

export class Sidebar {
  constructor(element) {
    this.element = element;
    this.list = element.querySelector("[data-conversations]");
    this.#group();
    element.addEventListener("click", (event) => this.#onClick(event));
  }

  /** Puts a conversation at the top, as the current one; adds it if it is new. */
  promote(path, message) {
    const item = this.#find(path) ?? makeItem(path, message);
    const link = item.querySelector("a");
    link.dataset.lastActive = new Date().toISOString();
    this.list.querySelector("[aria-current]")?.removeAttribute("aria-current");
    link.setAttribute("aria-current", "page");
    this.list.prepend(item);
    this.element.querySelector("[data-no-conversations]").hidden = true;
    this.#group();
    return link.textContent;
  }

  #find(path) {
    return [...this.list.querySelectorAll("a")].find((link) => link.pathname === path)?.parentElement;
  }

  /** Headings by day, made again: the day may have changed since. */
  #group() {
    for (const heading of this.list.querySelectorAll(".day")) heading.remove();
    const now = new Date();
    let day = null;
    for (const link of this.list.querySelectorAll("a")) {
      const itsDay = dayInWords(new Date(link.dataset.lastActive), now);
      if (itsDay !== day) link.parentElement.before(makeHeading(itsDay));
      day = itsDay;
    }
  }

  async #onClick(event) {
    const more = event.target.closest("[data-more]");
    if (!more || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const page = await fetchPage(more.href);
    if (!page) {
      location.assign(more.href);
      return;
    }
    const items = [...page.querySelectorAll("[data-conversations] > li")];
    this.list.append(...items.filter((item) => !this.#find(item.querySelector("a").pathname)));
    const next = page.querySelector("[data-more]");
    if (next) more.href = next.getAttribute("href");
    else more.remove();
    this.#group();
    items[0]?.querySelector("a").focus();
  }
}

/** The drawer: the rest of the page is out of reach while it is open. */
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
    if (event.key === "Escape" && sidebar.classList.contains("open")) setOpen(false);
  });
}

/** A title as the server makes it: the first line, cut at a word. */
export function titleFrom(message) {
  const line = message.split("\n", 1)[0].trim().replace(/\s+/g, " ");
  const characters = [...line];
  if (characters.length <= TITLE_LENGTH) return line;
  const cut = characters.slice(0, TITLE_LENGTH - 1).join("");
  return `${cut.replace(/ [^ ]*$/, "").replace(/[,;:]+$/, "")}…`;
}

function makeItem(path, message) {
  const item = document.createElement("li");
  const link = document.createElement("a");
  link.href = path;
  link.textContent = titleFrom(message);
  item.append(link);
  return item;
}

function makeHeading(words) {
  const heading = document.createElement("li");
  heading.className = "day";
  heading.textContent = words;
  return heading;
}
