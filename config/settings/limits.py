"""How much a user or an address may ask for: calls, bytes, seconds; and the limits of imports."""

from pathlib import Path

from config.settings.accounts import *

# Limits: how often a client may call, and how much it may send

# Per user (for a visitor: per address) and, with _address, per address in total; empty is no limit. The defaults are
# generous, because people share addresses and agents are fast: they limit the effect of one runaway client.
RATE_LIMITS = {
    name: env.str(f"RATE_LIMIT_{name.upper()}", default=rate)
    for name, rate in {
        "api": "6000/minute",
        "api_address": "60000/minute",
        # Requests to the API without a valid token or session.
        "refused_address": "1200/minute",
        # Every page outside the API, by session; without a session, by address.
        "page": "1200/minute",
        "page_address": "12000/minute",
        "health_address": "1200/minute",
        "chat": "60/minute",
        "chat_address": "600/minute",
        # Files uploaded for messages.
        "attachment": "120/minute",
        "attachment_address": "1200/minute",
        "export": "30/hour",
        "export_address": "300/hour",
        # The model's answers to all visitors together, because each one costs the installation money.
        "visitors": "2000/day",
        # For one account from one address; then for all accounts.
        "login": "10/minute",
        "login_address": "100/minute",
        "register_address": "60/hour",
        # OAuth clients that register or whose metadata are fetched: from all addresses, and from one.
        "client": "600/hour",
        "client_address": "60/hour",
        # Codes of a second factor: for one account from one client, and from all clients together.
        "code": "10/30minute",
        "code_account": "120/hour",
        # Emails that one client requests: to one address, and to all.
        "mail": "6/hour",
        "mail_address": "60/hour",
    }.items()
}
# How many calls of one user a web process runs at once, fewer than it has database connections; and how many of their
# answers are written at once, in all processes together. 0 is no limit; the next one gets 429.
CONCURRENT_CALLS = env.int("CONCURRENT_CALLS", default=8)
CONCURRENT_ANSWERS = env.int("CONCURRENT_ANSWERS", default=4)
# The number of trusted proxies in front of this server, each of which appends to X-Forwarded-For. With none, the header
# is the client's own claim and is not read. With an https PUBLIC_URL one ends TLS.
TRUSTED_PROXIES = env.int("TRUSTED_PROXIES", default=1 if PUBLIC_URL.startswith("https:") else 0)

# The quotas of one user: turns, bytes of text in UTF-8, bytes of attached files, passages that wait for a vector. 0 is
# no quota. Beyond one of the first three, requests get 413; beyond the last, 429 for records and imports. Without a
# value the first three are as staff choose at /staff/settings/; none, until they do. Staff may set one person's too.
QUOTA_TURNS = env.int("QUOTA_TURNS", default=None)
QUOTA_BYTES = env.int("QUOTA_BYTES", default=None)
QUOTA_FILE_BYTES = env.int("QUOTA_FILE_BYTES", default=None)
QUOTA_VECTORS_WAITING = env.int("QUOTA_VECTORS_WAITING", default=0)
# The bytes of files of one visitor, who has no account. 0 is no quota.
VISITOR_FILE_BYTES = env.int("VISITOR_FILE_BYTES", default=25 * 1024**2)
# The largest file that can be attached to a message.
ATTACHMENT_BYTES = env.int("ATTACHMENT_BYTES", default=20 * 1024**2)
# How long an answer waits for the text of a file that was sent a moment ago, before the model does without it.
ATTACHMENT_WAIT_SECONDS = env.float("ATTACHMENT_WAIT_SECONDS", default=20.0)

# Five times the longest message with every character escaped. Forms have the same limit.
MAX_BODY_BYTES = env.int("MAX_BODY_BYTES", default=2_621_440)
DATA_UPLOAD_MAX_MEMORY_SIZE = MAX_BODY_BYTES
# The time in which a whole body must arrive, also over a slow connection.
BODY_SECONDS = env.float("BODY_SECONDS", default=60.0)

# How many bytes of bodies a web process holds at once, and how many of them for one address. Short ones always fit.
BODIES_BYTES = env.int("BODIES_BYTES", default=32 * 1024**2)
BODIES_BYTES_PER_ADDRESS = env.int("BODIES_BYTES_PER_ADDRESS", default=8 * 1024**2)
SHORT_BODY_BYTES = 65_536

# Deadlines, by the clock: until a response begins (pages and the API; messages at /mcp; deleting an account), and until
# a stream or a download ends. The clients of a stream continue it with a new request.
REQUEST_SECONDS = env.float("REQUEST_SECONDS", default=30.0)
MCP_SECONDS = env.float("MCP_SECONDS", default=120.0)
ACCOUNT_DELETION_SECONDS = env.float("ACCOUNT_DELETION_SECONDS", default=600.0)
STREAM_SECONDS = env.float("STREAM_SECONDS", default=3600.0)
# How many streams a user, and an address, may have open in all processes together. 0 is no limit.
STREAMS_PER_PERSON = env.int("STREAMS_PER_PERSON", default=20)
STREAMS_PER_ADDRESS = env.int("STREAMS_PER_ADDRESS", default=200)

# Imports: uploads, their limits, and the worker that reads them

# Private: web processes write uploads here, and the importing worker reads them.
IMPORTS_DIR = Path(env.str("IMPORTS_DIR", default=str(VAR_DIR / "imports")))
# The limits of all open uploads of one user; an upload that is not continued is deleted.
IMPORTS_BYTES_PER_PERSON = env.int("IMPORTS_BYTES_PER_PERSON", default=10 * 1024**3)
IMPORTS_OPEN_PER_PERSON = env.int("IMPORTS_OPEN_PER_PERSON", default=3)
IMPORTS_EXPIRE_SECONDS = env.int("IMPORTS_EXPIRE_SECONDS", default=86_400)
# The disk space that uploads leave free.
IMPORTS_FREE_BYTES = env.int("IMPORTS_FREE_BYTES", default=1024**3)
# Reading or storing one export may take this long.
IMPORTS_SECONDS = env.int("IMPORTS_SECONDS", default=6 * 3600)
IMPORTS_MEMORY_BYTES = env.int("IMPORTS_MEMORY_BYTES", default=2 * 1024**3)
# How long one user's import runs before another's has its turn, and how many are under way in a worker at once.
IMPORTS_TURN_SECONDS = env.float("IMPORTS_TURN_SECONDS", default=20.0)
IMPORTS_AT_ONCE = env.int("IMPORTS_AT_ONCE", default=4)
# Another worker takes over after this time without a sign of life.
IMPORTS_LEASE_SECONDS = env.int("IMPORTS_LEASE_SECONDS", default=60)
# Whether this is the importing worker, which logs in as the web role and acts as the owner of its import.
IMPORTING_WORKER = env.bool("IMPORTING_WORKER", default=False)
# Whether this process is the worker that draws maps and sweeps. It embeds nothing, and so loads no model.
HOUSEKEEPING_WORKER = env.bool("HOUSEKEEPING_WORKER", default=False)
