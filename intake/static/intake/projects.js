/** Projects in the list of chats: groups that fold, and chats that are moved by a menu, by dragging or several at once. */
import { send } from "./chats.js";
import { HOME, isComposing } from "./dom.js";
import { gettext, ngettext } from "./language.js";
import { movesAmong } from "./menus.js";

const YEAR_SECONDS = 31_536_000;
// As many as the server takes in one request.
const AT_ONCE = 100;
// So many open groups fit into a cookie.
const MOST_OPEN = 40;
const TYPE = "application/x-recollect-chats";
const SHOWN = 50;

export class Projects {
  #turn = 0;

  constructor(sidebar) {
    this.sidebar = sidebar;
    for (const button of this.section?.querySelectorAll("[data-fold]") ?? []) button.disabled = false;
    sidebar.element.addEventListener("click", (event) => {
      const button = event.target.closest("[data-fold]");
      if (button) this.#fold(button);
    });
  }

  get section() {
    return this.sidebar.element.querySelector("[data-projects]");
  }

  groupOf(name) {
    return this.section?.querySelector(`[data-project-group="${CSS.escape(name)}"]`) ?? null;
  }

  #fold(button) {
    const group = button.closest("[data-project-group]");
    const isOpen = button.ariaExpanded !== "true";
    setOpen(button, isOpen);
    const chats = group.querySelector(".project-chats");
    remember(group.dataset.key, isOpen);
    if (!isOpen || "filled" in chats.dataset) return;
    // Until its chats are here.
    chats.hidden = true;
    this.refresh();
  }

  /** Takes the groups from the server as they are now; the focus, and what is selected, stay. */
  async refresh() {
    const turn = ++this.#turn;
    if (!this.section) return;
    const asked = performance.now();
    const open = document.querySelector("[data-chat]");
    const page = await this.sidebar.fetch({ groups: "1", project: open?.dataset.project ?? "" });
    const fresh = page?.querySelector("[data-projects]");
    const { section } = this;
    // What somebody is writing in is left alone.
    if (turn !== this.#turn || !fresh || section.querySelector("form")) return;
    const focused = section.contains(document.activeElement) ? placeOf(document.activeElement) : "";
    const chosen = new Set([...section.querySelectorAll(".chosen")].map((item) => item.dataset.conversationId));
    for (const button of fresh.querySelectorAll("[data-fold]")) {
      button.disabled = false;
      // The group of the chat that is open may have been folded nevertheless.
      const known = section.querySelector(`[data-key="${button.closest("[data-key]").dataset.key}"] [data-fold]`);
      if (known?.ariaExpanded === "false") setOpen(button, false);
    }
    for (const item of fresh.querySelectorAll("[data-conversation-id]")) {
      const id = item.dataset.conversationId;
      if (this.sidebar.isRemovedSince(id, asked)) item.remove();
      item.classList.toggle("chosen", chosen.has(id));
      if (id === open?.dataset.conversation) item.querySelector("a").setAttribute("aria-current", "page");
      this.sidebar.prepare(item);
    }
    section.replaceWith(document.adoptNode(fresh));
    if (focused) this.section.querySelector(focused)?.focus({ preventScroll: true });
    this.sidebar.showEmptiness();
  }
}

function setOpen(button, isOpen) {
  button.ariaExpanded = String(isOpen);
  button.closest("[data-project-group]").querySelector(".project-chats").hidden = !isOpen;
}

function placeOf(element) {
  const item = element.closest("[data-conversation-id]");
  if (item) return `[data-conversation-id="${CSS.escape(item.dataset.conversationId)}"] a`;
  const key = element.closest("[data-key]")?.dataset.key;
  if (!key) return element.matches("h2 a") ? "h2 a" : ".projects-head .icon-button";
  return `[data-key="${key}"] ${element.matches("[data-fold]") ? "[data-fold]" : ".project-name"}`;
}

