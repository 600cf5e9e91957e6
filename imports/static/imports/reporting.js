/** What an import came to: counts, what was left out, and links to what it brought. */
import { clone, part } from "../intake/dom.js";
import { factsOf } from "./choosing.js";
import { count, seconds, span } from "./words.js";

const PAGE = 50;

export const OUTCOMES = {
  done: "Everything has its own date, and search finds it beside what you say here.",
  failed: "The import failed.",
  cancelled: "The import was cancelled.",
  undone: "The import is undone. It is as it was before.",
};

/** Names and numbers; `counts` is `found` or `stored` of the import. */
export function showFacts(element, shown, counts) {
  const facts = [];
  for (const [name, label] of [["conversations", "conversation"], ["turns", "turn"], ["versions", "other version"], ["documents", "document"], ["records", "record"]]) {
    const amount = counts?.[name];
    if (amount) facts.push([amount.toLocaleString(), amount === 1 ? label : `${label}s`]);
  }
  if (shown.from && shown.to) facts.push([span(shown.from, shown.to), "from and to"]);
  part(element, "facts").replaceChildren(...facts.map(([value, label]) => fact(value, label)));
}

function fact(value, label) {
  const group = document.createElement("div");
  const [name, content] = [document.createElement("dt"), document.createElement("dd")];
  [name.textContent, content.textContent] = [label, value];
  group.append(name, content);
  return group;
}

/** How much of an export is here already. */
export function newsOf({ new: fresh, longer, here, deleted = 0 }) {
  const news = [
    [fresh, "new"],
    [longer, "longer than what is here"],
    [here, "here already"],
    [deleted, "deleted here, which stays so"],
  ];
  return news.filter(([amount]) => amount).map(([amount, words]) => `${amount.toLocaleString()} ${words}`).join(" · ");
}

export function showLeftOut(element, shown) {
  const notices = part(element, "notices");
  notices.replaceChildren(...shown.notices.map(listed));
  notices.hidden = !shown.notices.length;
  const fold = part(element, "skipped");
  const amount = shown.found?.skipped ?? shown.skipped.length;
  fold.hidden = !amount;
  fold.querySelector("summary").textContent = `${count(amount, "thing")} cannot come in`;
  const lines = shown.skipped.map(({ where, reason }) => listed(`${where}: ${reason}`));
  if (amount > lines.length) lines.push(listed(`… and ${count(amount - lines.length, "other")}`));
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
    showLeftOut(this.element, shown);
    this.#showVectors(shown.vectors);
    this.element.querySelector("[data-action=undo]").hidden = !shown.can_undo;
    this.list.replaceChildren();
    this.moreButton.hidden = true;
    if (shown.can_undo) await this.#load();
    part(this.element, "brought-heading").hidden = !this.list.childElementCount;
  }

  #showVectors(vectors) {
    const line = part(this.element, "vectors");
    line.hidden = !vectors?.waiting;
    if (line.hidden) return;
    const time = vectors.seconds === null ? "" : `, in about ${seconds(vectors.seconds)}`;
    line.textContent = `Search finds all of it by its words now, and by meaning once ${count(vectors.waiting, "passage")} more have their vectors${time}.`;
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
  title.textContent = item.title || "Untitled";
  if (item.conversation_id) title.href = `/c/${item.conversation_id}/`;
  part(line, "facts").textContent = factsOf(item);
  return line;
}
