/** The list of chats: grouped by day in the reader's own zone, longer as one scrolls, kept up to date item by item. */
import { fetchPage } from "./dom.js";
import { gettext } from "./language.js";
import { dayInWords } from "./times.js";

const TITLE_LENGTH = 80;
const PINNED = gettext("Pinned");
const GROWING_MS = 40;
const PLACE_KEY = "place-in-chats";

export class Sidebar {
  // When each conversation was taken out: a list that was asked for earlier still holds it.
  #removedAt = new Map();

  constructor(element) {
    this.element = element;
    this.list = element.querySelector("[data-all-chats] [data-conversations]");
    this.scroller = element.querySelector("[data-sidebar-list]");
    this.place = element.dataset.conversationsHref;
    for (const item of this.items) prepareItem(item);
    this.#group();
    this.#growWhenScrolled();
    this.#keepPlace();
    element.addEventListener("click", (event) => this.#onClick(event));
  }

  get items() {
    return this.list.querySelectorAll("[data-conversation-id]");
  }

  itemOf(id) {
    return this.list.querySelector(`[data-conversation-id="${CSS.escape(id)}"]`);
  }

  /** Puts a conversation where the one that was active last belongs, as the current one; adds it if it is new. */
  promote(path, message) {
    const id = idIn(path);
    const item = this.itemOf(id) ?? makeItem(id, path, message);
    const link = item.querySelector("a");
    link.dataset.lastActive = new Date().toISOString();
    this.list.querySelector("[aria-current]")?.removeAttribute("aria-current");
    link.setAttribute("aria-current", "page");
    this.#put(item);
    return link.textContent;
  }

  /** Looks at the first page again: what came, went or changed while nobody was told. */
  async refreshAll() {
    const asked = performance.now();
    const page = await fetchPage(this.place);
    if (!page) return;
    const fresh = [...page.querySelectorAll("[data-conversation-id]")];
    const ids = new Set(fresh.map((item) => item.dataset.conversationId));
    const oldest = fresh.length ? momentOf(fresh.at(-1)) : 0;
    const isWhole = !page.querySelector("[data-more]");
    for (const item of [...this.items]) {
      const isAmongThem = isWhole || "pinned" in item.dataset || momentOf(item) >= oldest;
      if (isAmongThem && !ids.has(item.dataset.conversationId)) this.remove(item.dataset.conversationId);
    }
    for (const item of fresh.reverse()) if (!this.#isRemovedSince(item, asked)) this.#replace(item);
  }

  /** Takes one conversation from the server as it is now: changed, moved, new, or gone (then it gives undefined). */
  async refresh(id) {
    const asked = performance.now();
    const page = await fetchPage(`${this.place}?${new URLSearchParams({ only: id })}`);
    if (!page) return null;
    const fresh = page.querySelector("[data-conversation-id]") ?? undefined;
    if (fresh && this.#isRemovedSince(fresh, asked)) return undefined;
    if (fresh && !("archived" in fresh.dataset)) this.#replace(fresh);
    else this.remove(id);
    return fresh;
  }

  #isRemovedSince(item, moment) {
    return this.#removedAt.get(item.dataset.conversationId) > moment;
  }

  #replace(fresh) {
    const known = this.itemOf(fresh.dataset.conversationId);
    // What somebody is writing in is left alone.
    if (known?.querySelector("form")) return;
    fresh.querySelector(".box")?.remove();
    const link = fresh.querySelector("a");
    if (known?.querySelector("[aria-current]")) link.setAttribute("aria-current", "page");
    fresh.classList.toggle("chosen", Boolean(known?.classList.contains("chosen")));
    const hadFocus = known?.contains(document.activeElement);
    known?.remove();
    this.#put(document.adoptNode(fresh));
    if (hadFocus) link.focus({ preventScroll: true });
  }

  remove(id) {
    this.#removedAt.set(id, performance.now());
    showAtHome(id, false);
    const item = this.itemOf(id);
    if (!item) return;
    const next = nextItem(item) ?? previousItem(item);
    const hadFocus = item.contains(document.activeElement);
    item.remove();
    this.#group();
    if (hadFocus) (next?.querySelector("a") ?? this.element.querySelector(".new-chat")).focus();
    this.#showEmptiness();
  }

  /** Where it belongs among those that are here: pinned ones as they come, others by their last activity. */
  #put(item) {
    prepareItem(item);
    showAtHome(item.dataset.conversationId, true);
    item.remove();
    const isPinned = "pinned" in item.dataset;
    const moment = momentOf(item);
    const after = [...this.items].find((other) => {
      const isOtherPinned = "pinned" in other.dataset;
      return isPinned ? true : !isOtherPinned && momentOf(other) <= moment;
    });
    if (after) after.before(item);
    else this.list.append(item);
    this.#group();
    this.#showEmptiness();
  }

