/** A call that waits for its person: its card is answered once, then the turn goes on. */
import { part, write } from "./dom.js";
import { gettext } from "./language.js";

/** `goOn(element)`: the turn of the last call that waited. */
export function listenForApprovals(thread, { csrfToken, announce, goOn }) {
  thread.addEventListener("click", async ({ target }) => {
    const decision = target.closest("[data-decision]")?.dataset.decision;
    if (!decision) return;
    const card = target.closest("[data-approval]");
    const [words, reason] = [part(card, "arguments"), part(card, "approval-reason")];
    const say = (trouble) => (part(card, "approval-trouble").textContent = trouble);
    const body = { decision };
    if (decision === "no") body.reason = reason.value;
    else if (words.value !== words.defaultValue) {
      try {
        body.input = JSON.parse(words.value);
      } catch {
        return say(gettext("This is no JSON. Correct it, or take back your change."));
      }
    }
    const fields = [...card.querySelectorAll("button, input, textarea")];
    for (const field of fields) field.disabled = true;
    const answer = await send(card.dataset.href, body, csrfToken());
    if (answer.left === undefined) {
      // Somebody may have answered on another device.
      for (const field of fields) field.disabled = answer.isOver;
      return say(answer.detail);
    }
    const turn = card.closest(".turn");
    card.remove();
    announce(decision === "no" ? gettext("Not allowed.") : gettext("Allowed."));
    if (answer.left === 0) goOn(turn);
  });
}

async function send(href, body, csrfToken) {
  try {
    const headers = { "Content-Type": "application/json" };
    const response = await write(href, { method: "POST", csrfToken, headers, body: JSON.stringify(body) });
    const answer = await response.json();
    return response.ok ? answer : { detail: answer.detail, isOver: [409, 410].includes(response.status) };
  } catch {
    return { detail: gettext("No connection to Recollect. Try again."), isOver: false };
  }
}
