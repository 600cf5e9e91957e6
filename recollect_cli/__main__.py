"""`python -m recollect_cli` is `recollect`; so is `python recollect_cli`, which works from every folder.

An agent waits for `recollect hook`, so that goes to its module at once: the parser of all commands is not loaded.
"""

import os
import sys

# Nothing here reports to a vendor, and nothing that it starts shall: as in core/telemetry.py, which only a server has.
os.environ |= {"ORT_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"}

if not __package__:
    # Python has put this folder on its path, rather than the one above it.
    sys.path[0] = __file__.rpartition("recollect_cli")[0] or "."


def main() -> int:
    """The exit status, as `recollect_cli.commands.main` returns it; a hook never returns."""
    words = sys.argv[1:]
    if words[:1] == ["hook"] and len(words) == 3:
        from recollect_cli import hooks

        hooks.run(words[1], words[2])
    from recollect_cli import commands

    return commands.main(words)


if __name__ == "__main__":
    sys.exit(main())
