"""How what came in is known again: a digest of the ids that name it in its product, and one of its text."""

import hashlib

DIGEST_BYTES = 16


def key_of(product: str, kind: str, *ids: str) -> bytes:
    """BLAKE2b-128 of the product, the kind of thing and its ids there, the outermost first."""
    return _digest(product, kind, *ids)


def hash_of(*texts: str) -> bytes:
    """BLAKE2b-128 of all the texts, in their order."""
    return _digest(*texts)


def _digest(*parts: str) -> bytes:
    # The lengths keep ("ab", "c") apart from ("a", "bc").
    framed = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.blake2b(framed.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()
