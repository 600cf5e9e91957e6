/** Sends a file in chunks, in order, from where the server says; after a failure that may pass, it goes on by itself. */

const LONGEST_WAIT = 30_000;
const SMALLEST_CHUNK = 4096;

/**
 * Resolves with the import once all bytes are there. `onProgress` gets the import after each chunk, `onWait` the failure
 * before it is tried again. Rejects with a failure that will not pass, or an AbortError when `signal` fires.
 */
export async function upload(api, shown, file, { signal, onProgress, onWait }) {
  let failures = 0;
  let most = Infinity;
  while (shown.state === "uploading") {
    const first = shown.bytes_received;
    const size = Math.min(most, shown.chunk_bytes);
    const chunk = file.slice(first, first + size);
    try {
      shown = await api.put(shown.content_url, chunk, { first, total: file.size, signal });
      failures = 0;
      onProgress(shown);
    } catch (failure) {
      if (failure.isTooMuchForProxy && chunk.size > SMALLEST_CHUNK) {
        most = Math.floor(chunk.size / 2);
        continue;
      }
      if (failure.code !== "wrong_offset") {
        if (!failure.retryable) throw failure;
        onWait(failure);
        await pause(Math.min(LONGEST_WAIT, 1000 * 2 ** failures), signal);
        failures += 1;
      }
      // Where it goes on; the next try tells, if this fails as well.
      shown = await api.read(shown.id).catch(() => shown);
    }
  }
  return shown;
}

/** Ends early when the connection is back. */
function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    addEventListener("online", () => { clearTimeout(timer); resolve(); }, { once: true });
    signal.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); }, { once: true });
  });
}
