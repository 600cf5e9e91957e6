/** The list of chats: by project and by day in the reader's own zone, longer as one scrolls, kept up to date by item. */
import { fetchPage } from "./dom.js";
import { gettext } from "./language.js";
import { Projects } from "./projects.js";
import { dayInWords } from "./times.js";

const TITLE_LENGTH = 80;
const PINNED = gettext("Pinned");
const PAUSE_MS = 40;
// From so many changed chats on, the list is fetched as a whole.
export const MANY = 5;
const PLACE_KEY = "place-in-chats";

export class Sidebar {
  // When each conversation was taken out: a list that was asked for earlier still holds it.
  #removedAt = new Map();
  #isHeld = false;

  constructor(element) {
    this.element = element;
    // The chats by day, which are of no project or pinned.
    this.list = element.querySelector("[data-day-chats] [data-conversations]");
    this.scroller = element.querySelector("[data-sidebar-list]");
    this.place = element.dataset.conversationsHref;
    this.projects = new Projects(this);
    for (const item of this.items) prepareItem(item);
    this.#group();
    this.#growWhenScrolled();
    this.#keepPlace();
    element.addEventListener("click", (event) => this.#onClick(event));
    element.addEventListener("pointerdown", () => (this.#isHeld = true));
    for (const end of ["pointerup", "pointercancel", "drop", "dragend"]) addEventListener(end, () => (this.#isHeld = false));
  }

  get items() {
    return this.element.querySelectorAll("[data-all-chats] [data-conversation-id]");
  }

  get #ofDays() {
    return this.list.querySelectorAll("[data-conversation-id]");
  }

  itemOf(id) {
    return this.element.querySelector(`[data-all-chats] [data-conversation-id="${CSS.escape(id)}"]`);
  }

  prepare(item) {
    prepareItem(item);
  }

  /**
   * Puts a conversation where the one that was active last belongs, as the current one; adds it if it is new. `project`:
   * to which a new one belongs.
   */
  promote(path, message, project = "") {
    const id = idIn(path);
    const known = this.itemOf(id);
    const item = known ?? makeItem(id, path, message);
    const link = item.querySelector("a");
    link.dataset.lastActive = new Date().toISOString();
    this.element.querySelector("[data-all-chats] [data-conversation-id] [aria-current]")?.removeAttribute("aria-current");
    link.setAttribute("aria-current", "page");
    if (known ? this.list.contains(known) : !project) this.#put(item);
    else if (known) known.parentElement.prepend(known);
    else this.projects.refresh();
    return link.textContent;
  }

  /** What the server has done with these: the groups are as it has them, and the days without those that left. */
  async moved(ids, project) {
    for (const id of ids) {
      const item = this.itemOf(id);
      if (!item) continue;
      if (project) item.dataset.project = project;
      else delete item.dataset.project;
      if (project && !("pinned" in item.dataset) && this.list.contains(item)) item.remove();
    }
    this.#group();
    await this.projects.refresh();
    if (!project && ids.length > MANY) await this.refreshAll();
    else if (!project) for (const id of ids) await this.refresh(id);
    this.showEmptiness();
  }

  /** A page of the list, once nobody holds or drags a chat that it may replace: a drag ends with what it began at. */
  async fetch(query) {
    const page = await fetchPage(`${this.place}?${new URLSearchParams(query)}`);
    while (this.#isHeld || this.element.matches(".dragging")) await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    return page;
  }

  /** Looks at the first page again: what came, went or changed while nobody was told. */
  async refreshAll() {
    const asked = performance.now();
    const page = await this.fetch({ project: "" });
    if (!page) return;
    this.projects.refresh();
    const fresh = [...page.querySelectorAll("[data-conversation-id]")];
    const ids = new Set(fresh.map((item) => item.dataset.conversationId));
    const oldest = fresh.length ? momentOf(fresh.at(-1)) : 0;
    const isWhole = !page.querySelector("[data-more]");
    for (const item of [...this.#ofDays]) {
      const isAmongThem = isWhole || "pinned" in item.dataset || momentOf(item) >= oldest;
      if (isAmongThem && !ids.has(item.dataset.conversationId)) this.remove(item.dataset.conversationId);
    }
    for (const item of fresh.reverse()) if (!this.isRemovedSince(item.dataset.conversationId, asked)) this.#replace(item);
  }

  /** Takes one conversation from the server as it is now: changed, moved, new, or gone (then it gives undefined). */
  async refresh(id) {
    const asked = performance.now();
    const page = await this.fetch({ only: id });
    if (!page) return null;
    const fresh = page.querySelector("[data-conversation-id]") ?? undefined;
    if (fresh && this.isRemovedSince(id, asked)) return undefined;
    const isOfGroups = Boolean(fresh?.dataset.project) || this.projects.section?.contains(this.itemOf(id));
    if (fresh && !("archived" in fresh.dataset)) this.#replace(fresh);
    else this.remove(id);
    if (isOfGroups) await this.projects.refresh();
    return fresh;
  }

  isRemovedSince(id, moment) {
    return this.#removedAt.get(id) > moment;
  }

  #replace(fresh) {
    const known = this.itemOf(fresh.dataset.conversationId);
    // What somebody is writing in is left alone.
    if (known?.querySelector("form")) return;
    // Its group comes from the server.
    if (fresh.dataset.project && !("pinned" in fresh.dataset)) {
      if (known && this.list.contains(known)) known.remove();
      return this.#group();
    }
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
    this.showEmptiness();
  }

  /** Where it belongs among those that are here: pinned ones as they come, others by their last activity. */
  #put(item) {
    prepareItem(item);
    showAtHome(item.dataset.conversationId, true);
    item.remove();
    const isPinned = "pinned" in item.dataset;
    const moment = momentOf(item);
    const after = [...this.#ofDays].find((other) => {
      const isOtherPinned = "pinned" in other.dataset;
      return isPinned ? true : !isOtherPinned && momentOf(other) <= moment;
    });
    if (after) after.before(item);
    else this.list.append(item);
    this.#group();
    this.showEmptiness();
  }

  showEmptiness() {
    const isFull = this.items.length || this.element.querySelector("[data-project-group]");
    this.element.querySelector("[data-no-conversations]").hidden = Boolean(isFull);
  }

  /** Headings by day, made again: the day may have changed since. */
  #group() {
    for (const heading of this.list.querySelectorAll(".day")) heading.remove();
    this.#groupFrom(this.#ofDays, null);
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
    const more = this.element.querySelector("[data-day-chats] [data-more]");
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
      const more = this.element.querySelector("[data-day-chats] [data-more]");
      // The list grows by itself, too, where its end is near.
      if (more?.ariaBusy === "true") await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
      else hasMore = Boolean(more) && (await this.#grow(more));
    }
    // Somebody may have scrolled meanwhile.
    if (this.scroller.scrollTop === 0) this.scroller.scrollTop = wanted;
  }

  async #onClick(event) {
    const more = event.target.closest("[data-day-chats] [data-more]");
    if (!more || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const before = this.#ofDays.length;
    if (!(await this.#grow(more)) && more.isConnected) location.assign(more.href);
    this.#ofDays[before]?.querySelector("a").focus();
  }

  /** Whether there is still more. */
  async #grow(more) {
    if (more.ariaBusy === "true") return true;
    more.ariaBusy = "true";
    const page = await fetchPage(more.href);
    more.ariaBusy = "false";
    if (!page) return false;
    const last = [...this.#ofDays].at(-1);
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
  button.dataset.itemButton = button.dataset.menuButton = "";
  button.popoverTargetElement = document.querySelector("#chat-menu");
  button.ariaHasPopup = "menu";
  button.ariaLabel = gettext("Options");
  const link = item.querySelector("a");
  link.id ||= `chat-${item.dataset.conversationId}`;
  button.setAttribute("aria-describedby", link.id);
  item.append(button);
}

export function nextItem(item) {
  return beside(item, 1);
}

export function previousItem(item) {
  return beside(item, -1);
}

/** Among those that are to be seen, over the ends of groups. */
function beside(item, step) {
  const list = item.closest("[data-all-chats]");
  const items = [...(list?.querySelectorAll("[data-conversation-id]") ?? [])].filter((each) => each.checkVisibility());
  const at = items.indexOf(item);
  return at < 0 ? undefined : items[at + step];
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
