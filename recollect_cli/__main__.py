"""`python -m recollect_cli` is `recollect`."""

import sys

from recollect_cli.commands import main

sys.exit(main())
