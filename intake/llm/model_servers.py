"""Asks a language model's server which models it has and how many tokens each reads.

Servers say the length of the context in a dozen ways, most of them beside OpenAI's protocol. What is loaded counts
before what the weights could do.
"""

import json
import os
import re
import time
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from typing import Any

from core.resilience import refuse_in_transaction

FAILURES = (OSError, ValueError, RecursionError, HTTPException)
# A server's product, its address and the names of its models.
FoundServer = tuple[str, str, list[str]]

# Ollama loads a model with so much unless it is told otherwise, and cuts the front of a longer prompt.
OLLAMA_TOKENS = 4_096


@dataclass(frozen=True, slots=True)
class Window:
    """How many tokens a model reads at once, its answer included.

    `is_certain`: a longer prompt would be refused or cut, so it is not even sent. `is_assumed`: nobody has said it.
    """

    tokens: int
    is_certain: bool = True
    is_assumed: bool = False
    is_ollama: bool = False


# Of a model about which nothing is known. Nearly all that are served today read more; one that reads less refuses what
# is too long, and says so.
ASSUMED = Window(16_384, is_certain=False, is_assumed=True)


# It takes a key in its own way, also where it lists its models.
ANTHROPICS = "https://api.anthropic.com/"
# In names of models that answer no chat.
NO_CHAT = re.compile(
    r"embed|minilm|rerank|moderation|whisper|transcribe|realtime|dall-e|gpt-image|stable-diffusion|davinci|babbage"
    r"|(?:^|[/_-])(?:bge|gte|e5|tts|sora)(?:[-_:]|$)",
    re.IGNORECASE,
)
# Where servers of models listen on the machine that runs them, unless somebody chooses another port.
USUAL_PORTS = {11434: "Ollama", 1234: "LM Studio", 8080: "llama.cpp", 8000: "vLLM"}


def find_servers(*, own_port: int | None = None, ports: Mapping[int, str] = USUAL_PORTS) -> list[FoundServer]:
    """The servers on this machine that list their models. Each port is asked once, all at the same time."""
    asked = {port: title for port, title in ports.items() if port != own_port}
    with ThreadPoolExecutor(max(1, len(asked))) as pool:
        found = pool.map(_look_at_port, asked.items())
    return [server for server in found if server is not None]


def _look_at_port(named: tuple[int, str]) -> FoundServer | None:
    """A program that lists no models, as this one, is none."""
    port, title = named
    base_url = f"http://127.0.0.1:{port}/v1"
    try:
        return title, base_url, list(list_models(base_url, ""))
    except FAILURES:
        return None


def list_models(base_url: str, api_key: str) -> dict[str, Window | None]:
    """The models at `/models` that can chat, by name, each with its window if the list says it. Raises `FAILURES`.

    Ollama says of each what it can do; elsewhere a model that embeds, ranks, hears or draws is known by its name.
    """
    rows = _rows(_fetch(f"{base_url.rstrip('/')}/models", api_key))
    found = {row["id"]: _window_in(row) for row in rows if isinstance(row.get("id"), str) and row["id"]}
    names = sorted(found)[:500]
    with ThreadPoolExecutor(8) as pool:
        can_chat = pool.map(partial(_can_chat, _root(base_url), api_key), names if _tags(base_url, api_key) else ())
        said = dict(zip(names, can_chat, strict=False))
    return {name: found[name] for name in names if said.get(name, not NO_CHAT.search(name))}


def best_model(base_url: str, api_key: str, names: Sequence[str]) -> str:
    """The one to answer new chats unless staff choose another: loaded in Ollama, or the largest there that fits into
    this machine's memory; elsewhere the first.
    """
    sizes = {name: size for name, size in _tags(base_url, api_key).items() if name in names}
    try:
        running = _fetch(f"{_root(base_url)}/api/ps", api_key)["models"] if sizes else []
        loaded = [each["name"] for each in running if each["name"] in sizes]
    except (*FAILURES, KeyError, TypeError):
        loaded = []
    room = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 4 // 5
    fitting = [name for name in sizes if sizes[name] <= room] or [min(sizes, key=sizes.__getitem__)] if sizes else []
    return next(iter(loaded), "") or max(fitting, key=sizes.__getitem__, default=next(iter(names), ""))


def _tags(base_url: str, api_key: str) -> dict[str, int]:
    """The size of each of Ollama's models in bytes; nothing of another server."""
    try:
        rows = _fetch(f"{_root(base_url)}/api/tags", api_key)["models"]
        return {row["name"]: int(row.get("size") or 0) for row in rows}
    except (*FAILURES, KeyError, TypeError, AttributeError):
        return {}


def _can_chat(root: str, api_key: str, name: str) -> bool:
    """By its capabilities, which Ollama names since 2025; else by its name."""
    try:
        said = _fetch(f"{root}/api/show", api_key, {"model": name}).get("capabilities")
    except (*FAILURES, AttributeError):
        said = None
    return "completion" in said if isinstance(said, list) and said else not NO_CHAT.search(name)


def _root(base_url: str) -> str:
    return base_url.rstrip("/").removesuffix("/v1").rstrip("/")


