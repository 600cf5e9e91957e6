"""The product's own searches, called as the tools call them, and the saving of a turn that they lean on."""

import time
from collections.abc import Callable, Sequence
from functools import partial

from django.utils import timezone

from core.isolation.acting import acting_as
from core.isolation.caller import Caller
from evals import synthetic
from evals.benchmarks.search.questions import Question
from evals.benchmarks.search.stored import Key
from evals.benchmarks.search.timing import Timing, figures
from intake.models import Conversation, User
from intake.services import save_exchange
from memory.search import SearchMode, search_chat_history
from memory.search.history import History, HistoryRequest, search_history

LIMIT = 10
# Saved before the clock runs: a process that serves has cut most words before, and remembers how.
WARM_UP_SAVES = 500

Search = Callable[[User, Question], object]


def _chat_history(user: User, question: Question, *, mode: SearchMode) -> list[Key]:
    with acting_as(user):
        found = search_chat_history(user=user, query=question.text, limit=LIMIT, mode=mode)
    return [(match.conversation_id, match.turn_number) for match in found.matches]


semantic = partial(_chat_history, mode=SearchMode.SEMANTIC)
hybrid = partial(_chat_history, mode=SearchMode.HYBRID)


def history(user: User, question: Question) -> History:
    """Every source: memory, messages and sessions."""
    with acting_as(user):
        return search_history(HistoryRequest(query=question.text, max_results=LIMIT), user=user, now=timezone.now())


SEARCHES: dict[str, Search] = {"semantic_db": semantic, "hybrid_db": hybrid, "search_history_db": history}


def time_saving(users: Sequence[User], *, count: int) -> Timing:
    """Save turns one by one into histories that are there, as the chat does, with words and rows that wait.

    Warm, as the searches are.
    """
    conversations = [_latest_conversation(user) for user in users]
    milliseconds = []
    # All made up beforehand: that takes as long as a save, and would leave the processor's caches full of it.
    for number, said in enumerate(list(synthetic.turns(WARM_UP_SAVES + count, seed=1))):
        conversation = conversations[number % len(conversations)]
        begun = time.perf_counter()
        with acting_as(Caller(user_id=conversation.user_id)):
            save_exchange(
                conversation=conversation,
                user_message=said.user_message,
                assistant_message=said.assistant_message,
                said_at=timezone.now(),
            )
        milliseconds.append(1000 * (time.perf_counter() - begun))
    return figures(milliseconds[WARM_UP_SAVES:])


def _latest_conversation(user: User) -> Conversation:
    with acting_as(user):
        return Conversation.objects.for_user(user).newest_first()[0]
