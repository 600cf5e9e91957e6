# ruff: noqa: RUF001 - other scripts are the subject
"""The prompt never exceeds the model's window, counted by a tokenizer that our own count does not know."""

import base64
import json
import random
from uuid import UUID

import pytest

from core.isolation.acting import Caller
from intake.agent import prompt
from intake.agent.language_models import LanguageModel
from intake.agent.prompt import ChatDeps, ExceedsWindow, UntrustedData
from intake.models import Conversation, Turn
from intake.tests.factories import NOW
from memory.backends.e5 import E5Embedder

HERE = UUID(int=1)
CALLER = Caller(user_id=1)
ENGLISH = [
    "the",
    "we",
    "were",
    "walking",
    "along",
    "harbour",
    "this",
    "morning",
    "and",
    "talked",
    "about",
    "a",
    "project",
    "which",
    "has",
    "to",
    "be",
    "finished",
    "before",
    "summer",
    "because",
    "nobody",
    "else",
    "knows",
    "how",
    "these",
    "machines",
    "really",
    "work",
    "when",
    "water",
    "gets",
    "into",
    "them",
]
GERMAN = [
    "gestern",
    "haben",
    "wir",
    "die",
    "Unterlagen",
    "für",
    "den",
    "Steuerberater",
    "zusammengestellt",
    "und",
    "dabei",
    "festgestellt",
    "dass",
    "Überweisungen",
    "fehlen,",
    "Grundstücksverkehrsgenehmigung,",
    "Straße,",
    "schließlich",
]
RUSSIAN = [
    "вчера",
    "мы",
    "ходили",
    "в",
    "музей",
    "и",
    "смотрели",
    "новую",
    "выставку",
    "современного",
    "искусства",
    "потом",
    "долго",
    "гуляли",
]
CHINESE = "今天我们去公园散步，天气很好，孩子们在湖边放风筝。他问我下个月要不要一起去北京看展览。"


@pytest.fixture(scope="module")
def count(tmp_path_factory):
    """The tokens of a text by the built-in embedding model's own tokenizer."""
    tokenizer = E5Embedder(cache_dir=tmp_path_factory.mktemp("models"))._tokenizer
    return lambda text: len(tokenizer.encode(text))


def a_text(dice, length):
    kinds = {
        "english": lambda: dice.choice(ENGLISH) + " ",
        "german": lambda: dice.choice(GERMAN) + " ",
        "russian": lambda: dice.choice(RUSSIAN) + " ",
        "chinese": lambda: dice.choice(CHINESE),
        "code": lambda: (
            f"    if {dice.choice(ENGLISH)}_{dice.randrange(99)} == {dice.choice(ENGLISH)}[{dice.random():.3f}]:\n"
        ),
        "json": lambda: json.dumps({dice.choice(ENGLISH): dice.randrange(10**6), "ok": True}) + ",\n",
        "digits": lambda: f"{dice.randrange(10 ** dice.randrange(1, 12))} ",
        "hex": lambda: dice.randbytes(16).hex() + "\n",
        "base64": lambda: base64.b64encode(dice.randbytes(30)).decode(),
        "emoji": lambda: dice.choice("😀🎉🚀🍕🐈❤️"),
        "table": lambda: f"| {dice.randrange(999)} | {dice.choice(GERMAN)} |\n",
    }
    text = ""
    while len(text) < length:
        write = kinds[dice.choice([*kinds, "english", "english", "english"])]
        text += "".join(write() for _ in range(dice.randrange(1, 60)))
    return text[:length]


class Path:
    """Turns above a message, without a database."""

    def __init__(self, monkeypatch):
        self.turns: list[Turn] = []
        monkeypatch.setattr(prompt, "going_up", lambda turn: iter(self.turns[::-1]))
        monkeypatch.setattr(prompt, "keys_above", lambda turn: [(HERE, each.turn_number) for each in self.turns[::-1]])

    def say(self, message, answer="Noted.", **fields):
        number = len(self.turns) + 1
        self.turns.append(a_turn_of(message, turn_number=number, assistant_message=answer, status="complete", **fields))


def a_turn_of(message, **fields):
    return Turn(conversation=Conversation(id=HERE), user_message=message, **fields)


@pytest.fixture
def path(monkeypatch):
    return Path(monkeypatch)


def deps_of(tokens, **fields):
    model = LanguageModel("small", "small", base_url="http://localhost/v1", context_tokens=tokens)
    return ChatDeps(caller=CALLER, now=NOW, model=model, untrusted=UntrustedData("mark"), **fields)


def sent(asked):
    """All that reaches the model's server, as one text."""
    deps = asked.deps
    parts = [prompt.introduction(deps), prompt.circumstances(deps, may_use_tools=True), deps.tools]
    parts += [str(part.content) for message in asked.history for part in message.parts]
    return "\n".join([*parts, asked.message])


def said_in(asked):
    return [str(part.content) for message in asked.history for part in message.parts]


def test_over_200_random_conversations_no_prompt_exceeds_the_window(path, count):
    dice = random.Random(38)
    fullness, refused = [], 0
    for _ in range(200):
        window = dice.choice([4_096, 4_096, 8_192, 16_384, 32_768])
        path.turns.clear()
        for _ in range(dice.randrange(1, 40)):
            path.say(a_text(dice, dice.randrange(10, 4_000)), a_text(dice, dice.randrange(10, 6_000)))
        deps = deps_of(window, notes=a_text(dice, dice.randrange(8_000)), about=a_text(dice, 500))
        question = a_turn_of(a_text(dice, dice.choice([40, 400, 4_000, 32_000])))
        try:
            asked = prompt.asked(question, deps)
        except ExceedsWindow:
            refused += 1
            assert count(question.user_message) > 0.3 * window
            continue
        # The next prompt goes by what the server has counted of this one.
        ratio = count(sent(asked)) / asked.tokens
        path.turns[-1].usage = {"token_ratio": ratio}
        for fitted in (asked, prompt.asked(question, deps)):
            beginning = path.turns[0].user_message[:300]
            passages = [a_text(dice, 500) for _ in range(8)]
            whole = prompt.with_left_out(fitted, turn=question, beginning=beginning, passages=passages)
            tokens = count(sent(whole))
            assert tokens <= window, (window, tokens, whole.tokens)
            fullness += [tokens / window] if whole.left_out else []
    assert refused < 100 and len(fullness) > 150
    # What fits is sent: more than half of the window, with room for an answer and the results of tools.
    assert sum(fullness) / len(fullness) > 0.5
