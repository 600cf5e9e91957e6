"""How people and their agents log in, and what they take along when they go."""

AUTH_USER_MODEL = "intake.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
# The one way in, for pages and the admin alike; tries are counted there.
AUTHENTICATION_BACKENDS = ["intake.backends.LimitedBackend"]
LOGIN_URL = "intake:login"
LOGIN_REDIRECT_URL = "intake:home"
LOGOUT_REDIRECT_URL = "intake:home"
KNOX_TOKEN_MODEL = "agent_tools.AccessToken"  # noqa: S105
# Knox's own migrations make a table that this project's tokens do not use, with a foreign key that stands in the way.
MIGRATION_MODULES = {"knox": None}

# The parts of an account's export, by dotted path, so that intake imports nobody: each function takes the person and
# yields what JSON can hold, or iterators of it.
ACCOUNT_EXPORTS = {
    "conversations": "intake.exporting.conversations",
    "documents": "memory.exporting.documents",
    "records": "memory.exporting.records",
}
