/** A temporary chat goes when its page is left, unless it is kept. The server sweeps what a browser could not tell it. */
import { HOME, write } from "./dom.js";

export function watchTemporary(main, { csrfToken }) {
  if (!("temporary" in main.dataset)) return;
  let isKept = false;
  document.querySelector("[data-keep]").addEventListener("submit", () => (isKept = true));
  addEventListener("pagehide", () => {
    const id = main.dataset.conversation;
    if (!id || isKept) return;
    write(`${HOME}c/${id}/leave/`, { method: "POST", csrfToken: csrfToken(), keepalive: true }).catch(() => {});
  });
  // A page that the browser has kept shows what is no more.
  addEventListener("pageshow", (event) => event.persisted && location.assign(`${HOME}?temporary=1`));
}

/** The chat has an id now, which stands in no address. */
export function offerToKeep(id) {
  const form = document.querySelector("[data-keep]");
  form.action = `${HOME}c/${id}/keep/`;
  form.hidden = false;
}
