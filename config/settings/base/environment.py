"""What a deployment says, for every other module here to read, and where this copy of the project writes."""

from pathlib import Path

import environ

BASE_DIR = Path(__file__).resolve().parent.parent.parent.parent

env = environ.Env()
# A test run ignores these files: neither somebody's keys nor somebody's database belong in it.
READS_ENV_FILES = not env.bool("IGNORE_ENV_FILES", default=False)
if READS_ENV_FILES:
    environ.Env.read_env(BASE_DIR / ".env")
VAR_DIR = Path(env.str("RECOLLECT_VAR", default=str(BASE_DIR / "var")))
if READS_ENV_FILES:
    # What a running `make up` made up, for commands beside it; it never overrides the environment or .env.
    environ.Env.read_env(VAR_DIR / "env")
