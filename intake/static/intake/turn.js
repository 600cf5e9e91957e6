/** One turn on the page: what was said, the steps, the answer as it is written, how it ended. */
import { HOME, clone, parseHtml, part } from "./dom.js";
import { Drawing, withoutPreviews } from "./drawing.js";
import { fileElement } from "./files.js";
import { gettext } from "./language.js";
import { Reasoning } from "./reasoning.js";
import { showTime } from "./times.js";
import { showPlace } from "./versions.js";
import { canChooseModel } from "./window.js";

const MOST_BUSY_TRIES = 3;
// What has been asked for a turn, until it is answered.
const ASKED = ["key", "body", "about"];
const RECONNECTING = gettext("Reconnecting…");
const STATES = { streaming: "", waiting: part(clone("turn"), "mark").dataset.waits, complete: "", failed: "", interrupted: part(clone("turn"), "mark").textContent };

export class Turn {
  /**
   * `about` says which turn it follows or is a version of (`parent`, `edit`, `regenerate`); `versions`: the others.
   * `files`: those of a new message. `shown`: the elements of files that another version has too.
   */
  static begin(message, { about = null, versions = [], files = [], shown = [] } = {}) {
    const turn = new Turn(clone("turn"));
    part(turn.element, "said").textContent = message;
    const list = part(turn.element, "files");
    list.replaceChildren(...files.map(fileElement), ...shown.map((element) => element.cloneNode(true)));
    list.hidden = !list.hasChildNodes();
    if (files.length) turn.element.dataset.files = JSON.stringify(files);
    part(turn.element, "link").removeAttribute("href");
    turn.element.dataset.versions = versions.join();
    if (about) turn.about = about;
    return turn;
  }

  constructor(element) {
    this.element = element;
    this.answer = part(element, "answer");
    this.reasoning = new Reasoning(element);
  }

  /** How often a busy model was asked again for this turn. */
  get busyTries() {
    return Number(this.element.dataset.busyTries ?? 0);
  }

  set busyTries(count) {
    this.element.dataset.busyTries = count;
  }

  get hasFailed() {
    return this.element.dataset.status === "failed";
  }

  /** It was the model that was busy, and not this server, which has the turn; what is begun is gone on with. */
  get canBeAskedAgain() {
    return this.isSaved && this.busyTries < MOST_BUSY_TRIES && !this.answer.hasChildNodes();
  }

  get waits() {
    return this.element.dataset.status === "waiting";
  }

  get message() {
    return part(this.element, "said").textContent;
  }

  /** The files that it is sent with, as the API gives them; none once the server has them. */
  get files() {
    return JSON.parse(this.element.dataset.files ?? "[]");
  }

  /** The elements of its files, also of those that the server has. */
  get shownFiles() {
    return [...part(this.element, "files").children];
  }

  /** By which a new chat is called until it has a title. */
  get name() {
    return this.message || (part(this.element, "file-name")?.textContent ?? "");
  }

  get number() {
    return Number(this.element.dataset.number) || null;
  }

  /** By which the server knows its answer. */
  get turnId() {
    return this.element.dataset.turnId ?? null;
  }

  /** Whether the server knows of this turn. */
  get isSaved() {
    return this.number !== null;
  }

  /** The numbers of all versions, its own among them. */
  get versions() {
    const others = (this.element.dataset.versions ?? "").split(",").filter(Boolean).map(Number);
    return [...new Set([...others, ...(this.isSaved ? [this.number] : [])])];
  }

  /** What is asked next is another question than before. */
  set about(about) {
    for (const name of ASKED) delete this.element.dataset[name];
    this.element.dataset.about = JSON.stringify(about);
  }

  /** `choices`: how the chat is to be answered. What every try at an answer asks the server for, word for word, so that it knows them for one. */
  question(conversationId, choices) {
    const asked = this.element.dataset;
    asked.key ??= newKey();
    asked.body ??= JSON.stringify(this.#request(conversationId, choices));
    return { body: JSON.parse(asked.body), key: asked.key };
  }

  #request(conversationId, choices) {
    // A turn of an earlier visit is answered once more in its place.
    const about = JSON.parse(this.element.dataset.about ?? "null") ?? (this.isSaved ? { regenerate: this.number } : {});
    const needsMessage = about.regenerate === undefined && about.continue === undefined;
    return {
      ...(needsMessage && { message: this.message }),
      ...(needsMessage && this.files.length && { attachments: this.files.map(({ id }) => id) }),
      ...(conversationId && { conversation_id: conversationId }),
      ...about,
      ...choices,
    };
  }

