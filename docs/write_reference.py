"""Writes `docs/settings.md` and the second half of `docs/cli.md` from the settings and the commands: `make docs`.

`config/tests/test_docs.py` fails when either is not what this writes.
"""

import argparse
import os
import re
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
from django.template.defaultfilters import filesizeformat

from config.settings.table import SETTINGS as SETTINGS_BY_NAME
from config.settings.table import TABLE, Computed, Setting
from recollect_cli.commands import command_parser

DOCS = Path(__file__).parent
SETTINGS, COMMANDS = DOCS / "settings.md", DOCS / "cli.md"
# What stands above it in docs/cli.md is written by hand.
MARK = "<!-- From here on `make docs` writes this page. -->\n"

SETTINGS_HEAD = """# Settings

A setting is a variable of the environment, a line in `.env`, or a file: `X_FILE=/path` names a file with the value of
`X`. Lists are divided by commas. A name with … stands for several, with a part of your own. `make docs` writes this
page from `config/settings/table.py`; `manage.py doctor` names those that are set.
"""
FIRST = """
PUBLIC_URL HOST PORT WEB_PROCESSES SECRET_KEY RECOLLECT_VAR RECOLLECT_BACKUP_PASSPHRASE DATABASE_URL REDIS_URL
EMAIL_HOST REGISTRATION LLM_MODEL LLM_BASE_URL LLM_API_KEY EMBEDDING_LANGUAGES RATE_LIMITS QUOTA_TURNS RETENTION_DAYS
TRUSTED_PROXIES METRICS_TOKEN
"""
# Read by `make up`, by Compose or by a command, and not by the settings.
OTHERS = {
    "HOST": ("`127.0.0.1`", "The address on which `make up` listens; `0.0.0.0` lets the network in."),
    "PORT": ("`8000`", "The port of `make up`, and the one that Compose publishes on this machine."),
    "RECOLLECT_BACKUP_PASSPHRASE": (
        "empty",
        "Encrypts backups, and decrypts them.",
    ),
    "SITE": ("must be set", "With `docker-compose.scale.yml`: the name for which Caddy gets certificates."),
    "APPLICATION_MEMORY": ("`2g`", "With Compose: the memory of web, and of each short-lived container."),
    "WORKER_MEMORY": ("`4g`", "With Compose: the memory of the worker."),
    "POSTGRES_MEMORY": ("`4g`", "With Compose: the memory of PostgreSQL."),
    "HTTPS_PROXY": ("empty", "The proxy for pages of the web, tools from elsewhere and OAuth clients' documents."),
    "RECOLLECT_URL": ("`http://127.0.0.1:8000`", "For the command `recollect`: the server."),
    "RECOLLECT_TOKEN": ("empty", "For the command `recollect` and `manage.py mcp`: the token."),
    "RECOLLECT_HOOK_SECONDS": ("1.0 or less", "For the hooks of agents: how long each may take."),
}


def settings_page() -> str:
    """The Markdown of `docs/settings.md`: the twenty that matter first, then the others by their purpose."""
    rows = {name: _row(f"`{name}`", *found) for name, found in OTHERS.items()}
    sections: dict[str, list[str]] = {}
    for section, found in TABLE.items():
        for each in found:
            # Of a model more and of the next embedding model: their rows would repeat those of the first.
            if not re.match("LLM_…_|EMBEDDING_NEXT_", each.name):
                rows[each.name] = _row(f"`{each.name}`", _default(each), _cell(each.help))
                sections.setdefault(section, []).append(each.name)
    sections["Chat"].append("LLM_…_MODEL")
    rows["LLM_…_MODEL"] = _row(
        _names("LLM_…_"), "empty", "The same of one model of LLM_MODELS, whose name takes the place of …"
    )
    sections["Search"].append("EMBEDDING_NEXT_…")
    rows["EMBEDDING_NEXT_…"] = _row(
        _names("EMBEDDING_NEXT_"),
        "empty",
        "The model that `manage.py switch_embedding_model` puts in the place of the present one.",
    )
    sections["Read elsewhere"] = [*OTHERS]
    pages = [SETTINGS_HEAD, *_settings_table("The twenty that matter first", FIRST.split(), rows)]
    for section, names in sections.items():
        pages += _settings_table(section, [name for name in names if name not in FIRST.split()], rows)
    return "\n".join(pages)


def _settings_table(title: str, names: list[str], rows: dict[str, str]) -> list[str]:
    return [f"## {title}", "", *_table("setting", "default", "meaning"), *(rows[name] for name in names), ""]


def _names(beginning: str) -> str:
    return ", ".join(f"`{name}`" for name in SETTINGS_BY_NAME if name.startswith(beginning))


def _default(setting: Setting) -> str:
    value = setting.default
    said = {id(environ.Env.NOTSET): "must be set", id(None): "none", id(True): "yes", id(False): "no"}
    if isinstance(value, Computed) or id(value) in said:
        return said.get(id(value), str(value)).replace("BASE_DIR/", "").replace("VAR_DIR/", "`RECOLLECT_VAR`/")
    if isinstance(value, dict):
        value = [f"{name}={weight}" for name, weight in value.items()]
    if setting.name.endswith("_BYTES") and value:
        return f"`{value}` ({filesizeformat(value)})"
    return "empty" if value in ("", []) else f"`{','.join(value) if isinstance(value, list) else value}`"


# What an operator or an agent's developer uses; `--help` says the rest of each, and of the others.
OPERATORS = """
backup create_roles create_token daily_backup distribute doctor index_missing invite mcp restore switch_embedding_model
verify_backup
"""


def commands_page(by_hand: str) -> str:
    """The Markdown of `docs/cli.md`, below what is written there by hand."""
    parts = [by_hand.partition(MARK)[0] + MARK, "## Every command of `recollect`\n"]
    parts.append(
        "Each also takes `--url`, `--token` and `--json` (the whole answer as JSON) where it asks the server.\n"
    )
    parts += [*_described(command_parser()), "## Commands of `manage.py`\n"]
    parts.append("Run them with `.venv/bin/python manage.py COMMAND`. `--help` has all options and commands.\n")
    for name, command in _own_commands():
        if name in OPERATORS.split():
            parts += _described(command.create_parser("manage.py", name))
    return "\n".join(parts)


def _own_commands() -> Iterator[tuple[str, BaseCommand]]:
    """Those of the project's apps, by name. A command of ours that takes the place of Django's is ours."""
    for name, app in sorted(get_commands().items()):
        if app in apps.app_configs and Path(apps.get_app_config(app).path).parent == settings.BASE_DIR:
            yield name, load_command_class(app, name)


def _described(parser: argparse.ArgumentParser) -> list[str]:
    """Two lines for the parser, or for each of its subcommands."""
    page = _Page(parser.prog)
    parser.formatter_class = partial(_Listing, page)
    parser.format_help()
    if page.commands:
        return [line for each in page.commands for line in _described(each)]
    usage = "".join(f" {each}" for each in page.needed)
    return [f"**`{parser.prog}{usage}`**: {_sentence(parser.description or '')}\n", *page.rows, *[""] * bool(page.rows)]


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
                if text := _cell(_help(action)):
                    self.page.rows.append(f"- `{_argument(action)}`: {text}")
                if not action.option_strings and action.nargs not in ("?", "*"):
                    self.page.needed.append(_name(action))


def _of_every_command() -> set[str]:
    """Django's own options, the help, and what each command that asks a server takes."""
    return {
        "help",
        "url",
        "token",
        "json",
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
