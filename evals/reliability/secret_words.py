"""Words that one caller alone may ever be shown, and how to find another's in the bytes of an answer."""

import re
import secrets

# A shape that nothing else has; one that was cut off at the end of an excerpt is recognised by its beginning.
_SECRET = re.compile(rb"hush[0-9a-f]{2,16}")


def new_secret() -> str:
    return f"hush{secrets.token_hex(8)}"


def foreign_secrets(answer: bytes, *, own: str) -> list[str]:
    """Those in `answer` that are not `own`, nor the beginning of it."""
    return [secret for found in _SECRET.findall(answer) if not own.startswith(secret := found.decode())]
