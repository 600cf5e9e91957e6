/** The search page: results while one types, tabs and dates in place, and a better order once the first one is shown. */

import { isComposing } from "../intake/dom.js";

const PAUSE_MS = 200;
// A screen reader says how many there are once the typing rests.
const QUIET_MS = 900;

const form = document.querySelector("[data-search]");
const field = form.querySelector("[data-search-field]");
const status = document.querySelector("[data-search-status]");
const failed = document.querySelector("[data-search-failed]");
let pause = 0;
let quiet = 0;
let request = new AbortController();

// An address has only what was chosen.
form.addEventListener("formdata", ({ formData }) => {
  for (const name of ["from", "to"]) if (!formData.get(name)) formData.delete(name);
});

// Enter is the full search: the browser opens the address that is shown already.
form.addEventListener("submit", stop);

field.addEventListener("input", (event) => {
  for (const link of narrowing().querySelectorAll("a")) link.search = withQuery(link.search);
  if (!isComposing(event)) searchSoon();
});
field.addEventListener("compositionend", searchSoon);
addEventListener("online", () => failed.hidden || searchSoon());

function searchSoon() {
  stop();
  pause = setTimeout(async () => {
    const asked = addressOfForm();
    const isShown = await show(asked);
    if (isShown) history.replaceState(null, "", asked);
    failed.hidden = isShown !== false;
    if (!failed.hidden) status.textContent = failed.firstChild.textContent;
  }, PAUSE_MS);
}

// Tabs and dates are links. With the script they change the results in place, and *Back* leads to the ones before.
form.addEventListener("click", async (event) => {
  const link = event.target.closest("[data-narrowing] a");
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  stop();
  const isShown = await show(link.href);
  if (isShown === null) return;
  if (!isShown) return location.assign(link.href);
  history.pushState(null, "", link.href);
  // The link that was clicked is gone.
  const opener = link.closest(".within") ? "[data-within] summary" : "[data-when] summary";
  const place = link.dataset.tab === undefined ? opener : `[data-tab="${link.dataset.tab}"]`;
  narrowing().querySelector(place)?.focus();
  showBetterOrder();
});

addEventListener("popstate", async () => {
  stop();
  const isShown = await show(location.href);
  if (isShown === null) return;
  if (!isShown) return location.reload();
  field.value = new URLSearchParams(location.search).get("q") ?? "";
});

function stop() {
  clearTimeout(pause);
  clearTimeout(quiet);
  request.abort();
  found().removeAttribute("aria-busy");
}

/** Fetches the results at an address into the page; false if they cannot be had, and null if others were asked for. */
async function show(address) {
  const { signal } = (request = new AbortController());
  found().setAttribute("aria-busy", "true");
  try {
    const response = await fetch(address, { headers: { "X-Recollect-Part": "results" }, signal });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const others = page.querySelector("[data-search-found]");
    if (!others) throw new TypeError("another page");
    if (signal.aborted) return null;
    keepCounts(page.querySelector("[data-narrowing]"), address);
    narrowing().replaceWith(document.adoptNode(page.querySelector("[data-narrowing]")));
    found().replaceWith(document.adoptNode(others));
    document.title = page.title;
    bringTabIntoSight();
    quiet = setTimeout(announce, QUIET_MS);
    return true;
  } catch {
    if (signal.aborted) return null;
    found().removeAttribute("aria-busy");
    return false;
  }
}

/** One kind's search does not count the others: their numbers of the same query stay. */
function keepCounts(later, address) {
  if (asksSame(address, counted)) {
    for (const tab of later.querySelectorAll("[data-tab]")) {
      const number = tab.querySelector("[data-count]");
      number.textContent ||= narrowing().querySelector(`[data-tab="${tab.dataset.tab}"] [data-count]`)?.textContent ?? "";
    }
  }
  counted = address;
}
let counted = location.href;

function asksSame(one, other) {
  const [first, second] = [one, other].map((address) => new URL(address, location.href).searchParams);
  return ["q", "from", "to", "anytime", "project"].every((name) => first.get(name) === second.get(name));
}

function announce() {
  const line = ["[data-summary]", ".blank h2", ".notice"].map((place) => found().querySelector(place)).find(Boolean);
  status.textContent = line?.textContent.trim() ?? "";
}

const narrowing = () => form.querySelector("[data-narrowing]");
const found = () => document.querySelector("[data-search-found]");

function addressOfForm() {
  const asked = new URLSearchParams([...new FormData(form)].filter(([, value]) => value.trim()));
  return `${form.getAttribute("action")}${asked.size ? `?${asked}` : ""}`;
}

function withQuery(search) {
  const asked = new URLSearchParams(search);
  if (field.value.trim()) asked.set("q", field.value);
  else asked.delete("q");
  return asked.toString();
}

/** On a narrow screen the row of tabs is longer than wide. */
function bringTabIntoSight() {
  const tab = narrowing().querySelector("[aria-current][data-tab]");
  if (tab) tab.parentElement.scrollLeft = tab.offsetLeft - tab.parentElement.offsetLeft - 40;
}
bringTabIntoSight();

// A menu is closed by Escape and by a click beside it.
addEventListener("keydown", (event) => {
  const menu = document.activeElement?.closest("[data-when][open]");
  if (event.key !== "Escape" || !menu) return;
  menu.open = false;
  menu.querySelector("summary").focus();
});
addEventListener("click", ({ target }) => {
  for (const menu of form.querySelectorAll("[data-when][open]")) if (!menu.contains(target)) menu.open = false;
});

/** The better order is asked for once the first one is shown. It comes by itself unless somebody is at the list. */
async function showBetterOrder() {
  const list = document.querySelector("[data-results][data-better]");
  if (!list) return;
  let better;
  try {
    const response = await fetch(list.dataset.better, { headers: { accept: "text/html" }, signal: request.signal });
    if (!response.ok) return;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    better = page.querySelector("[data-results][data-reranked=yes]");
  } catch {
    return; // Offline, on the way to another page, or another search: the first order stands.
  }
  if (!better || !list.isConnected || order(better).join() === order(list).join()) return;
  const put = () => list.replaceWith(document.adoptNode(better));
  if (!isBeingUsed(list)) return move(put);
  const button = document.querySelector("[data-show-better]");
  button.hidden = false;
  button.addEventListener("click", () => {
    button.hidden = true;
    move(() => {
      put();
      better.querySelector("a").focus();
    });
  });
}
showBetterOrder();

const order = (list) => [...list.querySelectorAll("[data-result] a")].map((link) => link.getAttribute("href"));

/** Pointed at, reached by keys, scrolled to, or selected in: what is read must not move. */
function isBeingUsed(list) {
  const isSelected = !getSelection().isCollapsed && list.contains(getSelection().anchorNode);
  return list.matches(":hover") || list.contains(document.activeElement) || scrollY > 0 || isSelected;
}

/** Each result glides to its new place, where the browser can and the person has nothing against movement. */
function move(put) {
  const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  if (isCalm || !document.startViewTransition) return put();
  document.startViewTransition(put);
}
