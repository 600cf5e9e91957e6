/** Times in the reader's own words and zone: "5 minutes ago", then "yesterday, 14:02", then a date. */

import { fullDate, gettext, language } from "./language.js";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const relative = new Intl.RelativeTimeFormat(language, { numeric: "auto" });
const clock = new Intl.DateTimeFormat(language, { hour: "2-digit", minute: "2-digit" });
const dayOfYear = new Intl.DateTimeFormat(language, { day: "numeric", month: "long" });
const monthOfYear = new Intl.DateTimeFormat(language, { month: "long", year: "numeric" });
const everything = new Intl.DateTimeFormat(language, { dateStyle: "full", timeStyle: "short" });

export function keepTimesFresh() {
  const showAll = () => document.querySelectorAll("time[datetime]").forEach(showTime);
  showAll();
  setInterval(showAll, MINUTE);
}

export function showTime(element) {
  const moment = new Date(element.dateTime);
  if (Number.isNaN(moment.getTime())) return;
  element.textContent = inWords(moment, new Date());
  element.title = everything.format(moment);
}

export function inWords(moment, now) {
  const age = now - moment;
  if (age < MINUTE) return gettext("just now");
  if (age < HOUR) return relative.format(-Math.floor(age / MINUTE), "minute");
  const days = daysBetween(moment, now);
  if (days === 0) return clock.format(moment);
  if (days < 7) return `${relative.format(-days, "day")}, ${clock.format(moment)}`;
  return moment.getFullYear() === now.getFullYear() ? dayOfYear.format(moment) : fullDate.format(moment);
}

/** The heading a conversation of that day is listed under. */
export function dayInWords(moment, now) {
  const days = daysBetween(moment, now);
  if (days < 2) return capitalised(relative.format(-days, "day"));
  if (days < 7) return gettext("Previous 7 days");
  if (days < 30) return gettext("Previous 30 days");
  return monthOfYear.format(moment);
}

function daysBetween(moment, now) {
  return Math.max(0, Math.round((startOfDay(now) - startOfDay(moment)) / DAY));
}

function startOfDay(moment) {
  return new Date(moment.getFullYear(), moment.getMonth(), moment.getDate());
}

function capitalised(words) {
  return words.charAt(0).toUpperCase() + words.slice(1);
}
