/** The page's language: texts by Django's catalog, which a page that is not in English loads first, and dates. */

const catalog = globalThis.django;

const ofPage = document.documentElement.lang;

/** For `Intl`: with the browser's region where its language is the page's. */
export const language = navigator.language.split("-")[0] === ofPage ? navigator.language : ofPage;

/** `%(name)s` in the text stands for `values.name`. */
export function gettext(text, values = {}) {
  return filled(catalog ? catalog.gettext(text) : text, values);
}

export function ngettext(one, many, amount, values = { count: amount.toLocaleString(language) }) {
  return filled(catalog ? catalog.ngettext(one, many, amount) : amount === 1 ? one : many, values);
}

function filled(text, values) {
  return text.replace(/%\((\w+)\)s/g, (_, name) => values[name]);
}
