/** Copy and download: each block of code, each message, and each answer as Markdown and as rich text. */
import { part } from "./dom.js";
import { withoutPreviews } from "./drawing.js";
import { gettext } from "./language.js";

const SAID_FOR_MS = 1600;
// The ending by which most programs know a language, where it is not the language's own name.
const ENDINGS = { python: "py", javascript: "js", typescript: "ts", bash: "sh", shell: "sh", markdown: "md", rust: "rs", ruby: "rb", csharp: "cs", kotlin: "kt", yaml: "yml" };

export function listenForCopying(root, announce) {
  root.addEventListener("click", async (event) => {
    const button = event.target.closest('[data-action="copy-code"], [data-action="download-code"], [data-action="copy"], [data-action="copy-said"]');
    if (!button) return;
    if (button.dataset.action === "download-code") return download(button);
    const isCopied = await copy(contentFor(button));
    announce(isCopied ? gettext("Copied") : gettext("Copying is not allowed here"));
    if (button.dataset.action === "copy-code") sayOn(button, isCopied ? gettext("Copied") : gettext("Not copied"));
    else sayBeside(button, isCopied ? gettext("Copied") : gettext("Not copied"));
  });
}

function contentFor(button) {
  if (button.dataset.action === "copy-code") return { text: codeBeside(button).textContent.replace(/\n$/, "") };
  const turn = button.closest(".turn");
  if (button.dataset.action === "copy-said") return { text: part(turn, "said").textContent };
  const answer = part(turn, "answer");
  const rich = withoutPreviews(answer);
  for (const bar of rich.querySelectorAll(".code-bar")) bar.remove();
  return { text: answer.dataset.markdown, html: rich.innerHTML };
}

function codeBeside(button) {
  return button.closest(".code-frame").querySelector("pre");
}

export async function copy({ text, html }) {
  try {
    await navigator.clipboard.write([new ClipboardItem(typed({ text, html }))]);
    return true;
  } catch {
    return copyByEvent({ text, html });
  }
}

function typed({ text, html }) {
  const items = { "text/plain": new Blob([text], { type: "text/plain" }) };
  if (html) items["text/html"] = new Blob([html], { type: "text/html" });
  return items;
}

/** Over plain HTTP there is no clipboard to write to; a copy that a click asks for may still be filled. */
function copyByEvent({ text, html }) {
  const fill = (event) => {
    event.preventDefault();
    event.clipboardData.setData("text/plain", text);
    if (html) event.clipboardData.setData("text/html", html);
  };
  document.addEventListener("copy", fill, { once: true });
  const isCopied = document.execCommand("copy");
  document.removeEventListener("copy", fill);
  return isCopied;
}

function download(button) {
  const code = codeBeside(button);
  const language = /language-([\w+#.-]+)/.exec(code.querySelector("code").className)?.[1]?.toLowerCase();
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([code.textContent], { type: "text/plain" }));
  link.download = `code.${ENDINGS[language] ?? language?.replace(/\W/g, "") ?? "txt"}`;
  link.click();
  URL.revokeObjectURL(link.href);
}

function sayOn(button, words) {
  button.dataset.usual ??= button.textContent;
  button.textContent = words;
  setTimeout(() => (button.textContent = button.dataset.usual), SAID_FOR_MS);
}

function sayBeside(button, words) {
  button.dataset.said = words;
  setTimeout(() => delete button.dataset.said, SAID_FOR_MS);
}
