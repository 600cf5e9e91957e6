/** Filtering the chats while one types: titles that are here at once, then all titles, then what was said in them. */
import { fetchPage, isComposing } from "./dom.js";
import { gettext } from "./language.js";
import { prepareItem } from "./sidebar.js";

const PAUSE_MS = 90;
const SHOWN_AT_ONCE = 100;

export class Filter {
  #turn = 0;
  #timer = 0;

  constructor(sidebar, { searchPath }) {
    this.sidebar = sidebar;
    this.searchPath = searchPath;
    const part = (name) => sidebar.element.querySelector(`[data-${name}]`);
    this.field = part("filter");
    this.all = part("all-chats");
    this.found = part("found-chats");
    this.titles = part("found-titles");
    this.texts = part("found-texts");
    this.none = part("found-none");
    this.field.disabled = false;
    this.field.addEventListener("input", () => this.#onInput());
    this.field.addEventListener("keydown", (event) => this.#onKey(event));
    if (this.field.value) this.#onInput();
  }

  #onKey(event) {
    if (isComposing(event)) return;
    if (event.key === "Escape" && this.field.value) {
      event.preventDefault();
      event.stopPropagation();
      this.field.value = "";
      this.#onInput();
    } else if (event.key === "ArrowDown" || event.key === "Enter") {
      const list = this.field.value.trim() ? this.found : this.all;
      const first = [...list.querySelectorAll("[data-conversation-id] a, .hit")].find((link) => link.checkVisibility());
      if (!first) return;
      event.preventDefault();
      if (event.key === "Enter" && this.field.value.trim()) first.click();
      else first.focus();
    }
  }

  #onInput() {
    const words = this.field.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const turn = ++this.#turn;
    clearTimeout(this.#timer);
    this.all.hidden = words.length > 0;
    this.found.hidden = words.length === 0;
    if (words.length === 0) return;
    const isMatch = (item) => {
      const title = item.querySelector("a").textContent.toLowerCase();
      return words.every((word) => title.includes(word));
    };
    const here = [...this.sidebar.items].filter(isMatch).slice(0, SHOWN_AT_ONCE);
    this.titles.replaceChildren(...here.map(copyOf));
    this.texts.replaceChildren();
    this.none.textContent = "";
    this.sidebar.scroller.scrollTop = 0;
    this.#timer = setTimeout(() => this.#ask(turn), PAUSE_MS);
  }

  async #ask(turn) {
    const query = new URLSearchParams({ q: this.field.value.trim() });
    const pages = [fetchPage(`${this.sidebar.place}?${query}`), this.searchPath ? fetchPage(`${this.searchPath}?${query}`) : null];
    const titles = await pages[0];
    if (turn !== this.#turn) return;
    for (const item of titles?.querySelectorAll("[data-conversation-id]") ?? []) {
      if (this.titles.querySelector(`[data-conversation-id="${item.dataset.conversationId}"]`)) continue;
      item.querySelector(".box")?.remove();
      prepareItem(item);
      this.titles.append(item);
    }
    const texts = await pages[1];
    if (turn !== this.#turn) return;
    this.texts.replaceChildren(...(texts?.querySelectorAll("[data-hits]") ?? []));
    const isNothing = !this.titles.childElementCount && !this.texts.querySelector("li");
    this.none.textContent = isNothing ? gettext("No chat has this in its title or in it.") : "";
  }
}

function copyOf(item) {
  const copy = item.cloneNode(true);
  copy.classList.remove("chosen");
  copy.querySelector("[data-item-button]").removeAttribute("aria-describedby");
  copy.querySelector("a").removeAttribute("id");
  return copy;
}
