/**
 * Passkeys: asks the browser for one, and sends its answer with the form around the button.
 *
 * `data-passkey` of a form says what for: "login" (the options are fetched, since each page view would make new ones),
 * "get" and "create" (the options are in the page).
 */

import { gettext } from "./language.js";

const isSupported = typeof PublicKeyCredential === "function" && "parseRequestOptionsFromJSON" in PublicKeyCredential;
const NOT_HERE = gettext("This browser cannot use passkeys on this address. It needs HTTPS, or http://localhost.");
const NOTHING = gettext("No passkey was used. Try again, or choose another way.");

async function optionsOf(form) {
  if (form.dataset.passkey !== "login") return JSON.parse(form.querySelector("#passkey-options").textContent);
  const answer = await fetch(form.action, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(`The server answered ${answer.status}`);
  return answer.json();
}

async function ask(form) {
  const options = await optionsOf(form);
  if (form.dataset.passkey !== "create") {
    const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options.request_options.publicKey);
    return navigator.credentials.get({ publicKey });
  }
  const wanted = structuredClone(options.creation_options.publicKey);
  // One that lets its owner in without a password.
  wanted.authenticatorSelection = {
    ...wanted.authenticatorSelection, residentKey: "required", requireResidentKey: true, userVerification: "required",
  };
  return navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(wanted) });
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
    form.elements.credential.value = JSON.stringify(credential.toJSON());
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
