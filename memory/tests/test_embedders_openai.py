"""Against a real endpoint on this machine, which misbehaves when told to."""

import asyncio
import socket
import time

import numpy as np
import pytest
from starlette.responses import JSONResponse, PlainTextResponse

from memory.backends.embedders import EmbedderError, EmbedderRefused, FakeEmbedder
from memory.backends.openai_compatible import BATCH_SIZE, OpenAICompatibleEmbedder
from memory.tests.served import ServedEndpoint

KEY = "sk-a-secret-key"
TEXT = "a private sentence about Lisbon"


class Endpoint(ServedEndpoint):
    """Embeds with the fake model; `answer`, when set, is asked first and may answer instead."""

    def __init__(self):
        super().__init__("/v1/embeddings", self.embed)
        self.requests = []
        self.keys = []
        self.answer = None

    async def embed(self, request):
        body = await request.json()
        self.requests.append(body)
        self.keys.append(request.headers.get("authorization"))
        special = self.answer and self.answer(body)
        if asyncio.iscoroutine(special):
            special = await special
        return special or JSONResponse(embeddings_of(body))


def embeddings_of(body, dimensions=None):
    # Three times too long and in reverse order: the client has to put both right.
    vectors = 3 * FakeEmbedder(dimensions=dimensions or body["dimensions"]).embed_documents(body["input"])
    data = [{"object": "embedding", "index": i, "embedding": vector.tolist()} for i, vector in enumerate(vectors)]
    return {
        "object": "list",
        "model": body["model"],
        "data": data[::-1],
        "usage": {"prompt_tokens": 1, "total_tokens": 1},
    }


@pytest.fixture(scope="module")
def server():
    endpoint = Endpoint()
    endpoint.start()
    yield endpoint
    endpoint.stop()


@pytest.fixture
def endpoint(server):
    server.answer = None
    server.requests.clear()
    server.keys.clear()
    return server


def embedder_at(endpoint, **options):
    defaults = {"base_url": endpoint.url, "api_key": KEY, "model": "tiny", "dimensions": 16}
    return OpenAICompatibleEmbedder(**{**defaults, **options})


def status(code, **headers):
    return lambda _body: JSONResponse({"error": {"message": f"{KEY} {TEXT}"}}, status_code=code, headers=headers)


def test_query_comes_back_normalised_in_the_size_asked_for(endpoint):
    vector = embedder_at(endpoint).embed_query(TEXT)

    assert vector.shape == (16,)
    assert vector.dtype == np.float32
    assert np.linalg.norm(vector) == pytest.approx(1.0, abs=1e-6)
    assert endpoint.requests == [{"input": [TEXT], "model": "tiny", "dimensions": 16, "encoding_format": "float"}]
    assert endpoint.keys == [f"Bearer {KEY}"]


def test_documents_keep_their_order_over_several_requests(endpoint):
    texts = [f"text {number}" for number in range(2 * BATCH_SIZE + 1)]

    vectors = embedder_at(endpoint).embed_documents(texts)

    assert vectors == pytest.approx(FakeEmbedder(dimensions=16).embed_documents(texts), abs=1e-5)
    assert [len(request["input"]) for request in endpoint.requests] == [BATCH_SIZE, BATCH_SIZE, 1]


def test_no_documents_ask_nothing(endpoint):
    assert embedder_at(endpoint).embed_documents([]).shape == (0, 16)
    assert endpoint.requests == []


def test_queries_and_documents_have_prefixes_of_their_own(endpoint):
    embedder = embedder_at(endpoint, query_prefix="query: ", document_prefix="passage: ")
    embedder.embed_query("a")
    embedder.embed_documents(["b"])

    assert [request["input"] for request in endpoint.requests] == [["query: a"], ["passage: b"]]


def test_name_tells_apart_whatever_makes_other_vectors(endpoint):
    plain = embedder_at(endpoint)
    others = [
        embedder_at(endpoint, **{key: value}).name
        for key, value in [("model", "big"), ("dimensions", 8), ("document_prefix", "passage: ")]
    ]

    assert len({plain.name, *others}) == 4
    assert embedder_at(endpoint, query_prefix="query: ").name == plain.name


def test_endpoint_without_a_key_is_not_given_somebody_elses(endpoint, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-for-somebody-else")
    embedder_at(endpoint, api_key="").embed_query(TEXT)

    assert endpoint.keys == ["Bearer none"]


def test_model_of_one_size_may_refuse_to_be_asked_for_it(endpoint):
    def refuse_dimensions(body):
        if "dimensions" in body:
            return JSONResponse({"error": {"message": "no matryoshka"}}, status_code=400)
        return JSONResponse(embeddings_of(body, dimensions=16))

    endpoint.answer = refuse_dimensions
    embedder = embedder_at(endpoint)
    embedder.embed_query("a")
    embedder.embed_query("b")

    assert ["dimensions" in request for request in endpoint.requests] == [True, False, False]


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503])
def test_busy_or_failing_endpoint_is_unavailable(endpoint, code):
    endpoint.answer = status(code, **{"Retry-After": "100"})

    started = time.monotonic()
    with pytest.raises(EmbedderError, match=str(code)):
        embedder_at(endpoint).embed_query(TEXT)
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    ("code", "named"),
    [(401, "EMBEDDING_API_KEY"), (403, "EMBEDDING_API_KEY"), (404, "EMBEDDING_BASE_URL")],
)
def test_refusal_names_the_setting_to_look_at(endpoint, code, named):
    endpoint.answer = status(code)

    with pytest.raises(EmbedderError, match=named):
        embedder_at(endpoint).embed_query(TEXT)


