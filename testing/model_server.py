"""A fake language model: a real HTTP server that speaks OpenAI's and Anthropic's streaming protocols."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route


@dataclass(frozen=True)
class Say:
    """Stream these pieces of text with this pause between them; `finish_reason` is `length` for a cut answer.

    `thoughts` are streamed first, as a thinking model's. Without any piece the stream is empty, as of a server whose
    model's window is full. `seconds_before` is the time in which the model is loaded.
    """

    pieces: tuple[str, ...]
    seconds_apart: float = 0.0
    finish_reason: str = "stop"
    thoughts: tuple[str, ...] = ()
    seconds_before: float = 0.0


@dataclass(frozen=True)
class CallTool:
    """Call a tool. The arguments arrive in two pieces, as from real models; a text is sent unchanged."""

    name: str
    arguments: dict[str, Any] | str


@dataclass(frozen=True)
class CallTools:
    """Call several tools at once. Some servers give all calls one index or one id, or repeat a name with each piece."""

    calls: tuple[CallTool, ...]
    has_one_index: bool = False
    has_one_id: bool = False
    repeats_names: bool = False


@dataclass(frozen=True)
class Refuse:
    """Answer with an HTTP error; with `in_stream`, as an event of a stream that has begun well.

    `code` is OpenAI's own name for it.
    """

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    message: str = "refused, and the key was sk-secret"
    in_stream: bool = False
    code: str | None = None


@dataclass(frozen=True)
class BreakOff:
    """Stream these pieces, then cut the connection without an end."""

    pieces: tuple[str, ...]


@dataclass(frozen=True)
class Recorded:
    """Answer with these bytes, as a server has once sent them."""

    body: str
    content_type: str = "text/event-stream"
    status: int = 200


@dataclass(frozen=True)
class Hang:
    """Accept the request and never answer."""


# The duration of each request.
TOKENS = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}

Step = Say | CallTool | CallTools | Refuse | BreakOff | Hang | Recorded


class ScriptedModel:
    """Answers each request with one step of the script.

    `requests` holds the requests, `closed_at` the times when readers left, `streaming` the number of running answers,
    and `sent` the number of text pieces sent. `names` are the models that it lists, `keys` the API keys it received.
    `row` is what it says of each besides its name, and `others` are its answers at other paths: JSON, or what makes it
    of the JSON that was sent.
    """

    def __init__(
        self,
        *script: Step,
        names: Sequence[str] = ("scripted",),
        row: dict[str, Any] | None = None,
        others: dict[str, Any] | None = None,
    ) -> None:
        self.script = list(script)
        self.requests: list[dict[str, Any]] = []
        self.closed_at: float | None = None
        self.streaming = self.sent = 0
        self.names = list(names)
        self.keys: list[str | None] = []
        routes = [
            Route("/v1/chat/completions", self._complete, methods=["POST"]),
            Route("/v1/messages", self._message, methods=["POST"]),
            Route("/v1/models", self._list),
            Route("/{path:path}", self._other, methods=["GET", "POST"]),
        ]
        self.row, self.others = row or {}, others or {}
        self.application = Starlette(routes=routes)

    def follow(self, *script: Step) -> None:
        """Use these steps from now on and reset all counters."""
        self.script, self.requests, self.closed_at = list(script), [], None

    async def _list(self, request: Request) -> Response:
        self.keys.append(request.headers.get("authorization"))
        rows = [{"id": name, "object": "model", **self.row} for name in self.names]
        return JSONResponse({"object": "list", "data": rows})

    async def _other(self, request: Request) -> Response:
        answer = self.others.get(f"/{request.path_params['path']}")
        if callable(answer):
            answer = answer(await request.json())
        return JSONResponse({}, status_code=404) if answer is None else JSONResponse(answer)

    async def _message(self, request: Request) -> Response:
        """Anthropic's protocol, for steps with text."""
        self.requests.append(await request.json())
        self.keys.append(request.headers.get("authorization"))
        step = self.script.pop(0)
        assert isinstance(step, Say)
        return StreamingResponse(_message_events(step), media_type="text/event-stream")

    async def _complete(self, request: Request) -> Response:
        self.requests.append(await request.json())
        self.keys.append(request.headers.get("authorization"))
        step = self.script.pop(0)
        match step:
            case Refuse():
                body = {"error": {"message": step.message, "type": "error", "code": step.code}}
                if step.in_stream:
                    return Response(f"data: {json.dumps(body)}\n\n", media_type="text/event-stream")
                return JSONResponse(body, status_code=step.status, headers=step.headers)
            case Hang():
                await self._until_gone(request)
                return Response()
            case Recorded():
                return Response(step.body, status_code=step.status, media_type=step.content_type)
            case _:
                return StreamingResponse(self._stream(step), media_type="text/event-stream")

    async def _until_gone(self, request: Request) -> None:
        while not await request.is_disconnected():
            await asyncio.sleep(0.02)
        self.closed_at = time.monotonic()

    async def _stream(self, step: Say | CallTool | CallTools | BreakOff) -> AsyncIterator[bytes]:
        self.streaming += 1
        try:
            match step:
                case CallTool() | CallTools():
                    calls = CallTools((step,)) if isinstance(step, CallTool) else step
                    for number in range(len(calls.calls)):
                        for delta in _call_deltas(calls, number):
                            yield chunk(delta)
                    yield chunk({}, finish_reason="tool_calls")
                case Say() | BreakOff():
                    await asyncio.sleep(step.seconds_before if isinstance(step, Say) else 0)
                    for field_of_piece, piece in _pieces(step):
                        yield chunk({"role": "assistant", field_of_piece: piece})
                        self.sent += 1
                        await asyncio.sleep(step.seconds_apart if isinstance(step, Say) else 0.05)
                    if isinstance(step, BreakOff):
                        raise ConnectionAbortedError
                    yield chunk({}, finish_reason=step.finish_reason if isinstance(step, Say) else "stop")
            yield chunk(usage=TOKENS)
            yield b"data: [DONE]\n\n"
        except asyncio.CancelledError:
            self.closed_at = time.monotonic()
            raise
        finally:
            self.streaming -= 1


