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
