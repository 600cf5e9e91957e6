/** The map: draws the points and the groups' names, marks what a search finds, and shows the text that is pointed at. */
import { HOME, IN_PAGE_LANGUAGE, fetchPage } from "../intake/dom.js";
import { gettext, language } from "../intake/language.js";

const REACH_PX = 16;
const HOVER_MS = 70;
const PAUSE_MS = 3000;
const EDGE_PX = 28;

const stage = document.querySelector("[data-stage]");
// Only what the page's address names is asked for.
const project = new URLSearchParams(location.search).get("project");
const within = new URLSearchParams(project ? { project } : {});

async function fetchJson(path) {
  const response = await fetch(`${HOME}api/v1/memory/map/${path}?${within}`, { headers: { accept: "application/json" } }).catch(() => null);
  return response?.ok ? response.json() : null;
}

/** Nothing is drawn yet: the page is shown again when it is. */
async function waitForMap() {
  if ((await fetchJson(""))?.state === "ready") location.reload();
  else setTimeout(waitForMap, PAUSE_MS);
}

class MemoryMap {
  constructor() {
    this.canvas = stage.querySelector("[data-canvas]");
    this.card = stage.querySelector("[data-card]");
    this.ring = stage.querySelector("[data-ring]");
    this.note = document.querySelector("[data-note]");
    this.texts = new Map();
    this.at = -1;
  }

  async load() {
    this.points = await fetchJson("points/");
    stage.removeAttribute("aria-busy");
    if (!this.points) return (this.note.textContent = gettext("The map could not be loaded. Reload the page."));
    this.groups = [...document.querySelectorAll("[data-cluster]")];
    this.#show();
    new ResizeObserver(() => this.#draw()).observe(stage);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#draw());
    new MutationObserver(() => this.#draw()).observe(document.documentElement, { attributeFilter: ["data-theme"] });
    this.canvas.addEventListener("pointermove", (event) => event.pointerType === "mouse" && !this.isPinned && this.#point(event));
    this.canvas.addEventListener("pointerleave", () => this.isPinned || this.#leave());
    this.canvas.addEventListener("click", (event) => this.#point(event, { isPinned: true }));
    document.addEventListener("keydown", ({ key }) => key === "Escape" && this.#leave());
    const search = document.querySelector("[data-map-search]");
    search.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#find(search);
    });
    search.addEventListener("input", () => this.found && !search.elements.q.value.trim() && this.#show());
  }

  /** All points, or those alone that a search has found. */
  #show(found = null) {
    this.found = found;
    this.shown = this.points.id.map((id) => !found || found.includes(id));
    const [part, all] = [found?.length ?? 0, this.shown.length].map((count) => count.toLocaleString(language));
    this.note.textContent = found ? gettext("%(part)s of %(all)s shown", { part, all }) : "";
    this.#draw();
  }

  /** Everything anew, with the style sheet's colours as they are in this theme; points of a colour are filled at once. */
  #draw() {
    const began = performance.now();
    const { points, shown, canvas } = this;
    const [width, height, ratio] = [stage.clientWidth, stage.clientHeight, Math.min(devicePixelRatio || 1, 2)];
    if (!width) return;
    [canvas.width, canvas.height] = [width * ratio, height * ratio];
    this.#leave();
    [this.x, this.y] = [scaled(points.x, width), scaled(points.y, height)];
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const radius = Math.max(1.25, Math.min(6, 52 / Math.cbrt(points.id.length) ** 1.22));
    const paths = new Map();
    points.id.forEach((_, k) => {
      const name = shown[k] ? points.cluster[k] : "faint";
      if (!paths.has(name)) paths.set(name, new Path2D());
      paths.get(name).moveTo(this.x[k] + radius, this.y[k]);
      paths.get(name).arc(this.x[k], this.y[k], radius, 0, 7);
    });
    const style = getComputedStyle(stage);
    const colours = new Map(this.groups.map((group) => [Number(group.dataset.cluster), getComputedStyle(group.querySelector("[data-dot]")).backgroundColor]));
    for (const [name, path] of paths) {
      pen.globalAlpha = name === "faint" ? 0.16 : 0.86;
      pen.fillStyle = colours.get(name) ?? style.color;
      pen.fill(path);
    }
    pen.globalAlpha = 1;
    this.#drawNames(pen, { width, height, radius, style });
    stage.dataset.drawMs = (performance.now() - began).toFixed(1);
  }

  /** A name stands above, below or beside its points, where it lies on the fewest; two names never on one another. */
  #drawNames(pen, { width, height, radius, style }) {
    const taken = [];
    stage.dataset.covered = 0;
    pen.font = `600 14px ${style.fontFamily}`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    for (const { dataset } of this.groups) {
      const own = this.points.cluster.flatMap((cluster, k) => (cluster === Number(dataset.cluster) && this.shown[k] ? [k] : []));
      if (!own.length) continue;
      const [left, right] = middleOf(own.map((k) => this.x[k]));
      const [top, bottom] = middleOf(own.map((k) => this.y[k]));
      let best = null;
      for (const words of [dataset.name.replaceAll(", ", " · "), dataset.name.split(", ")[0]]) {
        const [half, tall] = [pen.measureText(words).width / 2 + 4, 10];
        const [middle, level] = [(left + right) / 2, (top + bottom) / 2];
        const [above, below] = [top - radius - tall, bottom + radius + tall];
        const places = [[middle, above], [middle, below], [right + radius + half, level], [left - radius - half, level], [right, above], [left, above], [right, below], [left, below]];
        for (const [x, y] of places) {
          const box = [Math.max(half, Math.min(width - half, x)), Math.max(tall, Math.min(height - tall, y)), half, tall];
          if (taken.some((other) => isOn(box, other))) continue;
          const covered = this.x.reduce((sum, px, k) => sum + isOn(box, [px, this.y[k], radius, radius]), 0);
          if (!best || covered < best.covered) best = { box, words, covered };
          if (!covered) break;
        }
        if (best && !best.covered) break;
      }
      if (!best) continue;
      taken.push(best.box);
      stage.dataset.covered = Number(stage.dataset.covered) + best.covered;
      pen.lineWidth = 4;
      pen.strokeStyle = style.backgroundColor;
      pen.strokeText(best.words, best.box[0], best.box[1]);
      pen.fillStyle = style.color;
      pen.fillText(best.words, best.box[0], best.box[1]);
    }
  }

  /** The nearest shown point within reach of the pointer. */
  #point({ offsetX, offsetY }, { isPinned = false } = {}) {
    let [best, least] = [-1, REACH_PX];
    this.shown.forEach((isShown, k) => {
      const distance = isShown ? Math.hypot(this.x[k] - offsetX, this.y[k] - offsetY) : Infinity;
      if (distance < least) [best, least] = [k, distance];
    });
    if (best < 0) this.#leave();
    else if (best !== this.at || isPinned) this.#open(best, isPinned);
  }

  #leave() {
    [this.at, this.isPinned, this.card.hidden, this.ring.hidden] = [-1, false, true, true];
  }

