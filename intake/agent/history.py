"""The conversation so far as the model is given it: the latest turns that fit, oldest first."""

from collections.abc import Iterable

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

from intake.models import Turn

# About 8,000 tokens: enough to keep the thread of a conversation, little enough for small local models.
HISTORY_CHARACTERS = 32_000
HISTORY_TURNS = 50


def before(turn: Turn) -> list[ModelMessage]:
    """The messages of the turns before this one, within both limits."""
    earlier = Turn.objects.filter(conversation=turn.conversation_id, turn_number__lt=turn.turn_number)
    ended = earlier.exclude(status=Turn.Status.STREAMING).order_by("-turn_number")[:HISTORY_TURNS]
    return [message for told in reversed(list(_fitting(ended))) for message in _messages(told)]


def _fitting(newest_first: Iterable[Turn]) -> Iterable[Turn]:
    room = HISTORY_CHARACTERS
    for turn in newest_first:
        room -= len(turn.user_message) + len(turn.assistant_message)
        if room < 0:
            return
        yield turn


def _messages(turn: Turn) -> Iterable[ModelMessage]:
    yield ModelRequest(parts=[UserPromptPart(content=turn.user_message)])
    if turn.assistant_message:
        yield ModelResponse(parts=[TextPart(content=turn.assistant_message)])
