/** Files for the message that is being written: chosen, dropped or pasted, uploaded at once, and taken out again. */
import { HOME, clone, part, upload, write } from "./dom.js";
import { FILES, ask, showState, sizeInWords } from "./files.js";
import { gettext, language } from "./language.js";

// A longer text that is pasted becomes a file by itself.
export const LONG = 4_000;
const MOST = 10;
const AT_ONCE = 3;
const UNREACHABLE = gettext("No connection to Recollect. Check your network and try again.");
const PICTURE_NAMES = { "image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp" };

/** What is no document of ours came from a server in front. */
function answerOfProxy(status) {
  if (status === 413) return gettext("The server in front of Recollect refuses files of this size.");
  return gettext("The server answered %(status)s. Try again in a moment.", { status });
}

export class Attaching {
  // By its element: the file that is being uploaded, and what became of it.
  #items = new Map();
  #isReady = [];

  /** `main`: where a file may be dropped. `onChange` is called whenever something has changed. */
  constructor(form, input, { main, csrfToken, onChange, announce }) {
    this.list = form.querySelector("[data-attached]");
    this.largest = Number(form.dataset.largest);
    this.input = input;
    this.csrfToken = csrfToken;
    this.onChange = onChange;
    this.announce = announce;
    this.#listen(form, main);
  }

  /** The files that are uploaded, in order, as the API gives them. */
  get files() {
    return this.#all.filter(({ file }) => file).map(({ file }) => file);
  }

  get isEmpty() {
    return this.#items.size === 0;
  }

  get isUploading() {
    return this.#all.some(({ state }) => state === "waiting" || state === "uploading");
  }

  get hasFailed() {
    return this.#all.some(({ state }) => state === "failed");
  }

