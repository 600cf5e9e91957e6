/** Which points are shown: those of the chosen sources that were said within the chosen months. */

import { language } from "../intake/language.js";

const DAY_MS = 86_400_000;
const MONTH_NAME = new Intl.DateTimeFormat(language, { month: "short", year: "numeric", timeZone: "UTC" });

export class Filters {
  /** `onChange` is told when other points are to be shown. */
  constructor(form, onChange) {
    this.form = form;
    this.from = form.querySelector("[data-span-from]");
    this.to = form.querySelector("[data-span-to]");
    form.addEventListener("input", () => {
      this.#name();
      onChange();
    });
    form.addEventListener("submit", (event) => event.preventDefault());
  }

  /** `days` since 1970 of all points, the oldest first. */
  take(days) {
    const wasAll = Number(this.to.value) === Number(this.to.max);
    this.first = days.length ? monthOf(days[0]) : 0;
    this.last = days.length ? monthOf(days[days.length - 1]) : 0;
    this.months = Int32Array.from(days, (day) => monthOf(day) - this.first);
    for (const input of [this.from, this.to]) input.max = this.last - this.first;
    if (wasAll) this.to.value = this.to.max;
    this.form.querySelector(".span").hidden = this.first === this.last;
    this.form.hidden = false;
    this.#name();
  }

  /** For each point 1 if it is shown, 0 if not. */
  shown(sources) {
    const chosen = new Set([...this.form.querySelectorAll("[name=source]:checked")].map((box) => Number(box.value)));
    const [from, to] = this.#span();
    return Uint8Array.from(sources, (source, k) => chosen.has(source) && this.months[k] >= from && this.months[k] <= to);
  }

  #span() {
    return [Number(this.from.value), Number(this.to.value)].sort((one, other) => one - other);
  }

  #name() {
    const [from, to] = this.#span();
    const names = [from, to].map((month) => MONTH_NAME.format(dateOf(this.first + month)));
    this.form.querySelector("[data-span-name]").textContent = from === to ? names[0] : names.join(" – ");
    this.from.ariaValueText = MONTH_NAME.format(dateOf(this.first + Number(this.from.value)));
    this.to.ariaValueText = MONTH_NAME.format(dateOf(this.first + Number(this.to.value)));
    this.#picture(from, to);
  }

  /** How much there is of each month; of many months several are one bar. */
  #picture(from, to) {
    const picture = this.form.querySelector("[data-span-picture]");
    const count = this.last - this.first + 1;
    const bars = Math.min(count, 90);
    const sizes = new Array(bars).fill(0);
    for (const month of this.months) sizes[Math.floor((month * bars) / count)]++;
    const most = Math.max(1, ...sizes);
    picture.setAttribute("viewBox", `0 0 ${bars} 100`);
    picture.replaceChildren(
      ...sizes.map((size, place) => {
        const bar = document.createElementNS("http://www.w3.org/2000/svg", "rect");
        const height = size ? Math.max(6, (100 * size) / most) : 0;
        const isIn = (place + 1) * count > from * bars && place * count <= to * bars;
        for (const [name, value] of Object.entries({ x: place + 0.1, y: 100 - height, width: 0.8, height })) bar.setAttribute(name, value);
        bar.classList.toggle("out", !isIn);
        return bar;
      }),
    );
  }
}

/** Months since the year 0. */
function monthOf(day) {
  const date = new Date(day * DAY_MS);
  return date.getUTCFullYear() * 12 + date.getUTCMonth();
}

function dateOf(month) {
  return new Date(Date.UTC(Math.floor(month / 12), month % 12, 1));
}
