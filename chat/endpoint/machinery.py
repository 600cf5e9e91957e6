"""Tells a person's question from what a program's machinery asks beside it: titles, tags, summaries, completions.

It is judged first: a request for a title comes after the whole history, and would look like the next turn.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from chat.endpoint.inner import Asked


@cache
def signs() -> Mapping[str, list[str]]:
    """By their place."""
    found = defaultdict[str, list[str]](list)
    for line in Path(__file__).with_name("signs.txt").read_text().splitlines():
        place, _, sign = line.partition("\t")
        if sign:
            found[place].append(sign)
    return found


def is_machinery(asked: Asked, headers: Mapping[str, str]) -> bool:
    # Open WebUI says so itself, where it is set to; and no answer for a person has 32 tokens.
    is_short = 0 < (asked.settings.max_tokens or 0) <= 32
    if is_short or any(headers.get(name) for name in ("X-OpenWebUI-Task", "X-Task")):
        return True
    spoken = [each for each in asked.messages if each.role != "system"]
    if asked.format is not None and not asked.tools and len(spoken) == 1:
        return True
    user = " ".join(next((each.text for each in reversed(spoken) if each.role == "user"), "").split())
    instructions = " ".join(word for each in asked.messages if each.role == "system" for word in each.text.split())
    return (
        user.startswith(tuple(signs()["user"]))
        or user in signs()["whole"]
        or any(sign in instructions for sign in signs()["system"])
        or (bool(spoken) and spoken[-1].role == "assistant" and spoken[-1].text.strip() in signs()["last"])
    )


def is_chat(asked: Asked, headers: Mapping[str, str]) -> bool:
    """Whether it is of a conversation that is kept here and nowhere better: of no coding agent, and of no program that
    brings tools, unless these are a chat app's.
    """
    is_agent = headers.get("User-Agent", "").startswith(tuple(signs()["agent"]))
    is_known = any(tool.name.startswith(tuple(signs()["tool"])) for tool in asked.tools)
    return asked.stores and not is_agent and (is_known or not asked.tools)
