"""The product's own searches, called as the tools call them."""

from functools import partial

from django.utils import timezone

from core.isolation.acting import acting_as
from evals.benchmarks.search.asking import Question, Search
from intake.models import User
from memory.models.corpora import Key
from memory.search import SearchMode, search_chat_history
from memory.search.history import History, HistoryRequest, search_history

LIMIT = 10


def _chat_history(user: User, question: Question, *, mode: SearchMode, rerank: bool = False) -> list[Key]:
    with acting_as(user):
        found = search_chat_history(user=user, query=question.text, limit=LIMIT, mode=mode, rerank=rerank)
    return [(match.conversation_id, match.turn_number) for match in found.matches]


semantic = partial(_chat_history, mode=SearchMode.SEMANTIC)
hybrid = partial(_chat_history, mode=SearchMode.HYBRID)

reranked = partial(_chat_history, mode=SearchMode.HYBRID, rerank=True)


def history(user: User, question: Question) -> History:
    """Every source: memory, messages and sessions."""
    with acting_as(user):
        return search_history(HistoryRequest(query=question.text, max_results=LIMIT), user=user, now=timezone.now())


SEARCHES: dict[str, Search] = {
    "semantic_db": semantic,
    "hybrid_db": hybrid,
    "hybrid_reranked_db": reranked,
    "search_history_db": history,
}
