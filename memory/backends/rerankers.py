"""Rerankers, models that read the query and a text together: their interface, the configured one, and the client of an
endpoint. An installation may have none.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import inf, log
from typing import Any

from django.conf import settings

from core.resilience import Endpoint, LeftAlone
from memory.backends.configured import configured


class RerankerError(Exception):
    """No scores could be computed. The message is for people: it never contains a user's text or a key."""


class Reranker(ABC):
    """One instance serves all threads of a process."""

    name: str
    reads_english_alone: bool = False
    """Its scores of a query in another language say nothing, so it is not asked."""

    @abstractmethod
    def scores(self, query: str, texts: Sequence[str], *, seconds: float) -> list[float]:
        """Return how well each text answers the query, as log odds: 0 is as likely as not.

        When the time is up it returns only the scores of the first texts, possibly none. Raise a RerankerError.
        """


def get_reranker() -> Reranker | None:
    """Return the reranker that `settings.RERANKER` names, if any. Raise RerankerError if it is invalid."""
    reranker: Reranker | None = configured("RERANKER", Reranker, RerankerError) if settings.RERANKER else None
    return reranker


# A probability of 0 or 1 has no log odds; this distance from them is enough.
SURE = 1e-5


class RerankEndpoint(Reranker):
    """`base_url` is the part before `/rerank`. No text is too long: endpoints cut it."""

    def __init__(self, *, base_url: str, api_key: str = "", model: str = "") -> None:
        if not base_url.startswith(("http://", "https://")):
            raise RerankerError("RERANKER_BASE_URL must begin with http:// or https://.")
        self.name = model or "rerank"
        self._endpoint = Endpoint("The rerank endpoint")
        self._model = model
        # Text Embeddings Inference calls the documents `texts`, and refuses the other name.
        self._field = "documents"
        # Imported here: it takes half of the time in which Django starts, and few installations have an endpoint.
        import openai

        self._openai = openai
        # One attempt: the user is waiting and has results already. See the embedding endpoint for the key.
        self._client = openai.OpenAI(base_url=base_url, api_key=api_key or "none", max_retries=0)

    def scores(self, query: str, texts: Sequence[str], *, seconds: float) -> list[float]:
        """See Reranker: the endpoint's answer covers all texts, or arrives too late for any."""
        if not texts:
            return []
        try:
            with self._endpoint.call(self._openai.APITimeoutError):
                answer = self._ask(query, texts, seconds)
        except LeftAlone as error:
            raise RerankerError(str(error)) from None
        except self._openai.APITimeoutError:
            return []
        except self._openai.OpenAIError as error:
            # `from None`: the vendor's message may quote the text or the key, and would be logged with ours.
            raise RerankerError(f"The rerank endpoint failed ({type(error).__name__}).") from None
        return _log_odds(_read(answer, len(texts)))

    def _ask(self, query: str, texts: Sequence[str], seconds: float) -> Any:
        body = {"query": encodable(query), self._field: [encodable(text) for text in texts]}
        if self._model:
            body["model"] = self._model
        try:
            return self._client.post("/rerank", cast_to=object, body=body, options={"timeout": seconds})
        except self._openai.UnprocessableEntityError:
            if self._field == "texts":
                raise
            self._field = "texts"
            return self._ask(query, texts, seconds)


def _read(answer: Any, count: int) -> list[float]:
    """The scores in the order of the texts: `{results: [{index, relevance_score}]}`, or the list alone with `score`."""
    rows: Any = answer.get("results") if isinstance(answer, dict) else answer
    try:
        scores = {int(row["index"]): float(row.get("relevance_score", row.get("score"))) for row in rows}
        return [scores[index] for index in range(count)]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise RerankerError("The rerank endpoint's answer is no list of scores: check RERANKER_BASE_URL.") from None


def _log_odds(scores: list[float]) -> list[float]:
    """Most endpoints return probabilities; scores outside 0 to 1 are the model's own, which are log odds already."""
    if not all(0 <= score <= 1 for score in scores):
        return [max(-1 / SURE, min(1 / SURE, score)) if -inf < score < inf else -1 / SURE for score in scores]
    sure = [min(1 - SURE, max(SURE, score)) for score in scores]
    return [log(score / (1 - score)) for score in sure]


def encodable(text: str) -> str:
    """Half of a surrogate pair, which can reach a str through JSON, becomes a question mark."""
    return text.encode("utf-8", "replace").decode("utf-8")
