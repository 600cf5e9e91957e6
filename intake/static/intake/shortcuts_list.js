/** The list of keys under `?`. */

let dialog = null;

export function openShortcuts() {
  if (!dialog) {
    dialog = document.querySelector("template[data-template=shortcuts]").content.firstElementChild.cloneNode(true);
    document.body.append(dialog);
    dialog.addEventListener("keydown", (event) => event.stopPropagation());
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog) dialog.close();
    });
    const isMac = /Mac|iPhone|iPad/.test(navigator.platform);
    if (isMac) for (const key of dialog.querySelectorAll("[data-command-key]")) key.textContent = "⌘";
  }
  if (!dialog.open) dialog.showModal();
}
