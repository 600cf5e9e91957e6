/** Where a message is written: grows, counts near its limit, keeps a draft over a reload, sends on Enter. */

import { gettext, language } from "./language.js";
import { Pasted } from "./pasting.js";

const COUNT_FROM = 0.94;

export class Composer {
  #isAnswering = false;
  #unsent = "";

  constructor(form, { onSend, onStop, draftKey }) {
    this.form = form;
    this.input = form.elements.message;
    this.limit = Number(form.dataset.limit);
    this.sendButton = form.querySelector("[data-send]");
    this.stopButton = form.querySelector("[data-stop]");
    this.counter = form.querySelector("[data-counter]");
    this.onSend = onSend;
    this.draftKey = draftKey;
    this.pasted = new Pasted(form, this.input, () => this.#changed());
    // On glass there is no Shift to press with Enter: it makes a new line there, and the button sends.
    this.isOnGlass = matchMedia("(hover: none) and (pointer: coarse)").matches;
    if (this.isOnGlass) this.input.enterKeyHint = "enter";
    this.#listen(onStop);
    this.input.value ||= sessionStorage.getItem(this.draftKey()) ?? "";
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
    const hadFocus = this.form.contains(document.activeElement);
    this.#isAnswering = value;
    this.sendButton.hidden = value;
    this.stopButton.hidden = !value;
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
      // While an input method composes, Enter accepts its suggestion (229 is what older engines report then).
      const isComposing = event.isComposing || event.keyCode === 229;
      if (event.key !== "Enter" || event.shiftKey || isComposing || this.isOnGlass) return;
      event.preventDefault();
      this.#send();
    });
    this.stopButton.addEventListener("click", onStop);
  }

  #send() {
    const message = this.text.trim();
    if (!message || this.#isAnswering || lengthOf(message) > this.limit) return;
    this.text = "";
    this.onSend(message);
  }

  #changed() {
    this.#grow();
    this.#count();
    this.#keepDraft();
  }

  #keepDraft() {
    const draft = [this.#unsent, this.text].filter(Boolean).join("\n\n");
    if (draft) sessionStorage.setItem(this.draftKey(), draft);
    else sessionStorage.removeItem(this.draftKey());
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
    this.sendButton.disabled = !this.text.trim() || left < 0;
  }
}

/** In characters as the server counts them, an emoji being one and not two. */
function lengthOf(text) {
  return [...text].length;
}
