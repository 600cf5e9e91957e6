/** What a thinking model thinks: folded, while it is written and afterwards. */
import { parseHtml, part } from "./dom.js";
import { gettext } from "./language.js";

export class Reasoning {
  #seconds = null;

  constructor(turn) {
    this.element = part(turn, "reasoning");
    this.label = part(turn, "thought");
    this.text = part(turn, "reasoning-text");
  }

  clear() {
    this.element.hidden = true;
    this.element.open = false;
    this.text.textContent = "";
    this.#seconds = null;
  }

  write({ text, seconds = null }) {
    this.element.hidden = false;
    this.element.classList.add("thinking");
    this.label.textContent = gettext("Thinking…");
    this.text.append(text);
    this.#seconds = seconds;
  }

  /** As the server has drawn it: until its end it is the text alone. */
  show(html) {
    if (!this.element.hidden) this.text.replaceChildren(...parseHtml(html).body.childNodes);
  }

  /** Something else has begun, or the answer has ended. */
  rest() {
    if (this.element.hidden || !this.element.classList.contains("thinking")) return;
    this.element.classList.remove("thinking");
    this.label.textContent = thoughtInWords(this.#seconds);
  }
}

/** As `thought` in templatetags/recollect.py. */
function thoughtInWords(seconds) {
  return seconds === null ? gettext("Thought") : gettext("Thought for %(seconds)s s", { seconds: Math.max(1, Math.round(seconds)) });
}
