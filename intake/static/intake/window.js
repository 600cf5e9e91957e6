/** What of a chat its model reads: a line where the sent part begins, and the ways to another model. */
import { clone } from "./dom.js";
import { ngettext } from "./language.js";

let line = null;

/** Shows where what was sent with the last turn began; also of turns that are added above later. */
export function watchWindow(thread) {
  const place = () => placeLine(thread);
  new MutationObserver(place).observe(thread, { childList: true });
  place();
}

/** `notSent`: how many earlier messages the model does not get with this turn; `sent`: how many it does. */
export function tellSent(thread, turn, { notSent = 0, sent = 0 }) {
  turn.dataset.notSent = notSent;
  turn.dataset.sent = sent;
  placeLine(thread);
}

/** The menu of the models, open. */
export function chooseModel() {
  const select = modelSelect();
  if (!select) return;
  select.focus();
  try {
    select.showPicker();
  } catch {
    // Older browsers open it by a hand alone: it has the focus.
  }
}

/** Fills the menu beside "Answer again" with the models, each an option of the select. */
export function offerModels(menu, options) {
  const entries = options.map(({ value, text, title }) => {
    const entry = document.createElement("button");
    Object.assign(entry, { type: "button", role: "menuitem", tabIndex: -1, value, title, textContent: text });
    entry.dataset.action = "regenerate-with";
    return entry;
  });
  menu.replaceChildren(menu.firstElementChild, ...entries);
}

/** Null where there is nothing to choose. */
function modelSelect() {
  const select = document.querySelector("#model");
  return select && !select.hidden ? select : null;
}

/** Where there is another model, there is something to choose. */
export function canChooseModel() {
  return modelSelect() !== null;
}

function placeLine(thread) {
  const turns = [...thread.querySelectorAll(".turn")];
  const last = turns.at(-1);
  // Of a message that has just been written it is not known yet: what is shown of the one before stays.
  if (last?.dataset.status === "streaming" && last.dataset.notSent === undefined) return;
  const notSent = document.querySelector("[data-later]") ? 0 : Number(last?.dataset.notSent ?? 0);
  const first = notSent ? turns[turns.length - 1 - Number(last.dataset.sent)] : null;
  if (!first) return line?.remove();
  line ??= clone("not-sent");
  line.querySelector("[data-not-sent-text]").textContent = ngettext(
    "%(count)s earlier message is not sent to this model",
    "%(count)s earlier messages are not sent to this model",
    notSent,
  );
  line.querySelector("button").hidden = !canChooseModel();
  if (first.previousElementSibling !== line) first.before(line);
}
