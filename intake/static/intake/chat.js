/** The chat page: what a person sends, the answer as it streams, and everything that can go wrong between. */
import { answering } from "./answering.js";
import { listenForApprovals } from "./approvals.js";
import { ask, Failure, follow, stop } from "./ask.js";
import { takeShared } from "./attaching.js";
import { Choices } from "./choices.js";
import { Composer } from "./composer.js";
import { listenForCopying } from "./copying.js";
import { HOME, pagePerson } from "./dom.js";
import { listenForOtherTabs } from "./elsewhere.js";
import { listenForFiles } from "./files.js";
import { foldLong } from "./folding.js";
import { Following } from "./following.js";
import { gettext } from "./language.js";
import { listenForOutline } from "./outline.js";
import { followLinksWithin, goToNamedTurn, listenForEarlier, listenForPrinting, prepare, unfinishedTurn } from "./reading.js";
import { listenForProposals, listenForRemembering } from "./remembering.js";
import { confirm, sidebar, sidebarElement } from "./room.js";
import { offerToKeep, watchTemporary } from "./temporary.js";
import { keepTimesFresh } from "./times.js";
import { Turn } from "./turn.js";
import { listenForDeleting, listenForUndo } from "./undoing.js";
import { followingSiblings, listenForBranching, listenForVersions, rephrase } from "./versions.js";
import { chooseModel, offerModels, tellSent, watchWindow } from "./window.js";

const main = document.querySelector("[data-chat]");
const thread = document.querySelector("[data-thread]");

const isTemporary = "temporary" in main.dataset;
const following = new Following(thread, document.querySelector("[data-jump]"));

/**
 * A draft belongs to its chat and its person: the next person in this browser does not see it. A visitor's is kept over a
 * log-in; that of a temporary chat ends with it.
 */
function draftKey() {
  const chat = main.dataset.conversation || (isTemporary ? "temporary" : "");
  const isPerson = pagePerson().startsWith("p");
  const ofVisitor = `draft:${chat}`;
  if (!isPerson) return ofVisitor;
  const own = `draft:${pagePerson()}:${chat}`;
  const brought = sessionStorage.getItem(ofVisitor);
  if (brought !== null) {
    sessionStorage.removeItem(ofVisitor);
    if (sessionStorage.getItem(own) === null) sessionStorage.setItem(own, brought);
  }
  return own;
}

const composer = new Composer(document.querySelector("[data-composer]"), {
  onSend: (sent) => answer(addTurn(sent)),
  onStop: stopAnswer,
  draftKey: draftKey(),
  main,
  announce,
});

const choices = new Choices({
  conversation: () => main.dataset.conversation,
  csrfToken: () => composer.csrfToken,
  isTemporary,
});

// What can be stopped, and the turn that is being answered; null while nothing is.
let request = null;
let current = null;
// A busy model is asked again by itself: when.
const BUSY_SECONDS = 20;
let retrying = null;
// How long a turn that is to be stopped may take to be known to the server.
const PATIENCE_MS = 3000;

function addTurn({ message, files }) {
  stopAskingAgain();
  document.querySelector("[data-welcome]")?.remove();
  for (const earlier of thread.querySelectorAll(".turn")) new Turn(earlier).retire();
  // It follows what is shown here, also where another tab or a link has led to another path.
  const last = [...thread.querySelectorAll(".turn[data-number]")].at(-1);
  const turn = Turn.begin(message, { files, about: last ? { parent: Number(last.dataset.number) } : null });
  thread.append(turn.element);
  return turn;
}

/** Another version takes a turn's place; what followed it stays with it. */
function addVersion(turn, message, about) {
  const version = Turn.begin(message, { about, versions: turn.versions, shown: turn.shownFiles });
  for (const element of followingSiblings(turn.element)) element.remove();
  turn.element.replaceWith(version.element);
  document.querySelector("[data-later]")?.remove();
  document.querySelector(".dock").hidden = false;
  return version;
}

/** One try at an answer; a turn that failed may see several. */
async function answer(turn) {
  stopAskingAgain();
  if (!turn.element.nextElementSibling) following.jump();
  if (!turn.isSaved) composer.unsent = turn;
  await show(turn, () => ask(questionFor(turn)));
}