class ReadingModel(ScriptedModel):
    """Keeps only the end of a prompt, as many tokens as its window has, and answers from that, as Ollama does.

    `answer` makes the answer from the kept text; `spans` are the tokens of a text, as places in it. `lengths` are those
    of the whole prompts.
    """

    def __init__(
        self,
        *,
        window: int,
        answer: Callable[[str], str],
        spans: Callable[[str], Sequence[tuple[int, int]]],
        **said: Any,
    ) -> None:
        super().__init__(**said)
        self.window, self.answer, self.spans = window, answer, spans
        self.lengths: list[int] = []

    async def _complete(self, request: Request) -> Response:
        asked = await request.json()
        self.requests.append(asked)
        messages = "\n".join(f"{each['role']}: {each.get('content') or ''}" for each in asked["messages"])
        prompt = f"{json.dumps(asked.get('tools', []), ensure_ascii=False)}\n{messages}"
        places = self.spans(prompt)
        self.lengths.append(len(places))
        kept = prompt[places[-self.window :][0][0] :] if len(places) > self.window else prompt
        counted = {"prompt_tokens": min(len(places), self.window), "completion_tokens": 20, "total_tokens": 0}
        pieces = [chunk({"role": "assistant", "content": self.answer(kept)}), chunk({}, finish_reason="stop")]
        return Response(b"".join([*pieces, chunk(usage=counted), b"data: [DONE]\n\n"]), media_type="text/event-stream")


def _pieces(step: Say | BreakOff) -> list[tuple[str, str]]:
    """The pieces, each with its field in the stream."""
    thoughts = step.thoughts if isinstance(step, Say) else ()
    return [*(("reasoning_content", piece) for piece in thoughts), *(("content", piece) for piece in step.pieces)]


def _call_deltas(calls: CallTools, number: int) -> list[dict[str, Any]]:
    """The ids are the same in every answer, as on some servers."""
    call, index = calls.calls[number], 0 if calls.has_one_index else number
    id_ = "call_1" if calls.has_one_id else f"call_{number + 1}"
    again = {"name": call.name} if calls.repeats_names else {}
    arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
    half = len(arguments) // 2
    begun = {
        "index": index,
        "id": id_,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments[:half]},
    }
    return [
        {"role": "assistant", "tool_calls": [begun]},
        {"tool_calls": [{"index": index, "function": {**again, "arguments": arguments[half:]}}]},
    ]


async def _message_events(step: Say) -> AsyncIterator[bytes]:
    usage = {"input_tokens": TOKENS["prompt_tokens"], "output_tokens": TOKENS["completion_tokens"]}
    start = {"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": [], "usage": usage}
    yield _named_event("message_start", message={**start, "stop_reason": None, "stop_sequence": None})
    blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    if step.thoughts:
        deltas = [{"type": "thinking_delta", "thinking": thought} for thought in step.thoughts]
        signed = [*deltas, {"type": "signature_delta", "signature": "signed"}]
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, signed))
    blocks.append(({"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in step.pieces]))
    for index, (block, deltas) in enumerate(blocks):
        yield _named_event("content_block_start", index=index, content_block=block)
        for delta in deltas:
            yield _named_event("content_block_delta", index=index, delta=delta)
            await asyncio.sleep(step.seconds_apart)
        yield _named_event("content_block_stop", index=index)
    yield _named_event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage=usage)
    yield _named_event("message_stop")


def _named_event(name: str, **data: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode()


def chunk(
    delta: dict[str, Any] | None = None, *, finish_reason: str | None = None, usage: dict[str, int] | None = None
) -> bytes:
    """One event of OpenAI's stream. The one with the usage has no choices."""
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "scripted",
        "choices": [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish_reason}],
        "usage": usage,
    }
    return f"data: {json.dumps(body)}\n\n".encode()
