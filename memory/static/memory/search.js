/** The search page: another place to search is searched at once when it is clicked; who goes by keys presses Enter. */

const form = document.querySelector("[data-search]");
const field = form.querySelector("[data-search-field]");

// A click with a mouse counts its clicks; one that a key made has none.
form.addEventListener("click", (event) => {
  const isPointed = event.detail > 0 && event.target.matches(".pills input");
  if (isPointed && field.value.trim()) setTimeout(() => form.requestSubmit());
});

// An address says only what was asked.
form.addEventListener("formdata", ({ formData }) => {
  for (const name of ["from", "to"]) if (!formData.get(name)) formData.delete(name);
  if (formData.get("scope") === "all") formData.delete("scope");
});

/** The better order is asked for once the first one is shown. It comes by itself unless somebody is at the list. */
const results = document.querySelector("[data-results][data-better]");
if (results) showBetterOrder(results);

async function showBetterOrder(list) {
  let better;
  try {
    const response = await fetch(list.dataset.better, { headers: { accept: "text/html" } });
    if (!response.ok) return;
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    better = page.querySelector("[data-results][data-reranked=yes]");
  } catch {
    return; // Offline, or on the way to another page: the first order stands.
  }
  if (!better || order(better).join() === order(list).join()) return;
  const put = () => list.replaceWith(document.adoptNode(better));
  if (!isBeingUsed(list)) return move(put);
  const button = document.querySelector("[data-show-better]");
  button.hidden = false;
  button.addEventListener("click", () => {
    button.hidden = true;
    move(() => {
      put();
      better.querySelector("a").focus();
    });
  });
}

const order = (list) => [...list.querySelectorAll("[data-result] a")].map((link) => link.getAttribute("href"));

/** Pointed at, reached by keys, scrolled to, or selected in: what is read must not move. */
function isBeingUsed(list) {
  const isSelected = !getSelection().isCollapsed && list.contains(getSelection().anchorNode);
  return list.matches(":hover") || list.contains(document.activeElement) || scrollY > 0 || isSelected;
}

/** Each result glides to its new place, where the browser can and the person has nothing against movement. */
function move(put) {
  const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  if (isCalm || !document.startViewTransition) return put();
  document.startViewTransition(put);
}
