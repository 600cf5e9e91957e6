/** What a thinking model thinks: folded, while it is written and afterwards. */
import { parseHtml, part } from "./dom.js";

export class Reasoning {
  #thought = "";

  constructor(turn) {
    this.element = part(turn, "reasoning");
    this.label = part(turn, "thought");
    this.text = part(turn, "reasoning-text");
  }

  clear() {
    this.element.hidden = true;
    this.element.open = false;
    this.text.textContent = "";
  }

  /** `label`: how long was thought so far. */
  write({ text, label }) {
    this.element.hidden = false;
    this.element.classList.add("thinking");
    this.label.textContent = this.label.dataset.thinking;
    this.text.append(text);
    this.#thought = label;
  }

  /** As the server has drawn it: until its end it is the text alone. */
  show(html) {
    if (!this.element.hidden) this.text.replaceChildren(...parseHtml(html).body.childNodes);
  }

  /** Something else has begun, or the answer has ended. */
  rest() {
    if (this.element.hidden || !this.element.classList.contains("thinking")) return;
    this.element.classList.remove("thinking");
    this.label.textContent = this.#thought;
  }
}