  /** Resolves when nothing is being uploaded any more. */
  settled() {
    return this.isUploading ? new Promise((resolve) => this.#isReady.push(resolve)) : Promise.resolve();
  }

  /** The message is sent: its files are not ours any more. */
  clear() {
    this.#items.clear();
    this.#changed();
  }

  /** Files that were uploaded before: of a draft, or of a message that could not be sent. */
  restore(files) {
    for (const file of files) this.#show({ state: "done", file, name: file.name, size: file.size });
    this.#changed();
  }

  get #all() {
    return [...this.#items.values()];
  }

  #listen(form, main) {
    const chooser = form.querySelector("[data-files]");
    form.querySelector("[data-attach]").addEventListener("click", () => chooser.click());
    chooser.addEventListener("change", () => {
      this.add([...chooser.files]);
      chooser.value = "";
      this.input.focus();
    });
    this.input.addEventListener("paste", (event) => this.#paste(event));
    const sign = document.querySelector("[data-dropping]");
    const hasFiles = (event) => event.dataTransfer?.types.includes("Files") && !main.querySelector(".dock").hidden;
    // Entering a child is told before the parent is left, so what is dragged over last counts.
    let over = 0;
    const show = (isOver) => (sign.hidden = !isOver);
    addEventListener("dragover", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      clearTimeout(over);
      show(true);
      over = setTimeout(show, 300, false);
    });
    addEventListener("drop", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      clearTimeout(over);
      show(false);
      this.add([...event.dataTransfer.files]);
      this.input.focus();
    });
  }

  /** Pictures in the clipboard, other files, and a long text become files; everything else is pasted as ever. */
  #paste(event) {
    const files = [...(event.clipboardData?.files ?? [])];
    const text = event.clipboardData?.getData("text/plain") ?? "";
    // A word processor puts a picture of the text beside it.
    if (files.length && !text) {
      event.preventDefault();
      this.add(files.map(named));
    } else if (text.length > LONG) {
      event.preventDefault();
      this.#attachText(text);
    }
  }

  #attachText(text) {
    const name = `${gettext("Pasted text")}.txt`;
    const item = this.#add({ file: new File([text], name, { type: "text/plain" }), kind: "pasted", name });
    if (!item) return;
    this.#offerInline(item, () => text);
    const lines = text.split("\n").length;
    const count = (number) => number.toLocaleString(language);
    const about = [gettext("%(count)s characters", { count: count([...text].length) }), lines > 1 ? gettext("%(count)s lines", { count: count(lines) }) : ""];
    part(item.element, "file-about").textContent = about.filter(Boolean).join(", ");
  }

  /** A text that became a file by itself can be part of the message after all. */
  #offerInline(item, read) {
    const button = part(item.element, "file-inline");
    button.hidden = false;
    button.addEventListener("click", async () => {
      const text = await read();
      this.#remove(item);
      this.input.setRangeText(text, this.input.selectionStart, this.input.selectionEnd, "end");
      this.input.dispatchEvent(new Event("input", { bubbles: true }));
      this.input.focus();
    });
  }

  add(files) {
    for (const file of files) this.#add({ file, kind: "file", name: file.name });
  }

  #add({ file, kind, name }) {
    if (this.#items.size >= MOST) {
      this.announce(gettext("A message has at most %(count)s files.", { count: MOST }));
      this.#complain(gettext("A message has at most %(count)s files.", { count: MOST }));
      return null;
    }
    const item = this.#show({ state: "waiting", name, size: file.size });
    Object.assign(item, { bytes: file, kind });
    if (file.size > this.largest) this.#fail(item, gettext("The file is too large: at most %(size)s.", { size: sizeInWords(this.largest) }));
    else this.#next();
    this.#changed();
    return item;
  }

  #show(item) {
    const element = clone("attached");
    item.element = element;
    this.#items.set(element, item);
    part(element, "file-name").textContent = part(element, "file-name").title = item.name;
    part(element, "file-about").textContent = sizeInWords(item.size);
    const remove = part(element, "file-remove");
    remove.ariaLabel = remove.title = remove.title.replace("%(name)s", () => item.name);
    remove.addEventListener("click", () => {
      this.#remove(item);
      this.input.focus();
    });
    part(element, "file-retry").addEventListener("click", () => this.#again(item));
    if (item.file) this.#showStored(item);
    if (item.file?.kind === "pasted") this.#offerInline(item, async () => (await fetch(`${FILES}${item.file.id}/content`)).text());
    this.list.append(element);
    return item;
  }

  /** A few at a time: a phone has one slow line, and a server many people. */
  #next() {
    const running = this.#all.filter(({ state }) => state === "uploading").length;
    for (const item of this.#all.filter(({ state }) => state === "waiting").slice(0, AT_ONCE - running)) this.#upload(item);
  }

  async #upload(item) {
    item.state = "uploading";
    item.abort = new AbortController();
    const progress = part(item.element, "file-progress");
    progress.hidden = false;
    const body = new FormData();
    body.append("kind", item.kind);
    body.append("file", item.bytes, item.name);
    try {
      const { status, data } = await upload(FILES, { csrfToken: this.csrfToken(), body, signal: item.abort.signal, onProgress: (share) => (progress.value = share) });
      const isStored = status === 201;
      if (!this.#items.has(item.element)) return isStored && this.#forget(data.id);
      if (isStored) {
        Object.assign(item, { state: "done", file: data });
        this.#showStored(item);
      } else this.#fail(item, data.detail ?? answerOfProxy(status), { canRetry: data.retryable ?? status !== 413 });
    } catch (error) {
      if (error.name !== "AbortError") this.#fail(item, UNREACHABLE, { canRetry: true });
    } finally {
      progress.hidden = true;
      this.#next();
      this.#changed();
    }
  }

  /** A picture is shown by itself, once it is read; the rest by its name. */
  #showStored({ element, file }) {
    element.dataset.file = file.id;
    showState(element, file);
    if (file.type.startsWith("image/")) ask(element);
  }

  #fail(item, sentence, { canRetry = false } = {}) {
    item.state = "failed";
    item.element.classList.add("failed");
    part(item.element, "file-trouble").textContent = sentence;
    part(item.element, "file-retry").hidden = !canRetry;
    this.announce(`${item.name}: ${sentence}`);
  }

  #again(item) {
    item.state = "waiting";
    item.element.classList.remove("failed");
    part(item.element, "file-trouble").textContent = "";
    part(item.element, "file-retry").hidden = true;
    this.#next();
    this.#changed();
  }

  #remove(item) {
    this.#items.delete(item.element);
    item.abort?.abort();
    if (item.file) this.#forget(item.file.id);
    this.#next();
    this.#changed();
  }

  /** The server would remove it within a day; it counts for the quota until then. */
  #forget(id) {
    write(`${FILES}${id}/`, { method: "DELETE", csrfToken: this.csrfToken() }).catch(() => {});
  }

  #complain(sentence) {
    this.list.dataset.trouble = sentence;
  }

  #changed() {
    for (const element of [...this.list.children]) if (!this.#items.has(element)) element.remove();
    if (this.#items.size < MOST) delete this.list.dataset.trouble;
    this.list.hidden = this.isEmpty;
    if (!this.isUploading) for (const resolve of this.#isReady.splice(0)) resolve();
    this.onChange();
  }
}

/** A picture in the clipboard is called "image.png" by every browser. */
function named(file) {
  const ending = PICTURE_NAMES[file.type];
  if (!ending || file.name !== `image.${ending}`) return file;
  return new File([file], `${gettext("Pasted picture")}.${ending}`, { type: file.type });
}

// As in templates/intake/worker.js, which puts it there.
const SHARED = "recollect-shared";
const SHARED_MS = 3_600_000;

/** What another app has shared with this one, `{text, files}`, once; null where there is nothing, or it lay for too long. */
export async function takeShared() {
  const cache = await globalThis.caches?.open(SHARED);
  const address = `${HOME}share/`;
  const about = await (await cache?.match(address))?.json();
  const bodies = about ? await Promise.all(about.names.map(async (_, number) => (await cache.match(`${address}${number}`)).blob())) : [];
  await globalThis.caches?.delete(SHARED);
  if (!about || Date.now() - about.at > SHARED_MS) return null;
  return { text: about.text, files: bodies.map((body, number) => new File([body], about.names[number], { type: body.type })) };
}