/** Shows an answer as its events come, from the moment at which this page heard of it. */
async function show(turn, events) {
  request = new AbortController();
  current = turn;
  composer.isAnswering = true;
  open(turn);
  turn.hear();
  const clock = setInterval(() => turn.tellSilence(document.querySelector("#model")?.selectedOptions[0]?.text), 1000);
  try {
    for await (const event of events()) take(turn, event);
  } catch (error) {
    giveUp(turn, error);
  } finally {
    clearInterval(clock);
    request = current = null;
    composer.isAnswering = false;
    answering.finished(conversationPath());
    following.grown();
    goOnWithQueue(turn);
  }
}

/** What was written meanwhile is sent now; after a failure it is better looked at first. */
function goOnWithQueue(turn) {
  if (retrying !== null) return;
  if (turn.hasFailed || turn.waits) return composer.takeQueueBack();
  const queued = composer.takeQueued();
  if (queued !== undefined) answer(addTurn(queued));
}

function open(turn) {
  turn.open({ announce, onRender: () => following.grown() });
}

/** The turn keeps what was written, and `done` says so. One that the server does not know yet is waited for a moment. */
async function stopAnswer() {
  const [turn, ours] = [current, request];
  if (!turn) return;
  if (!turn.turnId) {
    turn.isToStop = true;
    setTimeout(() => turn.turnId || ours.abort(), PATIENCE_MS);
    return;
  }
  try {
    await stop({ turnId: turn.turnId, csrfToken: composer.csrfToken });
  } catch (error) {
    announce(error.message);
  }
}

function questionFor(turn) {
  return {
    endpoint: main.dataset.endpoint,
    ...turn.question(main.dataset.conversation, { ...choices.asked, ...ofNewChat() }),
    csrfToken: composer.csrfToken,
    signal: request.signal,
  };
}

/** A chat that is begun inside a project belongs to it. */
function ofNewChat() {
  const { conversation, project } = main.dataset;
  return !conversation && project ? { project } : {};
}

function take(turn, { type, data }) {
  turn.hear();
  turn.isReconnecting = type === "reconnecting";
  if (type === "turn") begin(turn, data);
  else if (type === "reasoning") turn.think(data);
  else if (type === "tool_call" || type === "approval") turn.addStep(data);
  else if (type === "tool_result") turn.finishStep(data);
  else if (type === "delta") turn.write(data.text);
  else if (type === "blocks") turn.draw(data);
  else if (type === "waiting") turn.wait();
  else if (type === "done") finish(turn, data);
  else if (type === "error") giveUp(turn, new Failure(data));
  following.grown();
}

function finish(turn, data) {
  turn.busyTries = 0;
  tellSent(thread, turn.element, data.usage ?? {});
  choices.answered();
  turn.complete(data.html, data);
}

function begin(turn, { conversationId, turnNumber, turnId, notSent, sent }) {
  const path = `${HOME}c/${conversationId}/`;
  // Told from the start once more: after a long absence, or for another attempt.
  if (turn.hasBegun) open(turn);
  turn.hasBegun = true;
  choices.settle();
  composer.unsent = null;
  const isNew = main.dataset.conversation !== conversationId;
  main.dataset.conversation = conversationId;
  composer.draftKey = draftKey();
  turn.identify({ path, turnNumber, turnId });
  tellSent(thread, turn.element, { notSent, sent });
  if (turn.isToStop) stopAnswer();
  if (isTemporary) {
    offerToKeep(conversationId);
    return;
  }
  answering.began(path);
  const title = sidebar.promote(path, turn.name, main.dataset.project);
  if (!isNew) return;
  history.pushState(null, "", path);
  document.title = `${title} · Recollect`;
  document.querySelector("[data-title]").textContent = title;
  document.querySelector("[data-chat-menu]").hidden = false;
  const outline = document.querySelector("[data-outline-link]");
  outline.href = `${path}outline/`;
  outline.hidden = false;
  // What has begun as a kept chat stays one.
  document.querySelector("[data-temporary-link]:not([aria-current])")?.remove();
  returnTo(path);
}

