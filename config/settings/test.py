"""For pytest: the same parts as in production, with cheap passwords and a deterministic embedder."""

import os

from config.settings.base import *

SECRET_KEY = "for tests only"
# Far from the zone of the tests' people (`testing.ZONE_OF_PEOPLE`): a time in the server's own is seen at once.
TIME_ZONE = "Pacific/Auckland"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher", PASSWORD_HASHERS[-1]]
RECOVERY_CODE_SCRYPT = {**RECOVERY_CODE_SCRYPT, "n": 2}
# The real model has tests of its own; everywhere else words that two texts share are nearness enough.
EMBEDDER = {"BACKEND": "memory.backends.embedders.FakeEmbedder"}
EMBEDDER_BEFORE = None
# An OpenID Connect service for log-in; the tests that use it run one.
INSTALLED_APPS.append("allauth.socialaccount.providers.openid_connect")
OIDC_APP = {"provider_id": "oidc", "name": "Example ID", "client_id": "recollect", "secret": "for tests only"}
SOCIALACCOUNT_PROVIDERS["openid_connect"] = {
    "APPS": [{**OIDC_APP, "settings": {"server_url": "http://127.0.0.1:9"}}],
    "OAUTH_PKCE_ENABLED": True,
}
# A call of an endpoint that holds a transaction open is a bug.
REFUSES_CALLS_IN_TRANSACTIONS = True
METRICS_TOKEN = "for tests only"
SECURITY_CONTACT = ["mailto:security@example.com"]
# Tests count statements: each reads what staff have chosen by itself, when it has changed it.
KEPT_SETTINGS_SECONDS = float("inf")
# Whether reranking is in time depends on the machine; it has its own tests.
RERANKER = None
# A script has one step for each question; the tests of titles have one more.
CHAT_TITLES = False
# No worker reads files; the tests of those that do say so.
ATTACHMENT_WAIT_SECONDS = 0
# Tests send many requests from one address; those of the limits set their own (`limited`).
RATE_LIMITS = 0
# The processes of one run collect static files at the same time.
STATIC_ROOT = VAR_DIR / f"static-for-tests{os.environ.get('PYTEST_XDIST_WORKER', '')}"
IMPORTS_DIR = VAR_DIR / f"imports-for-tests{os.environ.get('PYTEST_XDIST_WORKER', '')}"
