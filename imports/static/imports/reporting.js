/** What an import came to: counts, what was left out, and links to what it brought. */
import { HOME, clone, part } from "../intake/dom.js";
import { gettext, language, ngettext } from "../intake/language.js";
import { factsOf } from "./choosing.js";
import { count, seconds, span } from "./words.js";

const PAGE = 50;
// So few passages are done before their time can be told.
const FEW = 20;

export const OUTCOMES = {
  done: gettext("Everything has its own date, and search finds it beside what you say here."),
  failed: gettext("The import failed."),
  cancelled: gettext("The import was cancelled."),
  undone: gettext("The import is undone."),
};

const LABELS = [
  ["conversations", (amount) => ngettext("conversation", "conversations", amount)],
  ["turns", (amount) => ngettext("turn", "turns", amount)],
  ["versions", (amount) => ngettext("other version", "other versions", amount)],
  ["documents", (amount) => ngettext("document", "documents", amount)],
  ["records", (amount) => ngettext("record", "records", amount)],
  ["projects", (amount) => ngettext("project", "projects", amount)],
];

/** Names and numbers; `counts` is `found` or `stored` of the import. */
export function showFacts(element, shown, counts) {
  const facts = [];
  for (const [name, labelOf] of LABELS) {
    const amount = counts?.[name];
    if (amount) facts.push([amount.toLocaleString(language), labelOf(amount)]);
  }
  if (shown.from && shown.to) facts.push([span(shown.from, shown.to), gettext("from and to")]);
  part(element, "facts").replaceChildren(...facts.map(([value, label]) => fact(value, label)));
}

function fact(value, label) {
  const group = document.createElement("div");
  const [name, content] = [document.createElement("dt"), document.createElement("dd")];
  [name.textContent, content.textContent] = [label, value];
  group.append(name, content);
  return group;
}

/** How much of an export is here already; nothing where all of it is new. */
export function newsOf({ new: fresh, longer, here, deleted = 0 }) {
  if (!longer && !here && !deleted) return "";
  const news = [
    [fresh, gettext("new")],
    [longer, gettext("longer than what is here")],
    [here, gettext("here already")],
    [deleted, gettext("deleted here, which stays so")],
  ];
  return news.filter(([amount]) => amount).map(([amount, words]) => `${amount.toLocaleString(language)} ${words}`).join(" · ");
}

export function showLeftOut(element, shown) {
  const notices = part(element, "notices");
  notices.replaceChildren(...shown.notices.map((text) => listed(text)));
  notices.hidden = !shown.notices.length;
  const fold = part(element, "skipped");
  const amount = shown.found?.skipped ?? shown.skipped.length;
  fold.hidden = !amount;
  fold.querySelector("summary").textContent = ngettext("%(count)s item cannot be imported", "%(count)s items cannot be imported", amount);
  const lines = shown.skipped.map(({ where, reason }) => listed(`${where}: ${reason}`));
  if (amount > lines.length) lines.push(listed(ngettext("… and %(count)s other", "… and %(count)s others", amount - lines.length)));
  fold.querySelector("ul").replaceChildren(...lines);
}

function listed(text) {
  const line = document.createElement("li");
  line.textContent = text;
  return line;
}

export class Report {
  constructor(element, api, { onTrouble }) {
    this.element = element;
    this.api = api;
    this.onTrouble = onTrouble;
    this.list = part(element, "items");
    this.moreButton = element.querySelector("[data-action=more]");
    this.moreButton.addEventListener("click", () => this.#load(this.more));
  }

  async show(shown) {
    this.import = shown;
    part(this.element, "outcome").textContent = shown.error || OUTCOMES[shown.state];
    showFacts(this.element, { ...shown, from: null }, shown.state === "undone" ? null : shown.stored);
    showLeftOut(this.element, shown.state === "undone" ? { ...shown, found: null, skipped: [] } : shown);
    this.#showAccount(shown.state === "done" ? shown.account : null);
    this.#showVectors(shown.state === "done" ? shown.vectors : null);
    this.element.querySelector("[data-action=undo]").hidden = !shown.can_undo;
    this.list.replaceChildren();
    this.moreButton.hidden = true;
    if (shown.can_undo) await this.#load();
    part(this.element, "brought-heading").hidden = !this.list.childElementCount;
  }

  /** Where the turns of the export are now, unless all came in: together they are those that were read. */
  #showAccount(account) {
    const line = part(this.element, "account");
    line.hidden = !account?.read?.turns || account.stored.turns === account.read.turns;
    if (line.hidden) return;
    const places = [
      ["stored", gettext("new")],
      ["changed", gettext("with corrected or longer words")],
      ["here", gettext("here already")],
      ["deleted", gettext("deleted here, which stays so")],
      ["not_chosen", gettext("not chosen")],
    ];
    const parts = places.filter(([name]) => account[name]?.turns).map(([name, words]) => `${account[name].turns.toLocaleString(language)} ${words}`);
    const read = account.read.turns;
    line.textContent = ngettext("%(count)s turn was read: %(places)s.", "%(count)s turns were read: %(places)s.", read, {
      count: read.toLocaleString(language),
      places: parts.join(" · "),
    });
  }

  #showVectors(vectors) {
    const line = part(this.element, "vectors");
    line.hidden = !vectors?.waiting;
    if (line.hidden) return;
    const inAbout = () => (vectors.seconds === null ? "" : gettext(" in about %(time)s", { time: seconds(vectors.seconds) }));
    const time = vectors.waiting < FEW ? gettext(" in a moment") : inAbout();
    line.textContent = ngettext(
      "Search by words is ready. Search by meaning follows%(time)s (%(count)s passage left).",
      "Search by words is ready. Search by meaning follows%(time)s (%(count)s passages left).",
      vectors.waiting,
      { count: vectors.waiting.toLocaleString(language), time },
    );
  }

  async #load(after) {
    try {
      const page = await this.api.preview(this.import.id, { status: "stored", limit: PAGE, ...(after ? { after } : {}) });
      this.list.append(...page.items.map(broughtLine));
      this.more = page.more;
      this.moreButton.hidden = !page.more;
    } catch (failure) {
      this.onTrouble(failure);
    }
  }
}

function broughtLine(item) {
  const line = clone("brought");
  const title = part(line, "title");
  if (item.title) title.textContent = item.title;
  if (item.conversation_id) title.href = `${HOME}c/${item.conversation_id}/`;
  part(line, "facts").textContent = factsOf(item);
  return line;
}