  /** What was said is back in the composer, so that this trace of it goes when something is sent. */
  set isDiscarded(value) {
    this.element.toggleAttribute("data-discarded", value);
  }

  /** Empties the answer, ready for the first or another try; `announce` is told of steps and finished blocks. */
  open({ announce, onRender }) {
    this.announce = announce;
    // What an earlier try has stored stays stored, and can be taken back.
    for (const step of this.element.querySelectorAll(".step")) if (part(step, "stored").hidden) step.remove();
    this.answer.replaceChildren();
    this.reasoning.clear();
    this.#setState("streaming");
    this.#hideTrouble();
    this.answer.dataset.markdown = "";
    this.drawing = new Drawing(this.answer, (finished) => {
      if (finished) announce(finished);
      onRender();
    });
    const time = this.element.querySelector("time");
    time.dateTime = new Date().toISOString();
    showTime(time);
  }

  identify({ path, turnNumber, turnId }) {
    this.element.id = `turn-${turnNumber}`;
    delete this.element.dataset.files;
    this.element.dataset.turnId = turnId;
    this.element.dataset.number = turnNumber;
    part(this.element, "link").href = `${path}?turn=${turnNumber}#turn-${turnNumber}`;
    part(this.element, "delete").href = `${path}turns/${turnNumber}/delete/`;
    part(this.element, "sources-link").href = part(this.element, "sources").dataset.href = `${path}turns/${turnNumber}/prompt/`;
    const conversation = path.split("/").at(-2);
    this.#action("branch").dataset.href = `${HOME}api/v1/conversations/${conversation}/turns/${turnNumber}/branch/`;
    const { versions } = this;
    this.element.dataset.versions = versions.join();
    showPlace(this.element, { path, number: turnNumber, versions });
  }

  think(piece) {
    this.reasoning.write(piece);
  }

  /** `html`: the call as the server draws it, and draws it again with its result and on each later page. */
  addStep({ id, html }) {
    this.reasoning.rest();
    // An answer that is told again tells of what is still there from the first time.
    this.#step(id)?.remove();
    const step = parseHtml(html).querySelector(".step");
    part(this.element, "steps").append(step);
    this.announce(part(step, "what").textContent);
  }

  finishStep({ id, html }) {
    const step = parseHtml(html).querySelector(".step");
    // What was unfolded meanwhile stays so.
    step.querySelector("details").open = this.#step(id)?.querySelector("details").open ?? false;
    this.#step(id)?.replaceWith(step);
    this.announce(part(step, "summary").textContent);
  }

  /** The line is lost for the moment; what is there stays, and the answer may go on meanwhile. */
  set isReconnecting(value) {
    const mark = part(this.element, "mark");
    if (value === (mark.textContent === RECONNECTING)) return;
    this.#showMark(value ? RECONNECTING : STATES[this.element.dataset.status]);
    if (value) this.announce(RECONNECTING);
  }

  /** Something has come. */
  hear() {
    this.heardAt = Date.now();
    if (this.isSilent) this.#showMark("");
    this.isSilent = false;
  }

  /** Says after four seconds which model is waited for, and how long; after twenty it may be loading. */
  tellSilence(model) {
    const seconds = Math.floor((Date.now() - this.heardAt) / 1000);
    if (seconds < 4 || !model || part(this.element, "mark").textContent === RECONNECTING) return;
    this.isSilent = true;
    const isLoading = seconds >= 20 && !this.answer.hasChildNodes();
    const words = isLoading ? gettext("Waiting for %(model)s · %(seconds)s s. It may be loading.", { model, seconds }) : gettext("Waiting for %(model)s · %(seconds)s s", { model, seconds });
    this.#showMark(words);
  }

  /** The answer's Markdown, as it is copied. */
  write(text) {
    this.reasoning.rest();
    this.answer.dataset.markdown += text;
  }

  draw(changed) {
    this.drawing.show(changed);
  }

