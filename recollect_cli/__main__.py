"""`python -m recollect_cli` is `recollect`; so is `python recollect_cli`, which works from every folder."""

import sys

if not __package__:
    # Python has put this folder on its path, rather than the one above it.
    sys.path[0] = __file__.rpartition("recollect_cli")[0] or "."

from recollect_cli.commands import main

sys.exit(main())
