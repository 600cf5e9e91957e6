/** Finding one's place in a stored conversation: the turn an address names, earlier turns, an answer still being written. */
import { fetchPage } from "./dom.js";
import { showTime } from "./times.js";

/** Goes to the turn that the address names, asking the server for it when it is not on this page. */
export function goToNamedTurn() {
  const number = /^#turn-(\d+)$/.exec(location.hash)?.[1];
  if (!number) return false;
  const turn = document.getElementById(`turn-${number}`);
  if (turn) {
    show(turn);
  } else if (new URLSearchParams(location.search).get("turn") !== number && location.pathname !== "/") {
    location.replace(`${location.pathname}?turn=${number}#turn-${number}`);
  }
  return Boolean(turn);
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

/** Earlier turns are put above those that are there; the browser keeps what is being read in place. */
export function listenForEarlier(thread) {
  document.querySelector("[data-earlier]")?.addEventListener("click", async (event) => {
    event.preventDefault();
    const link = event.currentTarget;
    const page = await fetchPage(link.href);
    if (!page) return location.assign(link.href);
    const turns = [...page.querySelectorAll("[data-thread] > *")];
    const height = document.documentElement.scrollHeight;
    thread.prepend(...turns);
    turns.forEach(prepare);
    const next = page.querySelector("[data-earlier]");
    if (next) link.href = next.getAttribute("href");
    else link.remove();
    window.scrollBy(0, document.documentElement.scrollHeight - height);
    turns.findLast((element) => element.matches(".turn"))?.focus({ preventScroll: true });
  });
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
