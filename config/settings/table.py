"""The table of settings: each variable of the environment that a deployment may set, with its default and meaning.

The modules of settings read their values by it, `make docs` writes docs/settings.md from it, and `manage.py doctor`
names what is set. Variables that the project's own processes and tests hand on to each other (RECOLLECT_RUN,
RECOLLECT_DATA, IGNORE_ENV_FILES) are not in it.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import environ
from environ.fileaware_mapping import FileAwareMapping

# Stands in a name for the part that a deployment chooses, as in LLM_…_MODEL.
CHOSEN = "…"
KINDS = {
    "str": "text",
    "int": "whole number",
    "float": "number",
    "bool": "yes or no",
    "list": "list, by commas",
    "dict": "names and numbers",
    "db": "address",
}


class Computed(str):
    """A default that the settings compute where they read it; the text says how."""

    __slots__ = ()


class Setting(NamedTuple):
    """`default` is None where something else decides, such as staff, and `NOTSET` where the variable must be set."""

    name: str
    kind: str
    default: Any
    help: str


class SecretFiles(FileAwareMapping):  # type: ignore[misc]  # without types
    """The environment, in which `X_FILE` names a file with the value of `X`, as Compose mounts secrets."""

    def __getitem__(self, key: str) -> str:
        # Editors and `echo` end a file with a line break, which no value means.
        return str(super().__getitem__(key)).rstrip("\r\n")


env = environ.Env()
env.ENVIRON = SecretFiles()
NOTSET = environ.Env.NOTSET

MODEL = (
    Setting(
        "LLM_MODEL",
        "str",
        "",
        "The model of the chat. Without one it runs in recall mode. A name such as anthropic:… picks that vendor; "
        "any other is requested from LLM_BASE_URL by the OpenAI protocol.",
    ),
    Setting("LLM_BASE_URL", "str", "", "The address of the model's server."),
    Setting("LLM_API_KEY", "str", "", "Its key."),
    Setting(
        "LLM_THINKING",
        "str",
        "",
        "How LLM_MODEL thinks: `on`, `off`, `low`, `medium`, `high`. Empty: its server's default.",
    ),
    Setting(
        "LLM_CONTEXT_TOKENS",
        "int",
        0,
        "How many tokens the model reads at once, its answer included. 0 asks its server, or takes what is known "
        "of its family.",
    ),
    Setting(
        "LLM_VISION",
        "str",
        "",
        "Whether the model sees pictures: `on`, `off`. Empty: by its name, as with Claude, GPT-4o and later, Gemini.",
    ),
)
ENDPOINT = (
    Setting(
        "EMBEDDING_BASE_URL",
        "str",
        "",
        "An OpenAI-compatible endpoint in place of the built-in model, which EMBEDDING_NEXT_BASE_URL=built-in names.",
    ),
    Setting("EMBEDDING_API_KEY", "str", "", "Its key."),
    Setting("EMBEDDING_MODEL", "str", NOTSET, "The model that it is asked for."),
    Setting("EMBEDDING_DIMENSIONS", "int", NOTSET, "The length of its vectors."),
    Setting("EMBEDDING_QUERY_PREFIX", "str", "", "What the model wants before each query, such as `query: `."),
    Setting("EMBEDDING_DOCUMENT_PREFIX", "str", "", "What it wants before each text, such as `passage: `."),
)
TABLE = {
    "Site": (
        Setting(
            "PUBLIC_URL",
            "str",
            "",
            "The address by which people reach this site, such as https://memory.example or "
            "https://memory.example/recollect: scheme, host and path of every link, cookie and name in OAuth, also "
            "in emails. Empty: the name in the request, without a path.",
        ),
        Setting(
            "ALLOWED_HOSTS",
            "list",
            ["localhost", "127.0.0.1", "[::1]"],
            "The names that requests may use, beside that of PUBLIC_URL. In production it has no default: one of "
            "the two must be set.",
        ),
        Setting("CSRF_TRUSTED_ORIGINS", "list", [], "Origins of forms beside the site's own."),
        Setting(
            "TRUSTED_PROXIES",
            "int",
            Computed("1 with an https PUBLIC_URL and in production, else 0"),
            "The number of proxies in front of this server, each of which appends to X-Forwarded-For. With none, "
            "that header is the client's own claim and is not read.",
        ),
        Setting(
            "WEB_PROCESSES",
            "int",
            1,
            "How many web processes `make up` runs on one port; each uses one core at most.",
        ),
        Setting(
            "SECRET_KEY",
            "str",
            "",
            "Signs sessions, tokens and links, and seals the keys of language models. It must be set in production.",
        ),
        Setting("SECRET_KEY_FALLBACKS", "list", [], "Former keys, for reading data that they signed or encrypted."),
        Setting("SECURITY_CONTACT", "list", [], "The contact for security reports: mailto:… or https://…"),
        Setting(
            "TIME_ZONE",
            "str",
            "UTC",
            "The zone of the server's log and of the admin. People see times in their own.",
        ),
        Setting("RECOLLECT_VAR", "str", Computed("BASE_DIR/var"), "The folder for everything that this copy writes."),
        Setting("STATIC_ROOT", "str", Computed("VAR_DIR/static"), "The folder of the collected static files."),
        Setting(
            "IMPORTS_DIR",
            "str",
            Computed("VAR_DIR/imports"),
            "The folder of uploads, which web processes write and the importing worker reads. It is private.",
        ),
        Setting(
            "LOG_LEVEL",
            "str",
            "INFO",
            "DEBUG, INFO, WARNING or ERROR. Logs hold ids, counts and codes, never a user's text.",
        ),
        Setting("LOG_FORMAT", "str", "line", "`line` for people, `json` for programs."),
        Setting(
            "METRICS_TOKEN",
            "str",
            "",
            "The bearer token that Prometheus sends to /metrics. Without one, only this machine and private "
            "networks have access.",
        ),
    ),
    "Database and broker": (
        Setting(
            "DATABASE_URL",
            "db",
            "postgres:///recollect",
            "The database as the web role sees it. Each process has the address of its own role (docs/isolation.md).",
        ),
        Setting(
            "DATABASE_PASSWORD",
            "str",
            "",
            "The password, where the address has none: mostly the file of a secret, by DATABASE_PASSWORD_FILE.",
        ),
        Setting(
            "DATABASE_WORKER_URL",
            "str",
            "",
            "The address of the worker's role, for commands that do a worker's work.",
        ),
        Setting("DATABASE_OWNER_URL", "str", "", "The address of the tables' owner, for migrations."),
        Setting(
            "DATABASE_BACKUP_URL",
            "str",
            "",
            "For `manage.py backup` alone: a role that may read every row, and that no serving process knows "
            "(docs/operations.md).",
        ),
        Setting(
            "DATABASE_ROLE_PREFIX",
            "str",
            "recollect",
            "The prefix of the roles' names: roles belong to a whole server, which another installation may share.",
        ),
        Setting(
            "DATABASE_POOL_MAX",
            "int",
            16,
            "The connections of one process at most. All of its threads share them.",
        ),
        Setting("REDIS_URL", "str", "redis://localhost:6379/0", "The broker."),
    ),
    "Accounts": (
        Setting(
            "REGISTRATION",
            "str",
            "",
            "Who may register: everybody (`open`), people with an invitation (`invite`), or nobody (`closed`). "
            "Empty: as staff choose at /staff/settings/; everybody, until they do.",
        ),
        Setting(
            "VISITORS",
            "bool",
            None,
            "Whether visitors may chat before they register. Without a value: as staff choose; yes, until they do.",
        ),
        Setting("VISITOR_DAYS", "int", 30, "The days after which a silent visitor is removed, with all messages."),
        Setting(
            "FIRST_PERSON_CODE",
            "bool",
            Computed("yes where others can reach the site"),
            "Whether the first person to register, who becomes the administrator, needs the code that `make up` "
            "and `manage.py invite --first` print.",
        ),
        Setting(
            "EMAIL_VERIFICATION",
            "str",
            "optional",
            "Whether a new account confirms its email address: never (`none`), while it is in use already "
            "(`optional`), or before it can log in (`mandatory`).",
        ),
        Setting(
            "LOGIN_HEADER",
            "str",
            "",
            "The header in which a proxy names the person by their email address, such as Remote-Email. Empty: no "
            "such log-in.",
        ),
        Setting(
            "LOGIN_HEADER_FROM",
            "list",
            [],
            "The addresses or networks of that proxy as this server sees them. From anywhere else the header is "
            "ignored.",
        ),
        Setting(
            "GOOGLE_CLIENT_ID",
            "str",
            "",
            "Log-in by Google, which has a button if this is set. So it is with the services below.",
        ),
        Setting("GOOGLE_CLIENT_SECRET", "str", "", "Its secret."),
        Setting("GITHUB_CLIENT_ID", "str", "", "Log-in by GitHub."),
        Setting("GITHUB_CLIENT_SECRET", "str", "", "Its secret."),
        Setting("OIDC_CLIENT_ID", "str", "", "Log-in by any OpenID Connect server."),
        Setting("OIDC_CLIENT_SECRET", "str", "", "Its secret."),
        Setting("OIDC_SERVER_URL", "str", "", "The address below which /.well-known/openid-configuration is."),
        Setting("OIDC_NAME", "str", "OpenID Connect", "The name on its button."),
        Setting(
            "OIDC_ORIGINS",
            "list",
            Computed("the origin of OIDC_SERVER_URL"),
            "The origins to which its log-in leads the browser.",
        ),
    ),
    "Email": (
        Setting(
            "EMAIL_HOST",
            "str",
            "",
            "The mail server, or `none`: nobody gets an email, and staff make links for a new password. Empty, emails "
            "are printed; production refuses to start (intake.E003).",
        ),
        Setting("EMAIL_PORT", "int", 587, "The mail server's port. On 465 all is encrypted."),
        Setting("EMAIL_HOST_USER", "str", "", "The login at the mail server."),
        Setting("EMAIL_HOST_PASSWORD", "str", "", "Its password."),
        Setting(
            "EMAIL_USE_TLS",
            "bool",
            True,
            "Whether the connection is encrypted by STARTTLS, on another port than 465.",
        ),
        Setting("EMAIL_FROM", "str", "Recollect <recollect@localhost>", "The sender."),
    ),
    "Agents": (
        Setting(
            "TOKEN_DAYS_MOST",
            "int",
            365,
            "The validity of a token in days, at most and unless its owner chooses less.",
        ),
        Setting(
            "OAUTH_REGISTRATION",
            "bool",
            True,
            "Whether a client may register itself, or be known by its metadata address. Without it no new client "
            "connects.",
        ),
        Setting(
            "OAUTH_METADATA_DOCUMENTS",
            "str",
            "auto",
            "Whether clients may be known by the address of a metadata document, which this server then fetches, "
            "by HTTPS_PROXY if that is set: `on`, `off` or `auto`. Claude Code and Codex prefer that to a "
            "registration. With `auto`, a server that could not fetch a document stops offering it for ten "
            "minutes, so that clients register.",
        ),
        Setting(
            "CORS_ORIGINS",
            "list",
            [],
            "The origins of pages that connect from a browser: they may read the responses of /mcp and of OAuth, "
            "which need a token and take no cookie. `*` is every page. Origins in CSRF_TRUSTED_ORIGINS may do so "
            "too.",
        ),
    ),
    "Limits": (
        Setting(
            "RATE_LIMITS",
            "float",
            1.0,
            "A factor on how often a user or an address may call, and on how many calls, answers and streams they may "
            "have at once (core/rate_limits.py): 2 allows twice as much. 0 is no limit.",
        ),
        Setting(
            "QUOTA_TURNS",
            "int",
            None,
            "The turns of one user. Beyond it requests get 413; 0 is no quota. Without a value: as staff choose at "
            "/staff/settings/; none, until they do. Staff may set one person's too.",
        ),
        Setting("QUOTA_BYTES", "int", None, "QUOTA_TURNS for bytes of text in UTF-8."),
        Setting("QUOTA_FILE_BYTES", "int", None, "QUOTA_TURNS for bytes of attached files."),
        Setting(
            "QUOTA_VECTORS_WAITING",
            "int",
            0,
            "The passages of one user that may wait for a vector. Beyond it records and imports get 429; 0 is no "
            "quota.",
        ),
        Setting(
            "RETENTION_DAYS",
            "int",
            None,
            "The age in days at which all users' turns are deleted; 0 keeps them until their owner deletes them. "
            "Without a value: as staff choose at /staff/settings/; 0, until they do.",
        ),
        Setting("ATTACHMENT_BYTES", "int", 20 * 1024**2, "The largest file that can be attached to a message."),
        Setting("IMPORTS_MEMORY_BYTES", "int", 2 * 1024**3, "The memory that one step of an import may use."),
    ),
    "Chat": (
        *MODEL,
        Setting(
            "LLM_MODELS",
            "list",
            [],
            "More models, by names of your own; the first is the default if LLM_MODEL names none. Each has its own "
            "variables: LLM_FAST_MODEL, LLM_MY_CLAUDE_BASE_URL and so on for LLM_MODELS=fast,my-claude. One with "
            "an address and without a model offers all models that its server lists.",
        ),
        *(
            Setting(each.name.replace("_", f"_{CHOSEN}_", 1), "str", "", f"{each.name} of that model.")
            for each in MODEL
        ),
        Setting(
            "LLM_TIMEOUT_SECONDS",
            "float",
            300.0,
            "How long an answer waits for the first word, and between two pieces. A model that is loaded first, or "
            "that reads a long conversation without a graphics card, takes minutes for the first one.",
        ),
        Setting(
            "CHAT_TITLES",
            "bool",
            True,
            "Whether the model writes a chat's title after its first answer. Each user can turn it off.",
        ),
        Setting(
            "PROPOSAL_TOKENS_A_DAY",
            "int",
            60_000,
            "The tokens in a day by which a model reads the ended chats of a user who agreed, and proposes what to "
            "remember. 0 turns it off for everybody.",
        ),
    ),
    "Search": (
        Setting(
            "EMBEDDING_LANGUAGES",
            "str",
            Computed("multilingual, or english where its package is missing"),
            "The built-in model: for a hundred languages (`multilingual`), or for English alone (`english`) in "
            "three quarters of the space and a third of the time. Macs with Intel processors have the second, "
            "because the first has no package for them.",
        ),
        Setting("EMBEDDING_THREADS", "int", 2, "The threads in which the built-in models compute."),
        Setting(
            "MODEL_CACHE_DIR",
            "str",
            Computed("VAR_DIR/models"),
            "The folder of what is made of the weights once.",
        ),
        *ENDPOINT,
        *(
            each._replace(
                name=each.name.replace("_", "_NEXT_", 1),
                help=f"{each.name} of the model that `manage.py switch_embedding_model` puts in its place.",
            )
            for each in ENDPOINT
        ),
        Setting(
            "RERANK_SECONDS",
            "float",
            0.3,
            "The time limit of reranking the best results of an interactive search. 0 turns it off.",
        ),
        Setting(
            "RERANKER_BASE_URL",
            "str",
            "",
            "An endpoint for `POST /rerank`. Empty: the built-in model, if the extra `reranker` is installed.",
        ),
        Setting("RERANKER_API_KEY", "str", "", "Its key."),
        Setting("RERANKER_MODEL", "str", "", "The model that it is asked for."),
        Setting(
            "TEXT_SEARCH_CONFIG",
            "str",
            "auto",
            "PostgreSQL's text-search configuration: it splits text into terms, drops stop words and stems. `auto` "
            "uses the one of each text's language; any other name is for all texts, and `simple` keeps every word "
            "unchanged. After a change run `manage.py index_missing`, which skips texts whose configuration is "
            "still valid.",
        ),
        Setting(
            "HISTORY_WEIGHTS",
            "dict",
            {"memory": 1.0, "messages": 0.6, "sessions": 0.5, "attachments": 0.6},
            "The weight of each source in the ranking, as in HISTORY_WEIGHTS=messages=0.4,sessions=0.3; a source "
            "that is not named keeps its own.",
        ),
        Setting(
            "HISTORY_DECAY_RATE",
            "float",
            0.01,
            "The exponential decay of a score per day of age: at 0.01 it halves in 69 days. 0 turns it off.",
        ),
    ),
}
SETTINGS = {each.name: each for rows in TABLE.values() for each in rows}
_PATTERNS = {name: re.compile(re.escape(name).replace(CHOSEN, "[A-Z0-9_]+")) for name in SETTINGS}


def read(name: str, default: Any = NOTSET, *, chosen: str = "") -> Any:
    """The value that the environment gives a setting, or else its default; `chosen` replaces the … in its name."""
    _, kind, usual, _ = SETTINGS[name]
    usual = usual if default is NOTSET else default
    if kind == "dict":
        return usual | env.dict(name, cast={"value": float}, default={})
    return getattr(env, kind)(name.replace(CHOSEN, chosen), default=usual)


def setting_of(variable: str) -> str | None:
    """The name in the table of a variable, set directly or as a file; None if it is not one of the settings."""
    plain = variable.removesuffix("_FILE")
    return next((name for name, pattern in _PATTERNS.items() if pattern.fullmatch(plain)), None)


def names_set(environment: Mapping[str, str]) -> list[str]:
    """The settings that the environment gives, in the order of the table; a part that somebody chose is left out."""
    found = {(setting_of(each), "_FILE" if each.endswith("_FILE") else "") for each in environment}
    return [name + suffix for name in SETTINGS for suffix in ("", "_FILE") if (name, suffix) in found]
