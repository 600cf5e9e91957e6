"""Client of any endpoint for OpenAI's `/v1/embeddings`: OpenAI itself, Ollama, vLLM, Text Embeddings Inference."""

import hashlib
import re
from collections.abc import Sequence
from itertools import islice

import numpy as np
import openai
from openai.types import CreateEmbeddingResponse

from core.resilience import Endpoint, LeftAlone
from memory.backends.embedders import (
    Embedder,
    EmbedderError,
    EmbedderLeftAlone,
    EmbedderRefused,
    EmbedderSlow,
    Matrix,
    Span,
    Vector,
    normalised,
)
from memory.backends.rerankers import encodable

BATCH_SIZE = 64
# Rather an overestimate: CJK characters and marks count one by one, words in pieces of at most five letters.
_TOKEN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w{1,5}|[^\w\s]")


class OpenAICompatibleEmbedder(Embedder):
    """Requests `dimensions` numbers per text and refuses any other count.

    `max_tokens` is half of what common small models read, because the tokens here are an estimate. Time-outs are
    seconds without an answer. This class does not wait for a busy endpoint: its caller knows better when to retry.
    """

    query_timeout, document_timeout = 5.0, 30.0

    def __init__(
        self,
        *,
        base_url: str,
        model: str,
        dimensions: int,
        api_key: str = "",
        query_prefix: str = "",
        document_prefix: str = "",
        max_tokens: int = 256,
    ) -> None:
        _check_settings(base_url, model, dimensions)
        self.name = _name(model, dimensions, document_prefix)
        self.dimensions = dimensions
        self.max_tokens = max_tokens
        self._model = model
        self._query_prefix = query_prefix
        self._document_prefix = document_prefix
        self._asks_for_dimensions = True
        # Apart: an endpoint too slow for a batch of documents may well answer a query in time.
        self._queries = Endpoint("The embedding endpoint")
        self._documents = Endpoint("The embedding endpoint, for documents,")
        # The SDK's own retries obey a Retry-After of up to two minutes. Without a key the SDK would use one from the
        # environment that belongs to another service, so it gets a placeholder.
        self._client = openai.OpenAI(base_url=base_url, api_key=api_key or "none", max_retries=0)

    def embed_query(self, text: str) -> Vector:
        """See Embedder. Raises `EmbedderLeftAlone` for the time-out after which the endpoint is left alone, too."""
        try:
            vector: Vector = self._embed([self._query_prefix + text], self.query_timeout, self._queries)[0]
        except EmbedderSlow as error:
            if self._queries.is_left_alone:
                raise EmbedderLeftAlone(str(error)) from None
            raise
        return vector

    def embed_documents(self, texts: Sequence[str]) -> Matrix:
        """See Embedder."""
        prefixed = [self._document_prefix + text for text in texts]
        batches = [prefixed[start : start + BATCH_SIZE] for start in range(0, len(prefixed), BATCH_SIZE)]
        empty = np.empty((0, self.dimensions), np.float32)
        return np.concatenate(
            [empty, *(self._embed(batch, self.document_timeout, self._documents) for batch in batches)]
        )

    def token_offsets(self, text: str, at_most: int | None = None) -> list[Span]:
        """See Embedder; an estimate, because the endpoint does not publish its tokenizer."""
        return [match.span() for match in islice(_TOKEN.finditer(text), at_most)]

    def _embed(self, texts: list[str], timeout: float, endpoint: Endpoint) -> Matrix:
        try:
            with endpoint.call(openai.APITimeoutError):
                response = self._request([encodable(text) for text in texts], timeout)
            vectors = [item.embedding for item in sorted(response.data, key=lambda item: item.index)]
        except LeftAlone as error:
            raise EmbedderLeftAlone(str(error)) from None
        except openai.APITimeoutError:
            raise EmbedderSlow(f"The embedding endpoint did not answer within {timeout:g} seconds.") from None
        except openai.OpenAIError as error:
            # `from None`: the vendor's message may quote the text or the key, and would be logged with ours.
            raise _translated(error) from None
        except (AttributeError, TypeError, ValueError):
            raise EmbedderError(
                "The embedding endpoint's answer is no list of embeddings: check EMBEDDING_BASE_URL."
            ) from None
        return self._checked(vectors, len(texts))

    def _request(self, texts: list[str], timeout: float) -> CreateEmbeddingResponse:
        """A kept-alive connection that the endpoint has closed fails at once, and is worth one more attempt."""
        try:
            return self._request_sized(texts, timeout)
        except openai.APITimeoutError:
            raise
        except openai.APIConnectionError:
            return self._request_sized(texts, timeout)

    def _request_sized(self, texts: list[str], timeout: float) -> CreateEmbeddingResponse:
        """A model with a fixed size may refuse the argument; the size of the result is checked in any case."""
        if self._asks_for_dimensions:
            try:
                return self._client.embeddings.create(
                    input=texts,
                    model=self._model,
                    dimensions=self.dimensions,
                    encoding_format="float",
                    timeout=timeout,
                )
            except (openai.BadRequestError, openai.UnprocessableEntityError):
                pass
        response = self._client.embeddings.create(
            input=texts, model=self._model, encoding_format="float", timeout=timeout
        )
        self._asks_for_dimensions = False
        return response

    def _checked(self, vectors: list[list[float]], count: int) -> Matrix:
        if len(vectors) != count:
            raise EmbedderError(f"The embedding endpoint gave {len(vectors)} vectors for {count} texts.")
        sizes = {len(vector) for vector in vectors}
        if sizes != {self.dimensions}:
            raise EmbedderError(
                f"The embedding model gives {max(sizes)} dimensions and EMBEDDING_DIMENSIONS is {self.dimensions}: "
                "set it to what the model gives, or choose a model that can be asked for fewer."
            )
        matrix = np.array(vectors, dtype=np.float64)
        # A vector without a direction has no distance to any other.
        if not np.isfinite(matrix).all() or not matrix.any(axis=1).all():
            raise EmbedderRefused("The embedding endpoint gave a vector that is not a number, or all zeros.")
        return normalised(matrix)


