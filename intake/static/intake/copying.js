/** Copy buttons: one on each block of code, one under each answer. */
import { clone, part } from "./dom.js";

const SAID_FOR_MS = 1600;

export function addCopyButtons(answer) {
  for (const block of answer.querySelectorAll("pre")) {
    if (!block.parentElement.classList.contains("code-frame")) frame(block);
  }
}

/** A bar above the code says its language and holds the button, so that neither lies on the code. */
function frame(block) {
  const bar = clone("code-bar");
  const language = /language-(\S+)/.exec(block.querySelector("code")?.className ?? "");
  part(bar, "language").textContent = language ? language[1] : "";
  const whole = document.createElement("div");
  whole.className = "code-frame";
  block.replaceWith(whole);
  block.tabIndex = 0;
  whole.append(bar, block);
}

export function listenForCopying(root, announce) {
  root.addEventListener("click", async (event) => {
    const button = event.target.closest('[data-action="copy-code"], [data-action="copy"]');
    if (!button) return;
    const isCopied = await copy(textFor(button));
    announce(isCopied ? "Copied" : "Copying is not allowed here");
    if (button.dataset.action === "copy-code") sayOn(button, isCopied ? "Copied" : "Not allowed");
    else sayBeside(button, isCopied ? "Copied" : "Not allowed");
  });
}

function textFor(button) {
  if (button.dataset.action === "copy-code") return button.closest(".code-frame").querySelector("pre").textContent;
  const answer = part(button.closest(".turn"), "answer").cloneNode(true);
  for (const extra of answer.querySelectorAll(".code-bar")) extra.remove();
  // Text is laid out by line only while it is on the page.
  answer.classList.add("visually-hidden");
  document.body.append(answer);
  const text = answer.innerText;
  answer.remove();
  return text;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

function sayOn(button, words) {
  button.textContent = words;
  setTimeout(() => (button.textContent = "Copy"), SAID_FOR_MS);
}

function sayBeside(button, words) {
  button.dataset.said = words;
  setTimeout(() => delete button.dataset.said, SAID_FOR_MS);
}
