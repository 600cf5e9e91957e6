/** How this chat is answered: the model beside the message, the rest in a sheet. What is chosen holds from then on. */

import { HOME, IN_PAGE_LANGUAGE, write } from "./dom.js";
import { gettext } from "./language.js";

const NOT_SAVED = gettext("Not saved yet. It is sent with your next message.");

export class Choices {
  // What the server does not know yet.
  #changed = new Set();
  #hasAsked = false;
  #row = document.querySelector("[data-choices]");
  #sheet = document.querySelector("[data-choices-sheet]");

  /** `conversation()`: the id of the chat, or an empty text; `isTemporary`: whether a new one is to be temporary. */
  constructor({ conversation, csrfToken, isTemporary }) {
    this.conversation = conversation;
    this.csrfToken = csrfToken;
    this.isTemporary = isTemporary;
    if (!this.#row) return;
    this.fields = Object.fromEntries(
      [...document.querySelectorAll("[data-choice]")].map((field) => [field.dataset.choice, field]),
    );
    this.hasTemperature = "set" in this.fields.temperature.dataset;
    this.#listen();
    this.#show();
  }

  /** What a message says besides itself. */
  get asked() {
    const isNew = !this.conversation();
    return { ...this.#values([...this.#changed]), ...(isNew && this.isTemporary && { temporary: true }) };
  }

  /** The options of the models that could answer as well. */
  get otherModels() {
    return this.#row ? [...this.fields.model.options].filter((option) => !option.selected) : [];
  }

  /** As if it had been chosen beside the message; the server learns of it with the next request. */
  use(model) {
    this.fields.model.value = model;
    this.#changed.add("model");
    this.#show();
  }

  /** The server has what was asked. */
  settle() {
    this.#changed.clear();
  }

  /** A model's server has said by its first answer how much it reads. */
  answered() {
    if (this.#row && !this.#hasAsked) this.#refreshModels();
    this.#hasAsked = true;
  }

  #values(names) {
    const { fields } = this;
    const read = {
      model: () => fields.model.value,
      instructions: () => fields.instructions.value,
      temperature: () => (this.hasTemperature ? Number(fields.temperature.value) : null),
      memory: () => fields.memory.checked,
      web: () => fields.web.checked,
      proposes: () => fields.proposes.checked,
    };
    return Object.fromEntries(names.map((name) => [name, read[name]()]));
  }

  #listen() {
    const { fields } = this;
    document.addEventListener("visibilitychange", () => document.hidden || this.#refreshModels());
    for (const [name, field] of Object.entries(fields)) field.addEventListener("change", () => this.#change(name));
    fields.temperature.addEventListener("input", () => {
      this.hasTemperature = true;
      this.#show();
    });
    this.#sheet.querySelector("[data-temperature-reset]").addEventListener("click", () => {
      this.hasTemperature = false;
      fields.temperature.value = 1;
      this.#change("temperature");
    });
    const opener = this.#row.querySelector("[data-choices-opener]");
    opener.addEventListener("click", () => {
      this.#sheet.showModal();
      opener.ariaExpanded = "true";
    });
    this.#sheet.addEventListener("close", () => (opener.ariaExpanded = "false"));
    this.#sheet.querySelector("[data-choices-done]").addEventListener("click", () => this.#sheet.close());
    // A click beside the sheet closes it; Escape closes it and stops no answer.
    this.#sheet.addEventListener("click", (event) => event.target === this.#sheet && this.#sheet.close());
    this.#sheet.addEventListener("keydown", (event) => event.key === "Escape" && event.stopPropagation());
  }

  /** Models come and go while a page is open. What is chosen stays, also where it is offered no more. */
  async #refreshModels() {
    // A visitor has no say in it, and no list.
    if (!document.querySelector("[data-logout]")) return;
    const response = await fetch(`${HOME}api/v1/models/`, { headers: IN_PAGE_LANGUAGE }).catch(() => null);
    if (!response?.ok) return;
    const { models } = await response.json();
    const select = this.fields.model;
    const chosen = select.selectedOptions[0];
    const options = models.map(({ name, title, takesTemperature, note = "" }) => {
      const option = Object.assign(new Option(title, name, false, name === chosen?.value), { title: name });
      option.dataset.note = note;
      option.toggleAttribute("data-takes-temperature", takesTemperature);
      return option;
    });
    if (chosen && !options.some((option) => option.selected)) options.push(chosen);
    select.replaceChildren(...options);
    select.hidden = options.length < 2;
    document.querySelector("[data-chat]").toggleAttribute("data-has-models", options.length > 1);
    this.#show();
  }

  async #change(name) {
    this.#changed.add(name);
    this.#show();
    const id = this.conversation();
    // A visitor's go with their next message.
    if (!id || !("person" in this.#row.dataset)) return;
    const trouble = this.#sheet.querySelector("[data-choices-trouble]");
    trouble.textContent = (await this.#save(id, name)) ? "" : NOT_SAVED;
    if (!trouble.textContent) this.#changed.delete(name);
  }

  async #save(id, name) {
    try {
      const response = await write(`${HOME}api/v1/conversations/${id}/`, {
        method: "PATCH",
        csrfToken: this.csrfToken(),
        // A person may choose and leave the page at once.
        keepalive: true,
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(this.#values([name])),
      });
      return response.ok;
    } catch {
      return false;
    }
  }

  #show() {
    const { model, temperature, memory, instructions } = this.fields;
    const takesTemperature = Boolean(model.selectedOptions[0] && "takesTemperature" in model.selectedOptions[0].dataset);
    this.#sheet.querySelector("[data-temperature-field]").hidden = !takesTemperature;
    this.#sheet.querySelector("[data-temperature-shown]").textContent = this.hasTemperature ? temperature.value : "default";
    this.#sheet.querySelector("[data-temperature-reset]").hidden = !this.hasTemperature;
    const isChanged = Boolean(instructions.value.trim()) || (takesTemperature && this.hasTemperature);
    this.#row.querySelector("[data-choices-mark]").hidden = !isChanged;
    const note = this.#row.querySelector("[data-memory-note]");
    if (note) note.hidden = memory.checked;
    const ofWindow = document.querySelector("[data-window-note]");
    ofWindow.textContent = model.selectedOptions[0]?.dataset.note ?? "";
    ofWindow.hidden = !ofWindow.textContent;
  }
}