/** A visitor who registers or logs in from here comes back to here. */
function returnTo(path) {
  for (const link of document.querySelectorAll("[data-returns]")) link.search = new URLSearchParams({ next: path });
}

function giveUp(turn, error) {
  if (error.name === "AbortError") {
    if (turn.isSaved) turn.stop();
    else edit(turn);
    return;
  }
  if (error.code === "rate_limited" && turn.canBeAskedAgain) return askAgainLater(turn, error.seconds ?? BUSY_SECONDS);
  turn.fail({ detail: error.message, canRetry: error.retryable ?? true, reason: error.reason, about: error.about });
  announce(error.message);
  // What cannot be sent as it is goes back to be changed.
  if (error.retryable === false && !turn.isSaved && composer.isEmpty) {
    takeBack(turn);
    turn.isDiscarded = true;
  }
}

/** A busy model is no failure yet: the page asks again, and says when. */
function askAgainLater(turn, seconds) {
  turn.busyTries += 1;
  const inWords = (left) => gettext("The model is busy; trying again in %(count)s s", { count: left });
  const tick = (left) => {
    if (left === 0) return answer(turn);
    turn.fail({ detail: inWords(left), canRetry: true, about: "model" });
    retrying = setTimeout(tick, 1000, left - 1);
  };
  announce(inWords(seconds));
  tick(seconds);
}

function stopAskingAgain() {
  clearTimeout(retrying);
  retrying = null;
}

function edit(turn) {
  stopAskingAgain();
  takeBack(turn);
  turn.element.remove();
  composer.focus();
}

function takeBack(turn) {
  composer.takeBack(turn);
}

/** To those who listen rather than look: finished paragraphs and events, not single words. */
function announce(words) {
  const announcer = document.querySelector("[data-announcer]");
  const line = document.createElement("p");
  line.textContent = words;
  announcer.append(line);
  if (announcer.children.length > 20) announcer.firstElementChild.remove();
}

const ACTIONS = {
  retry: (turn) => answer(turn),
  edit,
  regenerate: (turn) => answer(addVersion(turn, turn.message, { regenerate: turn.number })),
  "regenerate-with": (turn, button) => {
    choices.use(button.value);
    ACTIONS.regenerate(turn);
  },
  continue: (turn) => {
    turn.about = { continue: turn.number };
    answer(turn);
  },
  // Of a conversation that was longer than the model's window.
  newest: (turn) => {
    turn.about = { regenerate: turn.number, newest_only: true };
    answer(turn);
  },
  "choose-model": chooseModel,
  rephrase: (turn) => {
    const onSend = (message) => request ?? answer(addVersion(turn, message, { edit: turn.number }));
    rephrase(turn.element, { onSend });
  },
};

thread.addEventListener("click", (event) => {
  const button = event.target.closest("[data-action]");
  const act = ACTIONS[button?.dataset.action];
  if (act === chooseModel) act();
  else if (act && !request) act(new Turn(button.closest(".turn")), button);
});

// Models come and go while the page is open.
thread.addEventListener("beforetoggle", ({ target, newState }) => {
  if (newState === "open" && target.matches("[data-models-menu]")) offerModels(target, choices.otherModels);
}, true);

// Another model may read what this one could not.
document.querySelector("#model")?.addEventListener("change", () => {
  const last = [...thread.querySelectorAll(".turn")].at(-1);
  if (last?.dataset.trouble && !request) new Turn(last).offerRetry();
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !event.isComposing && !sidebarElement.classList.contains("open")) stopAnswer();
});

document.querySelector("[data-welcome]")?.addEventListener("click", (event) => {
  const example = event.target.closest("[data-example]");
  if (!example) return;
  composer.text = example.textContent;
  composer.focus();
});

addEventListener("popstate", () => {
  const shown = main.dataset.conversation ? `${HOME}c/${main.dataset.conversation}/` : HOME;
  if (location.pathname !== shown && !isTemporary) location.reload();
  else goToNamedTurn();
});

