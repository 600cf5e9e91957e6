"""Identifies imported items: a digest of their ids in their product, and one of their text."""

import hashlib

from core.pg_text import storable_text

DIGEST_BYTES = 16
LONGEST_ID = 200


def key_of(product: str, kind: str, *ids: str) -> bytes:
    """BLAKE2b-128 of the product, the kind of thing and its ids there, the outermost first."""
    return _digest(product, kind, *ids)


def hash_of(*texts: str) -> bytes:
    """BLAKE2b-128 of all the texts, in their order."""
    return _digest(*texts)


def short_id(external_id: str) -> str:
    """An id for storing and selecting; a very long one is replaced by its digest."""
    external_id = storable_text(external_id)
    return external_id if len(external_id) <= LONGEST_ID else hash_of(external_id).hex()


def _digest(*parts: str) -> bytes:
    # The lengths keep ("ab", "c") apart from ("a", "bc").
    framed = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.blake2b(framed.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()
