/** Taking back what a tool call stored: offered with what it was, asked of the server, then shown. And deleting a turn. */
import { submit } from "./chats.js";
import { fetchPage, part, write } from "./dom.js";
import { gettext } from "./language.js";

const UNREACHABLE = gettext("No connection to Recollect. Try again.");

export function listenForUndo(thread, { csrfToken, announce }) {
  thread.addEventListener("click", async (event) => {
    const button = event.target.closest('[data-action="undo"]');
    if (!button) return;
    const step = button.closest(".step");
    // A button that is disabled loses the focus.
    const hadFocus = document.activeElement === button;
    button.disabled = true;
    const trouble = await takeBack(button.dataset.href, csrfToken());
    button.disabled = false;
    part(step, "undo-trouble").textContent = trouble ?? "";
    if (!trouble) showUndone(step, announce);
    if (hadFocus) (trouble ? button : part(step, "text")).focus({ preventScroll: true });
  });
}

/** Why it could not be taken back; null when it was. */
async function takeBack(href, csrfToken) {
  try {
    const response = await write(href, { method: "POST", csrfToken });
    if (response.ok) return null;
    const problem = await response.json().catch(() => null);
    return problem?.detail ?? gettext("The server answered %(status)s. Try again in a moment.", { status: response.status });
  } catch {
    return UNREACHABLE;
  }
}

function showUndone(step, announce) {
  step.classList.add("undone");
  step.querySelector('[data-action="undo"]').hidden = true;
  part(step, "undone").hidden = false;
  announce(part(step, "undone").textContent);
}

/** In a dialog, with the words and the counts of the page that asks the same without scripts. */
export function listenForDeleting(thread, { confirm }) {
  thread.addEventListener("click", async (event) => {
    const link = event.target.closest('[data-part="delete"]');
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const page = await fetchPage(link.href);
    const title = page?.querySelector("[data-delete-title]")?.textContent;
    // Gone, or the connection: the page itself says which.
    if (!title) return location.assign(link.href);
    const words = (name) => page.querySelector(`[data-delete-${name}]`)?.textContent ?? "";
    const more = page.querySelector("[name=from_here]");
    const choice = await confirm({ title, text: words("text"), excerpt: words("excerpt"), hint: words("hint"), more: more?.textContent ?? "" });
    // If messages were added meanwhile, that page comes with the new count.
    if (choice) submit(link.href, choice === "more" ? { from_here: more.value } : {});
  });
}
