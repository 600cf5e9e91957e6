/** Counts, days and bytes in words. */

const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", year: "numeric" });
const number = new Intl.NumberFormat();

export function count(amount, one, many = `${one}s`) {
  return `${number.format(amount)} ${amount === 1 ? one : many}`;
}

export function inDays(text) {
  return text ? day.format(new Date(text)) : "";
}

export function span(from, to) {
  const [first, last] = [inDays(from), inDays(to)];
  return first === last ? first : `${first} – ${last}`;
}

export function megabytes(bytes) {
  return `${number.format(Math.round(bytes / 100_000) / 10)} MB`;
}

export function seconds(amount) {
  return amount < 90 ? count(Math.max(1, Math.round(amount)), "second") : count(Math.round(amount / 60), "minute");
}