  /** The text beside its point, where there is room; until another is opened if it is pinned. */
  async #open(point, isPinned) {
    [this.at, this.isPinned] = [point, isPinned];
    const [x, y] = [this.x[point], this.y[point]];
    Object.assign(this.ring.style, { left: `${x}px`, top: `${y}px` });
    this.ring.hidden = false;
    this.card.classList.toggle("pinned", isPinned);
    const id = this.points.id[point];
    if (!this.texts.has(id)) {
      await new Promise((done) => setTimeout(done, HOVER_MS));
      if (this.at !== point) return;
      this.texts.set(id, (await fetchPage(`${stage.dataset.texts}${id}/`))?.body.firstElementChild);
      if (this.at !== point) return;
    }
    const { card } = this;
    card.replaceChildren(this.texts.get(id) ?? gettext("This text is gone."));
    card.hidden = false;
    const left = x + 18 + card.offsetWidth > stage.clientWidth - 8 ? x - 18 - card.offsetWidth : x + 18;
    card.style.left = `${Math.max(8, left)}px`;
    card.style.top = `${Math.max(8, Math.min(stage.clientHeight - card.offsetHeight - 8, y - card.offsetHeight / 3))}px`;
  }

  /** Enter marks what a search finds and opens the best; Enter again opens the next best. */
  async #find(search) {
    const query = search.elements.q.value.trim();
    if (!query) return;
    if (query !== this.query || !this.found?.length) {
      const response = await fetch(`${search.getAttribute("action")}?${new URLSearchParams([["q", query], ...within])}`, { headers: IN_PAGE_LANGUAGE }).catch(() => null);
      if (search.elements.q.value.trim() !== query) return;
      if (!response?.ok) {
        const { errors } = response?.status === 400 ? await response.json() : {};
        return (this.note.textContent = errors?.q?.join(" ") ?? gettext("The search got no answer. Try again."));
      }
      const { ids } = await response.json();
      [this.query, this.turn] = [query, 0];
      this.#show(ids.filter((id) => this.points.id.includes(id)));
      if (!this.found.length) return (this.note.textContent = this.note.dataset.nothing);
    }
    this.#open(this.points.id.indexOf(this.found[this.turn++ % this.found.length]), true);
  }
}

/** Places on the map, spread over so many pixels. */
function scaled(places, size) {
  const [least, most] = places.reduce(([low, high], place) => [Math.min(low, place), Math.max(high, place)], [Infinity, -Infinity]);
  return places.map((place) => EDGE_PX + ((place - least) / (most - least || 1)) * (size - 2 * EDGE_PX));
}

/** Between which nine of ten lie. */
function middleOf(places) {
  const sorted = places.sort((one, other) => one - other);
  return [0.05, 0.95].map((share) => sorted[Math.round(share * (sorted.length - 1))]);
}

/** Whether two boxes, each with its middle and half its sides, touch. */
function isOn([x, y, half, tall], [otherX, otherY, otherHalf, otherTall]) {
  return Math.abs(x - otherX) < half + otherHalf && Math.abs(y - otherY) < tall + otherTall;
}

if (stage) new MemoryMap().load();
else if (document.querySelector("[data-drawing]")) setTimeout(waitForMap, PAUSE_MS);
