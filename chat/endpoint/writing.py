"""Writes an answer in each protocol: as the events of a stream, or whole."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, ClassVar

from chat.agent.context import AgentEvent, AnswerEnded, ReasoningWritten, TextWritten, ToolCalled
from chat.endpoint.inner import Asked, Data


@dataclass(eq=False)
class Block:
    """What is written in one go: a text, thoughts, or the call of a tool, whose text is its arguments."""

    kind: str
    call: ToolCalled | None = None
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Writer:
    """Writes one answer. Each protocol says which events of a stream begin it, what it writes of a block that opens,
    grows and closes, which events end it, and how it is written whole.

    `id` is that of the answer, without the protocol's prefix; `created` its time, in seconds. `has_ended` is false of
    one that broke off.
    """

    # After the last event.
    ending: ClassVar[bytes] = b""
    names_events: ClassVar[bool] = True

    def __init__(self, asked: Asked, *, id: str, created: int) -> None:
        self.asked, self.id, self.created = asked, id, created
        self.blocks: list[Block] = []
        self.ended = AnswerEnded(None, None, None, None)
        self.has_ended = False
        # Sent with the first events that are shown.
        self._begun = [*self.begin()]

    async def pieces(self, events: AsyncGenerator[AgentEvent | AnswerEnded, None]) -> AsyncIterator[bytes]:
        """Of the stream, or one JSON object. None comes before the first event that is shown."""
        async with aclosing(events):
            async for event in events:
                if isinstance(event, AnswerEnded):
                    self.ended, self.has_ended = event, True
                found = [*(self._end() if isinstance(event, AnswerEnded) else self._write(event))]
                if found and self.asked.is_streamed:
                    yield self._encoded(found)
        yield self.ending if self.asked.is_streamed else json.dumps(self.whole()).encode()

    def failed(self, problem: Data) -> bytes:
        return self._encoded([self.fail(problem)]) if self.asked.is_streamed else json.dumps(problem).encode()

    def _encoded(self, events: list[Data]) -> bytes:
        events, self._begun = [*self._begun, *events], []
        return b"".join(map(self.encode, events))

    def _write(self, event: AgentEvent) -> Iterator[Data]:
        """A block ends where one of another kind begins."""
        call = event if isinstance(event, ToolCalled) else None
        # Of its own tools; those of recall mode run here.
        if call is not None and call.name in {tool.name for tool in self.asked.tools}:
            kind, piece = "call", json.dumps(call.input, ensure_ascii=False)
        elif isinstance(event, TextWritten):
            kind, piece = "text", event.text
        elif isinstance(event, ReasoningWritten) and self.shows_thoughts:
            kind, piece = "thoughts", event.text
        else:
            return
        if call or not self.blocks or self.blocks[-1].kind != kind:
            if self.blocks:
                yield from self.close(self.blocks[-1])
            self.blocks.append(Block(kind, call))
            yield from self.open(self.blocks[-1])
        self.blocks[-1].pieces.append(piece)
        yield from self.grow(self.blocks[-1], piece)

    def _end(self) -> Iterator[Data]:
        if not self.blocks:
            # Clients expect a block.
            yield from self._write(TextWritten(""))
        yield from self.close(self.blocks[-1])
        yield from self.finish()

    @property
    def calls(self) -> list[Block]:
        return [block for block in self.blocks if block.call is not None]

    @property
    def shows_thoughts(self) -> bool:
        return True

    def begin(self) -> Iterable[Data]:
        raise NotImplementedError

    def open(self, _block: Block) -> Iterable[Data]:
        return ()

    def grow(self, block: Block, piece: str) -> Iterable[Data]:
        raise NotImplementedError

    def close(self, _block: Block) -> Iterable[Data]:
        return ()

    def finish(self) -> Iterable[Data]:
        raise NotImplementedError

    def fail(self, problem: Data) -> Data:
        return problem

    def whole(self) -> Data:
        raise NotImplementedError

    def usage(self, asked: str = "input_tokens", written: str = "output_tokens") -> dict[str, int]:
        usage = {asked: self.ended.input_tokens or 0, written: self.ended.output_tokens or 0}
        return {**usage, "total_tokens": sum(usage.values())}

    def encode(self, data: Data) -> bytes:
        """A server-sent event; JSON has no raw line breaks. A lone surrogate becomes a question mark."""
        name = f"event: {data['type']}\n" if self.names_events else ""
        body = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        return f"{name}data: {body}\n\n".encode(errors="replace")


class ChatCompletion(Writer):
    """OpenAI's Chat Completions. A call is written in one piece, and that of `functions` in their own form."""

    ending, names_events = b"data: [DONE]\n\n", False

    def begin(self) -> Iterable[Data]:
        return [self._object("chat.completion.chunk", delta={"role": "assistant", "content": ""})]

    def grow(self, block: Block, piece: str) -> Iterable[Data]:
        delta: Data = {"content" if block.kind == "text" else "reasoning_content": piece}
        if block.call is not None:
            delta = self._calls([block], index=len(self.calls) - 1)
        return [self._object("chat.completion.chunk", delta=delta)]

    def finish(self) -> Iterator[Data]:
        yield self._object("chat.completion.chunk", delta={}, finish_reason=self._reason())
        if self.asked.has_usage:
            usage = self.usage("prompt_tokens", "completion_tokens")
            yield {**self._object("chat.completion.chunk"), "choices": [], "usage": usage}

    def whole(self) -> Data:
        texts = {kind: "".join(b.text for b in self.blocks if b.kind == kind) for kind in ("text", "thoughts")}
        message: Data = {"role": "assistant", "content": texts["text"] or None, "refusal": None}
        if texts["thoughts"]:
            message["reasoning_content"] = texts["thoughts"]
        if self.calls:
            message |= self._calls(self.calls)
        whole = self._object("chat.completion", message=message, finish_reason=self._reason())
        return {**whole, "usage": self.usage("prompt_tokens", "completion_tokens")}

    def _calls(self, blocks: list[Block], **at: int) -> Data:
        found: list[Data] = [
            {**at, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": block.text}}
            for block in blocks
            if (call := block.call) is not None
        ]
        return {"function_call": found[0]["function"]} if self.asked.is_legacy else {"tool_calls": found}

    def _reason(self) -> str:
        if self.calls:
            return "function_call" if self.asked.is_legacy else "tool_calls"
        reason = self.ended.finish_reason
        return reason if reason in ("length", "content_filter") else "stop"

    def _object(self, kind: str, **choice: Any) -> Data:
        choices = [{"index": 0, "logprobs": None, "finish_reason": None, **choice}]
        about = {"id": f"chatcmpl-{self.id}", "object": kind, "created": self.created, "model": self.asked.model}
        return {**about, "choices": choices}


class AnthropicMessage(Writer):
    """Anthropic's Messages."""

    @property
    def shows_thoughts(self) -> bool:
        return bool(self.asked.settings.thinking)

    def begin(self) -> Iterable[Data]:
        return [{"type": "message_start", "message": {**self.whole(), "stop_reason": None}}]

    def open(self, block: Block) -> Iterable[Data]:
        return [{**self._at("start"), "content_block": _content(block)}]

    def grow(self, block: Block, piece: str) -> Iterable[Data]:
        names = {"text": ("text_delta", "text"), "thoughts": ("thinking_delta", "thinking")}
        kind, name = names.get(block.kind, ("input_json_delta", "partial_json"))
        return [{**self._at("delta"), "delta": {"type": kind, name: piece}}]

    def close(self, _block: Block) -> Iterable[Data]:
        return [self._at("stop")]

    def finish(self) -> Iterable[Data]:
        delta = {name: self.whole()[name] for name in ("stop_reason", "stop_sequence")}
        return [{"type": "message_delta", "delta": delta, "usage": self.usage()}, {"type": "message_stop"}]

    def whole(self) -> Data:
        reasons = {"length": "max_tokens", "content_filter": "refusal"}
        return {
            "id": f"msg_{self.id}",
            "type": "message",
            "role": "assistant",
            "model": self.asked.model,
            "content": [_content(block) for block in self.blocks],
            "stop_reason": "tool_use" if self.calls else reasons.get(self.ended.finish_reason or "", "end_turn"),
            "stop_sequence": None,
            "usage": self.usage(),
        }

    def _at(self, kind: str) -> Data:
        return {"type": f"content_block_{kind}", "index": len(self.blocks) - 1}


def _content(block: Block) -> Data:
    if block.call is not None:
        input_ = block.call.input if block.pieces else {}
        return {"type": "tool_use", "id": block.call.id, "name": block.call.name, "input": input_}
    if block.kind == "thoughts":
        return {"type": "thinking", "thinking": block.text, "signature": ""}
    return {"type": "text", "text": block.text}


class Response(Writer):
    """OpenAI's Responses. Its events repeat what is complete: each part, each item, at the end the whole response."""

    number = 0
    shows_thoughts = False

    def begin(self) -> Iterable[Data]:
        kinds = ("response.created", "response.in_progress")
        return [{"type": kind, "response": self._response("in_progress")} for kind in kinds]

    def open(self, block: Block) -> Iterator[Data]:
        at, item = self._at(block), {**self._item(block), "status": "in_progress"}
        if block.call is None:
            item["content"] = []
        yield {"type": "response.output_item.added", "output_index": at["output_index"], "item": item}
        if block.call is None:
            yield {"type": "response.content_part.added", **at, "part": _text("")}

    def grow(self, block: Block, piece: str) -> Iterable[Data]:
        if block.call is not None:
            return [{"type": "response.function_call_arguments.delta", **self._at(block), "delta": piece}]
        return [{"type": "response.output_text.delta", **self._at(block), "delta": piece, "logprobs": []}]

    def close(self, block: Block) -> Iterator[Data]:
        at, item, text = self._at(block), self._item(block), block.text
        if block.call is not None:
            about = {"name": block.call.name, "arguments": text}
            yield {"type": "response.function_call_arguments.done", **at, **about}
        else:
            yield {"type": "response.output_text.done", **at, "text": text, "logprobs": []}
            yield {"type": "response.content_part.done", **at, "part": _text(text)}
        yield {"type": "response.output_item.done", "output_index": at["output_index"], "item": item}

    def finish(self) -> Iterable[Data]:
        whole = self.whole()
        return [{"type": f"response.{whole['status']}", "response": whole}]

    def fail(self, problem: Data) -> Data:
        error = {name: problem["error"][name] for name in ("code", "message")}
        return {"type": "response.failed", "response": {**self._response("failed"), "error": error}}

    def whole(self) -> Data:
        is_cut = self.ended.finish_reason == "length"
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        return {
            **self._response("incomplete" if is_cut else "completed"),
            "output": [self._item(block) for block in self.blocks],
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "usage": {**self.usage(), **details},
        }

    def encode(self, data: Data) -> bytes:
        self.number += 1
        return super().encode({**data, "sequence_number": self.number - 1})

    def _at(self, block: Block) -> Data:
        id_ = f"msg_{self.id}" if block.call is None else f"fc_{block.call.id}"
        part = {"content_index": 0} if block.call is None else {}
        return {"item_id": id_, "output_index": len(self.blocks) - 1, **part}

    def _item(self, block: Block) -> Data:
        if (call := block.call) is not None:
            about = {"id": f"fc_{call.id}", "type": "function_call", "status": "completed"}
            return {**about, "call_id": call.id, "name": call.name, "arguments": block.text}
        about = {"id": f"msg_{self.id}", "type": "message", "role": "assistant", "status": "completed"}
        return {**about, "content": [_text(block.text)]}

    def _response(self, status: str) -> Data:
        return {
            "id": f"resp_{self.id}",
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": None,
            "model": self.asked.model,
            "output": [],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }


def _text(text: str) -> Data:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
