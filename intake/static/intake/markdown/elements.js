/** From blocks to elements, as the server's own rendering shapes them: headings two levels down, tables that scroll. */
import { inline } from "./inline.js";

const HEADING_SHIFT = 2;

const MAKERS = {
  heading: ({ level, text }, options) => make(`h${Math.min(level + HEADING_SHIFT, 6)}`, inline(text, options)),
  paragraph: ({ text }, options) => make("p", inline(text, options)),
  rule: () => make("hr"),
  quote: ({ blocks }, options) => make("blockquote", ...elementsOf(blocks, options)),
  code: makeCode,
  list: makeList,
  table: makeTable,
};

/** `options.isOpen` says that more of this block may be on its way. */
export function elementOf(block, options) {
  return MAKERS[block.kind](block, options);
}

/** Of several blocks only the last can still be open. */
function elementsOf(blocks, options) {
  return blocks.map((block, index) => elementOf(block, closedUnlessLast(options, index, blocks)));
}

function closedUnlessLast(options, index, all) {
  return { ...options, isOpen: options.isOpen && index === all.length - 1 };
}

function makeCode({ language, text }) {
  const code = make("code");
  code.textContent = text === "" ? "" : `${text}\n`;
  if (/^[\w+#.-]{1,32}$/.test(language)) code.className = `language-${language}`;
  return make("pre", code);
}

function makeList({ start, items, isLoose }, options) {
  const list = make(start === null ? "ul" : "ol");
  if (start !== null && start !== 1) list.start = start;
  list.append(...items.map((blocks, index) => makeItem(blocks, isLoose, closedUnlessLast(options, index, items))));
  return list;
}

function makeItem(blocks, isLoose, options) {
  const children = elementsOf(blocks, options);
  const unwrap = (element) => (!isLoose && element.localName === "p" ? [...element.childNodes] : [element]);
  return make("li", ...children.flatMap(unwrap));
}

function makeTable({ head, alignments, rows }, options) {
  const makeRow = (tag, cells) =>
    make("tr", ...alignments.map((alignment, index) => makeCell(tag, alignment, inline(cells[index] ?? "", options))));
  const body = rows.map((cells) => makeRow("td", cells));
  const table = make("table", make("thead", makeRow("th", head)), ...(body.length ? [make("tbody", ...body)] : []));
  return make("div", table, { className: "table-scroll" });
}

function makeCell(tag, alignment, content) {
  return make(tag, content, alignment ? { className: `align-${alignment}` } : {});
}

/** An element with children; a plain object among them sets properties. */
function make(tag, ...parts) {
  const element = document.createElement(tag);
  for (const part of parts) {
    if (part instanceof Node) element.append(part);
    else Object.assign(element, part);
  }
  return element;
}
