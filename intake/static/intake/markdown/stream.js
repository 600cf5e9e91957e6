/** Renders an answer while it arrives: finished blocks stay as they are, only the last one is made anew. */
import { elementOf } from "./elements.js";
import { parseBlocks } from "./blocks.js";

// Rendering takes at most about this share of the time, however long the last block has grown.
const BREATHING_SPACE = 4;

export class StreamRenderer {
  #tail = "";
  #last = null;
  #frame = 0;
  #notBefore = 0;

  /** `onRender` is called after each rendering, with the text of the blocks that it finished. */
  constructor(target, onRender = () => {}) {
    this.target = target;
    this.onRender = onRender;
  }

  push(text) {
    this.#tail += text;
    if (!this.#frame) this.#frame = requestAnimationFrame((now) => this.#onFrame(now));
  }

  /** Renders what is left; what was open stays as it is. */
  finish() {
    cancelAnimationFrame(this.#frame);
    this.#render({ isOpen: false });
  }

  #onFrame(now) {
    if (now < this.#notBefore) {
      this.#frame = requestAnimationFrame((later) => this.#onFrame(later));
      return;
    }
    this.#frame = 0;
    const started = performance.now();
    this.#render({ isOpen: true });
    const finished = performance.now();
    this.#notBefore = finished + (finished - started) * BREATHING_SPACE;
  }

  #render({ isOpen }) {
    const lines = this.#tail.split(/\r\n|\r|\n/).map((line) => line.replace(/^[ \t]+/, expandTabs));
    const blocks = parseBlocks(lines);
    this.#last?.remove();
    const elements = blocks.map((block, index) => elementOf(block, { isOpen: isOpen && index === blocks.length - 1 }));
    this.target.append(...elements);
    this.#last = elements.at(-1) ?? null;
    const finished = isOpen ? elements.slice(0, -1) : elements;
    if (isOpen && finished.length) this.#tail = lines.slice(blocks.at(-1).line).join("\n");
    this.onRender(finished.map((element) => element.textContent).join("\n"));
  }
}

function expandTabs(indent) {
  return indent.replaceAll("\t", "    ");
}
