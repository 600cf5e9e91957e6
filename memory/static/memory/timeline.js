/** The timeline while its words are being looked for: it is shown again when they are there. */
import { HOME } from "../intake/dom.js";

const PAUSE_MS = 3000;

async function waitForWords() {
  const response = await fetch(`${HOME}api/v1/memory/timeline/`, { headers: { accept: "application/json" } }).catch(() => null);
  if (response?.ok && !(await response.json()).drawing) location.reload();
  else setTimeout(waitForWords, PAUSE_MS);
}

setTimeout(waitForWords, PAUSE_MS);
