/** A long text that is pasted becomes a folded block below the message: it can be looked at, put into the text, or taken out. */

import { gettext, language } from "./language.js";

export const LONG = 4000;

export class Pasted {
  constructor(form, input, onChange) {
    this.list = form.querySelector("[data-pasted]");
    this.input = input;
    this.onChange = onChange;
    input.addEventListener("paste", (event) => {
      const text = event.clipboardData?.getData("text/plain") ?? "";
      if (text.length <= LONG) return;
      event.preventDefault();
      this.#add(text);
    });
  }

  get texts() {
    return [...this.list.children].map((block) => block.querySelector("[data-pasted-text]").value);
  }

  clear() {
    this.list.replaceChildren();
    this.list.hidden = true;
  }

  #add(text) {
    const block = document.querySelector("template[data-template=pasted]").content.firstElementChild.cloneNode(true);
    const field = block.querySelector("[data-pasted-text]");
    field.value = text;
    const lines = text.split("\n").length;
    block.querySelector("[data-pasted-size]").textContent =
      [gettext("%(count)s characters", { count: [...text].length.toLocaleString(language) }), lines > 1 ? gettext("%(count)s lines", { count: lines.toLocaleString(language) }) : ""].filter(Boolean).join(", ");
    field.addEventListener("input", this.onChange);
    block.querySelector("[data-pasted-remove]").addEventListener("click", () => this.#take(block, ""));
    block.querySelector("[data-pasted-inline]").addEventListener("click", () => this.#take(block, field.value));
    this.list.append(block);
    this.list.hidden = false;
    this.onChange();
  }

  #take(block, text) {
    block.remove();
    this.list.hidden = this.list.childElementCount === 0;
    if (text) this.input.setRangeText(text, this.input.selectionStart, this.input.selectionEnd, "end");
    this.input.focus();
    this.onChange();
  }
}

/** What was said at length is folded where it is read, too. */
export function foldLong(thread) {
  const fold = () => {
    for (const said of thread.querySelectorAll(".said:not([data-measured])")) {
      said.dataset.measured = "";
      if (said.textContent.length <= LONG) continue;
      said.classList.add("folded");
      const button = document.createElement("button");
      button.type = "button";
      button.className = "fold-button";
      const show = () => {
        const isFolded = said.classList.contains("folded");
        button.textContent = isFolded ? gettext("Show all %(count)s characters", { count: said.textContent.length.toLocaleString(language) }) : gettext("Show less");
        button.ariaExpanded = String(!isFolded);
      };
      button.addEventListener("click", () => {
        said.classList.toggle("folded");
        show();
      });
      show();
      said.after(button);
    }
  };
  fold();
  new MutationObserver(fold).observe(thread, { childList: true });
}
