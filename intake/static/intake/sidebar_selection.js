/** Several chats at once: chosen with boxes, by clicks or keys, then moved, archived, exported or deleted together. */
import { send, submit } from "./chats.js";
import { HOME } from "./dom.js";
import { gettext, ngettext } from "./language.js";

// As many as the server takes in one request.
const AT_ONCE = 100;

export class Selection {
  #last = null;

  constructor(sidebar, { confirm, tell, move }) {
    this.move = move;
    this.sidebar = sidebar;
    this.confirm = confirm;
    this.tell = tell;
    this.bar = sidebar.element.querySelector("[data-selection]");
    this.bar.addEventListener("click", (event) => this.#do(event.target.closest("[data-do]")?.dataset.do));
    sidebar.element.addEventListener("click", (event) => this.#onClick(event), true);
    sidebar.element.addEventListener("keydown", (event) => {
      if (!this.isOn) return;
      if (event.key === "Escape") {
        event.preventDefault();
        event.stopPropagation();
        this.end();
      } else if (event.key === " " && event.target.closest("[data-conversation-id] a")) {
        event.preventDefault();
        event.target.click();
      }
    });
  }

  get isOn() {
    return !this.bar.hidden;
  }

  get chosen() {
    return [...this.sidebar.element.querySelectorAll("[data-conversation-id].chosen")];
  }

  begin(item) {
    this.bar.hidden = false;
    this.sidebar.element.classList.add("selecting");
    this.#choose(item, true);
    this.#last = item;
    this.#show();
  }

  end() {
    const next = this.chosen.at(-1) ?? this.sidebar.items[0];
    for (const item of this.chosen) this.#choose(item, false);
    this.bar.hidden = true;
    this.sidebar.element.classList.remove("selecting");
    this.#last = null;
    next?.querySelector("a").focus();
  }

  /** Before the link itself hears of it; with Shift, everything from the last one on. */
  #onClick(event) {
    const link = event.target.closest("[data-conversation-id] a");
    if (!this.isOn || !link) return;
    event.preventDefault();
    event.stopPropagation();
    const item = link.closest("[data-conversation-id]");
    const isChosen = !item.classList.contains("chosen");
    const items = [...this.sidebar.items];
    const ends = [items.indexOf(this.#last), items.indexOf(item)];
    const range = event.shiftKey && ends.every((at) => at >= 0) ? items.slice(Math.min(...ends), Math.max(...ends) + 1) : [item];
    for (const each of range) this.#choose(each, isChosen);
    this.#last = item;
    this.#show();
  }

  #choose(item, isChosen) {
    item.classList.toggle("chosen", isChosen);
    const link = item.querySelector("a");
    if (isChosen) link.ariaDescription = gettext("Selected");
    else link.removeAttribute("aria-description");
  }

  #show() {
    const count = this.chosen.length;
    this.bar.querySelector("[data-selected-count]").textContent = gettext("%(count)s selected", { count });
    for (const button of this.bar.querySelectorAll("[data-do]:not([data-do=cancel])")) button.disabled = count === 0;
  }

  async #do(wanted) {
    if (!wanted) return;
    if (wanted === "cancel") return this.end();
    const ids = this.chosen.map((item) => item.dataset.conversationId);
    const path = `${this.sidebar.place}change/`;
    if (wanted === "move") {
      this.end();
      return this.move(ids);
    }
    if (wanted === "export") return this.#export(path, ids);
    if (wanted === "delete" && !(await this.confirm({
      title: ngettext("Delete %(count)s selected chat?", "Delete %(count)s selected chats?", ids.length),
      text: gettext("Everything said in them goes for good, and is no longer found by any search."),
    }))) return;
    const isCurrent = this.chosen.some((item) => item.querySelector("[aria-current]"));
    for (let start = 0; start < ids.length; start += AT_ONCE) {
      const some = ids.slice(start, start + AT_ONCE);
      const trouble = await send(path, { do: wanted, id: some, sure: "1" });
      if (trouble) return this.tell(trouble);
      for (const id of some) this.sidebar.remove(id);
    }
    this.end();
    if (isCurrent && wanted === "delete") return location.assign(HOME);
    this.tell(wanted === "delete" ? ngettext("%(count)s chat deleted", "%(count)s chats deleted", ids.length) : ngettext("%(count)s chat archived", "%(count)s chats archived", ids.length), wanted === "archive" ? () => this.#putBack(path, ids) : null);
  }

  #export(path, ids) {
    if (ids.length > AT_ONCE) return this.tell(gettext("At most %(count)s chats are exported at once.", { count: AT_ONCE }));
    submit(path, { do: "export", id: ids });
    this.tell(gettext("Exported"));
  }

  async #putBack(path, ids) {
    for (let start = 0; start < ids.length; start += AT_ONCE) {
      await send(path, { do: "restore", id: ids.slice(start, start + AT_ONCE) });
    }
    for (const id of ids) await this.sidebar.refresh(id);
  }
}
