/**
 * Markdown's block structure, from lines to a tree: the part of CommonMark and GFM that answers are written in.
 *
 * Each block is {kind, line, ...}, `line` being where it begins. When a block has begun, the blocks before it are final:
 * that is what lets a streamed answer be rendered once. The server's own rendering replaces all of this at the end.
 */

const FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t](.*))?$/;
const CLOSING_HASHES = /(^|[ \t])#+$/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-+*]|\d{1,9}[.)])( +|$)(.*)$/;
const INDENTED = /^ {4}/;
const UNDERLINE = /^ {0,3}(=|-)\1{2,}[ \t]*$/;
const DELIMITERS = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const DEEPEST = 16;

const READERS = [readFence, readHeading, readRule, readQuote, readList, readTable];

export function parseBlocks(lines, depth = 0) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (isBlank(lines[at])) {
      at += 1;
      continue;
    }
    const [block, next] = readBlock(lines, at, depth);
    blocks.push({ ...block, line: at });
    at = next;
  }
  return blocks;
}

function readBlock(lines, at, depth) {
  if (depth < DEEPEST) {
    for (const read of READERS) {
      const found = read(lines, at, depth);
      if (found) return found;
    }
    if (INDENTED.test(lines[at])) return readIndented(lines, at);
  }
  return readParagraph(lines, at, depth);
}

function readFence(lines, at) {
  const opening = FENCE.exec(lines[at]);
  if (!opening) return null;
  const [, indent, marks, info] = opening;
  const closing = new RegExp(`^ {0,3}${marks[0]}{${marks.length},}[ \\t]*$`);
  const margin = new RegExp(`^ {0,${indent.length}}`);
  let end = at + 1;
  while (end < lines.length && !closing.test(lines[end])) end += 1;
  const code = lines.slice(at + 1, end).map((line) => line.replace(margin, ""));
  // Nothing has been written yet on the last line of what is still open.
  if (end === lines.length && code.at(-1) === "") code.pop();
  return [{ kind: "code", language: info.trim().split(/\s/)[0], text: code.join("\n") }, end + 1];
}

function readHeading(lines, at) {
  const found = HEADING.exec(lines[at]);
  if (!found) return null;
  const text = (found[2] ?? "").trim().replace(CLOSING_HASHES, "").trimEnd();
  return [{ kind: "heading", level: found[1].length, text }, at + 1];
}

function readRule(lines, at) {
  return RULE.test(lines[at]) ? [{ kind: "rule" }, at + 1] : null;
}

function readQuote(lines, at, depth) {
  if (!QUOTE.test(lines[at])) return null;
  const inner = [];
  let end = at;
  while (end < lines.length && (QUOTE.test(lines[end]) || continuesParagraph(lines, end, inner))) {
    inner.push(lines[end].replace(QUOTE, ""));
    end += 1;
  }
  return [{ kind: "quote", blocks: parseBlocks(inner, depth + 1) }, end];
}

function readList(lines, at, depth) {
  const first = ITEM.exec(lines[at]);
  if (!first) return null;
  const items = [];
  let isLoose = false;
  let end = at;
  for (let item = first; item && markerOf(item) === markerOf(first); item = lines[end] && ITEM.exec(lines[end])) {
    if (RULE.test(lines[end])) break;
    const [inner, next, hasGap] = readItem(lines, end, item);
    items.push(parseBlocks(inner, depth + 1));
    isLoose ||= hasGap && (inner.some((line, index) => isBlank(line) && index < inner.length - 1) || sameList(lines, next, first));
    end = next;
  }
  const number = parseInt(first[2], 10);
  return [{ kind: "list", start: Number.isNaN(number) ? null : number, items, isLoose }, end];
}

/** The lines of one item without their margin, where the next line is, and whether a blank line was among them. */
function readItem(lines, at, [, indent, marker, space, rest]) {
  const margin = indent.length + marker.length + (space.length > 4 || space.length === 0 ? 1 : space.length);
  const inner = [space.length > 4 ? space.slice(1) + rest : rest];
  let end = at + 1;
  while (end < lines.length) {
    const line = lines[end];
    if (isBlank(line)) inner.push("");
    else if (line.search(/\S/) >= margin) inner.push(line.slice(margin));
    else if (!ITEM.test(line) && continuesParagraph(lines, end, inner)) inner.push(line.trimStart());
    else break;
    end += 1;
  }
  const hasGap = inner.slice(1).includes("");
  while (inner.length > 1 && isBlank(inner.at(-1))) inner.pop();
  return [inner, end, hasGap];
}

function markerOf([, , marker]) {
  return marker.at(-1);
}

function sameList(lines, at, first) {
  const next = lines[at] && ITEM.exec(lines[at]);
  return Boolean(next) && markerOf(next) === markerOf(first);
}

function readTable(lines, at) {
  const isTable = lines[at].includes("|") && at + 1 < lines.length && DELIMITERS.test(lines[at + 1]);
  if (!isTable) return null;
  const head = cellsOf(lines[at]);
  const delimiters = cellsOf(lines[at + 1]);
  if (head.length !== delimiters.length) return null;
  let end = at + 2;
  while (end < lines.length && !isBlank(lines[end]) && !interrupts(lines, end)) end += 1;
  const rows = lines.slice(at + 2, end).map((line) => cellsOf(line));
  return [{ kind: "table", head, alignments: delimiters.map(alignmentOf), rows }, end];
}

function cellsOf(line) {
  const trimmed = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  return trimmed.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function alignmentOf(delimiter) {
  if (!delimiter.endsWith(":")) return delimiter.startsWith(":") ? "left" : null;
  return delimiter.startsWith(":") ? "center" : "right";
}

function readIndented(lines, at) {
  let end = at;
  while (end < lines.length && (INDENTED.test(lines[end]) || isBlank(lines[end]))) end += 1;
  const text = lines.slice(at, end).map((line) => line.slice(4)).join("\n").trimEnd();
  return [{ kind: "code", language: "", text }, end];
}

function readParagraph(lines, at, depth) {
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end])) {
    const underline = UNDERLINE.exec(lines[end]);
    if (underline && depth < DEEPEST) {
      const text = textOf(lines, at, end);
      return [{ kind: "heading", level: underline[1] === "=" ? 1 : 2, text }, end + 1];
    }
    if (depth < DEEPEST && (interrupts(lines, end) || readTable(lines, end))) break;
    end += 1;
  }
  return [{ kind: "paragraph", text: textOf(lines, at, end) }, end];
}

function textOf(lines, at, end) {
  return lines.slice(at, end).map((line) => line.trimStart()).join("\n").trimEnd();
}

/** Whether a line ends the paragraph before it; a number other than 1 at the start of a line is just a number. */
function interrupts(lines, at) {
  const line = lines[at];
  if (FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line)) return true;
  const item = ITEM.exec(line);
  return Boolean(item) && item[4] !== "" && (/[-+*]/.test(item[2]) || parseInt(item[2], 10) === 1);
}

/** A line without its margin still belongs to the paragraph before it ("lazy continuation"). */
function continuesParagraph(lines, at, inner) {
  const before = inner.at(-1);
  if (before === undefined || isBlank(before) || isBlank(lines[at]) || interrupts(lines, at)) return false;
  return !FENCE.test(before) && !HEADING.test(before) && !RULE.test(before);
}

function isBlank(line) {
  return line.trim() === "";
}
