/** The key that people know from elsewhere: `/` goes to search, unless one is writing. */

export function listenForSearch() {
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || isWriting(event.target)) return;
    const field = document.querySelector("[data-search-field]");
    const link = document.querySelector("[data-search-link]");
    if (!field && !link) return;
    event.preventDefault();
    if (!field) return link.click();
    field.focus();
    field.select();
  });
}

function isWriting(element) {
  return element.isContentEditable || element.matches("textarea, select, input:not([type=radio], [type=checkbox])");
}
