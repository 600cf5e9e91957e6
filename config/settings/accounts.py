"""Who may log in, and how: passwords, second factors, proxies, other services; the API, tokens, and OAuth."""

from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from config.public_url import is_within_reach
from config.settings.site import *
from config.settings.table import read

# Accounts: login (docs/security.md)

AUTH_USER_MODEL = "intake.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "intake.passwords.MaximumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
# New hashes use the first; another one is renewed when its owner logs in.
PASSWORD_HASHERS = [
    "intake.passwords.Argon2idHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
    # Only for the secrets of OAuth clients (CLIENT_SECRET_HASHER).
    "agent_tools.oauth.addresses.RandomSecretHasher",
]
# Of the digest of a recovery code (RFC 7914): 16 MB and some 50 ms. A code has eight digits and comes after a password.
RECOVERY_CODE_SCRYPT: dict[str, Any] = {"n": 2**14, "r": 8, "p": 1, "dklen": 32}
# The only login backend, for pages and the admin; it counts attempts.
AUTHENTICATION_BACKENDS = ["intake.backends.LimitedBackend"]
REGISTRATION = read("REGISTRATION")
VISITORS = read("VISITORS")
FIRST_PERSON_CODE = read("FIRST_PERSON_CODE", is_within_reach(PUBLIC_URL, read("ALLOWED_HOSTS", [])))
# Every process reads what staff have chosen at least so often.
KEPT_SETTINGS_SECONDS = 2.0
VISITOR_DAYS = read("VISITOR_DAYS")
RETENTION_DAYS = read("RETENTION_DAYS")
LOGIN_HEADER, LOGIN_HEADER_FROM = read("LOGIN_HEADER"), read("LOGIN_HEADER_FROM")
LOGIN_URL = "intake:login"
LOGIN_REDIRECT_URL = "intake:home"
LOGOUT_REDIRECT_URL = "intake:home"

# Nobody is told that an email is on its way where none is sent.
EMAIL_VERIFICATION = "none" if read("EMAIL_HOST") == "none" else read("EMAIL_VERIFICATION")

ACCOUNT_ADAPTER = "intake.accounts.adapters.AccountAdapter"
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = EMAIL_VERIFICATION
ACCOUNT_CHANGE_EMAIL = True
ACCOUNT_EMAIL_NOTIFICATIONS = True
ACCOUNT_EMAIL_SUBJECT_PREFIX = "Recollect: "
# Permanent changes to an account require a proof of identity that is not older than this.
ACCOUNT_REAUTHENTICATION_TIMEOUT = 15 * 60
# core/rate_limits.py counts for all processes together.
ACCOUNT_RATE_LIMITS = False
ACCOUNT_FORMS = {
    "add_email": "intake.accounts.forms.NewEmailForm",
    "reset_password": "intake.accounts.forms.AskForResetForm",
    "reset_password_from_key": "intake.accounts.forms.ResetForm",
    "reauthenticate": "intake.accounts.forms.PasswordAgainForm",
}
MFA_ADAPTER = "intake.accounts.adapters.SecondFactorAdapter"
MFA_SUPPORTED_TYPES = ["totp", "webauthn", "recovery_codes"]
MFA_PASSKEY_LOGIN_ENABLED = True
MFA_TOTP_ISSUER = "Recollect"
MFA_RATE_LIMITS = False
MFA_FORMS = {
    "authenticate": "intake.accounts.forms.CodeForm",
    "reauthenticate": "intake.accounts.forms.CodeAgainForm",
    "activate_totp": "intake.accounts.forms.FirstCodeForm",
    "add_webauthn": "intake.accounts.forms.NewPasskeyForm",
    "edit_webauthn": "intake.accounts.forms.PasskeyNameForm",
    "authenticate_webauthn": "intake.accounts.forms.PasskeyForm",
    "login_webauthn": "intake.accounts.forms.PasskeyLoginForm",
    "reauthenticate_webauthn": "intake.accounts.forms.PasskeyAgainForm",
}
SOCIALACCOUNT_ADAPTER = "intake.accounts.adapters.OtherServiceAdapter"
SOCIALACCOUNT_FORMS = {"signup": "intake.accounts.forms.OtherServiceEmailForm"}
SOCIALACCOUNT_EMAIL_VERIFICATION = EMAIL_VERIFICATION
SOCIALACCOUNT_QUERY_EMAIL = True

