/** Ctrl or ⌘ K: one field for everything: commands, pages, chats by title, and what was said and noted (WAI-ARIA combobox). */
import { fetchPage, isComposing } from "./dom.js";
import { gettext, ngettext } from "./language.js";
import { COMMANDS, carryOut, keysOf, openShortcuts, titleOf } from "./shortcuts_list.js";
import { chooseTheme } from "./theme.js";

const PAUSE_MS = 60;
const TITLES = 6;

let palette = null;

export function openPalette() {
  palette ??= new Palette();
  palette.open();
}

class Palette {
  #turn = 0;
  #timer = 0;
  #active = null;
  #numbers = 0;

  constructor() {
    const template = document.querySelector("template[data-template=palette]");
    this.dialog = template.content.firstElementChild.cloneNode(true);
    document.body.append(this.dialog);
    this.field = this.dialog.querySelector("[role=combobox]");
    this.list = this.dialog.querySelector("[role=listbox]");
    this.status = this.dialog.querySelector("[role=status]");
    this.pages = [...this.dialog.querySelectorAll("[data-palette-page]")].map((link) => ({
      title: link.textContent.trim(),
      icon: link.dataset.icon,
      keys: keysAt(link.getAttribute("href")),
      words: link.dataset.words ?? "",
      href: link.getAttribute("href"),
    }));
    this.themes = [...this.dialog.querySelectorAll("[data-palette-theme]")].map(({ dataset, textContent }) => ({
      title: textContent,
      icon: "theme",
      words: "theme appearance colours",
      does: () => chooseTheme(dataset.paletteTheme),
    }));
    const link = document.querySelector("[data-search-link]");
    this.searchPath = link?.pathname;
    // From inside a project only this project is searched, until somebody says otherwise.
    const project = new URLSearchParams(link?.search).get("project");
    this.within = this.dialog.querySelector("[data-palette-within]");
    this.within.hidden = !project;
    this.within.querySelector("input").value = project ?? "";
    this.within.querySelector("[data-palette-project]").textContent = project ?? "";
    this.chatsPath = document.querySelector("[data-conversations-href]")?.dataset.conversationsHref;
    this.#listen();
  }

