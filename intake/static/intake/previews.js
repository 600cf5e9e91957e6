/**
 * Previews of code in answers: diagrams by themselves, HTML and SVG at a press of a button, their scripts at a second one.
 * All of it is in a sandboxed frame without an origin (templates/intake/preview.html, decision 71). A picture of another site is
 * loaded at a press of a button, in a frame that may load pictures and nothing else (decision 71).
 */
import { HOME } from "./dom.js";
import { gettext } from "./language.js";

const ADDRESS = `${HOME}preview/`;
const PICTURES = `${ADDRESS}?pictures`;
const SCRIPTS = `${ADDRESS}?scripts`;
const DIAGRAM = "language-mermaid";
// A diagram is drawn before a reader comes to it.
const NEAR_PX = 600;
const DRAWING_MS = 20_000;
const MOST_KEPT = 60;
const LEAST_REM = 26;
const LEAST_PX = 48;
const MOST_PX = 640;
const DARK = matchMedia("(prefers-color-scheme: dark)");

/** `library`: the address of the script that draws diagrams; `onGrown` is called when an answer has become longer. */
export function listenForPreviews(thread, { library, onGrown }) {
  const diagrams = new Diagrams(library);
  const drawn = thread.getElementsByClassName(DIAGRAM);
  const watcher = new IntersectionObserver(
    (entries) => entries.forEach(({ isIntersecting, target }) => isIntersecting && showDiagram(target)),
    { rootMargin: `${NEAR_PX}px 0px` },
  );
  const showDiagram = async (code) => {
    watcher.unobserve(code);
    const isDark = isPageDark();
    const result = await diagrams.draw(code.textContent, isDark);
    // The block may have been replaced, or the colours changed, meanwhile.
    if (code.isConnected && isDark === isPageDark()) fill(code, result);
  };
  const fill = (code, result) => {
    const frame = code.closest(".code-frame");
    if (result.error) tellTrouble(frame, gettext("The diagram cannot be drawn: its source has an error."));
    else if (result.isLate) tellTrouble(frame, gettext("The diagram could not be drawn now. Try again with “Preview”."));
    else put(frame, pictureOf(result));
    onGrown();
  };
  const look = () => {
    for (const code of drawn) {
      if ("diagram" in code.dataset || !isFinished(code)) continue;
      code.dataset.diagram = "";
      // One that the server has sent again is there at once.
      const known = diagrams.known(code.textContent, isPageDark());
      if (known) fill(code, known);
      else watcher.observe(code);
    }
  };
  look();
  new MutationObserver(look).observe(thread, { childList: true, subtree: true, attributeFilter: ["data-status"] });
  const redraw = () => [...drawn].filter((code) => "diagram" in code.dataset).forEach((code) => watcher.observe(code));
  DARK.addEventListener("change", redraw);
  new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  thread.addEventListener("click", ({ target }) => {
    const loading = target.closest('[data-action="load-picture"]');
    if (loading) return loadPicture(loading.closest(".picture"), onGrown);
    const button = target.closest('[data-action="preview-code"], [data-action="run-scripts"]');
    if (!button) return;
    const frame = button.closest(".code-frame");
    const code = frame.querySelector("code");
    if (button.dataset.action === "run-scripts") put(frame, documentOf(code.textContent, button.textContent, SCRIPTS));
    else if (frame.querySelector(".preview")) show(frame, frame.querySelector("pre").hidden ? "source" : "preview");
    else if (code.classList.contains(DIAGRAM)) showDiagram(code);
    else {
      put(frame, documentOf(code.textContent, button.textContent));
      if (/<script|\son\w+\s*=/i.test(code.textContent)) offerScripts(frame);
    }
    onGrown();
  });
}

/** While an answer is written, its last block may still grow. */
function isFinished(code) {
  const turn = code.closest(".turn");
  if (turn?.dataset.status !== "streaming") return true;
  let block = code;
  while (block.parentElement && !block.parentElement.matches(".prose")) block = block.parentElement;
  return block.nextElementSibling !== null;
}

function isPageDark() {
  return (document.documentElement.dataset.theme ?? (DARK.matches ? "dark" : "light")) === "dark";
}

function put(frame, content) {
  const isSource = frame.querySelector("pre").hidden === false && frame.querySelector(".preview");
  frame.querySelector(".preview")?.remove();
  frame.querySelector(".preview-trouble")?.remove();
  const preview = document.createElement("div");
  preview.className = "preview";
  // Scrolled by keyboard, too; a page in a frame scrolls itself.
  if (content.matches("img")) preview.tabIndex = 0;
  preview.append(content);
  frame.querySelector(".code-bar").after(preview);
  // A reader who looks at the source goes on with it.
  show(frame, isSource ? "source" : "preview");
}

function offerScripts(frame) {
  const offer = document.createElement("p");
  offer.className = "preview-offer";
  offer.textContent = gettext("Scripts do not run in this preview: they could send what is in it to other servers.");
  const button = document.createElement("button");
  Object.assign(button, { type: "button", className: "button button-small button-quiet", textContent: gettext("Run scripts") });
  button.dataset.action = "run-scripts";
  offer.append(" ", button);
  frame.querySelector(".preview").append(offer);
}

function show(frame, which) {
  frame.querySelector(".preview").hidden = which === "source";
  frame.querySelector("pre").hidden = which === "preview";
  const button = frame.querySelector('[data-action="preview-code"]');
  button.dataset.usual ??= button.textContent;
  button.textContent = which === "source" ? button.dataset.usual : gettext("Source");
}

