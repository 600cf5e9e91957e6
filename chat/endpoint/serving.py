"""Serves the requests of the endpoint: reads them, answers as a stream or whole, and says failures in their form."""

import asyncio
import base64
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from functools import partial
from typing import Any

import numpy as np
from asgiref.sync import sync_to_async
from django.db import connections
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from pydantic import ValidationError

from chat.answers.database import aside
from chat.answers.reader import THROWN_OUT
from chat.answers.writer import shown
from chat.endpoint.answering import Event, ModelNotFound, Opened, admit, begin, names, recall, start
from chat.endpoint.inner import Asked, read
from chat.endpoint.writing import AnthropicMessage, ChatCompletion, Response, Writer
from core.errors import AuthenticationRequired, InvalidInput
from core.event_streams import KEEP_ALIVE
from core.gate import leave
from core.ids import uuid7
from core.isolation.acting import acting_as
from core.responses import event_stream, vendor_problem
from core.text import pg_value
from core.validation import by_field, parse_json
from intake.llm.language_models import ask_servers
from intake.revocation import IsAuthorized, TokenCheck, while_authorized
from memory.backends.embedders import get_embedder

NOT_READ = "This request cannot be read: {reason}."
MOST_EMBEDDED = 2_048


def read_body(request: HttpRequest) -> Asked:
    """Raises `InvalidInput`, with what is missing or of another type."""
    # Not `request.body`, whose limit is that of forms; `config/bodies.py` has bounded it.
    body = parse_json(request.read())
    if _is_deeper(body, 100):
        raise InvalidInput(NOT_READ.format(reason="it is nested too deeply"))
    try:
        return Asked.model_validate(read(pg_value(body)))
    except ValidationError as error:
        reason = "; ".join(f"{field}: {said[0]}" for field, said in by_field(error).items())
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"{type(error).__name__} {error}"[:200]
    raise InvalidInput(NOT_READ.format(reason=reason))


def _is_deeper(value: Any, depth: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return not depth or any(_is_deeper(each, depth - 1) for each in inner if isinstance(each, dict | list))


async def _answer(request: HttpRequest, *, writer: type[Writer]) -> HttpResponseBase:
    # In a task of its own: a client who disconnects at this moment must not leave a turn without an answer.
    opened, sources, events = await asyncio.shield(asyncio.create_task(_open(request)))
    await sync_to_async(connections.close_all)()
    leave.get()()
    id_ = str(opened.kept.turn.pk) if opened.kept else uuid7().hex
    pieces = _pieces(writer(opened.asked, id=id_), events, TokenCheck(opened.program.token))
    # A failure until now is a status.
    response = event_stream(_joined(await anext(pieces), pieces), opened.lease)
    if not opened.asked.is_streamed:
        response["Content-Type"] = "application/json"
    response["X-Recollect-Sources"] = str(sources)
    if opened.kept is None:
        response["X-Recollect-Kept"] = "no"
    else:
        response["X-Recollect-Conversation"] = str(opened.kept.turn.conversation_id)
    return response


chat_completions = partial(_answer, writer=ChatCompletion)
responses = partial(_answer, writer=Response)
messages = partial(_answer, writer=AnthropicMessage)


async def _open(request: HttpRequest) -> tuple[Opened, int, AsyncGenerator[Event, None]]:
    def work() -> Opened:
        program = admit(request)
        return begin(request, read_body(request), program)

    # Its connection is returned before the model is asked.
    opened = await aside(work)
    memory, sources = await recall(opened)
    return opened, sources, start(opened, memory)


async def _pieces(
    writing: Writer, events: AsyncGenerator[Event, None], is_authorized: IsAuthorized
) -> AsyncGenerator[bytes, None]:
    """Of the response. Raises what fails before the first one; white space before a JSON object changes nothing."""
    keep_alive, has_begun = (8, KEEP_ALIVE if writing.asked.is_streamed else b"\n"), False
    try:
        async with aclosing(while_authorized(writing.pieces(events), is_authorized, keep_alive=keep_alive)) as pieces:
            async for piece in pieces:
                has_begun = True
                yield piece
        if not writing.has_ended:
            raise AuthenticationRequired(THROWN_OUT)
    except Exception as error:
        if not has_begun:
            raise shown(error) from error
        yield writing.failed(vendor_problem(shown(error))[0])


async def _joined(first: bytes, pieces: AsyncGenerator[bytes, None]) -> AsyncIterator[bytes]:
    async with aclosing(pieces):
        yield first
        async for piece in pieces:
            yield piece


async def list_models(request: HttpRequest, name: str = "") -> HttpResponse:
    """In a form that both vendors' clients read."""

    def work() -> list[str]:
        program = admit(request, limit="api")
        ask_servers()
        with acting_as(program.caller):
            return names(program.caller)

    known = await aside(work)
    about = {"object": "model", "created": 0, "owned_by": "recollect", "type": "model"}
    rows = [{"id": each, "display_name": each, "created_at": "1970-01-01T00:00:00Z", **about} for each in known]
    if name:
        if name not in known:
            raise ModelNotFound(name, known)
        return JsonResponse(rows[known.index(name)])
    ends = {"has_more": False, "first_id": known[0], "last_id": known[-1]}
    return JsonResponse({"object": "list", "data": rows, **ends})


async def count_tokens(request: HttpRequest) -> HttpResponse:
    await aside(admit, request, limit="api")
    return JsonResponse({"input_tokens": await asyncio.to_thread(lambda: read_body(request).count())})


async def embed(request: HttpRequest) -> HttpResponse:
    """By the model of the index, in the form that was asked for: numbers, or little-endian float32 in base64."""
    await aside(admit, request, limit="api")
    body, embedder = parse_json(request.read()), get_embedder()
    if not isinstance(body, dict) or body.get("model") not in (embedder.name, "recollect"):
        raise ModelNotFound(str(body.get("model")) if isinstance(body, dict) else "", [embedder.name, "recollect"])
    texts = [body["input"]] if isinstance(body.get("input"), str) else body.get("input")
    if not isinstance(texts, list) or not 0 < len(texts) <= MOST_EMBEDDED:
        raise InvalidInput(f"`input` is a text, or a list of 1 to {MOST_EMBEDDED:,} texts.")
    if not all(isinstance(text, str) for text in texts):
        raise InvalidInput("Send texts: this server reads no token ids.")
    vectors = np.asarray(await asyncio.to_thread(embedder.embed_documents, texts), dtype="<f4")
    is_text = body.get("encoding_format") == "base64"
    packed = [base64.b64encode(vector.tobytes()).decode() if is_text else vector.tolist() for vector in vectors]
    data = [{"object": "embedding", "index": number, "embedding": each} for number, each in enumerate(packed)]
    usage = dict.fromkeys(("prompt_tokens", "total_tokens"), sum(len(text) // 4 + 1 for text in texts))
    return JsonResponse({"object": "list", "data": data, "model": embedder.name, "usage": usage})
