/** The way through a long chat: a thin map of one's own questions at the edge, and a sheet that finds turns and days. */
import { HOME, fetchPage } from "./dom.js";
import { goToNamedTurn } from "./reading.js";

const PAUSE_MS = 120;
// A chat that fits on a screen or two needs no map.
const TURNS_FOR_A_MAP = 6;

export function listenForOutline(main, thread) {
  const link = document.querySelector("[data-outline-link]");
  if (!link) return;
  new Sheet(link, main);
  const map = document.querySelector("[data-map]");
  const isWide = matchMedia("(min-width: 75rem)");
  const draw = () => isWide.matches && main.dataset.conversation && drawMap(map, thread, pathOf(main));
  (window.requestIdleCallback ?? setTimeout)(draw);
  isWide.addEventListener("change", draw);
  document.addEventListener("recollect:changed", ({ detail }) => {
    if (detail.id === main.dataset.conversation && !detail.isGone) draw();
  });
}

const pathOf = (main) => `${HOME}c/${main.dataset.conversation}/outline/`;

async function drawMap(map, thread, path) {
  const entries = [...((await fetchPage(path))?.querySelectorAll("[data-outline-entries] a") ?? [])];
  map.hidden = entries.length < TURNS_FOR_A_MAP;
  map.replaceChildren(
    ...entries.map((entry) => {
      const mark = document.createElement("a");
      mark.href = entry.getAttribute("href");
      mark.dataset.number = entry.dataset.number;
      mark.title = entry.textContent.trim().replace(/\s+/g, " ");
      // The sheet says the same to those who go by keys or listen.
      mark.tabIndex = -1;
      return mark;
    }),
  );
  map.onclick = (event) => {
    const mark = event.target.closest("a");
    if (!mark || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    goTo(mark);
  };
  follow(map, thread);
}

let watcher = null;

/** The mark of what is being read is the darker one. */
function follow(map, thread) {
  const seen = new Set();
  watcher?.disconnect();
  watcher = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) seen[isIntersecting ? "add" : "delete"](Number(target.dataset.number));
    const first = Math.min(...seen);
    const marks = [...map.children];
    const current = marks.findLast((mark) => Number(mark.dataset.number) <= first) ?? marks[0];
    for (const mark of marks) mark.classList.toggle("here", seen.size > 0 && mark === current);
  });
  const watchAll = () => thread.querySelectorAll(".turn[id]").forEach((turn) => watcher.observe(turn));
  watchAll();
  new MutationObserver(watchAll).observe(thread, { childList: true });
}

function goTo(link) {
  if (!document.getElementById(`turn-${link.dataset.number}`)) return location.assign(link.href);
  history.pushState(null, "", link.hash);
  goToNamedTurn();
}

class Sheet {
  #turn = 0;
  #timer = 0;
  #dialog = null;

  constructor(link, main) {
    this.main = main;
    link.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      this.#open();
    });
  }

  async #open() {
    const page = await fetchPage(pathOf(this.main));
    const outline = page?.querySelector("[data-outline]");
    if (!outline) return location.assign(pathOf(this.main));
    this.#dialog?.remove();
    this.#dialog = document.createElement("dialog");
    this.#dialog.className = "sheet outline-sheet";
    this.#dialog.ariaLabel = page.title.split(" · ")[0];
    this.#dialog.append(outline);
    document.body.append(this.#dialog);
    this.#listen();
    this.#dialog.showModal();
    this.#field.focus();
  }

  get #field() {
    return this.#dialog.querySelector("[name=q]");
  }

  #listen() {
    this.#dialog.addEventListener("keydown", (event) => event.stopPropagation());
    this.#field.addEventListener("input", () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.#find(), PAUSE_MS);
    });
    this.#dialog.querySelector("[data-outline-find]").addEventListener("submit", (event) => {
      event.preventDefault();
      const first = this.#dialog.querySelector("[data-outline-entries] a");
      if (first && this.#field.value.trim()) this.#choose(first);
    });
    this.#dialog.addEventListener("click", (event) => {
      if (event.target === this.#dialog) return this.#dialog.close();
      const link = event.target.closest("a[href]");
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      link.dataset.number ??= /#turn-(\d+)$/.exec(link.hash)?.[1];
      this.#choose(link);
    });
  }

  #choose(link) {
    this.#dialog.close();
    goTo(link);
  }

  async #find() {
    const turn = ++this.#turn;
    const page = await fetchPage(`${pathOf(this.main)}?${new URLSearchParams({ q: this.#field.value })}`);
    if (turn !== this.#turn || !page) return;
    for (const part of ["[data-outline-entries]", "[data-outline-count]"]) {
      this.#dialog.querySelector(part).replaceChildren(...page.querySelector(part).childNodes);
    }
    this.#dialog.querySelector("[data-outline-first]").hidden = page.querySelector("[data-outline-first]").hidden;
  }
}
