/**
 * Passkeys: asks the browser for one, and sends its answer with the form around the button.
 *
 * `data-passkey` of a form says what for: "login" (the options are fetched, since each page view would make new ones),
 * "get" and "create" (the options are in the page).
 */

import { gettext } from "./language.js";

const isSupported = typeof PublicKeyCredential === "function";
const NOT_HERE = gettext("This browser cannot use passkeys on this address. It needs HTTPS, or http://localhost.");
const NOTHING = gettext("No passkey was used. Try again, or choose another way.");

async function optionsOf(form) {
  if (form.dataset.passkey !== "login") return JSON.parse(form.querySelector("#passkey-options").textContent);
  const answer = await fetch(form.action, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(`The server answered ${answer.status}`);
  return answer.json();
}

const bytes = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");

async function ask(form) {
  const { request_options: request, creation_options: creation } = await optionsOf(form);
  // Browsers below Safari 18.4 do not turn JSON into these themselves.
  const wanted = (request ?? creation).publicKey;
  const ids = (name) => wanted[name] && { [name]: wanted[name].map((each) => ({ ...each, id: bytes(each.id) })) };
  const publicKey = { ...wanted, challenge: bytes(wanted.challenge), ...ids("allowCredentials"), ...ids("excludeCredentials") };
  if (request) return navigator.credentials.get({ publicKey });
  publicKey.user = { ...wanted.user, id: bytes(wanted.user.id) };
  // One that lets its owner in without a password.
  publicKey.authenticatorSelection = {
    ...wanted.authenticatorSelection, residentKey: "required", requireResidentKey: true, userVerification: "required",
  };
  return navigator.credentials.create({ publicKey });
}

/** As the server reads it. */
function asJson(credential) {
  const { id, rawId, type, response, authenticatorAttachment } = credential;
  const parts = ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"].filter((name) => response[name]);
  const inText = Object.fromEntries(parts.map((name) => [name, text(response[name])]));
  return JSON.stringify({ id, rawId: text(rawId), type, authenticatorAttachment, clientExtensionResults: credential.getClientExtensionResults(), response: inText });
}

function say(form, sentence) {
  const place = form.querySelector("[data-passkey-error]");
  place.textContent = sentence;
  place.hidden = false;
}

async function send(form, button) {
  button.disabled = true;
  try {
    const credential = await ask(form);
    form.elements.credential.value = asJson(credential);
    form.submit();
  } catch (error) {
    console.warn(error);
    say(form, error.name === "SecurityError" ? NOT_HERE : NOTHING);
    button.disabled = false;
  }
}

for (const form of document.querySelectorAll("form[data-passkey]")) {
  const button = form.querySelector("button");
  if (isSupported) form.hidden = false;
  else if (!form.hidden) {
    button.disabled = true;
    say(form, NOT_HERE);
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(form, button);
  });
}