/** The server reads the cookie, so that a group is open from the first paint on. */
function remember(key, isOpen) {
  const kept = /(?:^|;\s*)projects=([^;]*)/.exec(document.cookie)?.[1].split(".") ?? [];
  const others = kept.filter((each) => each && each !== key);
  const value = [...(isOpen ? [key] : []), ...others].slice(0, MOST_OPEN).join(".");
  document.cookie = `projects=${value}; path=${HOME}; max-age=${value ? YEAR_SECONDS : 0}; samesite=lax`;
}

/** Moves chats, and offers the way back. */
export class Mover {
  #ids = [];

  constructor(sidebar, { tell }) {
    this.sidebar = sidebar;
    this.tell = tell;
    this.dialog = document.querySelector("[data-move]");
    if (!this.dialog) return;
    this.field = this.dialog.querySelector("[data-move-field]");
    this.list = this.dialog.querySelector("[data-move-list]");
    this.#listenToDialog();
    this.#listenToDragging(sidebar.element);
    document.addEventListener("recollect:move", ({ detail }) => this.ask([detail.id]));
  }

  /** Opens the list of projects for these chats. */
  ask(ids) {
    if (!ids.length) return;
    this.#ids = ids;
    this.field.value = "";
    this.list.replaceChildren();
    this.dialog.querySelector("[data-move-what]").textContent = this.#inWords(ids);
    this.projects = null;
    this.dialog.showModal();
    this.loading = this.#load();
  }

