# ruff: noqa: RUF001 - other scripts are the subject
"""The prompt never exceeds the model's window, counted by a tokenizer that our own count does not know."""

import base64
import json
import random
from dataclasses import replace
from uuid import UUID

import pytest

from chat.agent import prompt
from chat.agent.context import ChatDeps
from chat.agent.prompt import ExceedsWindow
from chat.agent.tools import described
from core.isolation.acting import Caller
from core.text import UntrustedData
from intake.llm.language_models import LanguageModel
from intake.llm.tokens import cut_middle, tokens_of
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
    parts = [instructions(deps), deps.tools]
    parts += [str(part.content) for message in asked.history for part in message.parts]
    return "\n".join([*parts, asked.message])


def instructions(deps):
    return "".join(prompt.instructions(deps, may_use_tools=True))


def said_in(asked):
    return [str(part.content) for message in asked.history for part in message.parts]


@pytest.mark.extended
def test_over_200_random_conversations_no_prompt_exceeds_the_window(path, count):
    dice = random.Random(38)
    fullness, refused = [], 0
    for _ in range(200):
        window = dice.choice([4_096, 4_096, 8_192, 16_384, 32_768])
        path.turns.clear()
        for _ in range(dice.randrange(1, 40)):
            path.say(a_text(dice, dice.randrange(10, 4_000)), a_text(dice, dice.randrange(10, 6_000)))
        notes, of_project = (a_text(dice, dice.randrange(8_000)) for _ in range(2))
        deps = deps_of(window, notes=notes, about=a_text(dice, 500), project="garden", project_notes=of_project)
        question = a_turn_of(a_text(dice, dice.choice([40, 400, 4_000, 32_000])))
        try:
            asked = prompt.asked(question, deps)
        except ExceedsWindow:
            refused += 1
            assert count(question.user_message) > 0.3 * window
            continue
        # The next prompt goes by what the server has counted of this one.
        ratio = count(sent(asked)) / asked.tokens
        path.turns[-1].usage = {"token_ratio": ratio, "model": "small-2026"}
        for fitted in (asked, prompt.asked(question, deps)):
            about = {"turn": question, "count": len(fitted.left_out), "first": path.turns[0]}
            whole = prompt.with_left_out(fitted, **about, passages=[("", a_text(dice, 500)) for _ in range(8)])
            tokens = count(sent(whole))
            assert tokens <= window, (window, tokens, whole.tokens)
            fullness += [tokens / window] if whole.left_out else []
    assert refused < 100 and len(fullness) > 150
    # What fits is sent: more than half of the window, with room for an answer and the results of tools.
    assert sum(fullness) / len(fullness) > 0.5


def test_what_fits_goes_whole_and_the_newest_first(path):
    for number in range(1, 301):
        path.say(f"Message {number}", f"Answer {number} " + "of a few plain words " * 20)
    asked = prompt.asked(a_turn_of("And now?"), deps_of(128_000))
    assert len(said_in(asked)) == 600 and not asked.left_out
    asked = prompt.asked(a_turn_of("And now?"), deps_of(12_000))
    said = said_in(asked)
    assert asked.made.sent == len(said) // 2 and asked.made.sent + len(asked.left_out) == 300
    assert said == [
        text for turn in path.turns[-asked.made.sent :] for text in (turn.user_message, turn.assistant_message)
    ]
    assert asked.left_out[0] == (HERE, 300 - asked.made.sent) and asked.left_out[-1] == (HERE, 1)


def test_the_turn_before_the_question_is_there_and_cut_in_its_middle_if_it_must_be(path):
    path.say("An earlier one. " * 100)
    path.say("FIRST " + "a paste of many words " * 4_000 + "LAST", "BEGIN " + "an answer " * 400 + "END")
    asked = prompt.asked(a_turn_of("What was the first word?"), deps_of(4_096))
    user, answer = said_in(asked)
    assert user.startswith("FIRST a paste") and user.endswith("LAST")
    assert answer.startswith("BEGIN an answer") and answer.endswith("END")
    assert "characters are left out here" in user
    assert asked.left_out == ((HERE, 1),)


def test_a_short_side_of_the_turn_before_stays_whole_beside_a_long_one(path):
    path.say("What is the lighthouse?", "BEGIN " + "an answer of many words " * 4_000 + "END")
    user, answer = said_in(prompt.asked(a_turn_of("Why?"), deps_of(4_096)))
    assert user == "What is the lighthouse?"
    assert tokens_of(answer) > 1_000


def test_a_continued_answer_comes_after_its_message_and_keeps_its_end(path):
    path.say("An earlier one. " * 100)
    kept = "BEGIN " + "an answer of many words " * 4_000 + "END"
    asked = prompt.asked(a_turn_of("Tell me all"), deps_of(4_096), kept=kept)
    user, answer = said_in(asked)
    assert (user, asked.message) == ("Tell me all", prompt.GO_ON)
    assert answer.startswith("BEGIN") and answer.endswith("END")
    assert (asked.made.sent, asked.left_out) == (0, ((HERE, 1),))


def test_a_message_is_refused_only_if_the_window_is_certain(path):
    question = a_turn_of("a lighthouse " * 3_000)
    with pytest.raises(ExceedsWindow):
        prompt.asked(question, deps_of(4_096))
    unknown = replace(deps_of(1), model=LanguageModel("unknown", "unknown", base_url="ftp://nowhere"))
    assert prompt.asked(a_turn_of("a lighthouse " * 9_000), unknown).message.startswith("a lighthouse")


def test_a_figure_of_another_model_or_of_a_cut_prompt_is_not_believed(path):
    path.say("Hello")
    for usage, ratio in [
        ({"model": "small", "token_ratio": 0.9}, 0.9),
        ({"model": "small", "token_ratio": 0.5}, 0.75),
        ({"model": "small", "token_ratio": 0.1}, 1),
        ({"model": "small", "token_ratio": 9}, 3),
        ({"model": "large", "token_ratio": 0.9}, 1),
        (None, 1),
    ]:
        path.turns[-1].usage = usage
        assert prompt.ratio_of(path.turns[-1], deps_of(4_096).model) == ratio


def test_tools_are_left_out_of_a_window_that_they_would_fill(path):
    small, large = (prompt.asked(a_turn_of("Hello"), deps_of(tokens)).deps for tokens in (4_096, 9_000))
    assert (small.has_tools, large.has_tools) == (False, True)
    assert "too small for the tools" in instructions(small)
    assert "too small" not in instructions(large)
    assert large.tools == described(large)


def test_a_long_message_goes_without_the_tools_rather_than_not_at_all(path):
    path.say("Hello")
    question = a_turn_of("a boat on the water " * 700)
    for is_kept in (True, False):
        asked = prompt.asked(question, deps_of(8_192))
        assert (asked.message, asked.deps.has_tools) == (question.user_message, False)
        assert said_in(asked) == (["Hello", "Noted."] if is_kept else [])
        path.turns.clear()


@pytest.mark.parametrize("length", [0, 1, 5, 100, 3_000])
def test_a_text_is_cut_in_its_middle_to_so_many_tokens(length):
    text = "The lighthouse keeper. " * 1_000 + "漢字🙂" * 500
    cut = cut_middle(text, length)
    assert tokens_of(cut) <= length
    assert length < 100 or (cut.startswith("The lighthouse") and cut.endswith("漢字🙂"))
    assert cut_middle("short", 100) == "short"
