"""What programs call: the REST API, tokens, and OAuth for agents."""

from django.core.exceptions import ImproperlyConfigured

from config.settings.accounts import *

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
        "intake.rest.shapes.add_chat",
        "intake.rest.shapes.add_confirmation",
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
