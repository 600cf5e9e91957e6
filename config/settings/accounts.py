"""Who may log in, and how: passwords, second factors, proxies, other services."""

from typing import Any
from urllib.parse import urlsplit

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
