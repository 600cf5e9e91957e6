/** The page's language: texts by Django's catalog, which a page that is not in English loads first, and dates. */

const catalog = globalThis.django;
const PLACEHOLDER = /%\((\w+)\)s/g;

const ofPage = document.documentElement.lang;

/** For `Intl`: the browser's region where its language is the page's; in English the day first, as the server writes it. */
export const language = ofPage === "en" ? "en-GB" : navigator.language.split("-")[0] === ofPage ? navigator.language : ofPage;

export const fullDate = new Intl.DateTimeFormat(language, { day: "numeric", month: "long", year: "numeric" });

/** `%(name)s` in the text stands for `values.name`. */
export function gettext(text, values = {}) {
  return filled(catalog ? catalog.gettext(text) : text, values);
}

export function ngettext(one, many, amount, values = { count: amount.toLocaleString(language) }) {
  return filled(catalog ? catalog.ngettext(one, many, amount) : amount === 1 ? one : many, values);
}

function filled(text, values) {
  return text.replace(PLACEHOLDER, (_, name) => values[name]);
}

/**
 * What the server says in English, to programs too; there may be HTML in its values. As `in_page_language` in
 * sentences.py, from which the catalog has the sentences.
 */
export function inPageLanguage(sentence) {
  if (sentence in sentences) return sentences[sentence];
  for (const [text, pattern] of (patterns ??= patternsOf(Object.keys(sentences)))) {
    const values = pattern.exec(sentence)?.groups;
    if (values) return filled(sentences[text], Object.fromEntries(Object.entries(values).map(([name, value]) => [name, shown(name, value)])));
  }
  return sentence;
}

const sentences = catalog?.catalog.sentences ?? {};
let patterns = null;

/** Those that say most first. */
function patternsOf(texts) {
  const literal = (text) => text.replace(PLACEHOLDER, "").length;
  return texts.filter((text) => text.includes("%(")).sort((a, b) => literal(b) - literal(a)).map((text) => [text, patternOf(text)]);
}

const KINDS = { date: String.raw`\d{4}-\d\d-\d\d`, count: "[\\d,]+", more: "[\\d,]+" };

function patternOf(text) {
  const pieces = text.split(PLACEHOLDER).map((piece, at) => (at % 2 ? `(?<${piece}>${KINDS[piece] ?? ".+?"})` : piece.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")));
  return new RegExp(`^${pieces.join("")}$`, "s");
}

function shown(name, value) {
  if (name === "places") return value.split(", ").map(inPageLanguage).join(", ");
  if (name === "date") return fullDate.format(new Date(`${value}T00:00`));
  return /^\d{1,3}(,\d{3})*$/.test(value) ? Number(value.replaceAll(",", "")).toLocaleString(language) : inPageLanguage(value);
}
