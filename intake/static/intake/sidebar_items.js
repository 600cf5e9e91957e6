/** What can be done with one chat of the list: its menu, renaming in place, and the keys for both. */
import { send } from "./chats.js";
import { HOME, isComposing } from "./dom.js";
import { gettext, ngettext } from "./language.js";
import { movesAmong } from "./menus.js";
import { nextItem, previousItem } from "./sidebar.js";

const TITLE_LENGTH = 80;

export class ItemMenu {
  #item = null;

  constructor(sidebar, { confirm, tell, select, move }) {
    this.move = move;
    this.sidebar = sidebar;
    this.menu = sidebar.element.querySelector("[data-item-menu]");
    this.confirm = confirm;
    this.tell = tell;
    this.select = select;
    sidebar.element.addEventListener("click", (event) => this.#onClick(event));
    sidebar.element.addEventListener("keydown", (event) => this.#onKey(event));
    sidebar.element.addEventListener("contextmenu", (event) => this.#onContextMenu(event));
    document.addEventListener("click", (event) => {
      if (!this.menu.hidden && !this.menu.contains(event.target) && !event.target.closest("[data-item-button]")) this.#close();
    });
    // The palette's command.
    document.addEventListener("recollect:archive", ({ detail }) => this.#change(detail, "archive", true));
    sidebar.scroller.addEventListener("scroll", () => this.#close(), { passive: true });
  }

  #onClick(event) {
    const button = event.target.closest("[data-item-button]");
    if (button) return this.#item && this.#buttonOf(this.#item) === button ? this.#close() : this.#open(itemAt(button));
    const wanted = event.target.closest("[data-item-do]")?.dataset.itemDo;
    if (wanted) this.#do(wanted);
  }

  /** A long press on a phone asks for it too. */
  #onContextMenu(event) {
    const item = itemAt(event.target);
    if (!item || event.shiftKey) return;
    event.preventDefault();
    this.#open(item);
  }

  #onKey(event) {
    if (!this.menu.hidden && this.menu.contains(event.target)) return this.#onMenuKey(event);
    const item = itemAt(event.target);
    if (!item || event.target.matches("input") || event.ctrlKey || event.metaKey || event.altKey) return;
    const does = {
      ArrowDown: () => focusOn(nextItem(item)),
      ArrowUp: () => focusOn(previousItem(item)),
      F2: () => this.#rename(item),
      Delete: () => this.#delete(item),
      ContextMenu: () => this.#open(item),
      m: () => this.move([item.dataset.conversationId]),
    }[event.key];
    if (!does) return;
    event.preventDefault();
    does();
  }

  #onMenuKey(event) {
    if (movesAmong([...this.menu.querySelectorAll("[role=menuitem]")], event)) return;
    if (event.key === "Escape" || event.key === "Tab") {
      event.preventDefault();
      event.stopPropagation();
      this.#close(true);
    }
  }

  #open(item) {
    this.#close();
    this.#item = item;
    const [isPinned, isArchived] = ["pinned" in item.dataset, "archived" in item.dataset];
    for (const [name, isDone] of [["pin", isPinned], ["archive", isArchived]]) {
      const [to, back] = this.menu.querySelector(`[data-item-do="${name}"]`).children;
      [to.hidden, back.hidden] = [isDone, !isDone];
    }
    this.menu.querySelector('[data-item-do="pin"]').hidden = isArchived;
    const button = this.#buttonOf(item);
    button.ariaExpanded = "true";
    this.menu.hidden = false;
    const at = button.getBoundingClientRect();
    const top = Math.min(at.bottom + 4, innerHeight - this.menu.offsetHeight - 8);
    this.menu.style.top = `${Math.max(8, top)}px`;
    this.menu.style.left = `${Math.max(8, Math.min(at.left, innerWidth - this.menu.offsetWidth - 8))}px`;
    this.menu.querySelector("[role=menuitem]:not([hidden])").focus();
  }

