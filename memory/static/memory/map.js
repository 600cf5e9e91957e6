/** The map: fetches the points, draws them when anything changes, and shows the text that is pointed at. */

import { HOME, IN_PAGE_LANGUAGE } from "../intake/dom.js";
import { gettext, language } from "../intake/language.js";
import { Camera } from "./map_camera.js";
import { Pixels, drawNames, drawRing, radiusOf } from "./map_drawing.js";

const REACH_PX = 16;
const HOVER_MS = 70;
const PAUSE_MS = 3000;
const LONGEST_PAUSE_MS = 60_000;
const SIDE = 32_767;
const WAYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

const stage = document.querySelector("[data-stage]");
// Only what the page's address names is asked for.
const project = new URLSearchParams(location.search).get("project");
const within = new URLSearchParams(project ? { project } : {});

async function fetchState() {
  const response = await fetch(`${HOME}api/v1/memory/map/?${within}`, { headers: { accept: "application/json" } }).catch(() => null);
  return response?.ok ? response.json() : null;
}

/** Nothing is drawn yet: the page is shown again when it is. */
async function waitForMap() {
  if ((await fetchState())?.state === "ready") location.reload();
  else setTimeout(waitForMap, PAUSE_MS);
}

class MemoryMap {
  constructor() {
    this.canvas = stage.querySelector("[data-canvas]");
    this.card = stage.querySelector("[data-card]");
    this.note = stage.querySelector("[data-note]");
    this.said = document.querySelector("[data-said]");
    this.pixels = new Pixels(this.canvas);
    this.names = stage.querySelector("[data-names]").getContext("2d");
    this.texts = new Map();
    this.at = -1;
    this.camera = new Camera(this.canvas, {
      onMove: () => this.#moved(),
      onHover: (place) => this.isPinned || this.#hover(place),
      onClick: (place) => this.#open(this.#near(place)),
    });
    this.#listen();
  }

  async load() {
    const response = await fetch(`${stage.dataset.points}?${within}`, { headers: { accept: "application/json" } }).catch(() => null);
    stage.removeAttribute("aria-busy");
    if (!response?.ok) return this.#say(gettext("The map could not be loaded. Reload the page."));
    const told = await response.json();
    const before = this.at >= 0 ? this.points.id[this.at] : null;
    const [x, y] = [told.x, told.y].map((places) => Float32Array.from(places, (place) => place / SIDE));
    this.points = { id: told.id, x, y, cluster: Uint16Array.from(told.cluster) };
    this.at = before === null ? -1 : told.id.indexOf(before);
    this.camera.hold(x, y);
    this.clusters = [...document.querySelectorAll("[data-cluster]")].map((group) => ({
      number: Number(group.dataset.cluster),
      name: group.dataset.name,
      x: Number(group.dataset.x) / SIDE,
      y: Number(group.dataset.y) / SIDE,
      dot: group.querySelector("[data-dot]"),
      shown: 0,
    }));
    this.#readColours();
    this.#resize();
    this.#show();
  }

  /** While texts are being placed: the newest points and groups come by themselves. */
  async waitForNewest(pause = PAUSE_MS) {
    const groups = document.querySelector("[data-groups]");
    if (groups.dataset.placed === groups.dataset.textsCount) return;
    const state = document.hidden ? null : await fetchState();
    if (state && String(state.placed) !== groups.dataset.placed) {
      const response = await fetch(location.href).catch(() => null);
      const page = response?.ok && new DOMParser().parseFromString(await response.text(), "text/html");
      for (const part of page ? ["[data-groups]", "[data-summary]"] : []) {
        const newer = page.querySelector(part);
        const present = document.querySelector(part);
        if (newer && !present.contains(document.activeElement)) present.replaceWith(document.adoptNode(newer));
      }
      await this.load();
    }
    setTimeout(() => this.waitForNewest(Math.min(pause * 1.5, LONGEST_PAUSE_MS)), pause);
  }

