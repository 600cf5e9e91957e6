/** Where a message is written: grows, counts near its limit, keeps a draft over a reload, sends on Enter. */

import { clone, isComposing } from "./dom.js";
import { gettext, language } from "./language.js";
import { Pasted } from "./pasting.js";

const COUNT_FROM = 0.94;

export class Composer {
  #isAnswering = false;
  #unsent = "";
  #draftKey = "";

  constructor(form, { onSend, onStop, draftKey }) {
    this.form = form;
    this.queue = form.querySelector("[data-queue]");
    this.input = form.elements.message;
    this.limit = Number(form.dataset.limit);
    this.sendButton = form.querySelector("[data-send]");
    this.stopButton = form.querySelector("[data-stop]");
    this.counter = form.querySelector("[data-counter]");
    this.onSend = onSend;
    this.#draftKey = draftKey;
    this.pasted = new Pasted(form, this.input, () => this.#changed());
    // On glass there is no Shift to press with Enter: it makes a new line there, and the button sends.
    this.isOnGlass = matchMedia("(hover: none) and (pointer: coarse)").matches;
    if (this.isOnGlass) this.input.enterKeyHint = "enter";
    this.#listen(onStop);
    this.input.value ||= sessionStorage.getItem(this.#draftKey) ?? "";
    this.#changed();
  }

  /** What was written, and what was pasted and folded, each a paragraph. */
  get text() {
    return [this.input.value, ...this.pasted.texts].filter(Boolean).join("\n\n");
  }

  set text(value) {
    this.pasted.clear();
    this.input.value = value;
    this.#changed();
  }

  /** The chat has got a place of its own: what is being written belongs there. */
  set draftKey(key) {
    if (key === this.#draftKey) return;
    sessionStorage.removeItem(this.#draftKey);
    this.#draftKey = key;
    this.#keepDraft();
  }

  /** What is sent once the answer is done, the first of it first; undefined if there is nothing. */
  takeQueued() {
    const item = this.queue.firstElementChild;
    if (!item) return undefined;
    const message = item.querySelector("[data-queued-text]").textContent;
    this.#unqueue(item);
    return message;
  }

  /** After a failure: what was to follow goes back to be looked at. */
  takeQueueBack() {
    const messages = [...this.queue.querySelectorAll("[data-queued-text]")].map((text) => text.textContent);
    if (!messages.length) return;
    this.queue.replaceChildren();
    this.queue.hidden = true;
    this.input.value = [...messages, this.input.value].filter(Boolean).join("\n\n");
    this.#changed();
  }

  /** What is on its way, and part of the draft until the server has it. */
  set unsent(message) {
    this.#unsent = message;
    this.#keepDraft();
  }

  /** The cookie is asked each time: logging in elsewhere in this browser changes it. */
  get csrfToken() {
    const cookie = /(?:^|;\s*)(?:__Host-)?csrftoken=([^;]+)/.exec(document.cookie);
    return cookie ? cookie[1] : this.form.elements.csrfmiddlewaretoken.value;
  }

  set isAnswering(value) {
    // A button that goes takes the focus with it; no other field loses it.
    const hadFocus = [this.sendButton, this.stopButton].includes(document.activeElement);
    this.#isAnswering = value;
    this.stopButton.hidden = !value;
    this.#changed();
    if (hadFocus) this.input.focus();
  }

  focus() {
    this.input.focus();
  }

  #listen(onStop) {
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    this.input.addEventListener("input", () => this.#changed());
    this.input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || isComposing(event) || this.isOnGlass) return;
      event.preventDefault();
      this.#send();
    });
    this.stopButton.addEventListener("click", onStop);
  }

  #send() {
    const message = this.text.trim();
    if (!message || lengthOf(message) > this.limit) return;
    if (this.#isAnswering) return this.#enqueue(message);
    this.text = "";
    this.onSend(message);
  }

  #enqueue(message) {
    const item = clone("queued");
    item.querySelector("[data-queued-text]").textContent = message;
    item.querySelector("[data-queued-remove]").addEventListener("click", () => {
      this.#unqueue(item);
      this.input.focus();
    });
    this.queue.append(item);
    this.queue.hidden = false;
    this.text = "";
    this.input.focus();
  }

  #unqueue(item) {
    item.remove();
    this.queue.hidden = this.queue.childElementCount === 0;
    this.#keepDraft();
  }

  #changed() {
    this.#grow();
    this.#count();
    this.#keepDraft();
  }

  #keepDraft() {
    const queued = [...this.queue.querySelectorAll("[data-queued-text]")].map((text) => text.textContent);
    const draft = [this.#unsent, ...queued, this.text].filter(Boolean).join("\n\n");
    if (draft) sessionStorage.setItem(this.#draftKey, draft);
    else sessionStorage.removeItem(this.#draftKey);
  }

  #grow() {
    this.input.style.height = "auto";
    this.input.style.height = `${this.input.scrollHeight}px`;
  }

  #count() {
    const isNear = this.text.length > this.limit * COUNT_FROM;
    const left = isNear ? this.limit - lengthOf(this.text.trim()) : this.limit;
    this.counter.hidden = !isNear;
    this.counter.classList.toggle("over", left < 0);
    this.counter.textContent = left < 0 ? gettext("%(count)s too many", { count: (-left).toLocaleString(language) }) : gettext("%(count)s left", { count: left.toLocaleString(language) });
    const isEmpty = !this.text.trim();
    this.sendButton.disabled = isEmpty || left < 0;
    this.sendButton.hidden = this.#isAnswering && isEmpty;
    this.sendButton.title = this.sendButton.ariaLabel = this.#isAnswering ? gettext("Send when the answer is done") : gettext("Send");
  }
}

/** In characters as the server counts them, an emoji being one and not two. */
function lengthOf(text) {
  return [...text].length;
}
