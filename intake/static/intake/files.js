/** A file as it is shown: below the message that it belongs to, and above the one that is being written. */
import { HOME, clone, part } from "./dom.js";
import { gettext, language } from "./language.js";

export const FILES = `${HOME}api/v1/attachments/`;
const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const READABLE = /^(text\/|application\/(json|xml|x-yaml|toml|javascript))/;
const SHOWN_CHARACTERS = 20_000;
const SHOWN_BYTES = 4 * SHOWN_CHARACTERS;
const SHOWN_ROWS = 20;
// How often it is asked whether a file has been read, and for how long: about two minutes.
const FIRST_WAIT_MS = 1_000;
const LONGEST_WAIT_MS = 15_000;
const MOST_TRIES = 14;

/** `file`: as the API gives it. */
export function fileElement(file) {
  const element = clone("file");
  const address = `${FILES}${file.id}/content`;
  Object.assign(element.dataset, { file: file.id, state: file.state, type: file.type });
  part(element, "file-link").href = address;
  part(element, "file-name").textContent = part(element, "file-link").title = file.name;
  part(element, "file-about").textContent = sizeInWords(file.size);
  part(element, "file-picture").alt = file.name;
  part(element, "file-text").hidden = !READABLE.test(file.type);
  showState(element, file);
  return element;
}

export function sizeInWords(bytes) {
  const [value, unit] = bytes < 1_000 ? [bytes, "byte"] : bytes < 1_000_000 ? [bytes / 1_000, "kilobyte"] : [bytes / 1_000_000, "megabyte"];
  return value.toLocaleString(language, { style: "unit", unit, unitDisplay: unit === "byte" ? "long" : "short", maximumFractionDigits: value < 10 && unit !== "byte" ? 1 : 0 });
}

export function showState(element, { id, type, state, error }) {
  element.dataset.state = state;
  const picture = part(element, "file-picture");
  picture.hidden = !element.classList.toggle("is-picture", state === "read" && PICTURES.has(type));
  if (!picture.hidden) picture.src = `${FILES}${id}/thumbnail`;
  const place = part(element, "file-state");
  place?.replaceChildren(state === "waiting" ? place.dataset.waiting : (error ?? ""));
}

/** What is folded is fetched when it is opened; what is being read is asked for until it is. */
export function listenForFiles(container) {
  container.addEventListener("toggle", (event) => event.target.matches("[data-part=file-text]") && event.target.open && showText(event.target), true);
  const watch = () => {
    for (const element of container.querySelectorAll("[data-file][data-state=waiting]:not([data-watched])")) {
      element.dataset.watched = "";
      ask(element);
    }
  };
  watch();
  new MutationObserver(watch).observe(container, { childList: true, subtree: true });
}

export async function ask(element) {
  let wait = FIRST_WAIT_MS;
  for (let tries = 0; tries < MOST_TRIES && element.dataset.state === "waiting"; tries++) {
    await new Promise((resolve) => setTimeout(resolve, wait));
    wait = Math.min(wait * 1.5, LONGEST_WAIT_MS);
    if (!element.isConnected) continue;
    const response = await fetch(`${FILES}${element.dataset.file}/`).catch(() => null);
    if (response?.ok) showState(element, await response.json());
  }
}

async function showText(details) {
  const place = part(details, "file-read");
  if (place.hasChildNodes()) return;
  const element = details.closest("[data-file]");
  const text = await beginningOf(`${FILES}${element.dataset.file}/content`);
  if (text === null) {
    place.textContent = gettext("The file is not available right now.");
    return;
  }
  const isTable = /^text\/(csv|tab-separated-values)/.test(element.dataset.type);
  place.replaceChildren(isTable ? table(text) : preformatted(text));
}

/** The beginning of a text; null when it cannot be had. No more of a large file is fetched. */
async function beginningOf(url) {
  try {
    const response = await fetch(url);
    if (!response.ok) return null;
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    let [text, bytes] = ["", 0];
    for (let step; bytes < SHOWN_BYTES && !(step = await reader.read()).done; bytes += step.value.length) text += decoder.decode(step.value, { stream: true });
    reader.cancel();
    return text.length > SHOWN_CHARACTERS ? `${text.slice(0, SHOWN_CHARACTERS)}…` : text;
  } catch {
    return null;
  }
}

function preformatted(text) {
  const shown = document.createElement("pre");
  shown.textContent = text;
  shown.tabIndex = 0;
  return shown;
}

function table(text) {
  const rows = rowsOf(text, SHOWN_ROWS + 1);
  const shown = document.createElement("table");
  for (const [number, row] of rows.entries()) {
    const line = shown.insertRow();
    for (const value of row) {
      const cell = document.createElement(number ? "td" : "th");
      cell.textContent = value;
      line.append(cell);
    }
  }
  const around = document.createElement("div");
  around.className = "table-scroll";
  around.tabIndex = 0;
  around.append(shown);
  return around;
}

/** The first rows of a CSV: cells in quotation marks may hold separators, line ends and doubled quotation marks. */
export function rowsOf(text, most) {
  const first = text.slice(0, text.search(/\n|$/));
  const separator = ["\t", ";", ","].find((each) => first.includes(each)) ?? ",";
  const rows = [[]];
  let [cell, isQuoted] = ["", false];
  for (let at = 0; at < text.length && rows.length <= most; at++) {
    const sign = text[at];
    if (isQuoted && sign === '"' && text[at + 1] === '"') cell += text[++at];
    else if (sign === '"') isQuoted = !isQuoted;
    else if (!isQuoted && (sign === separator || sign === "\n")) {
      rows.at(-1).push(cell.replace(/\r$/, ""));
      cell = "";
      if (sign === "\n") rows.push([]);
    } else cell += sign;
  }
  if (cell || rows.at(-1).length) rows.at(-1).push(cell);
  return rows.filter((row) => row.length).slice(0, most);
}
