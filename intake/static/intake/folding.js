/** What was said at length is folded where it is read; the sources of an answer come when they are unfolded. */
import { fetchPage, part } from "./dom.js";
import { gettext, language } from "./language.js";

const LONG = 4_000;

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
  thread.addEventListener("toggle", async ({ target }) => {
    if (!target.open || target.dataset.part !== "sources") return;
    const list = (await fetchPage(target.dataset.href))?.querySelector("[data-sources]");
    if (list) part(target, "sources-list").replaceChildren(list);
  }, true);
}
