/** Registering and logging in: show or hide the password; tell the server which time zone "today" is in. */

import { copy } from "./copying.js";
import { gettext } from "./language.js";

for (const button of document.querySelectorAll("[data-reveal]")) {
  const input = document.getElementById(button.dataset.reveal);
  button.hidden = false;
  button.addEventListener("click", () => {
    const isShown = input.type === "password";
    input.type = isShown ? "text" : "password";
    button.textContent = isShown ? gettext("Hide") : gettext("Show");
    button.setAttribute("aria-pressed", String(isShown));
  });
}

const timeZone = document.querySelector('input[name="time_zone"]');
if (timeZone) timeZone.value = Intl.DateTimeFormat().resolvedOptions().timeZone;

for (const button of document.querySelectorAll("[data-copies]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const field = document.getElementById(button.dataset.copies);
    field.select();
    button.textContent = (await copy({ text: field.value })) ? gettext("Copied") : gettext("Not allowed");
  });
}
