/** Which addresses an answer may link to. */

const SCHEMES = new Set(["http:", "https:", "mailto:"]);
const REL = "noopener noreferrer nofollow";

/**
 * The properties of a link to `address`, or null if it may not be one; `localOnly` allows pages of this site alone.
 *
 * Another site opens beside the chat, so that an answer still being written is not cut off.
 */
export function linkTo(address, { localOnly = false } = {}) {
  const url = parse(address);
  if (!url || !SCHEMES.has(url.protocol)) return null;
  const isLocal = url.origin === location.origin;
  if (localOnly && !isLocal) return null;
  const link = { href: address, rel: REL };
  return isLocal || url.protocol === "mailto:" ? link : { ...link, target: "_blank" };
}

function parse(address) {
  try {
    return new URL(address, location.href);
  } catch {
    return null;
  }
}
