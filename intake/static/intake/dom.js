/** Small helpers that several modules share. */
import { gettext } from "./language.js";

/** While an input method composes, Enter accepts its suggestion (229 is what older engines report then). */
export function isComposing(event) {
  return event.isComposing || event.keyCode === 229;
}

export function clone(name) {
  return document.querySelector(`template[data-template="${name}"]`).content.firstElementChild.cloneNode(true);
}

export function part(element, name) {
  return element.querySelector(`[data-part="${name}"]`);
}

// What the server writes into an answer of its own (elements.py and code.py), and the callouts' kinds by name.
const LABELS = ".code-bar button, .callout-title, .thought > summary";
const KINDS = { Note: gettext("Note"), Tip: gettext("Tip"), Important: gettext("Important"), Warning: gettext("Warning"), Caution: gettext("Caution") };

/** Elements of HTML that the server made and sanitised; the parser's document runs nothing. */
export function parseHtml(html) {
  const page = new DOMParser().parseFromString(html, "text/html");
  // An answer's blocks are drawn once for all its readers.
  for (const label of page.querySelectorAll(LABELS)) label.textContent = KINDS[label.textContent] ?? gettext(label.textContent);
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
