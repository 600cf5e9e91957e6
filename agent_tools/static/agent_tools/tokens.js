/** Copy buttons beside what connects an agent; without this script the text can still be selected. */

import { gettext } from "../intake/language.js";

const SAID_FOR_MS = 1600;

for (const button of document.querySelectorAll("[data-copy]")) {
  const usual = button.textContent;
  button.hidden = false;
  button.addEventListener("click", async () => {
    button.textContent = (await copy(button.previousElementSibling.textContent)) ? gettext("Copied") : gettext("Not copied");
    setTimeout(() => (button.textContent = usual), SAID_FOR_MS);
  });
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