  get #within() {
    const { checked, value } = this.within.querySelector("input");
    return checked && value ? { project: value } : {};
  }

  open() {
    this.field.value = "";
    this.dialog.showModal();
    this.field.focus();
    this.#changed();
  }

  #listen() {
    this.field.addEventListener("input", () => this.#changed());
    this.within.addEventListener("change", () => this.#changed());
    // Escape belongs to the palette alone, and stops no answer behind it.
    this.dialog.addEventListener("keydown", (event) => {
      event.stopPropagation();
      this.#onKey(event);
    });
    this.dialog.addEventListener("click", (event) => {
      if (event.target === this.dialog) return this.dialog.close();
      const option = event.target.closest("[role=option]");
      if (option) this.#choose(option, event);
    });
    this.list.addEventListener("pointermove", (event) => {
      const option = event.target.closest("[role=option]");
      if (option && option !== this.#active) this.#activate(option, false);
    });
    this.dialog.addEventListener("close", () => {
      this.#turn += 1;
      clearTimeout(this.#timer);
    });
  }

  #onKey(event) {
    // Its arrows and its Enter are the input method's.
    if (isComposing(event)) return;
    const options = [...this.list.querySelectorAll("[role=option]")];
    const at = options.indexOf(this.#active);
    const isCommand = event.ctrlKey || event.metaKey;
    if (isCommand && event.key.toLowerCase() === "k") {
      event.preventDefault();
      this.dialog.close();
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (this.#active) this.#choose(this.#active, event);
    } else if (["ArrowDown", "ArrowUp", "PageDown", "PageUp"].includes(event.key) && options.length) {
      event.preventDefault();
      const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
      const goes = Math.abs(step) === 1 ? (at + step + options.length) % options.length : at + step;
      this.#activate(options[Math.max(0, Math.min(options.length - 1, goes))]);
    }
  }

  #activate(option, scrolls = true) {
    this.#active?.setAttribute("aria-selected", "false");
    this.#active = option;
    option?.setAttribute("aria-selected", "true");
    if (option) this.field.setAttribute("aria-activedescendant", option.id);
    else this.field.removeAttribute("aria-activedescendant");
    if (scrolls) option?.scrollIntoView({ block: "nearest" });
  }

  #changed() {
    const turn = ++this.#turn;
    clearTimeout(this.#timer);
    const query = this.field.value.trim();
    const kept = this.list.querySelector("[data-group=found]");
    this.list.replaceChildren();
    this.#group("chats", query ? [] : this.#recent());
    this.#group("chat", matching(query, this.#ofThisChat()));
    this.#group("commands", matching(query, this.#anywhere()));
    // What was found for fewer letters stays until there is something better.
    if (query && kept) this.list.append(kept);
    if (query && this.searchPath) this.#group("all", [this.#searchAll(query)]);
    this.#activate(this.list.querySelector("[role=option]"));
    this.status.textContent = "";
    if (query) this.#timer = setTimeout(() => this.#ask(turn, query), PAUSE_MS);
  }

  #recent() {
    const links = [...document.querySelectorAll("[data-sidebar] [data-all-chats] [data-conversation-id] a")].slice(0, TITLES);
    return links.map((link) => ({ title: link.textContent, href: link.getAttribute("href") }));
  }

  #anywhere() {
    return [
      ...this.pages,
      { title: titleOf({ key: "?" }), icon: "about", keys: ["?"], words: "keys help", does: openShortcuts },
      ...this.themes,
    ];
  }

  /** What can be done with the chat that is open, and the ones beside it in the list. */
  #ofThisChat() {
    const possible = COMMANDS.filter((command) => !command.isPage && command.find());
    return possible.map((command) => ({ ...command, title: titleOf(command), keys: keysOf(command), does: () => carryOut(command) }));
  }

  #searchAll(query) {
    return { title: gettext("Search for “%(query)s”, with filters", { query }), href: `${this.searchPath}?${new URLSearchParams({ q: query, ...this.#within })}`, icon: "search" };
  }

  async #ask(turn, query) {
    const asked = new URLSearchParams({ q: query, ...this.#within });
    const titles = this.#show(turn, fetchPage(`${this.chatsPath}?${asked}`), (page) => this.#showTitles(page));
    const texts = this.searchPath
      ? this.#show(turn, fetchPage(`${this.searchPath}live/?${asked}`), (page) => this.#showTexts(page))
      : null;
    await Promise.all([titles, texts]);
    if (turn !== this.#turn) return;
    const count = this.list.querySelectorAll("[role=option]").length;
    this.status.textContent = ngettext("%(count)s suggestion", "%(count)s suggestions", count);
  }

  async #show(turn, asked, shows) {
    const page = await asked;
    if (turn !== this.#turn) return;
    const chosen = this.#active?.dataset.href;
    const isFirst = this.#active === this.list.querySelector("[role=option]");
    shows(page);
    // A person who has gone down the list stays there.
    const same = isFirst ? null : [...this.list.querySelectorAll("[role=option]")].find((option) => option.dataset.href === chosen);
    this.#activate(same ?? this.list.querySelector("[role=option]"));
  }

  #showTitles(page) {
    const links = [...(page?.querySelectorAll("[data-conversation-id] a") ?? [])].slice(0, TITLES);
    const options = links.map((link) => ({ title: link.textContent, href: link.getAttribute("href") }));
    this.list.querySelector("[data-group=chats]")?.remove();
    this.#group("chats", options, { isFirst: true });
  }

  #showTexts(page) {
    this.list.querySelector("[data-group=found]")?.remove();
    const hits = [...(page?.querySelectorAll("[data-hit]") ?? [])];
    const heading = page?.querySelector("[data-hits] h2")?.textContent ?? "";
    const options = hits.map((hit) => ({ parts: [...hit.childNodes], href: hit.getAttribute("href") }));
    const group = this.#group("found", options, { title: heading });
    const last = this.list.querySelector("[data-group=all]");
    if (group && last) last.before(group);
  }

  #group(name, options, { title = this.list.dataset[name], isFirst = false } = {}) {
    if (options.length === 0) return null;
    const group = document.createElement("div");
    group.role = "group";
    group.dataset.group = name;
    if (title) {
      group.ariaLabel = title;
      const heading = document.createElement("div");
      heading.className = "palette-heading";
      heading.ariaHidden = "true";
      heading.textContent = title;
      group.append(heading);
    }
    group.append(...options.map((option) => this.#option(option)));
    if (isFirst) this.list.prepend(group);
    else this.list.append(group);
    return group;
  }

  #option({ title, parts, href, does, icon, keys = [] }) {
    const option = document.createElement("div");
    option.role = "option";
    option.id = `palette-${++this.#numbers}`;
    option.ariaSelected = "false";
    option.className = "palette-option";
    if (href) option.dataset.href = href;
    option.does = does;
    if (parts) option.append(...parts);
    else {
      const words = document.createElement("span");
      words.className = "hit-title";
      words.dir = "auto";
      words.textContent = title;
      const sign = document.createElement("span");
      sign.className = "palette-kind";
      sign.append(...keys.flatMap((key) => [keyOf(key), " "]).slice(0, -1));
      option.append(this.#icon(icon ?? "chat"), words, sign);
    }
    return option;
  }

  /** Each is in the palette's template once. */
  #icon(name) {
    return this.dialog.querySelector(`[data-palette-icons] use[href$="#${name}"]`).parentElement.cloneNode(true);
  }

  #choose(option, event) {
    this.dialog.close();
    if (option.does) return option.does();
    if (event.ctrlKey || event.metaKey) open(option.dataset.href);
    else location.assign(option.dataset.href);
  }
}

/** Those of which a title or a further word has each word of the query in it. */
function matching(query, commands) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  return commands.filter((each) => words.every((word) => `${each.title} ${each.words}`.toLowerCase().includes(word)));
}

function keyOf(name) {
  const key = document.createElement("kbd");
  key.textContent = name;
  return key;
}

function keysAt(address) {
  const command = COMMANDS.find(({ isPage, find }) => isPage && find() === address);
  return command && keysOf(command);
}
