"""The log of an answer and its ways to readers: however it is cut, everybody gets everything exactly once."""

import asyncio
import random

import pytest

from chat.agent.context import TextWritten, ToolCalled, ToolReturned
from chat.answers.log import COMPACTED_FROM, AnswerLog, Ending, EventId
from chat.answers.reader import read
from intake.models import Turn
from testing.sse_client import read_events

LETTERS = "abcdefghij 🙂é\n"


def a_log():
    return AnswerLog(Turn(pk=1, turn_number=1, attempt=3))


def some_events(chance, count):
    for number in range(count):
        if chance.random() < 0.1:
            yield (call := ToolCalled(f"c{number}", "search", {"n": number}))
            yield ToolReturned(call, "Found it", stored="x", place={"at": 1})
        else:
            yield TextWritten("".join(chance.choices(LETTERS, k=chance.randint(1, 9))))


def flat(events):
    """Each character and each other event by itself, and so independent of how text is cut."""
    return [part for event in events for part in (event.text if isinstance(event, TextWritten) else [event])]


@pytest.mark.parametrize("seed", range(30))
def test_a_reader_who_goes_on_from_any_position_gets_everything_exactly_once(seed):
    chance = random.Random(seed)
    events = list(some_events(chance, chance.randint(1, 3 * COMPACTED_FROM)))
    log, heard, position = a_log(), [], 0
    for event in events:
        log.add(event)
        if chance.random() < 0.05:
            told = log.since(position)
            # Some of what was on its way is lost with the line: the reader goes on from the last they had.
            told = told[: chance.randint(0, len(told))]
            heard += [event for _, event in told]
            position = told[-1][0] if told else position
    heard += [event for _, event in log.since(position)]
    assert flat(heard) == flat(events)
    assert log.position == len(flat(events))
    cut = chance.randint(0, log.position)
    assert flat(event for _, event in log.since(cut)) == flat(events)[cut:]


@pytest.mark.parametrize("text", ["", "1", "0-1", "1-", "-1", "1-x", "1-1-1", "x" * 1000, "9" * 40 + "-1", "²-1"])
def test_what_is_no_id_of_ours_begins_at_the_beginning(text):
    assert EventId.parse(text) is None


async def write(log, words):
    for number, word in enumerate(words):
        log.add(TextWritten(word))
        if number % 5 == 0:
            await asyncio.sleep(0)
    log.finish(Ending("done", {}))


async def follow(log, chance):
    """The text that a client puts together whose line breaks again and again."""
    text, after = "", None
    while True:
        async for chunk in read(log, after=after):
            for event in read_events(chunk.decode().split("\n")):
                text += event.data.get("text", "")
                after = EventId.parse(event.id).position
                if event.name == "done":
                    return text
            if chance.random() < 0.2:
                break


@pytest.mark.extended
async def test_a_hundred_answers_with_ten_readers_each_who_come_and_go_mix_nothing_up_and_lose_nothing():
    logs = [a_log() for _ in range(100)]
    words = [[f"{number}.{n} " for n in range(200)] for number in range(100)]
    async with asyncio.TaskGroup() as group:
        readers = [
            (number, group.create_task(follow(log, random.Random(reader))))
            for number, log in enumerate(logs)
            for reader in range(10)
        ]
        for log, each in zip(logs, words, strict=True):
            group.create_task(write(log, each))
    for number, reader in readers:
        assert reader.result() == "".join(words[number])


async def test_a_reader_with_a_position_that_is_none_here_begins_at_the_beginning():
    log = a_log()
    log.add(TextWritten("Hello"))
    log.finish(Ending("done", {}))
    chunks = [chunk async for chunk in read(log, after=50)]
    assert chunks[0].startswith(b"event: turn\nid: 3-0\n")
    assert [chunk async for chunk in read(log, after=6)] == [b"event: done\nid: 3-6\ndata: {}\n\n"]


async def test_a_log_keeps_its_text_and_little_else_however_many_pieces_it_came_in():
    log = a_log()
    for _ in range(100_000):
        log.add(TextWritten("word "))
    assert log.position == 500_000
    assert len(log.since(0, most_apart=10**6)) < COMPACTED_FROM