@pytest.mark.parametrize("code", [400, 413, 422])
def test_refusal_that_may_be_about_one_text_says_so_by_its_kind(endpoint, code):
    endpoint.answer = status(code)

    with pytest.raises(EmbedderRefused, match="EMBEDDING_MODEL"):
        embedder_at(endpoint).embed_query(TEXT)


@pytest.mark.parametrize("code", [400, 401, 429, 500])
def test_error_carries_neither_text_nor_key(endpoint, code):
    endpoint.answer = status(code)

    with pytest.raises(EmbedderError) as caught:
        embedder_at(endpoint).embed_query(TEXT)

    error = caught.value
    assert error.__cause__ is None
    assert error.__suppress_context__
    assert KEY not in str(error)
    assert TEXT not in str(error)


def test_endpoint_that_hangs_is_given_up(endpoint):
    async def hang():
        await asyncio.sleep(2)

    endpoint.answer = lambda _body: hang()

    embedder = embedder_at(endpoint)
    embedder.query_timeout = 0.2
    started = time.monotonic()
    with pytest.raises(EmbedderError, match="did not answer within"):
        embedder.embed_query(TEXT)
    assert time.monotonic() - started < 1.5


def test_endpoint_that_is_not_there_is_unavailable():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    with pytest.raises(EmbedderError, match="cannot be reached"):
        OpenAICompatibleEmbedder(base_url=f"http://127.0.0.1:{port}/v1", model="tiny", dimensions=16).embed_query(TEXT)


def test_other_size_than_asked_for_is_a_matter_of_settings(endpoint):
    endpoint.answer = lambda body: JSONResponse(embeddings_of(body, dimensions=24))

    with pytest.raises(EmbedderError, match="24 dimensions and EMBEDDING_DIMENSIONS is 16"):
        embedder_at(endpoint).embed_query(TEXT)


def test_missing_vector_is_not_made_up_for(endpoint):
    endpoint.answer = lambda body: JSONResponse({**embeddings_of(body), "data": embeddings_of(body)["data"][1:]})

    with pytest.raises(EmbedderError, match="1 vectors for 2 texts"):
        embedder_at(endpoint).embed_documents(["a", "b"])


@pytest.mark.parametrize("number", ["NaN", "Infinity", "0.0"])
def test_vector_without_a_direction_is_not_stored(endpoint, number):
    def answer(body):
        item = f'{{"object": "embedding", "index": 0, "embedding": [{", ".join([number] * 16)}]}}'
        usage = '{"prompt_tokens": 1, "total_tokens": 1}'
        text = f'{{"object": "list", "model": "tiny", "data": [{item}], "usage": {usage}}}'
        return PlainTextResponse(text, media_type="application/json")

    endpoint.answer = answer

    with pytest.raises(EmbedderRefused, match="not a number"):
        embedder_at(endpoint).embed_query(TEXT)


@pytest.mark.parametrize(
    "answer",
    [
        PlainTextResponse("<html>Welcome to the router</html>", media_type="text/html"),
        PlainTextResponse("not json", media_type="application/json"),
        JSONResponse({"hello": "world"}),
        JSONResponse([]),
        JSONResponse({"object": "list", "data": [{"index": 0, "embedding": "words"}]}),
        JSONResponse({"object": "list", "data": [{"index": 0, "embedding": ["a", "b"]}]}),
    ],
)
def test_answer_of_another_kind_is_a_matter_of_settings(endpoint, answer):
    endpoint.answer = lambda _body: answer

    with pytest.raises(EmbedderError):
        embedder_at(endpoint).embed_query(TEXT)


@pytest.mark.parametrize("text", ["\x00", "half a pair \ud83d", "😀", ""])
def test_any_text_can_be_sent(endpoint, text):
    assert embedder_at(endpoint).embed_query(text).shape == (16,)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"dimensions": 3072}, "at most 2,704 bytes"),
        ({"dimensions": 0}, "EMBEDDING_DIMENSIONS"),
        ({"base_url": "localhost:11434/v1"}, "EMBEDDING_BASE_URL"),
        ({"model": ""}, "EMBEDDING_MODEL"),
    ],
)
def test_impossible_settings_are_refused_before_anything_is_asked(endpoint, options, named):
    with pytest.raises(EmbedderError, match=named):
        embedder_at(endpoint, **options)


def test_tokens_are_estimated_on_the_safe_side(endpoint):
    embedder = embedder_at(endpoint)

    assert len(embedder.token_offsets("word " * 100)) == 100
    assert len(embedder.token_offsets("漢字かな")) == 4
    assert len(embedder.token_offsets("x" * 32_000)) == 6_400
