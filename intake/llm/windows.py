"""The window of a model: how many tokens it reads at once, the answer included."""

import logging
import re
import threading
import time

from core.text import Sentence
from core.text import gettext_noop as _
from intake.llm.language_models import (
    ANTHROPIC,
    LISTED_SECONDS,
    SMALL_TOKENS,
    LanguageModel,
    entries,
    listed_window,
    models_of,
    named_models,
)
from intake.llm.model_servers import ASSUMED, FAILURES, Window, ask_window

logger = logging.getLogger(__name__)


# By address, key and the model's own name: until when it is valid, and the window, None if the server does not say.
_windows: dict[tuple[str, str, str], tuple[float, Window | None]] = {}
_lock = threading.Lock()
_asking: set[tuple[str, str, str]] = set()
# The small windows that the log has named.
_named: set[tuple[str, str, int]] = set()

SMALL = _(
    "%(model)s reads only %(count)s tokens at once, so a chat soon outgrows it. Load it with a longer context of at "
    "least %(enough)s tokens."
)


# Of models that their vendors serve. Others are loaded with any length.
FAMILIES: tuple[tuple[re.Pattern[str], int], ...] = (
    (re.compile(r"gpt-4\.1"), 1_047_576),
    (re.compile(r"gpt-[5-9]"), 272_000),
    (re.compile(r"gpt-4o|gpt-4\.5|gpt-4-(?:turbo|\d{4}-preview)|chatgpt-4o|o1-mini|o1-preview"), 128_000),
    (re.compile(r"gpt-4-32k"), 32_768),
    (re.compile(r"gpt-4"), 8_192),
    (re.compile(r"gpt-3\.5"), 16_385),
    (re.compile(r"o\d"), 200_000),
    (re.compile(r"claude-(?:2\.0|instant)"), 100_000),
    (re.compile(r"claude"), 200_000),
    (re.compile(r"gemini-(?:1\.5|[2-9])"), 1_048_576),
    (re.compile(r"grok-[3-9]"), 131_072),
    (re.compile(r"deepseek-(?:chat|reasoner)"), 64_000),
    (re.compile(r"mistral-(?:large|medium)-(?:latest|\d{4})|codestral-latest"), 128_000),
)


def window_of(model: LanguageModel, *, asks: bool = True) -> Window:
    """What is known now, without waiting: a server is asked in the background, at most once a minute."""
    if model.context_tokens:
        return Window(model.context_tokens)
    if _has_server(model) and (asked := _asked_window(model, asks=asks)):
        return asked
    own = model.own_name.rpartition("/")[2].lower()
    # A server between may have cut what the vendor itself serves.
    is_vendors = not model.base_url or model.id.startswith(ANTHROPIC)
    known = (Window(tokens, is_certain=is_vendors) for pattern, tokens in FAMILIES if pattern.match(own))
    return next(known, ASSUMED)


def is_window_asked(model: LanguageModel) -> bool:
    """Whether `window_of` knows all that can be known, so that no answer needs to wait for `learn_window`."""
    return bool(model.context_tokens) or not _has_server(model) or _key_of(model) in _windows


def learn_window(model: LanguageModel) -> None:
    """Ask the model's server, for a few seconds at most; keeps what was known while it does not answer.

    Call it outside a transaction.
    """
    key = _key_of(model)
    before = _windows.get(key, (0.0, None))[1]
    try:
        window = ask_window(model.base_url, model.api_key, model.own_name)
    except FAILURES as error:
        logger.info("The server of %s does not say how much it reads (%s)", model.own_name, type(error).__name__)
        window = before
    is_passing = window is not None and not window.is_certain and window.is_ollama
    with _lock:
        _asking.discard(key)
        if len(_windows) >= 1_000:
            _windows.clear()
        # What may change with the next answer is valid for a short time: Ollama loads a model when it is first asked.
        _windows[key] = (time.monotonic() + (5.0 if is_passing else LISTED_SECONDS), window)
    if window is not None:
        _log_if_small(model, window)


def small_windows() -> list[Sentence]:
    """The sentences about models whose windows are too small, none by its name; of a server that lists many, of the
    first few. Asks the servers now, outside a transaction.
    """
    models = [model for entry in entries() for model in models_of(entry)[:5]]
    for model in models:
        if _has_server(model) and not model.context_tokens:
            learn_window(model)
    notes = (note_on_window(model, name="A language model") for model in models)
    return list(dict.fromkeys(note for note in notes if note is not None))


def note_on_window(model: LanguageModel, *, name: str = "") -> Sentence | None:
    """The sentence about a window that is too small for a chat, with what mends it; None for any other."""
    # A server may list hundreds of models, of which somebody chooses one.
    window = window_of(model, asks=model in named_models() or _key_of(model) in _windows)
    if window.is_assumed or window.tokens >= SMALL_TOKENS:
        return None
    return Sentence(SMALL, model=name or model.name, count=window.tokens, enough=16_384)


def _log_if_small(model: LanguageModel, window: Window) -> None:
    key = (model.base_url, model.own_name, window.tokens)
    if window.tokens < SMALL_TOKENS and key not in _named:
        _named.add(key)
        logger.warning("%s", note_on_window(model))


def _has_server(model: LanguageModel) -> bool:
    """Whether it is asked at an address that may say more than its vendor's own, which says nothing."""
    return model.base_url.startswith(("http://", "https://")) and not model.id.startswith(ANTHROPIC)


def _asked_window(model: LanguageModel, *, asks: bool) -> Window | None:
    key = _key_of(model)
    with _lock:
        until, window = _windows.get(key, (0.0, None))
        # Only one thread asks.
        is_due = asks and time.monotonic() >= until and key not in _asking
        if is_due:
            _asking.add(key)
    if is_due:
        threading.Thread(target=learn_window, args=(model,), name="window of a model", daemon=True).start()
    return window or listed_window(model)


def _key_of(model: LanguageModel) -> tuple[str, str, str]:
    return (model.base_url, model.api_key, model.own_name)
