"""Under pytest: the same parts as in production, with cheap passwords and a deterministic embedder."""

from config.settings.base import *  # noqa: F403

SECRET_KEY = "for tests only"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