# Other services for log-in. Each has a button if its client id is set.
SOCIALACCOUNT_PROVIDERS: dict[str, dict[str, Any]] = {}
# The final targets of those buttons' forms.
LOGIN_ORIGINS: list[str] = []
if GOOGLE_CLIENT_ID := read("GOOGLE_CLIENT_ID"):
    INSTALLED_APPS.append("allauth.socialaccount.providers.google")
    LOGIN_ORIGINS.append("https://accounts.google.com")
    SOCIALACCOUNT_PROVIDERS["google"] = {
        "APPS": [{"client_id": GOOGLE_CLIENT_ID, "secret": read("GOOGLE_CLIENT_SECRET")}],
        "OAUTH_PKCE_ENABLED": True,
    }
if GITHUB_CLIENT_ID := read("GITHUB_CLIENT_ID"):
    INSTALLED_APPS.append("allauth.socialaccount.providers.github")
    LOGIN_ORIGINS.append("https://github.com")
    SOCIALACCOUNT_PROVIDERS["github"] = {
        "APPS": [{"client_id": GITHUB_CLIENT_ID, "secret": read("GITHUB_CLIENT_SECRET")}],
        "SCOPE": ["user:email"],
        "OAUTH_PKCE_ENABLED": True,
    }
if OIDC_CLIENT_ID := read("OIDC_CLIENT_ID"):
    OIDC_SERVER_URL = read("OIDC_SERVER_URL")
    INSTALLED_APPS.append("allauth.socialaccount.providers.openid_connect")
    LOGIN_ORIGINS += read("OIDC_ORIGINS", ["{0.scheme}://{0.netloc}".format(urlsplit(OIDC_SERVER_URL))])
    SOCIALACCOUNT_PROVIDERS["openid_connect"] = {
        "APPS": [
            {
                "provider_id": "oidc",
                "name": read("OIDC_NAME"),
                "client_id": OIDC_CLIENT_ID,
                "secret": read("OIDC_CLIENT_SECRET"),
                "settings": {"server_url": OIDC_SERVER_URL},
            }
        ],
        "OAUTH_PKCE_ENABLED": True,
    }
CONTENT_SECURITY_POLICY["DIRECTIVES"]["form-action"] += LOGIN_ORIGINS

# REST API and its OpenAPI document

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "agent_tools.authentication.AccessTokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": [
        "intake.accounts.identity.IsRegistered",
        "agent_tools.authentication.HasScope",
    ],
    "DEFAULT_THROTTLE_CLASSES": ["agent_tools.authentication.Throttle"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["core.validation.StrictJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "core.responses.exception_handler",
    # DRF would treat `?format=` as a renderer; the list of tools has its own formats.
    "URL_FORMAT_OVERRIDE": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Recollect",
    "DESCRIPTION": "Your conversations and notes, searched by meaning and by words.",
    "VERSION": VERSION,
    "OAS_VERSION": "3.1.0",
    # Two different things are called scope.
    "ENUM_NAME_OVERRIDES": {
        "HistoryScopeEnum": ["all", "memory", "daily_log", "sessions"],
        "TokenScopeEnum": ["search", "read", "write", "delete", "chat", "import", "capture"],
    },
    # Below which the paths of the document begin.
    **({"SERVERS": [{"url": FORCE_SCRIPT_NAME}]} if FORCE_SCRIPT_NAME else {}),
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "chat.rest.shapes.add_chat",
        "chat.rest.shapes.add_confirmation",
        "config.urls.add_examples",
    ],
}

TOKEN_DAYS_MOST = read("TOKEN_DAYS_MOST")

