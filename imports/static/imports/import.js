/** The page of an import: takes the file, and shows the part of the page that fits the import's state. */
import { part } from "../intake/dom.js";
import { gettext, ngettext } from "../intake/language.js";
import { ImportsApi } from "./api.js";
import { Chooser } from "./choosing.js";
import { follow } from "./events.js";
import { newsOf, OUTCOMES, Report, showFacts, showLeftOut } from "./reporting.js";
import { upload } from "./uploading.js";
import { count, megabytes } from "./words.js";

const HEADINGS = {
  reading: gettext("Reading your export"),
  ready: gettext("What your export holds"),
  done: gettext("Your history is here"),
  failed: gettext("This did not work"),
};
const LEAVE = gettext("You can leave this page: it goes on, and you find it under Import again.");
const STAY = gettext("Keep this page open until the upload is done.");
const ONE_FILE = gettext("One file at a time: choose the zip, or the one file.");
const NO_FOLDER = gettext("This is a folder. Make a zip of it and drop that, or use the command recollect import.");

const root = document.querySelector("[data-import]");
const api = new ImportsApi(root.dataset.endpoint, root.querySelector("[name=csrfmiddlewaretoken]").value);
const views = Object.fromEntries([...root.querySelectorAll("[data-view]")].map((view) => [view.dataset.view, view]));
const heading = root.querySelector("[data-heading]");
const trouble = root.querySelector("[data-trouble]");
const announcer = root.querySelector("[data-announcer]");
const picker = root.querySelector("[data-file]");
const question = root.querySelector("[data-ask]");
const UNDO = question.querySelector("[data-answer=yes]").textContent;
const startButton = views.preview.querySelector("[data-action=start]");
const chooser = new Chooser(views.preview, api, { onChange: showChoice, onTrouble: complain });
const report = new Report(views.report, api, { onTrouble: complain });

let current = null;
let shownState = null;
let source = null;
let uploading = null;

listen();
if (root.dataset.id) open(root.dataset.id);

function listen() {
  picker.addEventListener("change", () => { take(picker.files); picker.value = ""; });
  for (const kind of ["dragenter", "dragover"]) addEventListener(kind, onDrag);
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dropping"); });
  addEventListener("drop", onDrop);
  addEventListener("popstate", () => location.reload());
  addEventListener("beforeunload", (event) => { if (uploading) event.preventDefault(); });
  startButton.addEventListener("click", () => attempt(async () => goOn(await api.start(current.id, chooser.choice()))));
  for (const button of root.querySelectorAll("[data-action=cancel]")) button.addEventListener("click", () => attempt(cancel));
  views.report.querySelector("[data-action=undo]").addEventListener("click", () => attempt(undo));
}

function hasFiles(event) {
  return event.dataTransfer?.types.includes("Files");
}

function onDrag(event) {
  if (!hasFiles(event)) return;
  event.preventDefault();
  document.body.classList.add("dropping");
}

function onDrop(event) {
  if (!hasFiles(event)) return;
  event.preventDefault();
  document.body.classList.remove("dropping");
  const isFolder = [...event.dataTransfer.items].some((item) => item.webkitGetAsEntry?.()?.isDirectory);
  if (isFolder) say(NO_FOLDER);
  else take(event.dataTransfer.files);
}

/** A file is a new import, or goes on with an upload that broke off. */
function take(files) {
  if (uploading || source) return;
  if (files.length !== 1) {
    if (files.length) say(ONE_FILE);
    return;
  }
  attempt(async () => {
    const [file] = files;
    const isResumed = current?.state === "uploading";
    if (isResumed && file.size !== current.bytes) {
      say(gettext("This is another file: %(name)s has %(size)s.", { name: current.filename, size: megabytes(current.bytes) }));
      return;
    }
    const shown = isResumed ? current : await api.begin(file);
    if (!isResumed) history.pushState(null, "", `${root.dataset.home}${shown.id}/`);
    await send(shown, file);
  });
}

async function send(shown, file) {
  uploading = new AbortController();
  try {
    show(shown);
    const sent = await upload(api, shown, file, {
      signal: uploading.signal,
      onProgress: show,
      onWait: (failure) => say(`${failure.message} ${gettext("It is tried again in a moment.")}`),
    });
    uploading = null;
    goOn(sent);
  } catch (error) {
    if (error.name !== "AbortError") {
      uploading = null;
      show(await api.read(shown.id).catch(() => shown));
      throw error.code === undefined ? new Error(gettext("The file cannot be read any more. Choose it again.")) : error;
    }
  } finally {
    uploading = null;
  }
}

function open(id) {
  attempt(async () => goOn(await api.read(id)));
}

/** Shows the import, and follows it while the server works on it. */
function goOn(shown) {
  show(shown);
  if (["reading", "waiting", "running", "undoing"].includes(shown.state)) listenTo(shown.id);
}

function listenTo(id) {
  source?.close();
  source = follow(api.eventsPath(id), {
    async onChange(shown) {
      if (!["ready", ...Object.keys(OUTCOMES)].includes(shown.state)) return show(shown);
      source = null;
      // A stream of events takes no header, so its sentences are in English.
      show(await api.read(shown.id).catch(() => shown));
    },
    onLost() {
      source = null;
      say(gettext("The connection was lost. Reload the page to see how far it is."));
    },
  });
}

