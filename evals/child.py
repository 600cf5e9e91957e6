"""`python -m evals.child MODULE FUNCTION`: calls a function of this project in a process of its own.

Its arguments come by name as JSON through standard input, and its result goes as JSON to standard output.
`evals.processes.call` starts it, in the environment that says where it works.
"""

import json
import sys
from importlib import import_module

import django


def main() -> None:
    module, name = sys.argv[1:]
    django.setup()
    function = getattr(import_module(module), name)
    json.dump(function(**json.load(sys.stdin)), sys.stdout)


if __name__ == "__main__":
    main()
