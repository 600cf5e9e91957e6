/** Draws an answer from the blocks that the server renders while it is written: those that changed are replaced. */
import { parseHtml } from "./dom.js";

export class Drawing {
  #finished = 0;

  /** `onDraw` is called after each change, with the text of the blocks that nothing will change any more. */
  constructor(target, onDraw = () => {}) {
    this.target = target;
    this.onDraw = onDraw;
  }

  /** `html`: the blocks from index `from` on, one element each. */
  show({ from, html }) {
    const { children } = this.target;
    while (children.length > from) this.target.lastElementChild.remove();
    this.target.append(...parseHtml(html.join("")).body.children);
    this.#tell(children.length - 1);
  }

  finish() {
    this.#tell(this.target.children.length);
  }

  #tell(end) {
    const finished = [...this.target.children].slice(this.#finished, Math.max(end, this.#finished));
    this.#finished = Math.max(end, this.#finished);
    this.onDraw(finished.map((element) => element.textContent).join("\n"));
  }
}

/** A copy of an answer as the server wrote it, without previews (previews.js). */
export function withoutPreviews(answer) {
  const copy = answer.cloneNode(true);
  for (const preview of copy.querySelectorAll(".preview, .preview-trouble")) preview.remove();
  for (const pre of copy.querySelectorAll("pre[hidden]")) pre.hidden = false;
  for (const button of copy.querySelectorAll("[data-usual]")) {
    button.textContent = button.dataset.usual;
    delete button.dataset.usual;
  }
  for (const code of copy.querySelectorAll("[data-diagram]")) delete code.dataset.diagram;
  return copy;
}
