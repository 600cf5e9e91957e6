/** Writing notes: Ctrl+S or Ctrl+Enter saves, and nobody leaves words that are not saved by accident. */

import { csrfCookie, fetchPage, parseHtml, write } from "../intake/dom.js";

// On a phone the tab of this page may be beyond the edge.
document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

for (const form of document.querySelectorAll("[data-note]")) watch(form);

for (const button of document.querySelectorAll("[data-preview]")) preview(button);

const narrow = document.querySelector("form.narrow");
let typed = 0;
// The list follows what is typed.
narrow?.elements.q?.addEventListener("input", () => {
  clearTimeout(typed);
  typed = setTimeout(async () => {
    const address = `${narrow.action}?${new URLSearchParams(new FormData(narrow))}`;
    const page = await fetchPage(address);
    if (!page || address !== `${narrow.action}?${new URLSearchParams(new FormData(narrow))}`) return;
    document.querySelector("[data-found]").replaceWith(page.querySelector("[data-found]"));
    history.replaceState(null, "", address);
  }, 250);
});

/** Shows the text as it will be read in place of its field, and the field again. */
function preview(button) {
  const form = button.closest("form");
  const field = form.querySelector("textarea:not([readonly])");
  const shown = document.createElement("div");
  shown.className = "prose note";
  shown.tabIndex = 0;
  shown.dir = "auto";
  shown.hidden = true;
  field.after(shown);
  button.hidden = false;
  button.addEventListener("click", async () => {
    if (shown.hidden) {
      const page = await rendered(button.dataset.preview, field.value, form.elements.csrfmiddlewaretoken.value);
      if (!page) return;
      shown.replaceChildren(...page.body.childNodes);
    }
    shown.hidden = !shown.hidden;
    field.hidden = !shown.hidden;
    button.ariaPressed = String(!shown.hidden);
    (shown.hidden ? field : shown).focus({ preventScroll: true });
  });
}

async function rendered(address, content, token) {
  try {
    const response = await write(address, { method: "POST", csrfToken: csrfCookie() || token, body: new URLSearchParams({ content }) });
    return response.ok ? parseHtml(await response.text()) : null;
  } catch {
    return null;
  }
}

function watch(form) {
  // As the server sent it: somebody may write before this runs.
  const before = written(form, "defaultValue");
  let isSending = false;
  const hasUnsaved = () => !isSending && ("unsavedAlready" in form.dataset || written(form) !== before);

  const show = () => {
    const sign = form.querySelector("[data-unsaved]");
    if (sign) sign.hidden = !hasUnsaved();
  };
  form.addEventListener("input", show);
  show();
  form.addEventListener("submit", () => (isSending = true));
  form.addEventListener("keydown", (event) => {
    const isSaving = (event.ctrlKey || event.metaKey) && (event.key === "s" || event.key === "Enter");
    if (!isSaving) return;
    event.preventDefault();
    form.requestSubmit();
  });
  addEventListener("beforeunload", (event) => {
    if (hasUnsaved()) event.preventDefault();
  });
  // Come back to by the browser's own button, a page is as it was left.
  addEventListener("pageshow", () => (isSending = false));
}

function written(form, state = "value") {
  return [...form.querySelectorAll("textarea:not([readonly]), input:not([type=hidden]), select")].map((field) => field[state] ?? field.querySelector("[selected]").value).join("\n");
}
