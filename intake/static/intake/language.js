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
