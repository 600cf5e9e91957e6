"""Writes `docs/settings.md` and the second half of `docs/cli.md` from the settings and the commands: `make docs`.

`config/tests/test_docs.py` fails when either is not what this writes.
"""

import argparse
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import django
import environ
from django.apps import apps
from django.conf import settings
from django.core.management import BaseCommand, get_commands, load_command_class

from config.settings.table import KINDS, TABLE, Computed, Setting
from recollect_cli.commands import command_parser

DOCS = Path(__file__).parent
SETTINGS, COMMANDS = DOCS / "settings.md", DOCS / "cli.md"
# What stands above it in docs/cli.md is written by hand.
MARK = "<!-- From here on `make docs` writes this page. -->\n"

SETTINGS_HEAD = """# Settings

A setting is a variable of the environment, a line in `.env`, or a file: `X_FILE=/path` names a file with the value of
`X`. `make docs` writes this page from `config/settings/table.py`. A name with … stands for several, with a part of your
own; an empty default is an empty text or list. In defaults, `BASE_DIR` is the project's folder and `VAR_DIR` the folder
in `RECOLLECT_VAR`.
"""


def settings_page() -> str:
    """The Markdown of `docs/settings.md`."""
    pages = [SETTINGS_HEAD]
    for section, found in TABLE.items():
        rows = [_row(f"`{each.name}`", KINDS[each.kind], _default(each), _cell(each.help)) for each in found]
        pages.append("\n".join([f"## {section}", "", *_table("setting", "type", "default", "meaning"), *rows, ""]))
    return "\n".join(pages)


def _default(setting: Setting) -> str:
    value = setting.default
    said = {id(environ.Env.NOTSET): "must be set", id(None): "none", id(True): "yes", id(False): "no"}
    if isinstance(value, Computed) or id(value) in said:
        return said.get(id(value), str(value))
    if isinstance(value, dict):
        value = [f"{name}={weight}" for name, weight in value.items()]
    return "empty" if value in ("", []) else f"`{','.join(value) if isinstance(value, list) else value}`"


def commands_page(by_hand: str) -> str:
    """The Markdown of `docs/cli.md`, below what is written there by hand."""
    parts = [by_hand.partition(MARK)[0] + MARK, "## Every command of `recollect`\n", *_described(command_parser())]
    parts += ["## Every command of `manage.py`\n", "Run them with `.venv/bin/python manage.py COMMAND`.\n"]
    for name, command in _own_commands():
        parts += _described(command.create_parser("manage.py", name))
    return "\n".join(parts)


def _own_commands() -> Iterator[tuple[str, BaseCommand]]:
    """Those of the project's apps, by name. A command of ours that takes the place of Django's is ours."""
    for name, app in sorted(get_commands().items()):
        if app in apps.app_configs and Path(apps.get_app_config(app).path).parent == settings.BASE_DIR:
            yield name, load_command_class(app, name)


def _described(parser: argparse.ArgumentParser) -> list[str]:
    """A section for the parser, or one for each of its subcommands."""
    page = _Page(parser.prog)
    parser.formatter_class = partial(_Listing, page)
    parser.format_help()
    if page.commands:
        return [line for each in page.commands for line in _described(each)]
    usage = " ".join(["###", f"`{parser.prog}" + "".join(f" {each}" for each in page.needed) + "`"])
    table = [*_table("argument", "meaning"), *page.rows, ""] if page.rows else []
    return ["\n".join([usage, "", _sentence(parser.description or ""), "", *table])]


@dataclass
class _Page:
    prog: str
    needed: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    commands: list[argparse.ArgumentParser] = field(default_factory=list)


class _Listing(argparse.HelpFormatter):
    """Collects the arguments of a parser. argparse's own page has other line breaks in each version of Python."""

    def __init__(self, page: _Page, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.page = page

    def add_arguments(self, actions: Iterable[argparse.Action]) -> None:
        for action in actions:
            if isinstance(action.choices, dict):
                self.page.commands += action.choices.values()
            elif action.help != argparse.SUPPRESS and action.dest not in _of_every_command():
                self.page.rows.append(_row(f"`{_argument(action)}`", _cell(_help(action))))
                if not action.option_strings and action.nargs not in ("?", "*"):
                    self.page.needed.append(_name(action))


def _of_every_command() -> set[str]:
    """Django's own options, and the help."""
    return {
        "help",
        "version",
        "verbosity",
        "settings",
        "pythonpath",
        "traceback",
        "no_color",
        "force_color",
        "skip_checks",
    }


def _argument(action: argparse.Action) -> str:
    if not action.option_strings:
        many = " …" if action.nargs in ("*", "+") else ""
        return f"[{_name(action)}{many}]" if action.nargs in ("?", "*") else f"{_name(action)}{many}"
    value = "" if action.nargs == 0 else f" {_name(action)}"
    return max(action.option_strings, key=len) + value


def _name(action: argparse.Action) -> str:
    if action.metavar:
        return action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar)
    return action.dest.upper()


def _help(action: argparse.Action) -> str:
    text = (action.help or "") % {**vars(action), "prog": ""}
    said = [text] if text else []
    if action.choices:
        said.append("One of " + ", ".join(f"`{each}`" for each in action.choices))
    is_said = "default" in text.lower() or str(action.default) in text
    if action.nargs != 0 and action.default and action.default != argparse.SUPPRESS and not is_said:
        said.append(f"Default: `{action.default}`")
    return " ".join(map(_sentence, said))


def _sentence(text: str) -> str:
    text = text.strip()
    return f"{text[:1].upper()}{text[1:]}".removesuffix(".") + "." if text else ""


def _table(*columns: str) -> list[str]:
    return [_row(*columns), "|" + "---|" * len(columns)]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def write() -> None:
    SETTINGS.write_text(settings_page(), encoding="utf-8")
    COMMANDS.write_text(commands_page(COMMANDS.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    # With no setting of this machine: defaults are what the page is about.
    os.environ["IGNORE_ENV_FILES"] = "1"
    os.environ.pop("RECOLLECT_URL", None)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.local")
    django.setup()
    write()
