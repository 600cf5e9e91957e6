/** What the page asks the server to do with chats: the same forms that work without a script. */
import { csrfCookie, pagePerson, parseHtml, write } from "./dom.js";
import { gettext } from "./language.js";

const UNREACHABLE = gettext("No connection to Recollect. Check your network and try again.");

export function csrfToken() {
  return csrfCookie() || (document.querySelector("[name=csrfmiddlewaretoken]")?.value ?? "");
}

/** Sends a form; null when it was done, else why not, in words. */
export async function send(path, fields = {}) {
  let response;
  try {
    // A form that did what it should leads to another page, which nobody here wants to see.
    response = await write(path, { method: "POST", csrfToken: csrfToken(), body: formOf(fields), redirect: "manual" });
  } catch {
    return UNREACHABLE;
  }
  if (response.type === "opaqueredirect") return null;
  const page = parseHtml(await response.text());
  return page.querySelector(".field-error, main p")?.textContent.trim() || gettext("The server answered %(status)s.", { status: response.status });
}

/** A real form, so that the browser goes where it leads, or keeps the file that comes back. */
export function submit(path, fields) {
  const form = document.createElement("form");
  Object.assign(form, { method: "post", action: path, hidden: true });
  for (const [name, value] of formOf(fields)) {
    const input = document.createElement("input");
    Object.assign(input, { type: "hidden", name, value });
    form.append(input);
  }
  document.body.append(form);
  form.submit();
  form.remove();
}

function formOf(fields) {
  const form = new URLSearchParams({ csrfmiddlewaretoken: csrfToken(), page_for: pagePerson() });
  for (const [name, value] of Object.entries(fields)) for (const each of [value].flat()) form.append(name, each);
  return form;
}
