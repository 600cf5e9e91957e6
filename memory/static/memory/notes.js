/** Writing notes: Ctrl+S or Ctrl+Enter saves, and nobody leaves words that are not saved by accident. */

// On a phone the tab of this page may be beyond the edge.
document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

for (const form of document.querySelectorAll("[data-note]")) watch(form);

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
  return [...form.querySelectorAll("textarea:not([readonly]), input:not([type=hidden])")].map((field) => field[state]).join("\n");
}
