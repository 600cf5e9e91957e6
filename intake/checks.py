"""Checks the settings of each language model (`LLM_MODELS`) and of email."""

import re
from collections.abc import Iterator
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register

from intake.language_models import ANTHROPIC
from intake.models.conversations import MODEL_NAME_LENGTH

THINKING = ("", "on", "off", "minimal", "low", "medium", "high", "xhigh", "max")
HINT = (
    "LLM_MODELS=fast,my-claude reads LLM_FAST_MODEL, LLM_FAST_BASE_URL, LLM_FAST_API_KEY and LLM_FAST_THINKING, then "
    "LLM_MY_CLAUDE_MODEL and so on."
)


@register()
def check_language_models(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    entries = {"": {"MODEL": settings.LLM_MODEL, "BASE_URL": settings.LLM_BASE_URL, "THINKING": settings.LLM_THINKING}}
    problems = [
        f"LLM_MODELS: {sentence}" if name else sentence
        for name, given in {**entries, **settings.LLM_MODELS}.items()
        for sentence in _problems(name, given)
    ]
    return [Error(sentence, hint=HINT, id="intake.E002") for sentence in problems]


@register(Tags.security, deploy=True)
def check_email(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """Run by `manage.py check --deploy`."""
    if settings.EMAIL_HOST:
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


def _problems(name: str, given: dict[str, str]) -> Iterator[str]:
    whose = f"“{name}” " if name else "LLM_MODEL "
    if name and not re.fullmatch(r"[\w.:-]+", name):
        yield f"the name {whose}has other characters than letters, digits, and . : - _"
    if len(name) > MODEL_NAME_LENGTH // 2:
        yield f"the name {whose}is too long."
    if name and not given["MODEL"] and not given["BASE_URL"]:
        yield f"{whose}has neither a model nor the address of a server that lists some."
    if given["BASE_URL"] and not given["BASE_URL"].startswith(("http://", "https://")):
        yield f"the address of {whose}must begin with http:// or https://."
    if given["THINKING"] not in THINKING:
        yield f"{whose}cannot think “{given['THINKING']}”: it is one of {', '.join(THINKING[1:])}."
    if given["MODEL"] == ANTHROPIC:
        yield f"{whose}names a vendor and no model."
