"""Creates and hashes the secrets of OAuth, and recognises them."""

import hashlib
import secrets
from typing import Any

from django.contrib.auth.hashers import BasePasswordHasher
from django.utils.crypto import constant_time_compare

# Distinguishes an OAuth token from a user's own token, which is hexadecimal.
ACCESS_PREFIX = "rcat_"
REFRESH_PREFIX = "rcrt_"
RANDOM_BYTES = 32


def access_token(request: Any, refresh_token: bool = False) -> str:
    return ACCESS_PREFIX + secrets.token_urlsafe(RANDOM_BYTES)


def refresh_token(request: Any, refresh_token: bool = False) -> str:
    return REFRESH_PREFIX + secrets.token_urlsafe(RANDOM_BYTES)


def checksum_of(secret: str) -> str:
    """The key of a token in the toolkit's tables."""
    return hashlib.sha256(secret.encode()).hexdigest()


class RandomSecretHasher(BasePasswordHasher):
    """For secrets that were created here: random and long, so a digest needs no salt and no slow hash."""

    algorithm = "sha256_random"

    def salt(self) -> str:
        return "none"

    def encode(self, password: str, salt: str) -> str:
        return f"{self.algorithm}${hashlib.sha256(password.encode()).hexdigest()}"

    def decode(self, encoded: str) -> dict[str, Any]:
        algorithm, digest = encoded.split("$", 1)
        return {"algorithm": algorithm, "hash": digest, "salt": "none"}

    def verify(self, password: str, encoded: str) -> bool:
        return constant_time_compare(encoded, self.encode(password, "none"))

    def safe_summary(self, encoded: str) -> Any:
        return {"algorithm": self.algorithm}

    def must_update(self, encoded: str) -> bool:
        return False

    def harden_runtime(self, password: str, encoded: str) -> None:
        """There is no work factor."""