watchTemporary(main, { csrfToken: () => composer.csrfToken });
listenForCopying(main, announce);
listenForApprovals(thread, { csrfToken: () => composer.csrfToken, announce, goOn: followTurn });
listenForUndo(thread, { csrfToken: () => composer.csrfToken, announce });
listenForDeleting(thread, { confirm });
listenForVersions(thread, { csrfToken: () => composer.csrfToken, isBusy: () => request !== null, announce, prepare });
listenForBranching(thread, { csrfToken: () => composer.csrfToken, announce });
listenForRemembering(thread, { csrfToken: () => composer.csrfToken, announce, quote: (text) => composer.quote(text) });
listenForProposals(main, thread, { announce });
listenForEarlier(thread);
listenForPrinting(thread);
followLinksWithin(thread);
listenForOtherTabs(main, thread, { onGrown: () => following.grown(), announce });
listenForOutline(main, thread);
foldLong(thread);
listenForFiles(thread);
bringPreviews();
watchWindow(thread);
keepTimesFresh();
prepare(thread);
openAtTheRightPlace();
followUnfinished();
if (new URLSearchParams(location.search).has("shared")) receive(takeShared());
else if ("shared" in main.dataset) receive({ text: main.dataset.shared, files: [] });

/** What another app shares goes into the message that is being written. Its owner sends it, or nobody does. */
async function receive(sharing) {
  history.replaceState(null, "", HOME);
  const shared = await sharing;
  if (!shared) {
    const notice = Object.assign(document.createElement("p"), { className: "notice", role: "status" });
    notice.textContent = gettext("What was shared is not here any more. Share it again.");
    return main.prepend(notice);
  }
  composer.text = [composer.text, shared.text].filter(Boolean).join("\n\n");
  // Another site can send a form to a browser's tab, and hardly to the installed app: a file is uploaded once it is attached.
  const names = shared.files.map(({ name }) => name).join("\n");
  const isApp = !matchMedia("(display-mode: browser)").matches;
  const question = { title: gettext("Attach the shared files?"), text: gettext("They are uploaded and added to your message."), excerpt: names, yes: gettext("Attach"), no: gettext("Do not attach") };
  if (shared.files.length && (isApp || (await confirm(question)))) composer.attaching.add(shared.files);
  composer.focus();
}

/** An answer that another tab, another device or this page before a reload has asked for. */
function followUnfinished() {
  const element = unfinishedTurn(thread);
  if (element) followTurn(element);
}

function followTurn(element) {
  const turn = new Turn(element);
  show(turn, () => follow({ turnId: turn.turnId, signal: request.signal }));
}

/** Few chats have code to preview or pictures: the module is fetched with the first, and does what was pressed before. */
function bringPreviews() {
  const BUTTONS = '[data-action="preview-code"], [data-action="load-picture"]';
  const pressed = new Set();
  const keep = ({ target }) => pressed.add(target.closest(BUTTONS));
  const look = () => {
    if (!thread.querySelector(BUTTONS)) return;
    watcher.disconnect();
    thread.addEventListener("click", keep);
    const options = { library: main.dataset.diagrams, onGrown: () => following.grown() };
    const listen = ({ listenForPreviews }) => {
      thread.removeEventListener("click", keep);
      listenForPreviews(thread, options);
      pressed.forEach((button) => button?.click());
    };
    import("./previews.js").then(listen).catch(() => {});
  };
  const watcher = new MutationObserver(look);
  watcher.observe(thread, { childList: true, subtree: true });
  look();
}

function conversationPath() {
  return main.dataset.conversation ? `${HOME}c/${main.dataset.conversation}/` : null;
}

/** A named turn, or the latest; a page that is reloaded or come back to stays where it was. */
function openAtTheRightPlace() {
  const isArriving = performance.getEntriesByType("navigation")[0]?.type === "navigate";
  if (!isArriving || goToNamedTurn() || location.search) return;
  if (main.dataset.conversation) following.jump();
  // Somebody may be in another field already.
  if (matchMedia("(hover: hover)").matches && document.activeElement === document.body) composer.focus();
}