  /** The style sheet's colours, as they are in this theme. */
  #readColours() {
    const style = getComputedStyle(stage);
    this.look = {
      paper: numbers(style.backgroundColor),
      faint: numbers(style.color),
      ink: style.color,
      soft: getComputedStyle(document.querySelector(".heading-note")).color,
      font: getComputedStyle(document.querySelector("h1")).fontFamily,
      colours: Object.fromEntries(this.clusters.map(({ number, dot }) => [number, numbers(getComputedStyle(dot).backgroundColor)])),
    };
  }

  #resize() {
    const ratio = Math.min(devicePixelRatio || 1, 2);
    const { width, height } = this.canvas.getBoundingClientRect();
    if (!width) return;
    this.pixels.resize(Math.round(width * ratio), Math.round(height * ratio));
    [this.names.canvas.width, this.names.canvas.height] = [this.pixels.width, this.pixels.height];
    this.camera.resize(this.pixels.width, this.pixels.height, ratio);
    this.#changed();
  }

  /** All points, or those alone that a search has found. */
  #show(found = null) {
    this.found = found;
    this.shown = Uint8Array.from(this.points.id, (id) => Number(!found || found.includes(id)));
    const counts = {};
    for (let k = 0; k < this.shown.length; k++) if (this.shown[k]) counts[this.points.cluster[k]] = (counts[this.points.cluster[k]] ?? 0) + 1;
    for (const cluster of this.clusters) cluster.shown = counts[cluster.number] ?? 0;
    const [part, all] = [found?.length ?? 0, this.shown.length].map((count) => count.toLocaleString(language));
    this.note.textContent = found ? gettext("%(part)s of %(all)s shown", { part, all }) : "";
    if (this.at >= 0 && !this.shown[this.at]) this.#leave();
    this.#changed();
  }

  /** A button that would do nothing says so. */
  #moved() {
    for (const way of ["in", "out"]) stage.querySelector(`[data-zoom=${way}]`).disabled = this.camera.isAtEnd(way);
    this.#changed();
  }

  /** Everything is drawn at most once a frame. */
  #changed() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      if (this.shown) this.#draw();
    });
  }

  #draw() {
    const began = performance.now();
    const { camera, pixels, points, shown, look } = this;
    const view = camera.view;
    const radius = radiusOf(points.x.length, camera.zoom) * view.ratio;
    pixels.draw({ points, shown, view, radius, ...look });
    this.names.clearRect(0, 0, pixels.width, pixels.height);
    drawNames(this.names, { clusters: this.clusters, view, width: pixels.width, height: pixels.height, zoom: camera.zoom, ...look, paper: `rgb(${look.paper.join(" ")})` });
    if (this.at >= 0) {
      const [x, y] = [points.x[this.at] * view.scale + view.left, points.y[this.at] * view.scale + view.top];
      drawRing(this.names, x, y, radius, look.ink, view.ratio);
      this.#placeCard(x / view.ratio, y / view.ratio);
    }
    stage.dataset.drawMs = (performance.now() - began).toFixed(1);
  }

  /** Beside the point, on the side where there is room. */
  #placeCard(x, y) {
    const { card } = this;
    if (card.hidden) return;
    const [width, height] = [stage.clientWidth, stage.clientHeight];
    const left = x + 18 + card.offsetWidth > width - 8 ? x - 18 - card.offsetWidth : x + 18;
    card.style.left = `${Math.max(8, Math.min(width - card.offsetWidth - 8, left))}px`;
    card.style.top = `${Math.max(8, Math.min(height - card.offsetHeight - 8, y - card.offsetHeight / 3))}px`;
  }

  #hover(place) {
    const found = place ? this.#near(place) : -1;
    this.canvas.classList.toggle("at-text", found >= 0);
    if (found === this.at) return;
    if (found < 0) this.#leave();
    else this.#read(found);
  }

  /** The nearest shown point within reach of a place on the canvas; -1 if there is none. */
  #near(place) {
    const [x, y] = this.camera.placeOf(...place);
    const reach = (REACH_PX * this.camera.ratio) / this.camera.view.scale;
    return this.#cheapest((dx, dy) => (Math.hypot(dx, dy) <= reach ? Math.hypot(dx, dy) : Infinity), x, y);
  }

  /** The shown point with the least cost by its offset from a place. */
  #cheapest(cost, x, y) {
    let [best, least] = [-1, Infinity];
    for (let k = 0; k < this.shown.length; k++) {
      const price = this.shown[k] ? cost(this.points.x[k] - x, this.points.y[k] - y) : Infinity;
      if (price < least) [best, least] = [k, price];
    }
    return best;
  }

  #leave() {
    this.at = -1;
    this.isPinned = false;
    this.card.classList.remove("pinned");
    this.card.hidden = true;
    this.#changed();
  }

  /** Shows a text until another is opened, in sight; -1 opens none. */
  #open(point, { isInSight = true } = {}) {
    if (point < 0) return this.#leave();
    this.isPinned = true;
    this.card.classList.add("pinned");
    if (!isInSight) this.camera.show(this.points.x[point], this.points.y[point]);
    this.#read(point);
  }

  async #read(point) {
    this.at = point;
    this.#changed();
    const id = this.points.id[point];
    clearTimeout(this.waiting);
    if (!this.texts.has(id)) await new Promise((done) => (this.waiting = setTimeout(done, HOVER_MS)));
    const text = await this.#textOf(id);
    if (this.at < 0 || this.points.id[this.at] !== id) return;
    this.card.replaceChildren(...(text ? [document.importNode(text, true)] : []));
    this.card.hidden = !text;
    if (text) this.said.textContent = text.textContent.replace(/\s+/g, " ").trim();
    this.#changed();
  }

  /** As the server renders it; null if it is gone, and then it is no point any more either. */
  async #textOf(id) {
    if (!this.texts.has(id)) {
      const response = await fetch(`${stage.dataset.texts}${id}/`).catch(() => null);
      if (response?.status === 404) this.load();
      if (!response?.ok) return null;
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      this.texts.set(id, page.body.firstElementChild);
    }
    return this.texts.get(id);
  }

  #listen() {
    new ResizeObserver(() => this.points && this.#resize()).observe(stage);
    this.canvas.addEventListener("keydown", (event) => this.#press(event));
    for (const button of stage.querySelectorAll("[data-zoom]")) button.addEventListener("click", () => this.camera.step(button.dataset.zoom));
    const search = stage.querySelector("[data-map-search]");
    search.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#find(search);
    });
    search.addEventListener("input", () => {
      if (search.elements.q.value.trim() || !this.found) return;
      this.#leave();
      this.#show();
    });
    document.addEventListener("click", (event) => {
      const group = event.target.closest("[data-go]")?.closest("[data-cluster]");
      if (group) this.#goTo(group);
    });
    const recolour = () => {
      if (!this.points) return;
      this.#readColours();
      this.#changed();
    };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
    new MutationObserver(recolour).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  }

  /** Enter marks what a search finds and opens the best; Enter again opens the next best. */
  async #find(search) {
    const query = search.elements.q.value.trim();
    if (!query || !this.points) return;
    if (query !== this.query || !this.found?.length) {
      const response = await fetch(`${search.getAttribute("action")}?${new URLSearchParams([["q", query], ...within])}`, { headers: IN_PAGE_LANGUAGE }).catch(() => null);
      if (search.elements.q.value.trim() !== query) return;
      if (!response?.ok) {
        const { errors } = response?.status === 400 ? await response.json() : {};
        return this.#say(errors?.q?.join(" ") ?? gettext("The search got no answer. Try again."));
      }
      const { ids } = await response.json();
      this.query = query;
      this.turn = 0;
      this.#leave();
      this.#show(ids.filter((id) => this.points.id.includes(id)));
      if (!this.found.length) return this.#say(this.note.dataset.nothing);
    }
    this.#open(this.points.id.indexOf(this.found[this.turn++ % this.found.length]), { isInSight: false });
  }

  #say(sentence) {
    this.note.textContent = sentence;
    this.said.textContent = sentence;
  }

  #goTo(group) {
    stage.scrollIntoView({ block: "center" });
    this.canvas.focus({ preventScroll: true });
    this.camera.go([Number(group.dataset.x) / SIDE, Number(group.dataset.y) / SIDE], 5);
  }

  #press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in WAYS) this.#walk(...WAYS[event.key]);
    else if (event.key === "+" || event.key === "=") this.camera.step("in");
    else if (event.key === "-") this.camera.step("out");
    else if (event.key === "0") this.camera.step("all");
    else if (event.key === "Enter" && this.at >= 0) this.card.querySelector("[data-open]")?.click();
    else if (event.key === "Escape" && this.at >= 0) this.#leave();
    else return;
    event.preventDefault();
  }

  /** From text to text in a direction; the first is the one nearest to the middle. */
  #walk(right, down) {
    const [x, y] = this.at < 0 ? this.camera.middle : [this.points.x[this.at], this.points.y[this.at]];
    const towards = (dx, dy) => {
      const [along, aside] = [dx * right + dy * down, Math.abs(dx * down - dy * right)];
      return along > 0 && aside <= along ? along + 2 * aside : Infinity;
    };
    const found = this.#cheapest(this.at < 0 ? Math.hypot : towards, x, y);
    if (found >= 0) this.#open(found, { isInSight: false });
  }
}

function numbers(colour) {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
}

if (stage) {
  const map = new MemoryMap();
  map.load().then(() => map.waitForNewest());
} else if (document.querySelector("[data-drawing]")) setTimeout(waitForMap, PAUSE_MS);
