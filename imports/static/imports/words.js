/** Counts, days and bytes in words. */

import { fullDate, language, ngettext } from "../intake/language.js";

const number = new Intl.NumberFormat(language);

export function count(amount, noun) {
  return `${number.format(amount)} ${noun}`;
}

export function inDays(text) {
  return text ? fullDate.format(new Date(text)) : "";
}

export function span(from, to) {
  const [first, last] = [inDays(from), inDays(to)];
  return first === last ? first : `${first} – ${last}`;
}

export function megabytes(bytes) {
  return `${number.format(Math.round(bytes / 100_000) / 10)} MB`;
}

export function seconds(amount) {
  return amount < 90 ? ngettext("%(count)s second", "%(count)s seconds", Math.max(1, Math.round(amount))) : ngettext("%(count)s minute", "%(count)s minutes", Math.round(amount / 60));
}
