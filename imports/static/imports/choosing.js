/** The list of a preview, with the choice that a person makes of it: all that is new at first, then what they tick. */
import { clone, part } from "../intake/dom.js";
import { gettext, ngettext } from "../intake/language.js";
import { count, inDays } from "./words.js";

const PAGE = 50;
const WHOLE_PAGE = 500;
const STATUS = { longer: gettext("longer than here"), here: gettext("here already"), deleted: gettext("deleted here, stays so") };
const QUIET = 250;

export class Chooser {
  /** `onChange` is called whenever the choice is another. */
  constructor(element, api, { onChange, onTrouble }) {
    this.element = element;
    this.api = api;
    this.onChange = onChange;
    this.onTrouble = onTrouble;
    this.search = part(element, "search");
    this.since = part(element, "since");
    this.list = part(element, "items");
    this.moreButton = element.querySelector("[data-action=more]");
    this.search.addEventListener("input", () => { clearTimeout(this.timer); this.timer = setTimeout(() => this.#load(), QUIET); });
    this.since.addEventListener("change", () => this.#load());
    this.moreButton.addEventListener("click", () => this.#load(this.more));
    element.querySelector("[data-action=all]").addEventListener("click", () => this.#setAll(true));
    element.querySelector("[data-action=none]").addEventListener("click", () => this.#setAll(false));
    this.list.addEventListener("change", ({ target }) => {
      this.#tick({ external_id: target.dataset.id, to: target.dataset.to }, target.checked);
      this.onChange();
    });
  }

  async show(shown) {
    this.import = shown;
    this.ticked = new Map();
    this.ends = new Map();
    this.isAll = true;
    this.search.value = this.since.value = "";
    this.comesIn = { conversations: 0, documents: 0, records: 0 };
    await this.#load();
  }

  /** The body of the start. */
  choice() {
    const ids = [...this.ticked].filter(([, isOn]) => isOn !== this.isAll).map(([id]) => id);
    const since = this.#since();
    if (!this.isAll) return { only: ids, ...since };
    return ids.length ? { except: ids, ...since } : since;
  }

  /** How many are chosen. */
  get amount() {
    const { since } = this.#since();
    const isLate = (id) => !since || !this.ends.get(id) || new Date(this.ends.get(id)) >= new Date(since);
    const changed = [...this.ticked].filter(([id, isOn]) => isOn !== this.isAll && isLate(id)).length;
    const { conversations, documents, records, projects = 0 } = this.comesIn;
    return this.isAll ? conversations + documents + records + projects - changed : changed;
  }

  #since() {
    return this.since.value ? { since: new Date(`${this.since.value}T00:00`).toISOString() } : {};
  }

  #tick(item, isOn) {
    this.ticked.set(item.external_id, isOn);
    this.ends.set(item.external_id, item.to);
  }

  async #load(after) {
    const query = { limit: PAGE, q: this.search.value, ...this.#since(), ...(after ? { after } : {}) };
    const asked = (this.asked = {});
    try {
      const page = await this.api.preview(this.import.id, query);
      // Another question was asked meanwhile.
      if (asked !== this.asked) return;
      if (!after) this.list.replaceChildren();
      this.list.append(...page.items.map((item) => this.#line(item)));
      this.comesIn = page.comes_in;
      this.more = page.more;
      this.moreButton.hidden = !page.more;
      part(this.element, "nothing").hidden = this.list.childElementCount > 0;
      this.onChange();
    } catch (failure) {
      this.onTrouble(failure);
    }
  }

  #line(item) {
    const line = clone("item");
    const box = line.querySelector("input");
    box.dataset.id = item.external_id;
    box.dataset.to = item.to ?? "";
    box.disabled = !isNews(item);
    box.checked = isNews(item) && this.#isOn(item.external_id);
    if (item.title) part(line, "title").textContent = item.title;
    part(line, "facts").textContent = factsOf(item, STATUS[item.status]);
    return line;
  }

  #isOn(id) {
    return this.ticked.get(id) ?? this.isAll;
  }

  /** Everything, or what the search finds. */
  async #setAll(isOn) {
    if (this.search.value) {
      try {
        for (const item of await this.#found()) this.#tick(item, isOn);
      } catch (failure) {
        this.onTrouble(failure);
      }
    } else {
      this.isAll = isOn;
      this.ticked.clear();
    }
    this.#choiceChanged();
  }

  async #found() {
    const items = [];
    let after = null;
    do {
      const query = { limit: WHOLE_PAGE, q: this.search.value, ...this.#since(), ...(after ? { after } : {}) };
      const page = await this.api.preview(this.import.id, query);
      items.push(...page.items.filter(isNews));
      after = page.more;
    } while (after);
    return items;
  }

  #choiceChanged() {
    for (const box of this.list.querySelectorAll("input:not(:disabled)")) box.checked = this.#isOn(box.dataset.id);
    this.onChange();
  }
}

function isNews(item) {
  return item.status === "new" || item.status === "longer";
}

export function factsOf(item, more) {
  const turns = item.kind === "conversation" ? count(item.turns, ngettext("turn", "turns", item.turns)) : gettext(item.kind);
  return [turns, inDays(item.to), more].filter(Boolean).join(" · ");
}