def ask_window(base_url: str, api_key: str, name: str) -> Window | None:
    """The window of one model; None if its server does not say. Raises `FAILURES` if the server is away."""
    # For all requests about one model together.
    deadline = time.monotonic() + 4.0
    rows = _rows(_fetch(f"{base_url.rstrip('/')}/models", api_key))
    row = next((row for row in rows if _is_called(row.get("id"), name)), rows[0] if len(rows) == 1 else {})
    if window := _window_in(row):
        return window
    root = _root(base_url)
    for ask in (_ask_ollama, _ask_lm_studio, _ask_llama_cpp, _ask_tgi):
        if time.monotonic() > deadline:
            break
        try:
            found = ask(root, api_key, name)
        except FAILURES:
            continue
        if found is not None:
            return found
    trained = _number(row.get("meta"), "n_ctx_train")
    return None if trained is None else Window(trained, is_certain=False)


def _window_in(row: dict[str, Any]) -> Window | None:
    """vLLM, Groq, OpenRouter, LM Studio, llama.cpp. OpenRouter's best provider may read less than the model could."""
    for name in ("loaded_context_length", "max_model_len", "context_window", "max_context_length"):
        if (tokens := _number(row, name)) is not None:
            return Window(tokens, is_certain=name in ("loaded_context_length", "max_model_len"))
    both = [_number(row, "context_length"), _number(row.get("top_provider"), "context_length")]
    if known := [tokens for tokens in both if tokens is not None]:
        return Window(min(known))
    loaded = _number(row.get("meta"), "n_ctx")
    return None if loaded is None else Window(loaded)


def _ask_ollama(root: str, api_key: str, name: str) -> Window | None:
    """What is loaded counts; else what the model file sets; else the default, which a variable may have raised."""
    running = _fetch(f"{root}/api/ps", api_key)
    if not isinstance(running, dict) or not isinstance(running.get("models"), list):
        return None
    for each in running["models"]:
        if isinstance(each, dict) and name and any(_is_called(each.get(key), name) for key in ("name", "model")):
            tokens = _number(each, "context_length")
            if tokens is not None:
                return Window(tokens, is_ollama=True)
    shown = _fetch(f"{root}/api/show", api_key, {"model": name})
    if not isinstance(shown, dict):
        return None
    if set_to := re.search(r"^\s*num_ctx\s+(\d{1,9})\s*$", str(shown.get("parameters") or ""), re.MULTILINE):
        return Window(int(set_to[1]), is_ollama=True) if int(set_to[1]) > 0 else None
    info = shown.get("model_info")
    lengths = [_number(info, key) for key in info if str(key).endswith(".context_length")] if info else []
    possible = min((tokens for tokens in lengths if tokens is not None), default=OLLAMA_TOKENS)
    return Window(min(possible, OLLAMA_TOKENS), is_certain=False, is_ollama=True)


def _ask_lm_studio(root: str, api_key: str, name: str) -> Window | None:
    for row in _rows(_fetch(f"{root}/api/v0/models", api_key)):
        if _is_called(row.get("id"), name):
            return _window_in(row)
    return None


def _ask_llama_cpp(root: str, api_key: str, name: str) -> Window | None:
    properties = _fetch(f"{root}/props", api_key)
    if not isinstance(properties, dict):
        return None
    loaded = _number(properties.get("default_generation_settings"), "n_ctx") or _number(properties, "n_ctx")
    return None if loaded is None else Window(loaded)


def _ask_tgi(root: str, api_key: str, name: str) -> Window | None:
    loaded = _number(_fetch(f"{root}/info", api_key), "max_total_tokens")
    return None if loaded is None else Window(loaded)


def _is_called(found: Any, name: str) -> bool:
    """Ollama's names have a tag, which is `latest` where none is written."""
    return isinstance(found, str) and found.removesuffix(":latest") == name.removesuffix(":latest")


def _number(data: Any, name: str) -> int | None:
    """A field that is a number of tokens; None for anything else."""
    value = data.get(name) if isinstance(data, dict) else None
    # A number beyond is no length of a context.
    is_one = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 100_000_000
    return int(value) if is_one and value is not None else None


def _rows(data: Any) -> list[dict[str, Any]]:
    rows = data.get("data") if isinstance(data, dict) else None
    if not isinstance(rows, list):
        raise ValueError("not a list of models")
    return [row for row in rows if isinstance(row, dict)]


def _fetch(address: str, api_key: str, data: dict[str, Any] | None = None) -> Any:
    """The JSON of an answer, to a `POST` if there are data. Raises `FAILURES`."""
    if not address.startswith(("http://", "https://")):
        raise ValueError("no address of a server")
    refuse_in_transaction("A language model's server")
    body = None if data is None else json.dumps(data).encode()
    request = urllib.request.Request(address, data=body)  # noqa: S310 - the address is checked above
    if body is not None:
        request.add_header("Content-Type", "application/json")
    if api_key and address.startswith(ANTHROPICS):
        request.add_header("x-api-key", api_key)
        request.add_header("anthropic-version", "2023-06-01")
    elif api_key:
        request.add_header("Authorization", f"Bearer {api_key}")
    with urllib.request.urlopen(request, timeout=2.0) as response:  # noqa: S310 - the address is checked above
        return json.loads(response.read(2_000_000))
