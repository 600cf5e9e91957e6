"""How much a user may keep and send, and the workers' folders and memory."""

from pathlib import Path

from config.settings.accounts import *
from config.settings.table import read

# A factor on the rates of core/rate_limits.py; 0 turns them off.
RATE_LIMITS = read("RATE_LIMITS")
# With an https PUBLIC_URL one proxy ends TLS.
TRUSTED_PROXIES = read("TRUSTED_PROXIES", 1 if PUBLIC_URL.startswith("https:") else 0)
QUOTA_TURNS, QUOTA_BYTES, QUOTA_FILE_BYTES = read("QUOTA_TURNS"), read("QUOTA_BYTES"), read("QUOTA_FILE_BYTES")
QUOTA_VECTORS_WAITING = read("QUOTA_VECTORS_WAITING")
ATTACHMENT_BYTES = read("ATTACHMENT_BYTES")
# How long an answer waits for the text of a file that was sent a moment ago, before the model does without it.
ATTACHMENT_WAIT_SECONDS = 20.0
# Five times the longest message with every character escaped, for forms as for config/bodies.py.
DATA_UPLOAD_MAX_MEMORY_SIZE = 2_621_440

# Private: web processes write uploads here, and the importing worker reads them.
IMPORTS_DIR = Path(read("IMPORTS_DIR", VAR_DIR / "imports"))
IMPORTS_MEMORY_BYTES = read("IMPORTS_MEMORY_BYTES")
