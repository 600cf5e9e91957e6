/** Which chats are answering, and which have finished unseen: marks in the list of chats, shared by this browser's tabs. */

import { HOME } from "./dom.js";
import { gettext } from "./language.js";

const KEY = "answering";
const ENDPOINT = `${HOME}api/v1/intake/answering`;
const LOOK_EVERY_MS = 3000;
const IN_WORDS = { answering: gettext("Being answered"), unread: gettext("A new answer") };

/** By a chat's path, `answering` or `unread`. */
class Answering {
  #marks = {};
  #timer = null;
  #list = document.querySelector("[data-all-chats]");

  constructor() {
    this.#read();
    const listed = document.querySelector("[data-answering]")?.dataset.answering.split(" ").filter(Boolean) ?? [];
    this.#compare(listed);
    // The list is made anew when a chat moves to its top or more are asked for.
    new MutationObserver(() => this.#show()).observe(this.#list, { childList: true, subtree: true });
    addEventListener("storage", ({ key }) => {
      if (key !== KEY) return;
      this.#read();
      this.#changed({ isOurs: location.pathname in this.#marks && this.#see(location.pathname) });
    });
    document.addEventListener("visibilitychange", () => this.#look());
  }

  /** An answer that this page shows. */
  began(path) {
    this.#marks[path] = "answering";
    this.#changed();
  }

  finished(path) {
    delete this.#marks[path];
    this.#changed();
  }

  forget() {
    localStorage.removeItem(KEY);
  }

  #read() {
    try {
      this.#marks = JSON.parse(localStorage.getItem(KEY)) ?? {};
    } catch {
      this.#marks = {};
    }
  }

  /** What was being answered and is no more has finished; on this page it has been seen. */
  #compare(conversationIds) {
    const present = new Set(conversationIds.map((id) => `${HOME}c/${id}/`));
    for (const [path, mark] of Object.entries(this.#marks)) {
      if (mark === "answering" && !present.has(path)) this.#marks[path] = "unread";
    }
    for (const path of present) this.#marks[path] = "answering";
    this.#see(location.pathname);
    this.#changed();
  }

  #see(path) {
    return this.#marks[path] === "unread" && delete this.#marks[path];
  }

  #changed({ isOurs = true } = {}) {
    if (isOurs) localStorage.setItem(KEY, JSON.stringify(this.#marks));
    this.#show();
    clearTimeout(this.#timer);
    const isAnswering = Object.values(this.#marks).includes("answering");
    if (isAnswering) this.#timer = setTimeout(() => this.#look(), LOOK_EVERY_MS);
  }

  async #look() {
    clearTimeout(this.#timer);
    if (document.hidden || !Object.values(this.#marks).includes("answering")) return;
    const response = await fetch(ENDPOINT, { cache: "no-store" }).catch(() => null);
    if (response?.ok) this.#compare((await response.json()).answers.map((answer) => answer.conversationId));
    else if (response?.status !== 401) this.#timer = setTimeout(() => this.#look(), LOOK_EVERY_MS);
  }

  #show() {
    for (const link of this.#list.querySelectorAll("[data-conversation-id] a")) {
      const mark = this.#marks[link.pathname] ?? "";
      if ((link.dataset.mark ?? "") === mark) continue;
      if (mark) link.dataset.mark = mark;
      else delete link.dataset.mark;
      link.ariaDescription = IN_WORDS[mark] ?? null;
    }
  }
}

export const answering = new Answering();