def _check_settings(base_url: str, model: str, dimensions: int) -> None:
    if not base_url.startswith(("http://", "https://")):
        raise EmbedderError("EMBEDDING_BASE_URL must begin with http:// or https:// (and usually ends in /v1).")
    if not model:
        raise EmbedderError("EMBEDDING_MODEL is empty: name the model that EMBEDDING_BASE_URL serves.")
    # Halfvec takes two bytes per dimension.
    if not 1 <= dimensions <= 1300:
        raise EmbedderError(
            f"EMBEDDING_DIMENSIONS is {dimensions}, and 1 to 1,300 can be searched: vectors lie in an "
            "index whose entries hold at most 2,704 bytes. Ask the model for fewer (many accept 1,024 or 512), or "
            "choose a smaller one."
        )


def _name(model: str, dimensions: int, document_prefix: str) -> str:
    """Without the query's prefix: changing it does not invalidate stored vectors."""
    prefix = f"/{hashlib.sha256(document_prefix.encode()).hexdigest()[:8]}" if document_prefix else ""
    return f"{model}/{dimensions}{prefix}"


def _translated(error: openai.OpenAIError) -> EmbedderError:
    if not isinstance(error, openai.APIStatusError):
        return EmbedderError(f"The embedding endpoint cannot be reached ({type(error).__name__}).")
    status = error.status_code
    if status in {408, 409, 425, 429} or status >= 500:
        return EmbedderError(f"The embedding endpoint is busy or failing (HTTP {status}).")
    hints = {
        401: "it does not accept EMBEDDING_API_KEY",
        403: "EMBEDDING_API_KEY may not use EMBEDDING_MODEL",
        404: "EMBEDDING_MODEL is unknown there, or EMBEDDING_BASE_URL lacks its /v1",
    }
    if status in hints:
        return EmbedderError(f"The embedding endpoint refused (HTTP {status}): {hints[status]}.")
    # The error may be about one text of many, so each of them is tried separately.
    hint = "it may not know EMBEDDING_MODEL, or read shorter texts than it was given"
    return EmbedderRefused(f"The embedding endpoint refused (HTTP {status}): {hint}.")
