/** An import as it changes, by the server's events, until it rests. */

const RESTS = new Set(["ready", "done", "failed", "cancelled", "undone"]);

/** `onChange` gets the import each time. The browser opens a stream that broke off anew; `onLost`: it gave up. */
export function follow(url, { onChange, onLost }) {
  const source = new EventSource(url);
  source.addEventListener("import", ({ data }) => {
    const shown = JSON.parse(data);
    // The server ends the stream now, and the browser would ask again.
    if (RESTS.has(shown.state)) source.close();
    onChange(shown);
  });
  source.addEventListener("error", () => {
    if (source.readyState === EventSource.CLOSED) onLost();
  });
  return source;
}