# OAuth: agents that connect by this server's address (docs/mcp.md)

OAUTH_REGISTRATION = read("OAUTH_REGISTRATION")
OAUTH_METADATA_DOCUMENTS = read("OAUTH_METADATA_DOCUMENTS")
if OAUTH_METADATA_DOCUMENTS not in ("on", "off", "auto"):
    raise ImproperlyConfigured("OAUTH_METADATA_DOCUMENTS is one of on, off, auto.")
# Apps on a user's machine that receive the code under their own scheme, beside https and this machine's http.
OAUTH_APP_SCHEMES = ["cursor", "vscode", "vscode-insiders", "windsurf"]
CORS_ORIGINS = read("CORS_ORIGINS")
OAUTH2_PROVIDER = {
    # The scopes that tools and hooks need; the other scopes open nothing to a connected agent.
    "SCOPES": {"search": "Find and read", "read": "Read", "write": "Add and change", "capture": "Append to sessions"},
    "DEFAULT_SCOPES": ["search", "write"],
    "OAUTH2_VALIDATOR_CLASS": "agent_tools.oauth.validator.Validator",
    "ACCESS_TOKEN_GENERATOR": "agent_tools.oauth.addresses.access_token",
    "REFRESH_TOKEN_GENERATOR": "agent_tools.oauth.addresses.refresh_token",
    "CLIENT_SECRET_HASHER": "sha256_random",
    "AUTHORIZATION_CODE_EXPIRE_SECONDS": 60,
    "ACCESS_TOKEN_EXPIRE_SECONDS": 3600,
    # Counted from the last use. Each use issues a new one, and the use of an old one revokes all tokens of that client.
    "REFRESH_TOKEN_EXPIRE_SECONDS": 60 * 86_400,
    "ROTATE_REFRESH_TOKEN": True,
    "REFRESH_TOKEN_REUSE_PROTECTION": True,
    "ALLOWED_REDIRECT_URI_SCHEMES": ["https", "http", *OAUTH_APP_SCHEMES],
    # Programs without a fixed port register this name too.
    "ALLOW_LOCALHOST_LOOPBACK": True,
    "PKCE_REQUIRED": True,
    "DCR_ENABLED": OAUTH_REGISTRATION,
    "CIMD_ENABLED": OAUTH_REGISTRATION and OAUTH_METADATA_DOCUMENTS != "off",
    "CIMD_METADATA_FETCHER": "agent_tools.oauth.clients.DocumentFetcher",
    "CIMD_REGISTRATION_PERMISSION_CLASSES": ["agent_tools.oauth.validator.MayBeFetched"],
    "CIMD_FETCH_TIMEOUT_SECONDS": 5,
    "CIMD_MAX_DOCUMENT_SIZE": 16_384,
    "CIMD_MAX_CONCURRENT_FETCHES": 2,
    "OAUTH2_RESPONSE_TYPES_SUPPORTED": ["code"],
    "OAUTH2_GRANT_TYPES_SUPPORTED": ["authorization_code", "refresh_token"],
    "OAUTH2_TOKEN_ENDPOINT_AUTH_METHODS_SUPPORTED": ["none", "client_secret_post", "client_secret_basic"],
    "OAUTH2_PROTECTED_RESOURCE_NAME": "Recollect",
    **{
        f"COMPLIANT_BCP_RFC9700_{name}": True
        for name in (
            "IMPLICIT_GRANT",
            "PASSWORD_GRANT",
            "PKCE_METHOD",
            "ACCESS_TOKEN_TRANSPORT",
            "AUTHZ_RESPONSE_ISS",
            "TOKEN_STORAGE",
            "REFRESH_TOKEN",
            "REDIRECT_URI_MATCHING",
            "PKCE_REQUIRED",
        )
    },
}
# It warns of http in redirect addresses: here http is only for programs on the user's own machine.
SILENCED_SYSTEM_CHECKS = ["oauth2_provider.W008"]
