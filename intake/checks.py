"""Checks the settings of each language model (`LLM_MODELS`) and of email."""

import re
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured

from intake.accounts.login_header import check_login_header
from intake.llm.language_models import ANTHROPIC, as_tokens
from intake.models.conversations import MODEL_NAME_LENGTH

THINKING = ("", "on", "off", "minimal", "low", "medium", "high", "xhigh", "max")
HINT = (
    "LLM_MODELS=fast,my-claude reads LLM_FAST_MODEL, LLM_FAST_BASE_URL, LLM_FAST_API_KEY, LLM_FAST_THINKING and "
    "LLM_FAST_CONTEXT_TOKENS, then LLM_MY_CLAUDE_MODEL and so on."
)


@register()
def check_language_models(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    names = ("MODEL", "BASE_URL", "THINKING", "VISION")
    entries = {"": {name: getattr(settings, f"LLM_{name}") for name in names}}
    problems = [
        f"LLM_MODELS: {sentence}" if name else sentence
        for name, options in {**entries, **settings.LLM_MODELS}.items()
        for sentence in _problems(name, options)
    ]
    return [Error(sentence, hint=HINT, id="intake.E002") for sentence in problems]


@register()
def check_addresses(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Also run by every web process before it serves (`refuse_unless_reachable`)."""
    found: list[CheckMessage] = []
    if settings.EMAIL_IS_REQUIRED and not settings.EMAIL_HOST and not settings.EMAIL_IS_OFF:
        found.append(
            Error(
                "EMAIL_HOST is empty, so the log of the web process would hold the links by which people set a new "
                "password.",
                hint="Set EMAIL_HOST and the rest of EMAIL_…, or EMAIL_HOST=none: then no email is sent, and staff "
                "make links for a new password (docs/operations.md).",
                id="intake.E003",
            )
        )
    return found


def refuse_unless_reachable() -> None:
    """Raises `ImproperlyConfigured` with each check's id and the way out."""
    if found := [*check_addresses(None), *check_login_header(None)]:
        raise ImproperlyConfigured("\n".join(f"{one.id}: {one.msg} {one.hint}" for one in found))


@register(Tags.security, deploy=True)
def check_email(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Run by `manage.py check --deploy`."""
    if settings.EMAIL_HOST or settings.EMAIL_IS_OFF or settings.EMAIL_IS_REQUIRED:
        return []
    cannot = "cannot register" if settings.EMAIL_VERIFICATION == "mandatory" else "cannot confirm their address"
    return [
        Warning(
            f"EMAIL_HOST is empty, so emails go to the log of the web process: people {cannot}, and nobody can set a "
            "new password.",
            hint="Set EMAIL_HOST and the rest of EMAIL_… (docs/operations.md).",
            id="intake.W001",
        )
    ]


def _problems(name: str, options: dict[str, str]) -> Iterator[str]:
    whose = f"“{name}” " if name else "LLM_MODEL "
    if name and not re.fullmatch(r"[\w.:-]+", name):
        yield f"the name {whose}has other characters than letters, digits, and . : - _"
    if len(name) > MODEL_NAME_LENGTH // 2:
        yield f"the name {whose}is too long."
    if name and not options["MODEL"] and not options["BASE_URL"]:
        yield f"{whose}has neither a model nor the address of a server that lists some."
    if options["BASE_URL"] and not options["BASE_URL"].startswith(("http://", "https://")):
        yield f"the address of {whose}must begin with http:// or https://."
    yield from _unknown_values(whose, options)
    if options["MODEL"] == ANTHROPIC:
        yield f"{whose}names a vendor and no model."


def _unknown_values(whose: str, options: dict[str, str]) -> Iterator[str]:
    if options["THINKING"] not in THINKING:
        yield f"{whose}cannot think “{options['THINKING']}”: it is one of {', '.join(THINKING[1:])}."
    if as_tokens(options.get("CONTEXT_TOKENS", "")) is None:
        yield f"the length of the context of {whose}is no number of tokens."
    if options.get("VISION", "") not in ("", "on", "off"):
        yield f"whether {whose}sees pictures is “on”, “off” or empty."
