/** The map: fetches the points, draws them when anything changes, and shows the text that is pointed at. */

import { HOME, IN_PAGE_LANGUAGE } from "../intake/dom.js";
import { gettext, language } from "../intake/language.js";
import { Camera } from "./map_camera.js";
import { Pixels, drawNames, drawRing, drawTitles, radiusOf } from "./map_drawing.js";
import { Filters } from "./map_filters.js";
import { makeGrid, nearestPoint, pointTowards } from "./map_grid.js";

const REACH_PX = 16;
const HOVER_MS = 70;
const PAUSE_MS = 3000;
const LONGEST_PAUSE_MS = 60_000;
const CLOSE = 5;
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

async function start() {
  const map = new MemoryMap();
  await map.load();
  map.waitForNewest();
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
    this.isPinned = false;
    this.filters = new Filters(document.querySelector("[data-map-filters]"), () => this.#filter());
    this.camera = new Camera(this.canvas, {
      onMove: () => this.#moved(),
      onHover: (place) => this.isPinned || this.#hover(place),
      onClick: (place) => this.#click(place),
    });
    this.#listen();
  }

  async load() {
    const response = await fetch(`${stage.dataset.points}?${within}`, { headers: { accept: "application/json" } }).catch(() => null);
    if (!response?.ok) return this.#fail();
    const told = await response.json();
    const side = 32_767;
    const points = {
      id: told.id,
      x: Float32Array.from(told.x, (x) => x / side),
      y: Float32Array.from(told.y, (y) => y / side),
      cluster: Uint16Array.from(told.cluster),
      source: Uint8Array.from(told.source),
      title: Int32Array.from(told.title),
      titles: told.titles,
    };
    const before = this.at >= 0 ? this.points.id[this.at] : null;
    this.points = points;
    this.at = before === null ? -1 : points.id.indexOf(before);
    this.grid = makeGrid(points.x, points.y);
    this.camera.hold(points.x, points.y);
    this.filters.take(told.day);
    stage.removeAttribute("aria-busy");
    this.#readGroups();
    this.#readColours();
    this.#resize();
    this.#filter();
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

  #fail() {
    stage.removeAttribute("aria-busy");
    this.note.textContent = gettext("The map could not be loaded. Reload the page.");
  }

  #readGroups() {
    this.clusters = [...document.querySelectorAll("[data-cluster]")].map((group) => ({
      number: Number(group.dataset.cluster),
      name: group.dataset.name,
      x: Number(group.dataset.x) / 32_767,
      y: Number(group.dataset.y) / 32_767,
      dot: group.querySelector("[data-dot]"),
      shown: 0,
    }));
  }

  /** The style sheet's colours, as they are in this theme. */
  #readColours() {
    const style = getComputedStyle(stage);
    this.paper = numbers(style.backgroundColor);
    this.ink = style.color;
    this.soft = getComputedStyle(document.querySelector(".heading-note")).color;
    this.colours = [];
    for (const cluster of this.clusters) this.colours[cluster.number] = numbers(getComputedStyle(cluster.dot).backgroundColor);
    this.faint = numbers(style.color);
    for (let k = 0; k < this.points.cluster.length; k++) this.colours[this.points.cluster[k]] ??= this.faint;
    this.font = getComputedStyle(document.querySelector("h1")).fontFamily;
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

  #filter() {
    const shown = this.filters.shown(this.points.source);
    if (this.found) for (let k = 0; k < shown.length; k++) shown[k] &&= Number(this.found.has(this.points.id[k]));
    this.shown = shown;
    const counts = new Map();
    for (let k = 0; k < shown.length; k++) if (shown[k]) counts.set(this.points.cluster[k], (counts.get(this.points.cluster[k]) ?? 0) + 1);
    for (const cluster of this.clusters) cluster.shown = counts.get(cluster.number) ?? 0;
    const total = shown.reduce((sum, is) => sum + is, 0);
    this.note.textContent = total === shown.length ? "" : gettext("%(part)s of %(all)s shown", { part: total.toLocaleString(language), all: shown.length.toLocaleString(language) });
    if (this.at >= 0 && !shown[this.at]) this.#leave();
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
      this.#draw();
    });
  }

  #draw() {
    if (!this.shown) return;
    const began = performance.now();
    const { camera, pixels, points, shown } = this;
    const view = camera.view;
    const radius = radiusOf(points.x.length, camera.zoom) * view.ratio;
    pixels.draw({ points, shown, view, radius, colours: this.colours, paper: this.paper, faint: this.faint });
    this.names.clearRect(0, 0, pixels.width, pixels.height);
    const taken = drawNames(this.names, { clusters: this.clusters, view, width: pixels.width, height: pixels.height, ink: this.ink, soft: this.soft, paper: css(this.paper), font: this.font, zoom: camera.zoom });
    if (camera.zoom >= CLOSE) drawTitles(this.names, { points, shown, view, radius, width: pixels.width, height: pixels.height, ink: this.ink, paper: css(this.paper), font: this.font, taken });
    if (this.at >= 0) {
      const [x, y] = [points.x[this.at] * view.scale + view.left, points.y[this.at] * view.scale + view.top];
      drawRing(this.names, x, y, radius, this.ink, view.ratio);
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
    else this.#show(found);
  }

  #click(place) {
    const found = this.#near(place);
    if (found < 0) return this.#leave();
    this.#show(found);
    this.#pin();
  }

  #near(place) {
    return nearestPoint(this.grid, this.shown, ...this.camera.placeOf(...place), (REACH_PX * this.camera.ratio) / this.camera.view.scale);
  }

  #pin() {
    this.isPinned = true;
    this.card.classList.add("pinned");
  }

  #leave() {
    this.at = -1;
    this.isPinned = false;
    this.card.classList.remove("pinned");
    this.card.hidden = true;
    this.#changed();
  }

  async #show(point) {
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
      if (response?.status === 404) this.#forget(id);
      if (!response?.ok) return null;
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      this.texts.set(id, page.body.firstElementChild);
    }
    return this.texts.get(id);
  }

  #forget(id) {
    this.load();
    if (this.at >= 0 && this.points.id[this.at] === id) this.#leave();
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
    search.addEventListener("input", () => search.elements.q.value.trim() || this.#mark(null));
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

  /** Enter marks what a search finds and goes to the best; Enter again goes to the next best. */
  async #find(search) {
    const query = search.elements.q.value.trim();
    if (!query || !this.points) return this.#mark(null);
    if (query === this.query && this.found?.size) return this.#visit(this.turn + 1);
    const response = await fetch(`${search.getAttribute("action")}?${new URLSearchParams([["q", query], ...within])}`, { headers: IN_PAGE_LANGUAGE }).catch(() => null);
    if (search.elements.q.value.trim() !== query) return;
    if (!response?.ok) {
      const { errors } = response?.status === 400 ? await response.json() : {};
      return this.#say(errors?.q?.join(" ") ?? gettext("The search got no answer. Try again."));
    }
    const places = new Map([...this.points.id.keys()].map((place) => [this.points.id[place], place]));
    this.query = query;
    this.#mark((await response.json()).ids.filter((id) => places.has(id)));
    if (!this.found.size) return this.#say(this.note.dataset.nothing);
    const found = [...this.found].map((id) => places.get(id));
    this.camera.fit(found.map((place) => this.points.x[place]), found.map((place) => this.points.y[place]), CLOSE);
    this.#visit(0);
  }

  #mark(ids) {
    this.found = ids && new Set(ids);
    if (!ids) this.query = null;
    this.#leave();
    this.#filter();
  }

  #visit(turn) {
    const ids = [...this.found];
    this.turn = turn % ids.length;
    const place = this.points.id.indexOf(ids[this.turn]);
    if (place < 0) return;
    this.#pin();
    this.#show(place);
    if (turn) this.camera.show(this.points.x[place], this.points.y[place]);
  }

  #say(sentence) {
    this.note.textContent = sentence;
    this.said.textContent = sentence;
  }

  #goTo(group) {
    stage.scrollIntoView({ block: "center" });
    this.canvas.focus({ preventScroll: true });
    this.camera.glide([Number(group.dataset.x) / 32_767, Number(group.dataset.y) / 32_767], CLOSE);
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

  /** From text to text; the first is the one nearest to the middle. */
  #walk(dx, dy) {
    const { grid, shown, camera } = this;
    const found = this.at < 0 ? nearestPoint(grid, shown, ...camera.middle, 2) : pointTowards(grid, shown, this.at, dx, dy);
    if (found < 0) return;
    this.#pin();
    this.#show(found);
    camera.show(this.points.x[found], this.points.y[found]);
  }
}

function numbers(colour) {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
}

function css([red, green, blue]) {
  return `rgb(${red} ${green} ${blue})`;
}

if (stage) start();
else if (document.querySelector("[data-drawing]")) setTimeout(waitForMap, PAUSE_MS);