  async #load() {
    const response = await fetch(`${HOME}api/v1/projects/`).catch(() => null);
    this.projects = response?.ok ? (await response.json()).projects : [];
    this.#fill();
  }

  #inWords(ids) {
    if (ids.length > 1) return gettext("%(count)s selected", { count: ids.length });
    return this.sidebar.itemOf(ids[0])?.querySelector("a").textContent ?? document.querySelector("[data-title]")?.textContent ?? "";
  }

  #fill() {
    // Before the list is here nothing is new.
    if (!this.projects) return;
    const typed = this.field.value.trim().replace(/\s+/g, " ");
    const now = new Set(this.#ids.map((id) => this.projectOf(id)));
    const known = this.projects.filter(({ name }) => name.toLowerCase().includes(typed.toLowerCase()));
    const buttons = known.slice(0, SHOWN).map(({ name, colour }) => choiceOf(name, name, colour, now.size === 1 && now.has(name)));
    if (typed && !known.some(({ name }) => name === typed)) buttons.push(choiceOf(gettext("New project “%(name)s”", { name: typed }), typed));
    if (!typed && [...now].some(Boolean)) buttons.push(choiceOf(gettext("No project"), ""));
    this.list.replaceChildren(...buttons);
  }

  #listenToDialog() {
    const buttons = () => [...this.list.querySelectorAll("button:not(:disabled)")];
    this.field.addEventListener("input", () => this.#fill());
    this.dialog.addEventListener("keydown", (event) => {
      // Escape belongs to the dialog alone, and stops no answer behind it.
      event.stopPropagation();
      if (isComposing(event)) return;
      if (event.target === this.field && ["Enter", "ArrowDown"].includes(event.key)) {
        event.preventDefault();
        this.loading.then(() => (event.key === "Enter" ? buttons()[0]?.click() : buttons()[0]?.focus()));
      } else if (this.list.contains(event.target) && event.key === "ArrowUp" && event.target === buttons()[0]) {
        event.preventDefault();
        this.field.focus();
      } else if (this.list.contains(event.target)) movesAmong(buttons(), event);
    });
    this.dialog.addEventListener("click", (event) => {
      const choice = event.target.closest("[data-move-to]");
      if (event.target === this.dialog || event.target.closest("[data-move-cancel]")) return this.dialog.close();
      if (!choice) return;
      this.dialog.close();
      this.move(this.#ids, choice.dataset.moveTo);
    });
  }

  projectOf(id) {
    const open = document.querySelector("[data-chat]");
    const item = this.sidebar.itemOf(id);
    if (item) return item.dataset.project ?? "";
    return open?.dataset.conversation === id ? open.dataset.project ?? "" : "";
  }

  async move(ids, project) {
    const before = new Map(ids.map((id) => [id, this.projectOf(id)]));
    const moving = ids.filter((id) => before.get(id) !== project);
    if (!moving.length) return;
    const trouble = await this.#send(moving, project);
    if (trouble) return this.tell(trouble);
    const count = moving.length;
    const words = project
      ? ngettext("%(count)s chat moved to %(project)s", "%(count)s chats moved to %(project)s", count, { count, project })
      : ngettext("%(count)s chat moved out of its project", "%(count)s chats moved out of their projects", count);
    this.tell(words, async () => {
      for (const name of new Set(moving.map((id) => before.get(id)))) {
        await this.#send(moving.filter((id) => before.get(id) === name), name);
      }
    });
  }

  /** Null when it is done, else why not. */
  async #send(ids, project) {
    for (let start = 0; start < ids.length; start += AT_ONCE) {
      const trouble = await send(`${this.sidebar.place}change/`, { do: "move", id: ids.slice(start, start + AT_ONCE), project });
      if (trouble) return trouble;
    }
    const open = document.querySelector("[data-chat]");
    if (open && ids.includes(open.dataset.conversation)) open.dataset.project = project;
    await this.sidebar.moved(ids, project);
    if (open) showProjectOf(open, this.sidebar.projects);
    return null;
  }

  /** A chat that is dragged, or all selected ones if it is among them, onto a project or back among the days. */
  #listenToDragging(element) {
    let target = null;
    const mark = (place) => {
      target?.classList.remove("drop-here");
      target = place;
      target?.classList.add("drop-here");
    };
    const placeAt = (event) => event.target.closest?.("[data-project-group], [data-day-chats]") ?? null;
    element.addEventListener("dragstart", (event) => {
      const item = event.target.closest?.("[data-conversation-id]");
      if (!item) return;
      const chosen = [...element.querySelectorAll("[data-conversation-id].chosen")];
      const items = chosen.includes(item) ? chosen : [item];
      event.dataTransfer.setData(TYPE, JSON.stringify(items.map((each) => each.dataset.conversationId)));
      event.dataTransfer.effectAllowed = "all";
      element.classList.add("dragging");
    });
    element.addEventListener("dragover", (event) => {
      if (!event.dataTransfer.types.includes(TYPE)) return;
      mark(placeAt(event));
      if (!target) return;
      event.preventDefault();
      event.dataTransfer.dropEffect = "move";
    });
    element.addEventListener("dragleave", (event) => element.contains(event.relatedTarget) || mark(null));
    element.addEventListener("dragend", () => {
      mark(null);
      element.classList.remove("dragging");
    });
    element.addEventListener("drop", (event) => {
      const ids = event.dataTransfer.getData(TYPE);
      const place = placeAt(event);
      mark(null);
      element.classList.remove("dragging");
      if (!ids || !place) return;
      event.preventDefault();
      this.move(JSON.parse(ids), place.dataset.projectGroup ?? "");
    });
  }
}

function choiceOf(words, name, colour = "", isNow = false) {
  const item = document.createElement("li");
  const button = document.createElement("button");
  button.type = "button";
  button.dataset.moveTo = name;
  button.disabled = isNow;
  button.dir = "auto";
  if (colour) button.dataset.colour = colour;
  button.textContent = words;
  item.append(button);
  return item;
}

/** The project of the chat that is open, beside its title. */
export function showProjectOf(chat, projects) {
  const link = document.querySelector("[data-chat-project]");
  if (!link) return;
  const name = chat.dataset.project ?? "";
  link.hidden = !name;
  link.querySelector("[data-chat-project-name]").textContent = name;
  const known = name && projects.groupOf(name)?.querySelector(".project-name");
  if (known) link.href = known.getAttribute("href");
}
