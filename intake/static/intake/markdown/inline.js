/**
 * Markdown within a line, made of elements and text nodes only: nothing a model writes is ever parsed as HTML.
 *
 * What is still open at the end of a streamed text (`**`, a backtick) counts as closed there when `isOpen` is set, so that
 * words do not change shape when the closing mark arrives.
 */
import { linkTo } from "./links.js";

const SPECIAL = /[\\`*_~[\]!<&\n]/g;
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const DESTINATION = /^\(\s*(?:<([^<>\n]*)>|((?:[^\s()]|\([^\s()]*\))*))(?:\s+(?:"([^"]*)"|'([^']*)'))?\s*\)/;
const ADDRESS = /^<((?:https?:\/\/|mailto:)[^\s<>]+|[^\s@<>:]+@[^\s@<>]+)>/;
const ENTITY = /^&(?:#(\d{1,7})|#x([0-9a-f]{1,6})|(amp|lt|gt|quot|nbsp|copy|hellip|mdash|ndash));/i;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', nbsp: "\u00a0", copy: "©", hellip: "…", mdash: "—", ndash: "–" };
const TAGS = { "**": "strong", __: "strong", "*": "em", _: "em", "~~": "s" };
const DEEPEST = 12;
const FURTHEST_LINK = 4000;

export function inline(text, options = {}) {
  return new Reader(text, { depth: 0, isOpen: false, isInLink: false, localOnly: false, ...options }).read();
}

class Reader {
  #plain = "";
  #unclosed = new Set();
  #out = document.createDocumentFragment();

  constructor(text, options) {
    this.text = text;
    this.options = options;
    this.at = 0;
    this.brackets = matchBrackets(text);
  }

  read() {
    while (this.at < this.text.length) {
      SPECIAL.lastIndex = this.at;
      const next = SPECIAL.exec(this.text)?.index ?? this.text.length;
      this.#plain += this.text.slice(this.at, next);
      this.at = next;
      if (next < this.text.length) this.#special(this.text[next]);
    }
    this.#flush();
    return this.#out;
  }

  #special(char) {
    const isTaken = {
      "\\": () => this.#escape(),
      "`": () => this.#code(),
      "*": () => this.#emphasis("*"),
      _: () => this.#emphasis("_"),
      "~": () => this.#emphasis("~"),
      "[": () => this.#link(this.at),
      "!": () => this.#image(),
      "<": () => this.#address(),
      "&": () => this.#entity(),
      "\n": () => this.#lineBreak(),
    }[char]?.();
    if (!isTaken) this.#literal(1);
  }

  #literal(length) {
    this.#plain += this.text.slice(this.at, this.at + length);
    this.at += length;
  }

  #flush() {
    if (this.#plain) this.#out.append(this.#plain);
    this.#plain = "";
  }

  #append(node, end) {
    this.#flush();
    this.#out.append(node);
    this.at = end;
    return true;
  }

  #element(tag, text, changes = {}) {
    const element = document.createElement(tag);
    element.append(inline(text, { ...this.options, depth: this.options.depth + 1, ...changes }));
    return element;
  }

  #escape() {
    const next = this.text[this.at + 1];
    if (next === "\n") return this.#append(document.createElement("br"), this.at + 2);
    if (next === undefined || !PUNCTUATION.test(next)) return false;
    this.#plain += next;
    this.at += 2;
    return true;
  }

  #lineBreak() {
    if (!this.#plain.endsWith("  ")) return false;
    this.#plain = this.#plain.trimEnd();
    return this.#append(document.createElement("br"), this.at + 1);
  }

  #code() {
    const length = this.#runLength("`");
    const start = this.at + length;
    const end = this.#findRun("`", length, start);
    const isClosed = end >= 0;
    if (!isClosed && !(this.options.isOpen && start < this.text.length)) {
      this.#literal(length);
      return true;
    }
    const content = this.text.slice(start, isClosed ? end : undefined).replaceAll("\n", " ");
    const code = document.createElement("code");
    code.textContent = /^ .*[^ ].* $/.test(content) ? content.slice(1, -1) : content;
    return this.#append(code, isClosed ? end + length : this.text.length);
  }

  #emphasis(char) {
    const run = this.#runLength(char);
    // Of three, the outermost is the single one.
    const length = char === "~" ? 2 : run === 3 ? 1 : Math.min(run, 2);
    const start = this.at + length;
    const opens = run >= length && this.#mayOpen(char, this.at + run) && this.options.depth < DEEPEST;
    const end = opens ? this.#findClosing(char, length, start) : -1;
    const runsOn = opens && end < 0 && length === 2 && this.options.isOpen && this.at + run < this.text.length;
    if (end < 0 && !runsOn) {
      this.#literal(run);
      return true;
    }
    const content = this.text.slice(start, end < 0 ? undefined : end);
    const element = this.#element(TAGS[char.repeat(length)], content, { isOpen: end < 0 });
    return this.#append(element, end < 0 ? this.text.length : end + length);
  }

  #mayOpen(char, after) {
    const isBeforeWord = after < this.text.length && !/\s/.test(this.text[after]);
    return isBeforeWord && !(char === "_" && /\w/.test(this.text[this.at - 1] ?? ""));
  }

  /** Where a closing mark of this length begins, code spans left out; -1 when there is none. */
  #findClosing(char, length, from) {
    const key = char.repeat(length);
    if (this.#unclosed.has(key)) return -1;
    for (let at = from; at < this.text.length; at += 1) {
      if (this.text[at] === "\\") at += 1;
      else if (this.text[at] === "`") at = this.#pastCode(at) - 1;
      else if (this.text[at] === char) {
        const run = runAt(this.text, at, char);
        if (this.#closes(char, length, run, at, from)) return at + Math.max(0, run - length);
        at += run - 1;
      }
    }
    this.#unclosed.add(key);
    return -1;
  }

  #closes(char, length, run, at, from) {
    const isAfterWord = at > from && !/\s/.test(this.text[at - 1]);
    const isInsideWord = char === "_" && /\w/.test(this.text[at + run] ?? "");
    return isAfterWord && !isInsideWord && (run === length || run === 3 || (run > 3 && length === 2));
  }

  #pastCode(at) {
    const length = runAt(this.text, at, "`");
    const end = this.#findRun("`", length, at + length);
    return end < 0 ? at + length : end + length;
  }

  #runLength(char) {
    return runAt(this.text, this.at, char);
  }

  #findRun(char, length, from) {
    const key = char + length;
    if (this.#unclosed.has(key)) return -1;
    for (let at = this.text.indexOf(char, from); at >= 0; ) {
      const run = runAt(this.text, at, char);
      if (run === length) return at;
      at = this.text.indexOf(char, at + run);
    }
    this.#unclosed.add(key);
    return -1;
  }

  #link(open) {
    const target = this.#target(open);
    if (!target || this.options.isInLink || this.options.depth >= DEEPEST) return false;
    const link = linkTo(target.href, this.options);
    const words = this.#element(link ? "a" : "span", target.label, { isInLink: true, isOpen: false });
    if (link) Object.assign(words, link);
    if (link && target.title) words.title = target.title;
    return this.#append(words, target.end);
  }

  /** A picture is not loaded, which would tell its server who reads: its words link to it. */
  #image() {
    const target = this.text[this.at + 1] === "[" && this.#target(this.at + 1);
    if (!target) return false;
    const link = this.options.isInLink ? null : linkTo(target.href, this.options);
    const words = target.label || "image";
    if (!link) return this.#append(words, target.end);
    const element = Object.assign(document.createElement("a"), link);
    element.textContent = words;
    return this.#append(element, target.end);
  }

  #target(open) {
    const close = this.brackets.get(open);
    if (close === undefined) return null;
    const found = DESTINATION.exec(this.text.slice(close + 1, close + 1 + FURTHEST_LINK));
    if (!found) return null;
    const label = this.text.slice(open + 1, close);
    return { label, href: found[1] ?? found[2], title: found[3] ?? found[4], end: close + 1 + found[0].length };
  }

  #address() {
    const found = ADDRESS.exec(this.text.slice(this.at, this.at + FURTHEST_LINK));
    if (!found || this.options.isInLink) return false;
    const link = linkTo(found[1].includes(":") ? found[1] : `mailto:${found[1]}`, this.options);
    if (!link) return false;
    const element = Object.assign(document.createElement("a"), link);
    element.textContent = found[1];
    return this.#append(element, this.at + found[0].length);
  }

  #entity() {
    const found = ENTITY.exec(this.text.slice(this.at, this.at + 12));
    if (!found) return false;
    const [whole, decimal, hexadecimal, name] = found;
    const code = decimal ? parseInt(decimal, 10) : parseInt(hexadecimal, 16);
    const isCharacter = code > 0 && code <= 0x10ffff;
    this.#plain += name ? (ENTITIES[name.toLowerCase()] ?? whole) : isCharacter ? String.fromCodePoint(code) : "\ufffd";
    this.at += whole.length;
    return true;
  }
}

function runAt(text, at, char) {
  let end = at;
  while (text[end] === char) end += 1;
  return end - at;
}

/** Which bracket closes which, found in one pass, so that a thousand opened ones cost no more than one. */
function matchBrackets(text) {
  const pairs = new Map();
  const open = [];
  for (let at = 0; at < text.length; at += 1) {
    if (text[at] === "\\") at += 1;
    else if (text[at] === "[") open.push(at);
    else if (text[at] === "]" && open.length) pairs.set(open.pop(), at);
  }
  return pairs;
}
