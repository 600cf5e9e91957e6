"""How often anybody may ask, and how much they may send."""

from config.settings.base.environment import env

# For each person (a visitor: each address) and, with _address, for each address in all; empty is without a limit.
# Generous, for people share addresses and agents are quick; they bound what one runaway client costs the others.
RATE_LIMITS = {
    name: env.str(f"RATE_LIMIT_{name.upper()}", default=rate)
    for name, rate in {
        "api": "6000/minute",
        "api_address": "60000/minute",
        "chat": "60/minute",
        "chat_address": "600/minute",
        "export": "30/hour",
        "export_address": "300/hour",
        # For one account from one address; then for all accounts.
        "login": "10/minute",
        "login_address": "100/minute",
        "register_address": "60/hour",
    }.items()
}
# How many proxies of one's own stand before this server, each appending to X-Forwarded-For. With none, what that
# header says is whatever the client wrote there, and is not read.
TRUSTED_PROXIES = env.int("TRUSTED_PROXIES", default=0)

# The longest message, with every character escaped, is a fifth of it. No form holds more either.
MAX_BODY_BYTES = env.int("MAX_BODY_BYTES", default=2_621_440)
DATA_UPLOAD_MAX_MEMORY_SIZE = MAX_BODY_BYTES
# How long a body may take to arrive, on a bad line too.
BODY_SECONDS = env.float("BODY_SECONDS", default=60.0)