  /** `status`: "interrupted" for an answer that somebody stopped; `usage`, `usageLine`: what it took; `sourcesLine`: what it was given of the memory; `reasoningHtml`: what was thought, drawn. */
  complete(html, { status = "complete", usage = null, usageLine = "", sourcesLine = "", reasoningHtml = null } = {}) {
    this.drawing.finish();
    if (reasoningHtml !== null) this.reasoning.show(reasoningHtml);
    const rendered = parseHtml(html).body;
    if (rendered.innerHTML !== withoutPreviews(this.answer).innerHTML) this.answer.replaceChildren(...rendered.childNodes);
    this.#close(status, { isCut: usage?.finishReason === "length" });
    part(this.element, "usage").hidden = !usageLine;
    part(this.element, "usage-line").textContent = usageLine;
    part(this.element, "sources").hidden = !sourcesLine;
    part(this.element, "sources-line").textContent = sourcesLine;
  }

  /** Its calls wait for the person. */
  wait() {
    this.drawing.finish();
    this.#close("waiting");
  }

  stop() {
    this.drawing?.finish();
    this.#hideTrouble();
    this.#close("interrupted");
  }

  /**
   * `reason`: the words of the model's server, which staff alone get. `about`: `window` or `message` where the
   * conversation or the message alone is longer than the model's window, `model` where another one may answer.
   */
  fail({ detail, canRetry, reason = "", about = "" }) {
    this.drawing.finish();
    this.#close("failed");
    part(this.element, "detail").textContent = detail;
    part(this.element, "reason").hidden = !reason;
    part(this.element, "reason-text").textContent = reason;
    part(this.element, "trouble").hidden = false;
    // One thing to do: go on with what is there, or else try again.
    const canGoOn = canRetry && this.isSaved && this.answer.hasChildNodes();
    part(this.element, "go-on").hidden = !canGoOn;
    this.#action("retry").hidden = !canRetry || canGoOn;
    this.#action("edit").hidden = this.isSaved;
    this.element.dataset.trouble = about;
    this.#action("newest").hidden = about !== "window" || !this.isSaved;
    this.#action("choose-model").hidden = !about || !canChooseModel();
  }

  /** Something has changed since it failed. */
  offerRetry() {
    this.#action("retry").hidden = false;
  }

  /** Something else is being sent: only the last turn can be tried again. */
  retire() {
    if (this.element.hasAttribute("data-discarded")) this.element.remove();
    if (!this.isSaved) return;
    if (this.waits) {
      for (const card of this.element.querySelectorAll("[data-approval]")) card.remove();
      this.stop();
    }
    this.#action("retry").hidden = true;
    this.#action("edit").hidden = true;
    this.#action("newest").hidden = true;
    this.#action("choose-model").hidden = true;
    delete this.element.dataset.busyTries;
  }

  #close(state, { isCut = false } = {}) {
    const hasBrokenOff = state === "interrupted" && this.answer.hasChildNodes();
    part(this.element, "cut").hidden = !this.isSaved || !(isCut || hasBrokenOff);
    part(this.element, "cut-off").hidden = !isCut;
    if (state !== "failed") for (const name of ASKED) delete this.element.dataset[name];
    this.reasoning.rest();
    for (const step of this.element.querySelectorAll(".step.running")) step.classList.remove("running");
    for (const button of this.element.querySelectorAll('[data-action="undo"]')) button.disabled = false;
    this.#setState(state);
    this.#action("copy").hidden = !this.answer.hasChildNodes();
    part(this.element, "delete").hidden = !this.isSaved;
  }

  #setState(state) {
    this.element.dataset.status = state;
    this.element.classList.toggle("waiting", state === "streaming");
    this.answer.ariaBusy = String(state === "streaming");
    this.#showMark(STATES[state]);
  }

  #showMark(words) {
    const mark = part(this.element, "mark");
    mark.textContent = words;
    mark.hidden = !words;
  }

  #hideTrouble() {
    part(this.element, "trouble").hidden = true;
    part(this.element, "cut").hidden = true;
    this.#action("copy").hidden = true;
  }

  #step(id) {
    return [...this.element.querySelectorAll(".step")].find((step) => step.dataset.call === id);
  }

  #action(name) {
    return this.element.querySelector(`[data-action="${name}"]`);
  }
}

/** `crypto.randomUUID` is there for secure pages alone, and in a home network many are not. */
function newKey() {
  return Array.from(crypto.getRandomValues(new Uint32Array(4)), (number) => number.toString(36)).join("-");
}