  #showEmptiness() {
    const isEmpty = !this.list.querySelector("[data-conversation-id]");
    this.element.querySelector("[data-no-conversations]").hidden = !isEmpty;
    this.element.querySelector("[data-finding]").hidden = isEmpty;
  }

  /** Headings by day, made again: the day may have changed since. */
  #group() {
    for (const heading of this.list.querySelectorAll(".day")) heading.remove();
    this.#groupFrom(this.items, null);
  }

  #groupFrom(items, last) {
    const now = new Date();
    let day = last;
    for (const item of items) {
      const itsDay = groupOf(item, now);
      if (itsDay !== day) item.before(makeHeading(itsDay));
      day = itsDay;
    }
  }

  #growWhenScrolled() {
    const more = this.element.querySelector("[data-all-chats] [data-more]");
    if (!more) return;
    const watcher = new IntersectionObserver(
      async (entries) => {
        // The latest of several that came together counts.
        if (!entries.at(-1).isIntersecting) return;
        watcher.unobserve(more);
        if (await this.#grow(more)) watcher.observe(more);
      },
      { root: this.scroller, rootMargin: "900px" },
    );
    watcher.observe(more);
  }

  /** A page that is opened from the list has the list where it was, however far down. */
  async #keepPlace() {
    addEventListener("pagehide", () => sessionStorage.setItem(PLACE_KEY, String(Math.round(this.scroller.scrollTop))));
    const wanted = Number(sessionStorage.getItem(PLACE_KEY)) || 0;
    if (!wanted) return;
    let hasMore = true;
    const furthest = () => this.scroller.scrollHeight - this.scroller.clientHeight;
    while (hasMore && furthest() < wanted) {
      const more = this.element.querySelector("[data-all-chats] [data-more]");
      // The list grows by itself, too, where its end is near.
      if (more?.ariaBusy === "true") await new Promise((resolve) => setTimeout(resolve, GROWING_MS));
      else hasMore = Boolean(more) && (await this.#grow(more));
    }
    // Somebody may have scrolled meanwhile.
    if (this.scroller.scrollTop === 0) this.scroller.scrollTop = wanted;
  }

  async #onClick(event) {
    const more = event.target.closest("[data-more]");
    if (!more || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const before = this.items.length;
    if (!(await this.#grow(more)) && more.isConnected) location.assign(more.href);
    this.items[before]?.querySelector("a").focus();
  }

  /** Whether there is still more. */
  async #grow(more) {
    if (more.ariaBusy === "true") return true;
    more.ariaBusy = "true";
    const page = await fetchPage(more.href);
    more.ariaBusy = "false";
    if (!page) return false;
    const last = [...this.items].at(-1);
    const known = new Set([...this.items].map((item) => item.dataset.conversationId));
    const items = [...page.querySelectorAll("[data-conversation-id]")].filter((item) => !known.has(item.dataset.conversationId));
    for (const item of items) {
      item.querySelector(".box")?.remove();
      prepareItem(item);
    }
    this.list.append(...items);
    this.#groupFrom(items, last ? groupOf(last, new Date()) : null);
    const next = page.querySelector("[data-more]");
    if (next) more.href = next.getAttribute("href");
    else more.remove();
    return Boolean(next);
  }
}

/** The button of a chat's menu, which does nothing without a script, and so comes from one. */
export function prepareItem(item) {
  if (item.querySelector("[data-item-button]")) return;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "item-button";
  button.dataset.itemButton = "";
  button.ariaHasPopup = "menu";
  button.ariaLabel = gettext("Options");
  const link = item.querySelector("a");
  link.id ||= `chat-${item.dataset.conversationId}`;
  button.setAttribute("aria-describedby", link.id);
  item.append(button);
}

export function nextItem(item) {
  let next = item.nextElementSibling;
  while (next && !next.dataset.conversationId) next = next.nextElementSibling;
  return next;
}

export function previousItem(item) {
  let previous = item.previousElementSibling;
  while (previous && !previous.dataset.conversationId) previous = previous.previousElementSibling;
  return previous;
}

/** A title as the server makes it: the first line, cut at a word. */
export function titleFrom(message) {
  const line = message.split("\n", 1)[0].trim().replace(/\s+/g, " ");
  const characters = [...line];
  if (characters.length <= TITLE_LENGTH) return line;
  const cut = characters.slice(0, TITLE_LENGTH - 1).join("");
  return `${cut.replace(/ [^ ]*$/, "").replace(/[,;:]+$/, "")}…`;
}

function idIn(path) {
  return path.split("/").at(-2);
}

function momentOf(item) {
  return new Date(item.querySelector("a").dataset.lastActive).getTime();
}

function groupOf(item, now) {
  if ("pinned" in item.dataset) return PINNED;
  return dayInWords(new Date(item.querySelector("a").dataset.lastActive), now);
}

function makeItem(id, path, message) {
  const item = document.createElement("li");
  item.dataset.conversationId = id;
  const link = document.createElement("a");
  link.href = path;
  link.dir = "auto";
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

/** What the home page says of a chat goes and comes with it. */
function showAtHome(id, isShown) {
  for (const link of document.querySelectorAll(`.home-part a[href*="/${id}/"]`)) link.closest("li").hidden = !isShown;
}
