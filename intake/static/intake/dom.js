/** Small helpers that several modules share. */
import { gettext } from "./language.js";

export function clone(name) {
  return document.querySelector(`template[data-template="${name}"]`).content.firstElementChild.cloneNode(true);
}

export function part(element, name) {
  return element.querySelector(`[data-part="${name}"]`);
}

/** Elements of HTML that the server made and sanitised; the parser's document runs nothing. */
export function parseHtml(html) {
  const page = new DOMParser().parseFromString(html, "text/html");
  // An answer's blocks are drawn once for all its readers.
  for (const button of page.querySelectorAll(".code-bar button")) button.textContent = gettext(button.textContent);
  return page;
}

/** Another page of this site, to take parts from; null when it cannot be had. */
export async function fetchPage(url) {
  try {
    const response = await fetch(url);
    return response.ok ? parseHtml(await response.text()) : null;
  } catch {
    return null;
  }
}
