/** Deciding on proposals: by buttons or keys, in place, each with its undo. Without scripts the forms do the same. */

import { csrfCookie, isComposing, parseHtml, write } from "../intake/dom.js";
import { gettext } from "../intake/language.js";

const root = document.querySelector("[data-proposals]");
const all = () => [...root.querySelectorAll("[data-proposal]")];

root.addEventListener("submit", async (event) => {
  event.preventDefault();
  await send(event.target, event.submitter);
});

root.addEventListener("click", ({ target }) => {
  const button = target.closest("button[data-key=e]");
  if (button) edit(button);
});

// A key counts while the focus is on a proposal, and not in a text of it; the arrows also lead to the first one.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || isComposing(event)) return;
  if (event.target.matches("input, textarea, select")) return event.key === "Escape" && close(event);
  const proposal = event.target.closest("[data-proposal]");
  if (event.key === "ArrowDown" || event.key === "ArrowUp") return move(event, proposal);
  const button = proposal && buttonFor(event, proposal);
  if (!button) return;
  event.preventDefault();
  button.click();
});

function buttonFor({ key, shiftKey }, proposal) {
  if (!/^[a-z]$/i.test(key)) return null;
  const isAll = shiftKey && key.toLowerCase() === "a";
  const group = proposal.closest("[data-proposal-group]");
  // The only one of its chat has no button for all.
  const ofAll = isAll && group?.querySelector("[data-key=all]");
  return ofAll || proposal.querySelector(`[data-key="${key.toLowerCase()}"]`);
}

function move(event, proposal) {
  if (!proposal && event.target !== document.body && event.target.id !== "content") return;
  event.preventDefault();
  const items = all();
  const next = proposal ? items.indexOf(proposal) + (event.key === "ArrowDown" ? 1 : -1) : 0;
  focus(items[Math.min(Math.max(next, 0), items.length - 1)]);
}

function focus(item) {
  item?.querySelector("button:not([hidden])")?.focus();
}

function edit(button) {
  const details = button.closest("[data-proposal]").querySelector("[data-proposal-edit]");
  details.open = !details.open;
  button.ariaExpanded = String(details.open);
  if (details.open) details.querySelector("textarea").focus();
}

function close({ target }) {
  const proposal = target.closest("[data-proposal]");
  const button = proposal?.querySelector("[data-key=e]");
  if (!button) return;
  edit(button);
  button.focus();
}

/** The page as it is after the decision takes the place of this one; the focus stays where it was in the list. */
async function send(form, submitter) {
  const place = all().indexOf(form);
  const body = new URLSearchParams(new FormData(form, submitter));
  const token = csrfCookie() || form.elements.csrfmiddlewaretoken.value;
  const response = await write(form.action, { method: "POST", csrfToken: token, body }).catch(() => null);
  const page = response && parseHtml(await response.text());
  const fresh = page?.querySelector("[data-proposals]");
  if (!fresh) return say(response ? gettext("The server answered %(status)s. Try again in a moment.", { status: response.status }) : gettext("No connection to Recollect. Try again."));
  root.replaceChildren(...fresh.childNodes);
  const items = all();
  focus(items[Math.min(Math.max(place, 0), items.length - 1)]);
}

function say(words) {
  const line = document.createElement("p");
  line.className = "notice notice-error";
  line.role = "alert";
  line.textContent = words;
  root.querySelector(":scope > .notice")?.remove();
  root.prepend(line);
}
