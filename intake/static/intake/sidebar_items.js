/** What can be done with one chat: the menu of the list and of the open chat, renaming in place, and the keys for both. */
import { send } from "./chats.js";
import { HOME, isComposing } from "./dom.js";
import { gettext, ngettext } from "./language.js";
import { menuButton } from "./menus.js";
import { nextItem, previousItem } from "./sidebar.js";

const TITLE_LENGTH = 80;
const UUID = /[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/;

export class ChatMenu {
  #chat = null;

  constructor(sidebar, { confirm, tell, select, move }) {
    this.move = move;
    this.sidebar = sidebar;
    this.menu = document.querySelector("#chat-menu");
    this.confirm = confirm;
    this.tell = tell;
    this.select = select;
    this.menu.addEventListener("beforetoggle", ({ newState }) => newState === "open" && this.#prepare());
    this.menu.addEventListener("click", (event) => this.#onClick(event));
    sidebar.element.addEventListener("keydown", (event) => this.#onKey(event));
    // A long press on a phone asks for it too.
    sidebar.element.addEventListener("contextmenu", (event) => {
      if (event.shiftKey || !itemAt(event.target)) return;
      event.preventDefault();
      openMenuOf(itemAt(event.target));
    });
    // The palette's command.
    document.addEventListener("recollect:archive", ({ detail }) => this.#change(detail, "archive", true));
  }

  /** For the chat of the list whose button was pressed, or for the one that is open. */
  #prepare() {
    const opener = menuButton();
    const id = itemAt(opener)?.dataset.conversationId;
    this.#chat = { id: id ?? openChat(), isHead: !id };
    const item = this.sidebar.itemOf(this.#chat.id);
    const entry = (name) => this.menu.querySelector(`[data-item-do="${name}"]`);
    for (const each of this.menu.querySelectorAll("[data-kept]")) each.hidden = "temporary" in opener.dataset;
    const { pinned, archived } = (item ?? opener).dataset;
    for (const [name, done] of [["pin", pinned], ["archive", archived]]) {
      const [to, back] = entry(name).children;
      [to.hidden, back.hidden] = [done !== undefined, done === undefined];
    }
    entry("pin").hidden ||= archived !== undefined;
    entry("select").hidden = !item;
    for (const link of this.menu.querySelectorAll("a")) link.href = link.getAttribute("href").replace(UUID, this.#chat.id);
  }

  #onClick(event) {
    const entry = event.target.closest("[data-item-do]");
    if (!entry || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const chat = this.#chat;
    const item = this.sidebar.itemOf(chat.id);
    const isToDo = !entry.firstElementChild?.hidden;
    if (!chat.isHead) item?.querySelector("a").focus();
    const does = {
      pin: () => this.#change(chat, "pin", isToDo),
      archive: () => this.#change(chat, "archive", isToDo),
      rename: () => this.#rename(chat),
      move: () => this.move([chat.id]),
      select: () => this.select(item),
      delete: () => this.#delete(chat),
    }[entry.dataset.itemDo];
    does();
  }

  #onKey(event) {
    const item = itemAt(event.target);
    if (!item || event.target.matches("input") || event.ctrlKey || event.metaKey || event.altKey) return;
    const chat = { id: item.dataset.conversationId };
    const does = {
      ArrowDown: () => focusOn(nextItem(item)),
      ArrowUp: () => focusOn(previousItem(item)),
      F2: () => this.#rename(chat),
      Delete: () => this.#delete(chat),
      ContextMenu: () => openMenuOf(item),
      m: () => this.move([chat.id]),
    }[event.key];
    if (!does) return;
    event.preventDefault();
    does();
  }

  async #change({ id }, what, on) {
    const set = async (isOn) => {
      const trouble = await send(`${pathOf(id)}${what}/`, { on: isOn ? "1" : "0" });
      if (!trouble && what === "archive" && id === openChat()) document.querySelector("[data-chat-menu]").toggleAttribute("data-archived", isOn);
      if (!trouble) await this.sidebar.refresh(id);
      return trouble;
    };
    const trouble = await set(on);
    if (trouble) return this.tell(trouble);
    if (what === "pin") return this.tell(on ? gettext("Pinned") : gettext("No longer pinned"));
    this.tell(on ? gettext("Archived") : gettext("Back in the list"), async () => {
      await set(!on);
      focusOn(this.sidebar.itemOf(id));
    });
  }

  #titleOf({ id, isHead }) {
    return isHead ? document.querySelector("[data-title]") : this.sidebar.itemOf(id).querySelector("a");
  }

  /** In place, in the list or above the open chat. */
  #rename(chat) {
    const shown = this.#titleOf(chat);
    if (shown.hidden) return;
    const form = document.createElement("form");
    const field = document.createElement("input");
    field.value = shown.textContent;
    field.maxLength = TITLE_LENGTH;
    field.ariaLabel = gettext("Title of the chat");
    field.dir = "auto";
    form.className = "renaming";
    form.append(field);
    shown.hidden = true;
    shown.after(form);
    field.focus();
    field.select();
    let isOver = false;
    const end = async (isWanted) => {
      if (isOver) return;
      isOver = true;
      const title = field.value.trim().replace(/\s+/g, " ");
      const hadFocus = form.contains(document.activeElement);
      form.remove();
      shown.hidden = false;
      if (hadFocus) (chat.isHead ? menuButton() : shown).focus();
      if (isWanted && title && title !== shown.textContent) await this.#giveTitle(chat, title);
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

  async #giveTitle(chat, title) {
    const shown = this.#titleOf(chat);
    const before = shown.textContent;
    shown.textContent = title;
    const trouble = await send(`${pathOf(chat.id)}rename/`, { title });
    if (trouble) {
      shown.textContent = before;
      return this.tell(trouble);
    }
    if (chat.isHead) this.sidebar.refresh(chat.id);
    this.tell(gettext("Renamed"), null, { id: chat.id, title });
  }

  async #delete(chat) {
    const isSure = await this.confirm({
      title: this.menu.dataset.deleting,
      text: gettext("“%(title)s”: everything said in it goes for good, and is no longer found by any search.", { title: this.#titleOf(chat).textContent }),
    });
    if (!isSure) return;
    const trouble = await send(`${pathOf(chat.id)}delete/`);
    if (trouble) return this.tell(trouble);
    this.sidebar.remove(chat.id);
    if (chat.id === openChat()) location.assign(HOME);
    else this.tell(ngettext("%(count)s chat deleted", "%(count)s chats deleted", 1));
  }
}

function itemAt(element) {
  return element.closest("[data-conversation-id]");
}

function openMenuOf(item) {
  item.querySelector("[data-item-button]").click();
}

function openChat() {
  return document.querySelector("[data-chat]")?.dataset.conversation;
}

function pathOf(id) {
  return `${HOME}c/${id}/`;
}

function focusOn(item) {
  item?.querySelector("a").focus();
}