async function cancel() {
  uploading?.abort();
  source?.close();
  source = null;
  const shown = await api.cancel(current.id);
  if (shown.can_undo) goOn(shown);
  else location.assign(root.dataset.home);
}

async function undo() {
  const { stored } = current;
  const what = stored.conversations ? conversationsOf(stored.conversations) : gettext("what it brought");
  if (!(await ask(gettext("It takes back %(what)s, with everything made of it.", { what }), UNDO))) return;
  try {
    goOn(await api.undo(current.id, false));
  } catch (failure) {
    if (failure.code !== "continued_since") throw failure;
    const sentence = `${wentOn(failure.more.continued_since ?? 1)} ${gettext("What you said or wrote here stays; the rest of the import goes.")}`;
    if (await ask(sentence, gettext("Undo the rest"))) goOn(await api.undo(current.id, true));
  }
}

function ask(sentence, verb) {
  part(question, "question").textContent = sentence;
  const yes = question.querySelector("[data-answer=yes]");
  yes.textContent = verb;
  question.returnValue = "";
  question.showModal();
  return new Promise((resolve) => {
    question.querySelector("[data-answer=no]").onclick = () => question.close("no");
    yes.onclick = () => question.close("yes");
    question.addEventListener("close", () => resolve(question.returnValue === "yes"), { once: true });
  });
}

function show(shown) {
  current = shown;
  const isPaused = shown.state === "uploading" && !uploading;
  const name = viewOf(shown.state, isPaused);
  for (const [key, view] of Object.entries(views)) view.hidden = key !== name;
  heading.textContent = isPaused ? gettext("Resume the upload") : HEADINGS[shown.state] ?? heading.dataset[shown.state];
  if (part(views[name], "filename")) part(views[name], "filename").textContent = shown.filename;
  const isAnother = shownState !== shown.state;
  shownState = shown.state;
  if (isAnother) enter(shown, isPaused);
  if (name === "working") showProgress(shown);
}

/** A new state: the reader of the screen hears of it, and what it needs is fetched. */
function enter(shown, isPaused) {
  document.title = `${heading.textContent} · Recollect`;
  trouble.hidden = true;
  announcer.textContent = heading.textContent;
  if (["preview", "report"].includes(viewOf(shown.state, isPaused))) heading.focus({ preventScroll: true });
  if (isPaused) part(views.begin, "invitation").textContent = gettext("Choose %(name)s again: %(part)s of %(size)s are here", { name: shown.filename, part: megabytes(shown.bytes_received), size: megabytes(shown.bytes) });
  if (shown.state === "ready") {
    showFacts(views.preview, shown, shown.found);
    part(views.preview, "news").textContent = newsOf(shown.found);
    showLeftOut(views.preview, shown);
    attempt(() => chooser.show(shown));
  }
  if (shown.state in OUTCOMES) attempt(() => report.show(shown));
}

function viewOf(state, isPaused) {
  if (isPaused) return "begin";
  if (state === "ready") return "preview";
  return state in OUTCOMES ? "report" : "working";
}

function showProgress(shown) {
  const view = views.working;
  part(view, "step").textContent = shown.product_label ?? gettext("Looking at the file");
  part(view, "progress").value = shown.progress;
  part(view, "numbers").textContent = numbersOf(shown);
  part(view, "leave").textContent = shown.state === "uploading" ? STAY : LEAVE;
  view.querySelector("[data-action=cancel]").hidden = shown.state === "undoing";
}

function numbersOf(shown) {
  if (shown.state === "uploading") return gettext("%(part)s of %(size)s", { part: megabytes(shown.bytes_received), size: megabytes(shown.bytes) });
  if (shown.state === "reading") return shown.found ? gettext("%(conversations)s found so far", { conversations: conversationsOf(shown.found.conversations) }) : "";
  if (shown.state === "running" && shown.stored) return gettext("Imported: %(conversations)s, %(turns)s", { conversations: conversationsOf(shown.stored.conversations), turns: count(shown.stored.turns, ngettext("turn", "turns", shown.stored.turns)) });
  return "";
}

function showChoice() {
  const amount = chooser.amount;
  startButton.disabled = amount === 0;
  const isNothing = amount === 0 && chooser.isAll && !chooser.ticked.size;
  startButton.textContent = isNothing ? gettext("Nothing new to import") : ngettext("Import %(count)s item", "Import %(count)s items", amount);
}

async function attempt(action) {
  trouble.hidden = true;
  try {
    await action();
  } catch (failure) {
    complain(failure);
  }
}

function complain(failure) {
  say(failure.message);
}

function say(sentence) {
  trouble.textContent = sentence;
  trouble.hidden = false;
}

function conversationsOf(amount) {
  return count(amount, ngettext("conversation", "conversations", amount));
}

function wentOn(amount) {
  return ngettext("You went on with %(count)s conversation or note here since.", "You went on with %(count)s conversations or notes here since.", amount);
}
