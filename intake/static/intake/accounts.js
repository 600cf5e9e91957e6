/** Pages of an account: passwords shown and hidden, looks of this browser, and choices that are saved when they change. */

import { copy } from "./copying.js";
import { gettext } from "./language.js";
import { chooseLook, chooseTheme } from "./theme.js";

for (const button of document.querySelectorAll("[data-reveal]")) {
  const input = document.getElementById(button.dataset.reveal);
  const show = button.textContent;
  button.hidden = false;
  button.addEventListener("click", () => {
    const isShown = input.type === "password";
    input.type = isShown ? "text" : "password";
    button.textContent = isShown ? button.dataset.hide : show;
    button.setAttribute("aria-pressed", String(isShown));
  });
}

const ownZone = Intl.DateTimeFormat().resolvedOptions().timeZone;
const timeZone = document.querySelector("[name=time_zone]");
if (timeZone?.type === "hidden") timeZone.value = ownZone;

// Where the account has another zone than the browser, the browser's is one click away.
const offer = document.querySelector("[data-own-zone]");
if (offer && timeZone.value !== ownZone && timeZone.list.querySelector(`option[value="${CSS.escape(ownZone)}"]`)) {
  const button = offer.querySelector("button");
  button.textContent = gettext("Use %(zone)s", { zone: ownZone.replaceAll("_", " ") });
  offer.hidden = false;
  button.addEventListener("click", () => {
    timeZone.value = ownZone;
    offer.hidden = true;
    timeZone.dispatchEvent(new Event("change", { bubbles: true }));
  });
}

const looks = document.querySelector("[data-looks]");
if (looks) {
  for (const input of looks.querySelectorAll("input")) input.checked = input.value === (document.documentElement.dataset[input.name] ?? "");
  looks.addEventListener("change", ({ target }) => (target.name === "theme" ? chooseTheme(target.value || "system") : chooseLook(target.name, target.value)));
}

// A list of which the server has selected none, such as languages without the account's, is as it was served. The
// `defaultValue` of a box is its attribute, and its `value` is "on" without one.
const isAsServed = ({ elements }) =>
  [...elements].every(({ options, type, value, defaultValue, checked, defaultChecked }) => {
    if (options) return [...options].every((option) => option.selected || !option.defaultSelected);
    return ["checkbox", "radio"].includes(type) ? checked === defaultChecked : value === (defaultValue ?? value);
  });

// A choice is saved when it changes, and its button goes. What is refused is shown by the page that says why.
for (const form of document.querySelectorAll("form[data-saves]")) {
  const button = form.querySelector("button:not([type])");
  const status = document.createElement("p");
  status.className = "field-help";
  status.role = "status";
  button.replaceWith(status);
  form.addEventListener("change", async () => {
    status.textContent = "";
    const response = await fetch(form.action, { method: "POST", body: new FormData(form), headers: { "X-Recollect-Part": "saved" } }).catch(() => null);
    if (!response?.headers.get("Content-Type").startsWith("text/plain")) return response ? form.submit() : (status.textContent = gettext("Not saved: there is no connection."));
    if (form.dataset.saves === "reload") return location.reload();
    status.textContent = await response.text();
  });
  // Also what was chosen before this ran.
  if (!isAsServed(form)) form.dispatchEvent(new Event("change"));
}

const sections = document.querySelector("[data-sections]");
if (sections) {
  const links = new Map([...sections.querySelectorAll("a")].map((link) => [link.hash.slice(1), link]));
  const seen = new IntersectionObserver((entries) => {
    const entry = entries.findLast(({ isIntersecting }) => isIntersecting);
    if (!entry) return;
    for (const [id, link] of links) id === entry.target.id ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current");
  }, { rootMargin: "-10% 0px -70% 0px" });
  for (const id of links.keys()) if (document.getElementById(id)) seen.observe(document.getElementById(id));
}

for (const button of document.querySelectorAll("[data-copies]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const field = document.getElementById(button.dataset.copies);
    field.select();
    button.textContent = (await copy({ text: field.value })) ? gettext("Copied") : gettext("Not copied");
  });
}
