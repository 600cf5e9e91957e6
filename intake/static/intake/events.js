/** Hears from the server which chats have changed elsewhere, while somebody looks at this page; where one knows not how, nothing. */

const TOGETHER_MS = 120;

/**
 * `onChange(ids)` for chats that changed; `onReturn()` when changes may have been missed.
 *
 * A page that nobody looks at lets go of its line: a browser has six for one server, and there may be many tabs.
 */
export function listenForChanges(address, { onChange, onReturn }) {
  if (!address || !window.EventSource) return;
  let source = null;
  let hasBeenAway = false;
  let ids = new Set();
  let timer = 0;

  const open = () => {
    source = new EventSource(address);
    source.addEventListener("open", () => {
      if (hasBeenAway) onReturn();
      hasBeenAway = false;
    });
    source.addEventListener("error", () => (hasBeenAway = true));
    source.addEventListener("changed", (event) => {
      ids.add(JSON.parse(event.data).conversationId);
      clearTimeout(timer);
      timer = setTimeout(() => {
        const changed = [...ids];
        ids = new Set();
        onChange(changed);
      }, TOGETHER_MS);
    });
  };
  const close = () => {
    source?.close();
    source = null;
    hasBeenAway = true;
  };
  const follow = () => {
    if (document.visibilityState === "hidden") close();
    else if (!source) open();
  };
  document.addEventListener("visibilitychange", follow);
  // A page that is kept for the way back must hold no line either.
  addEventListener("pagehide", close);
  addEventListener("pageshow", follow);
  follow();
}
