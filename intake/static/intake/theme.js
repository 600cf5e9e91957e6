/** Light or dark: as the system has it, or as the person chose in this browser. The server reads the cookie: no flash. */

import { HOME } from "./dom.js";
import { gettext } from "./language.js";

const YEAR_SECONDS = 31_536_000;

/** `theme`, `text` or `width`, of this browser; without a value as if it had never been chosen. */
export function chooseLook(name, value) {
  if (value) document.documentElement.dataset[name] = value;
  else delete document.documentElement.dataset[name];
  document.cookie = `${name}=${value}; path=${HOME}; max-age=${value ? YEAR_SECONDS : 0}; samesite=lax`;
}

export function chooseTheme(theme) {
  chooseLook("theme", theme === "system" ? "" : theme);
  showThemeColour();
  for (const button of document.querySelectorAll("[data-theme-button]")) name(button);
  checkChoice();
}

/** A button goes from one to the next, beginning with the one that looks different; a menu has all of them. */
export function listenForTheme() {
  for (const group of document.querySelectorAll("[data-themes]")) {
    group.hidden = false;
    group.addEventListener("click", (event) => {
      const choice = event.target.closest("[data-theme-choice]");
      if (choice) chooseTheme(choice.dataset.themeChoice);
    });
  }
  checkChoice();
  for (const button of document.querySelectorAll("[data-theme-button]")) {
    button.hidden = false;
    name(button);
    button.addEventListener("click", () => chooseTheme(nextTheme()));
  }
}

function nextTheme() {
  const isSystemDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const order = isSystemDark ? ["system", "light", "dark"] : ["system", "dark", "light"];
  return order[(order.indexOf(document.documentElement.dataset.theme ?? "system") + 1) % order.length];
}

function name(button) {
  const now = button.dataset[document.documentElement.dataset.theme ?? "system"];
  button.title = now;
  button.ariaLabel = gettext("Colours: %(now)s. Change", { now });
}

function checkChoice() {
  const now = document.documentElement.dataset.theme ?? "system";
  for (const choice of document.querySelectorAll("[data-theme-choice]")) choice.ariaChecked = String(choice.dataset.themeChoice === now);
}

/** The browser's own bar in the page's colour. */
function showThemeColour() {
  const paper = getComputedStyle(document.documentElement).backgroundColor;
  for (const meta of document.querySelectorAll("meta[name=theme-color]")) {
    meta.dataset.before ??= meta.content;
    meta.content = document.documentElement.dataset.theme ? paper : meta.dataset.before;
  }
}
