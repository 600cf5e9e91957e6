/** Finding one's place in a stored conversation: the turn an address names, earlier turns, an answer still being written. */
import { HOME, fetchPage } from "./dom.js";
import { showTime } from "./times.js";

const NEAR_TOP_PX = 500;
const WAIT_MS = 40;

/** Goes to the turn that the address names, asking the server for it when it is not on this page. */
export function goToNamedTurn() {
  const number = /^#turn-(\d+)$/.exec(location.hash)?.[1];
  if (!number) return false;
  const turn = document.getElementById(`turn-${number}`);
  if (turn) {
    show(turn);
    showPlace(placeOf(new URLSearchParams(location.search).get("at"), turn));
  } else if (new URLSearchParams(location.search).get("turn") !== number && location.pathname !== HOME) {
    location.replace(`${location.pathname}?turn=${number}#turn-${number}`);
  }
  return Boolean(turn);
}

function showPlace(place) {
  const go = () => place?.scrollIntoView({ block: "center" });
  go();
  // Until everything is loaded, a browser goes back to what the fragment names.
  if (document.readyState !== "complete") addEventListener("load", () => requestAnimationFrame(go), { once: true });
}

/** The innermost element of a turn with these words, which the address of a search result may name. */
function placeOf(words, turn) {
  const hasWords = (element) => element.textContent.replace(/\s+/g, " ").includes(words);
  let place = null;
  for (let next = words && turn; next; next = [...next.children].find(hasWords)) place = next;
  return place;
}

/** A link to a turn of this very conversation needs no new page. */
export function followLinksWithin(thread) {
  thread.addEventListener("click", (event) => {
    const link = event.target.closest("a[href]");
    if (!link || event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const isHere = link.origin === location.origin && link.pathname === location.pathname;
    if (!isHere || !document.querySelector(link.hash.match(/^#turn-\d+$/)?.[0] ?? "_")) return;
    event.preventDefault();
    history.pushState(null, "", link.hash);
    goToNamedTurn();
  });
}

/** Earlier turns are put above those that are there, as one scrolls up to them; what is being read stays in its place. */
export function listenForEarlier(thread) {
  const link = document.querySelector("[data-earlier]");
  if (!link) return;
  link.addEventListener("click", async (event) => {
    event.preventDefault();
    const turns = await addEarlier(thread, link);
    if (!turns) return location.assign(link.href);
    turns.findLast((element) => element.matches(".turn"))?.focus({ preventScroll: true });
  });
  const watcher = new IntersectionObserver(
    async (entries) => {
      if (!entries.at(-1).isIntersecting) return;
      watcher.unobserve(link);
      const turns = await addEarlier(thread, link);
      if (turns && link.isConnected) watcher.observe(link);
    },
    { rootMargin: `${NEAR_TOP_PX}px 0px 0px` },
  );
  // Not before the page stands where it was opened, which is seldom its top.
  requestAnimationFrame(() => requestAnimationFrame(() => watcher.observe(link)));
}

/** Prints the whole chat, not what was read of it so far; Ctrl or ⌘ P does, too. */
export function listenForPrinting(thread) {
  const print = async () => {
    for (let link; (link = document.querySelector("[data-earlier]")); ) {
      if (link.ariaBusy === "true") await new Promise((resolve) => setTimeout(resolve, WAIT_MS));
      else if (!(await addEarlier(thread, link))) break;
    }
    window.print();
  };
  document.querySelector("[data-print]").addEventListener("click", (event) => {
    // Another chat is opened first.
    if (event.currentTarget.pathname !== location.pathname) return;
    event.preventDefault();
    print();
  });
  if (location.hash === "#print") addEventListener("load", print);
  addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey || event.key.toLowerCase() !== "p") return;
    if (!document.querySelector("[data-earlier]")) return;
    event.preventDefault();
    print();
  });
}

/** The turns that were added; null when they cannot be had. */
async function addEarlier(thread, link) {
  if (link.ariaBusy === "true") return [];
  link.ariaBusy = "true";
  const page = await fetchPage(link.href);
  link.ariaBusy = "false";
  if (!page) return null;
  const turns = [...page.querySelectorAll("[data-thread] > *")];
  const first = thread.firstElementChild;
  const before = first?.getBoundingClientRect().top ?? 0;
  // One correction is enough: the browser's own would come on top of it.
  document.documentElement.style.overflowAnchor = "none";
  thread.prepend(...turns);
  turns.forEach(prepare);
  const next = page.querySelector("[data-earlier]");
  if (next) link.href = next.getAttribute("href");
  else link.remove();
  if (first) window.scrollBy(0, first.getBoundingClientRect().top - before);
  // From now on the browser's own corrections are wanted: turns that come near get their true heights.
  document.documentElement.style.overflowAnchor = "";
  return turns;
}

/** The turn, if there is one on this page, whose answer is still being written. */
export function unfinishedTurn(thread) {
  return thread.querySelector('.turn[data-turn-id][data-status="streaming"]');
}

export function prepare(turn) {
  turn.querySelectorAll("time[datetime]").forEach(showTime);
}

function show(turn) {
  turn.scrollIntoView({ block: "start" });
  turn.focus({ preventScroll: true });
  turn.classList.remove("asked-for");
  requestAnimationFrame(() => turn.classList.add("asked-for"));
}
