/** Where a message is written: grows, counts near its limit, keeps a draft over a reload, sends on Enter. */

import { Attaching } from "./attaching.js";
import { clone, csrfCookie, isComposing } from "./dom.js";
import { gettext, language } from "./language.js";

const COUNT_FROM = 0.94;

export class Composer {
  #isAnswering = false;
  #isSending = false;
  #unsent = { message: "", files: [] };
  #draftKey = "";

  constructor(form, { onSend, onStop, draftKey, main, announce }) {
    this.form = form;
    this.queue = form.querySelector("[data-queue]");
    this.input = form.elements.message;
    this.limit = Number(form.dataset.limit);
    this.sendButton = form.querySelector("[data-send]");
    this.sendButton.dataset.usual = this.sendButton.title;
    this.stopButton = form.querySelector("[data-stop]");
    this.counter = form.querySelector("[data-counter]");
    this.onSend = onSend;
    this.#draftKey = draftKey;
    this.attaching = new Attaching(form, this.input, { main, announce, csrfToken: () => this.csrfToken, onChange: () => this.#changed() });
    // On glass there is no Shift to press with Enter: it makes a new line there, and the button sends.
    this.isOnGlass = matchMedia("(hover: none) and (pointer: coarse)").matches;
    if (this.isOnGlass) this.input.enterKeyHint = "enter";
    this.#listen(onStop);
    stayAboveKeyboard();
    const files = JSON.parse(sessionStorage.getItem(this.#filesKey) ?? "[]");
    this.input.value ||= sessionStorage.getItem(this.#draftKey) ?? "";
    this.attaching.restore(files);
    this.#changed();
  }

  get text() {
    return this.input.value;
  }

  set text(value) {
    this.input.value = value;
    this.#changed();
  }

  get isEmpty() {
    return !this.text && this.attaching.isEmpty;
  }

  get #filesKey() {
    return `${this.#draftKey}:files`;
  }

  /** The chat has got a place of its own: what is being written belongs there. */
  set draftKey(key) {
    if (key === this.#draftKey) return;
    for (const name of [this.#draftKey, this.#filesKey]) sessionStorage.removeItem(name);
    this.#draftKey = key;
    this.#keepDraft();
  }

  /** A message that was not sent, before what is being written now. */
  takeBack({ message, files }) {
    this.#unsent = { message: "", files: [] };
    this.attaching.restore(files);
    this.text = [message, this.text].filter(Boolean).join("\n\n");
  }

  /** At the end of what is being written, ready for a question about it. */
  quote(text) {
    const quoted = text.replace(/\n{2,}/g, "\n\n").replace(/^/gm, "> ");
    this.text = `${[this.text.trimEnd(), quoted].filter(Boolean).join("\n\n")}\n\n`;
    this.focus();
    this.input.setSelectionRange(this.text.length, this.text.length);
    this.input.scrollTop = this.input.scrollHeight;
  }

  /** What is sent once the answer is done, the first of it first; undefined if there is nothing. */
  takeQueued() {
    const item = this.queue.firstElementChild;
    if (!item) return undefined;
    const queued = queuedIn(item);
    this.#unqueue(item);
    return queued;
  }

  /** After a failure: what was to follow goes back to be looked at. */
  takeQueueBack() {
    const queued = [...this.queue.children].map(queuedIn);
    if (!queued.length) return;
    this.queue.replaceChildren();
    this.queue.hidden = true;
    this.takeBack({ message: queued.map(({ message }) => message).filter(Boolean).join("\n\n"), files: queued.flatMap(({ files }) => files) });
  }

  /** What is on its way, `{message, files}`, and part of the draft until the server has it; null once it does. */
  set unsent(sent) {
    this.#unsent = sent ?? { message: "", files: [] };
    this.#keepDraft();
  }

  get csrfToken() {
    return csrfCookie() || this.form.elements.csrfmiddlewaretoken.value;
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
      // Up from an empty field edits what was said last; with another key it goes to the chat above.
      const isUp = event.key === "ArrowUp" && !event.altKey && !event.ctrlKey && !event.metaKey && !event.shiftKey;
      const last = isUp && !this.input.value && [...document.querySelectorAll('.turn:not(.shared) [data-action="rephrase"]')].at(-1);
      if (last) {
        event.preventDefault();
        last.click();
      }
      if (event.key !== "Enter" || event.shiftKey || isComposing(event) || this.isOnGlass) return;
      event.preventDefault();
      this.#send();
    });
    this.stopButton.addEventListener("click", onStop);
  }

  /** What is still being uploaded is waited for; what could not be is looked at first. */
  async #send() {
    if (this.#isSending || (!this.text.trim() && this.attaching.isEmpty)) return;
    this.#isSending = true;
    this.#changed();
    await this.attaching.settled();
    this.#isSending = false;
    this.#changed();
    const [message, { files }] = [this.text.trim(), this.attaching];
    if (this.attaching.hasFailed || (!message && !files.length) || lengthOf(message) > this.limit) return;
    if (this.#isAnswering) return this.#enqueue(message, files);
    this.attaching.clear();
    this.text = "";
    this.onSend({ message, files });
  }

  #enqueue(message, files) {
    const item = clone("queued");
    item.dataset.files = JSON.stringify(files);
    item.dataset.message = message;
    item.querySelector("[data-queued-text]").textContent = [message, ...files.map(({ name }) => name)].filter(Boolean).join("\n");
    item.querySelector("[data-queued-remove]").addEventListener("click", () => {
      this.#unqueue(item);
      this.input.focus();
    });
    this.queue.append(item);
    this.queue.hidden = false;
    this.attaching.clear();
    this.text = "";
    this.input.focus();
  }

  #unqueue(item) {
    item.remove();
    this.queue.hidden = this.queue.childElementCount === 0;
    this.#keepDraft();
  }

  #changed() {
    this.#count();
    // After the count, which shows and hides the buttons that the text has its width beside.
    this.#grow();
    this.#keepDraft();
  }

  #keepDraft() {
    const kept = [this.#unsent, ...[...this.queue.children].map(queuedIn), { message: this.text, files: this.attaching.files }];
    const draft = kept.map(({ message }) => message).filter(Boolean).join("\n\n");
    const files = kept.flatMap((each) => each.files);
    keep(this.#draftKey, draft);
    keep(this.#filesKey, files.length ? JSON.stringify(files) : "");
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
    const isEmpty = !this.text.trim() && this.attaching.isEmpty;
    this.sendButton.disabled = isEmpty || left < 0 || this.attaching.hasFailed;
    this.form.toggleAttribute("data-sending", this.#isSending);
    this.sendButton.hidden = this.#isAnswering && isEmpty;
    this.sendButton.title = this.sendButton.ariaLabel = this.#isAnswering ? gettext("Send when the answer is done") : this.sendButton.dataset.usual;
  }
}

/** In characters as the server counts them, an emoji being one and not two. */
function lengthOf(text) {
  return [...text].length;
}

function queuedIn(item) {
  return { message: item.dataset.message, files: JSON.parse(item.dataset.files) };
}

function keep(key, value) {
  if (value) sessionStorage.setItem(key, value);
  else sessionStorage.removeItem(key);
}

/** Where a keyboard lies over the page and does not make it smaller (`interactive-widget`), the message stands above it. */
function stayAboveKeyboard() {
  const view = window.visualViewport;
  const place = () => {
    // A page that is enlarged by hand shows a part of itself, too.
    const covered = view.scale > 1 ? 0 : Math.max(0, Math.round(innerHeight - view.height - view.offsetTop));
    document.documentElement.style.setProperty("--keyboard", `${covered}px`);
  };
  for (const event of ["resize", "scroll"]) view?.addEventListener(event, place);
}