function tellTrouble(frame, words) {
  frame.querySelector(".preview")?.remove();
  frame.querySelector(".preview-trouble")?.remove();
  frame.querySelector("pre").hidden = false;
  const trouble = document.createElement("p");
  trouble.className = "preview-trouble";
  trouble.textContent = words;
  frame.querySelector(".code-bar").after(trouble);
}

/** As a picture, in which nothing runs or loads whatever the drawing frame has made of the source. */
function pictureOf({ svg, width, height }) {
  const picture = new Image(width, height);
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  picture.alt = gettext("Diagram");
  // On a phone a large one is scrolled rather than too small to read.
  picture.style.minWidth = `min(${width}px, ${LEAST_REM}rem)`;
  return picture;
}

function sandbox(title, address = ADDRESS) {
  const frame = document.createElement("iframe");
  frame.setAttribute("sandbox", "allow-scripts");
  Object.assign(frame, { src: address, title });
  return frame;
}

/** The picture's server learns the reader's address, and gets no cookie and no referrer. Its link and host stay beside it. */
function loadPicture(picture, onGrown) {
  const link = picture.querySelector("a");
  const name = link.textContent;
  const preview = document.createElement("span");
  preview.className = "preview";
  preview.ariaBusy = "true";
  const frame = sandbox(name, PICTURES);
  // Where a browser knows it: the frame begins without the cookies that other sites have set.
  frame.credentialless = true;
  frame.addEventListener("load", () => frame.contentWindow.postMessage({ picture: link.href, name }, "*"), { once: true });
  addEventListener("message", function show({ source, data }) {
    if (!source || source !== frame.contentWindow) return frame.isConnected || removeEventListener("message", show);
    removeEventListener("message", show);
    preview.ariaBusy = "false";
    if (data?.width > 0 && data.height > 0) {
      frame.style.aspectRatio = `${data.width} / ${data.height}`;
      frame.style.width = `${Math.min(data.width, (MOST_PX * data.width) / data.height)}px`;
    } else {
      const trouble = document.createElement("span");
      trouble.className = "preview-trouble";
      trouble.setAttribute("role", "alert");
      trouble.textContent = gettext("The picture could not be loaded.");
      preview.replaceWith(trouble);
    }
    onGrown();
  });
  picture.querySelector(".preview-trouble")?.remove();
  preview.append(frame);
  picture.prepend(preview);
  // The button is hidden while there is a preview.
  link.focus({ preventScroll: true });
  onGrown();
}

/** HTML, or a picture in SVG, which gets a page around it. Its scripts run at the address `SCRIPTS` alone. */
function documentOf(source, title, address) {
  const frame = sandbox(title, address);
  const isPicture = /^\s*(?:<\?xml[^>]*>\s*)?<svg[\s>]/i.test(source);
  const page = isPicture ? `<style>body { margin: 1rem } svg { display: block; max-width: 100%; margin: auto }</style>${source}` : source;
  const html = /^\s*<!doctype/i.test(page) ? page : `<!doctype html>${page}`;
  frame.addEventListener("load", () => frame.contentWindow.postMessage({ html }, "*"), { once: true });
  addEventListener("message", function measure({ source: from, data }) {
    if (from === frame.contentWindow && data?.height > 0) frame.style.height = `${Math.min(MOST_PX, Math.max(LEAST_PX, data.height)) + frame.offsetHeight - frame.clientHeight}px`;
    else if (from && !frame.isConnected) removeEventListener("message", measure);
  });
  return frame;
}

/** Draws in one hidden frame for the whole page: the library is large, and each frame would read it anew. */
class Diagrams {
  #known = new Map();
  #waiting = new Map();
  #opening = null;
  #frame = null;
  #count = 0;

  constructor(library) {
    this.library = library;
    addEventListener("message", ({ source, data }) => {
      if (this.#frame && source === this.#frame.contentWindow) this.#waiting.get(data?.id)?.(data);
    });
  }

  known(source, isDark) {
    return this.#known.get(keyOf(source, isDark));
  }

  /** `{svg, width, height}`; `error` where the source has one; `isLate` where nothing was drawn, which may pass. */
  async draw(source, isDark) {
    const known = this.known(source, isDark);
    if (known) return known;
    const result = await this.#ask(source, isDark).catch(() => null);
    if (!result) return { isLate: true };
    this.#known.set(keyOf(source, isDark), result);
    if (this.#known.size > MOST_KEPT) this.#known.delete(this.#known.keys().next().value);
    return result;
  }

  async #ask(source, isDark) {
    this.#opening ??= this.#open();
    await this.#opening.catch((error) => {
      this.#close();
      throw error;
    });
    const id = ++this.#count;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#close();
        reject(new Error("late"));
      }, DRAWING_MS);
      this.#waiting.set(id, (result) => {
        clearTimeout(timer);
        this.#waiting.delete(id);
        resolve(result);
      });
      this.#frame.contentWindow.postMessage({ id, diagram: source, isDark }, "*");
    });
  }

  async #open() {
    const response = await fetch(this.library);
    if (!response.ok) throw new Error(`status ${response.status}`);
    const library = await response.text();
    this.#frame = sandbox("");
    Object.assign(this.#frame, { className: "drawing-frame", tabIndex: -1, ariaHidden: "true" });
    const isLoaded = new Promise((resolve) => this.#frame.addEventListener("load", resolve, { once: true }));
    document.body.append(this.#frame);
    await isLoaded;
    this.#frame.contentWindow.postMessage({ library }, "*");
  }

  /** The next diagram begins with a new frame. */
  #close() {
    this.#frame?.remove();
    this.#frame = this.#opening = null;
  }
}

function keyOf(source, isDark) {
  return `${isDark ? "dark" : "light"}:${source}`;
}