  #close(returnsFocus = false) {
    if (!this.#item) return;
    const button = this.#buttonOf(this.#item);
    button?.removeAttribute("aria-expanded");
    this.menu.hidden = true;
    if (returnsFocus) button?.focus();
    this.#item = null;
  }

  #buttonOf(item) {
    return item.querySelector("[data-item-button]");
  }

  #do(wanted) {
    // A change may have put another in its place since the menu was opened.
    const item = this.sidebar.itemOf(this.#item.dataset.conversationId) ?? this.#item;
    this.#close();
    const link = item.querySelector("a");
    const chat = { id: item.dataset.conversationId, path: pathOf(item) };
    const does = {
      pin: () => this.#change(chat, "pin", !("pinned" in item.dataset)),
      archive: () => this.#change(chat, "archive", !("archived" in item.dataset)),
      rename: () => this.#rename(item),
      move: () => this.move([chat.id]),
      select: () => this.select(item),
      delete: () => this.#delete(item),
    }[wanted];
    link.focus();
    does();
  }

  async #change({ id, path }, what, on) {
    const trouble = await send(`${path}${what}/`, { on: on ? "1" : "0" });
    if (trouble) return this.tell(trouble);
    await this.sidebar.refresh(id);
    if (what === "pin") return this.tell(on ? gettext("Pinned") : gettext("No longer pinned"));
    this.tell(on ? gettext("Archived") : gettext("Back in the list"), async () => {
      await send(`${path}archive/`, { on: on ? "0" : "1" });
      await this.sidebar.refresh(id);
      this.sidebar.itemOf(id)?.querySelector("a").focus();
    });
  }

  #rename(item) {
    if (item.querySelector("form")) return;
    const link = item.querySelector("a");
    const form = document.createElement("form");
    const field = document.createElement("input");
    field.value = link.textContent;
    field.maxLength = TITLE_LENGTH;
    field.ariaLabel = gettext("Title of the chat");
    field.dir = "auto";
    form.className = "renaming";
    form.append(field);
    link.hidden = true;
    item.append(form);
    field.focus();
    field.select();
    let isOver = false;
    const end = async (isWanted) => {
      if (isOver) return;
      isOver = true;
      const title = field.value.trim().replace(/\s+/g, " ");
      const hadFocus = form.contains(document.activeElement);
      form.remove();
      link.hidden = false;
      if (hadFocus) link.focus();
      if (isWanted && title && title !== link.textContent) await this.#giveTitle(item, title);
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      end(true);
    });
    field.addEventListener("keydown", (event) => {
      event.stopPropagation();
      // Escape puts away an input method's suggestions, and Enter takes one.
      if (isComposing(event)) return;
      if (event.key === "Escape") end(false);
    });
    field.addEventListener("blur", () => end(true));
  }

  async #giveTitle(item, title) {
    const link = item.querySelector("a");
    const before = link.textContent;
    link.textContent = title;
    const trouble = await send(`${pathOf(item)}rename/`, { title });
    if (!trouble) return this.tell(gettext("Renamed"), null, { id: item.dataset.conversationId, title });
    link.textContent = before;
    this.tell(trouble);
  }

  async #delete(item) {
    const isSure = await this.confirm({
      title: this.menu.dataset.deleting,
      text: gettext("“%(title)s”: everything said in it goes for good, and is no longer found by any search.", { title: item.querySelector("a").textContent }),
    });
    if (!isSure) return;
    const trouble = await send(`${pathOf(item)}delete/`);
    if (trouble) return this.tell(trouble);
    const isHere = item.querySelector("[aria-current]");
    this.sidebar.remove(item.dataset.conversationId);
    if (isHere) location.assign(HOME);
    else this.tell(ngettext("%(count)s chat deleted", "%(count)s chats deleted", 1));
  }
}

function itemAt(element) {
  return element.closest("[data-conversation-id]");
}

export function pathOf(item) {
  return item.querySelector("a").pathname;
}

function focusOn(item) {
  item?.querySelector("a").focus();
}
