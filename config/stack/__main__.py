"""The command line behind the Makefile: `python -m config.stack up|down`; what is in the way comes as one sentence."""

import argparse
import os
import sys

from config.stack.errors import StackError
from config.stack.given import read_environment
from config.stack.supervisor import Address
from config.stack.up import down, up


def main() -> None:
    arguments = _parse()
    # Logs, passwords and the address are nobody else's.
    os.umask(0o077)
    read_environment()
    try:
        if arguments.command == "down":
            down()
        else:
            up(Address(arguments.host, _port(arguments.port)), demo=arguments.demo)
    except StackError as error:
        sys.exit(f"{error}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m config.stack", description="Run Recollect on this machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("up", help="start everything, and stop it on Ctrl-C")
    start.add_argument("--host", default="127.0.0.1")
    start.add_argument("--port", default="8000")
    start.add_argument("--demo", action="store_true", help="load the sample data")
    commands.add_parser("down", help="stop what `up` started")
    return parser.parse_args()


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**16):
        raise StackError(f"{text} is not a port: choose one from 1 to 65535, as in `make up PORT=8000`.")
    return int(text)


if __name__ == "__main__":
    main()
