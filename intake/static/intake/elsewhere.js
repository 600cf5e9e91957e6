/** The open chat, when it changes in another tab or on another device: its new turns appear, its end is told. */
import { HOME, fetchPage } from "./dom.js";
import { gettext } from "./language.js";
import { prepare } from "./reading.js";

export function listenForOtherTabs(main, thread, { onGrown, announce }) {
  document.addEventListener("recollect:changed", async ({ detail }) => {
    if (detail.id !== main.dataset.conversation) return;
    // A temporary chat is in no list of chats.
    if ("temporary" in main.dataset) return;
    if (detail.isGone) return tellThatItIsGone(main, announce);
    // What this page is writing itself it shows itself; an earlier part is read as it is.
    if (thread.querySelector(".turn.waiting") || new URLSearchParams(location.search).has("before")) return;
    const page = await fetchPage(`${HOME}c/${detail.id}/`);
    if (!page || thread.querySelector(".turn.waiting")) return;
    takeTurns(page, thread);
    onGrown();
  });
}

function takeTurns(page, thread) {
  for (const fresh of page.querySelectorAll("[data-thread] > .turn[id]")) {
    const known = document.getElementById(fresh.id);
    const last = [...thread.querySelectorAll(".turn[id]")].at(-1);
    const isNext = !last || Number(fresh.dataset.number) > Number(last.dataset.number);
    // A turn that lost its answer to a failure here is this page's own to try again.
    if (known && known.dataset.status !== fresh.dataset.status && ["streaming", "waiting"].includes(known.dataset.status)) known.replaceWith(fresh);
    else if (!known && isNext) {
      if (thread.querySelector(".turn:not([id])")) return;
      thread.append(fresh);
    } else continue;
    prepare(fresh);
  }
}

function tellThatItIsGone(main, announce) {
  if (main.querySelector("[data-gone]")) return;
  const notice = document.createElement("p");
  notice.className = "notice";
  notice.dataset.gone = "";
  notice.textContent = gettext("This chat was deleted elsewhere. This page shows its last state.");
  main.prepend(notice);
  announce(notice.textContent);
}
