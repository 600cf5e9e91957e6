"""Who may log in, and how: passwords, second factors, proxies, other services; the API, tokens, and OAuth."""

from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

from config.public_url import is_within_reach
from config.settings.site import *

# Accounts: login (docs/security.md, decision 36)

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
# How many passwords a process hashes at once, and how many may wait; more get 429. Fewer in all than a web process has
# threads, so that a burst of log-ins leaves threads for other requests.
PASSWORD_THREADS = env.int("PASSWORD_THREADS", default=1)
PASSWORD_QUEUE = env.int("PASSWORD_QUEUE", default=16)
# The only login backend, for pages and the admin; it counts attempts.
AUTHENTICATION_BACKENDS = ["intake.backends.LimitedBackend"]
# Who may register: everybody ("open"), people with an invitation ("invite"), or nobody ("closed"). Empty: as staff
# choose at /staff/settings/; everybody, until they do.
REGISTRATION = env.str("REGISTRATION", default="")
# Whether visitors may chat before they register. Without a value: as staff choose there; yes, until they do.
VISITORS = env.bool("VISITORS", default=None)
# Whether the first person to register, who becomes the administrator, needs the code that `make up` and
# `manage.py invite --first` print: by default where somebody else could be faster.
FIRST_PERSON_CODE = env.bool(
    "FIRST_PERSON_CODE", default=is_within_reach(PUBLIC_URL, env.list("ALLOWED_HOSTS", default=[]))
)
# Every process reads what staff have chosen at least so often.
KEPT_SETTINGS_SECONDS = 2.0
# The number of days after which a silent visitor is removed, with all messages.
VISITOR_DAYS = env.int("VISITOR_DAYS", default=30)
# The age in days at which all users' turns are deleted; 0 keeps them until their owner deletes them. Without a
# value: as staff choose at /staff/settings/; 0, until they do.
RETENTION_DAYS = env.int("RETENTION_DAYS", default=None)
# The header in which a proxy names the person by their email address, such as "Remote-Email", and the addresses or
# networks of that proxy as this server sees them. From anywhere else the header is ignored. Empty: no such log-in.
LOGIN_HEADER = env.str("LOGIN_HEADER", default="")
LOGIN_HEADER_FROM = env.list("LOGIN_HEADER_FROM", default=[])
LOGIN_URL = "intake:login"
LOGIN_REDIRECT_URL = "intake:home"
LOGOUT_REDIRECT_URL = "intake:home"

# Whether a new account confirms its email address: never ("none"), while it is in use already ("optional"), or before
# it can log in ("mandatory").
EMAIL_VERIFICATION = env.str("EMAIL_VERIFICATION", default="optional")
# Permanent changes to an account require a proof of identity that is not older than this.
PROOF_SECONDS = env.int("PROOF_SECONDS", default=15 * 60)

ACCOUNT_ADAPTER = "intake.accounts.adapters.AccountAdapter"
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = EMAIL_VERIFICATION
ACCOUNT_CHANGE_EMAIL = True
ACCOUNT_EMAIL_NOTIFICATIONS = True
ACCOUNT_EMAIL_SUBJECT_PREFIX = "Recollect: "
ACCOUNT_REAUTHENTICATION_TIMEOUT = PROOF_SECONDS
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
if GOOGLE_CLIENT_ID := env.str("GOOGLE_CLIENT_ID", default=""):
    INSTALLED_APPS.append("allauth.socialaccount.providers.google")
    LOGIN_ORIGINS.append("https://accounts.google.com")
    SOCIALACCOUNT_PROVIDERS["google"] = {
        "APPS": [{"client_id": GOOGLE_CLIENT_ID, "secret": env.str("GOOGLE_CLIENT_SECRET", default="")}],
        "OAUTH_PKCE_ENABLED": True,
    }
if GITHUB_CLIENT_ID := env.str("GITHUB_CLIENT_ID", default=""):
    INSTALLED_APPS.append("allauth.socialaccount.providers.github")
    LOGIN_ORIGINS.append("https://github.com")
    SOCIALACCOUNT_PROVIDERS["github"] = {
        "APPS": [{"client_id": GITHUB_CLIENT_ID, "secret": env.str("GITHUB_CLIENT_SECRET", default="")}],
        "SCOPE": ["user:email"],
        "OAUTH_PKCE_ENABLED": True,
    }
# Any OpenID Connect server, by the address below which `/.well-known/openid-configuration` is.
OIDC_SERVER_URL = env.str("OIDC_SERVER_URL", default="")
if OIDC_CLIENT_ID := env.str("OIDC_CLIENT_ID", default=""):
    INSTALLED_APPS.append("allauth.socialaccount.providers.openid_connect")
    LOGIN_ORIGINS += env.list("OIDC_ORIGINS", default=["{0.scheme}://{0.netloc}".format(urlsplit(OIDC_SERVER_URL))])
    SOCIALACCOUNT_PROVIDERS["openid_connect"] = {
        "APPS": [
            {
                "provider_id": "oidc",
                "name": env.str("OIDC_NAME", default="OpenID Connect"),
                "client_id": OIDC_CLIENT_ID,
                "secret": env.str("OIDC_CLIENT_SECRET", default=""),
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
    ],
}

# Tokens: the default validity in days, and the maximum

TOKEN_DAYS = env.int("TOKEN_DAYS", default=365)
TOKEN_DAYS_MOST = env.int("TOKEN_DAYS_MOST", default=365)

# OAuth: agents that connect by this server's address (docs/mcp.md)

# Whether a client may register itself, or be identified by its metadata address. Without it no new client connects.
OAUTH_REGISTRATION = env.bool("OAUTH_REGISTRATION", default=True)
# Whether clients may be known by the address of a metadata document, which this server then fetches, by HTTPS_PROXY if
# that is set: on, off or auto. Claude Code and Codex prefer that to a registration. With auto, a server that could not
# fetch a document stops offering it for ten minutes, so that clients register.
OAUTH_METADATA_DOCUMENTS = env.str("OAUTH_METADATA_DOCUMENTS", default="auto")
if OAUTH_METADATA_DOCUMENTS not in ("on", "off", "auto"):
    raise ImproperlyConfigured("OAUTH_METADATA_DOCUMENTS is one of on, off, auto.")
# The earlier name: off is the same as OAUTH_METADATA_DOCUMENTS=off.
OAUTH_CLIENT_DOCUMENTS = env.bool("OAUTH_CLIENT_DOCUMENTS", default=True)
# Apps on a user's machine that receive the code under their own scheme, beside https and this machine's http.
OAUTH_APP_SCHEMES = env.list("OAUTH_APP_SCHEMES", default=["cursor", "vscode", "vscode-insiders", "windsurf"])
# The origins of pages that connect from a browser: they may read the responses of /mcp and of OAuth, which need a token
# and take no cookie. "*" is every page. Origins in CSRF_TRUSTED_ORIGINS may do so too.
CORS_ORIGINS = env.list("CORS_ORIGINS", default=[])
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
    "CIMD_ENABLED": OAUTH_REGISTRATION and OAUTH_CLIENT_DOCUMENTS and OAUTH_METADATA_DOCUMENTS != "off",
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
