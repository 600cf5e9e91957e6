/** Which addresses an answer may link to. */

const SCHEMES = new Set(["http:", "https:", "mailto:"]);
const REL = "noopener noreferrer nofollow";

/** The properties of a link to `address`, or null if it may not be one; `localOnly` allows paths of this site alone. */
export function linkTo(address, { localOnly = false } = {}) {
  const url = parse(address);
  if (!url || !SCHEMES.has(url.protocol)) return null;
  if (url.origin === location.origin) return { href: url.pathname + url.search + url.hash, rel: REL };
  if (localOnly) return null;
  return url.protocol === "mailto:" ? { href: url.href, rel: REL } : { href: url.href, rel: REL, target: "_blank" };
}

function parse(address) {
  try {
    return new URL(address, location.href);
  } catch {
    return null;
  }
}
