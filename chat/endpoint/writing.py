"""Writes an answer in each protocol: as the events of a stream, or whole."""

import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

from chat.agent.context import AgentEvent, AnswerEnded, ReasoningWritten, TextWritten, ToolCalled
from chat.endpoint.inner import Asked, Data

Moment = Literal["begin", "open", "grow", "close", "end"]


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
    """Writes one answer: `pieces` of a stream, or `whole`. `id` is the answer's, without the protocol's prefix.

    Each protocol says which events of its stream it writes where the answer begins, where its last block opens, grows
    by a piece, and closes, and where the answer ends.
    """

    # After the last event.
    ending: ClassVar[bytes] = b""
    names_events: ClassVar[bool] = True

    def __init__(self, asked: Asked, *, id: str) -> None:
        self.asked, self.id, self.created = asked, id, int(time.time())
        self.blocks: list[Block] = []
        self.ended, self.has_ended = AnswerEnded(None, None, None, None), False
        # Sent with the first events that are shown.
        self._begun = [*self.events("begin")]

    def events(self, moment: Moment, piece: str = "") -> Iterator[Data]:
        raise NotImplementedError

    def whole(self) -> Data:
        raise NotImplementedError

    def shows_thoughts(self) -> bool:
        return True

    def failure(self, problem: Data) -> Data:
        return problem

    async def pieces(self, events: AsyncGenerator[AgentEvent | AnswerEnded, None]) -> AsyncIterator[bytes]:
        """Of the stream, or one JSON object. None comes before the first event that is shown."""
        async with aclosing(events):
            async for event in events:
                found = [*self._write(event)]
                if found and self.asked.is_streamed:
                    yield self._encoded(found)
        yield self.ending if self.asked.is_streamed else json.dumps(self.whole()).encode()

    def failed(self, problem: Data) -> bytes:
        return self._encoded([self.failure(problem)]) if self.asked.is_streamed else json.dumps(problem).encode()

    def _encoded(self, events: list[Data]) -> bytes:
        events, self._begun = [*self._begun, *events], []
        return b"".join(map(self.encode, events))

    def encode(self, data: Data) -> bytes:
        """A server-sent event; JSON has no raw line breaks. A lone surrogate becomes a question mark."""
        name = f"event: {data['type']}\n" if self.names_events else ""
        body = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        return f"{name}data: {body}\n\n".encode(errors="replace")

    def _write(self, event: AgentEvent | AnswerEnded) -> Iterator[Data]:
        """A block ends where one of another kind begins."""
        call = event if isinstance(event, ToolCalled) else None
        if isinstance(event, AnswerEnded):
            self.ended, self.has_ended = event, True
            if not self.blocks:
                # Clients expect a block.
                yield from self._write(TextWritten(""))
            yield from self.events("close")
            yield from self.events("end")
            return
        # Of its own tools; those of recall mode run here.
        if call is not None and call.name in {tool.name for tool in self.asked.tools}:
            kind, piece = "call", json.dumps(call.input, ensure_ascii=False)
        elif isinstance(event, TextWritten):
            kind, piece = "text", event.text
        elif isinstance(event, ReasoningWritten) and self.shows_thoughts():
            kind, piece = "thoughts", event.text
        else:
            return
        if call or not self.blocks or self.blocks[-1].kind != kind:
            if self.blocks:
                yield from self.events("close")
            self.blocks.append(Block(kind, call))
            yield from self.events("open")
        self.blocks[-1].pieces.append(piece)
        yield from self.events("grow", piece)

    @property
    def calls(self) -> list[Block]:
        return [block for block in self.blocks if block.call is not None]

    def usage(self, asked: str = "input_tokens", written: str = "output_tokens") -> dict[str, int]:
        usage = {asked: self.ended.input_tokens or 0, written: self.ended.output_tokens or 0}
        return {**usage, "total_tokens": sum(usage.values())}


class ChatCompletion(Writer):
    """OpenAI's Chat Completions. A call is written in one piece, and that of `functions` in their own form."""

    ending, names_events = b"data: [DONE]\n\n", False

    def events(self, moment: Moment, piece: str = "") -> Iterator[Data]:
        chunk = partial(self._object, "chat.completion.chunk")
        match moment:
            case "begin":
                yield chunk(delta={"role": "assistant", "content": ""})
            case "grow" if self.blocks[-1].kind == "call":
                yield chunk(delta=self._calls(self.blocks[-1:], index=len(self.calls) - 1))
            case "grow":
                yield chunk(delta={"content" if self.blocks[-1].kind == "text" else "reasoning_content": piece})
            case "end":
                yield chunk(delta={}, finish_reason=self._reason())
                if self.asked.has_usage:
                    yield {**chunk(), "choices": [], "usage": self.usage("prompt_tokens", "completion_tokens")}

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

    def events(self, moment: Moment, piece: str = "") -> Iterator[Data]:
        at = {"index": len(self.blocks) - 1}
        match moment:
            case "begin":
                yield {"type": "message_start", "message": {**self.whole(), "stop_reason": None}}
            case "open":
                yield {"type": "content_block_start", **at, "content_block": _content(self.blocks[-1])}
            case "grow":
                names = {"text": ("text_delta", "text"), "thoughts": ("thinking_delta", "thinking")}
                kind, name = names.get(self.blocks[-1].kind, ("input_json_delta", "partial_json"))
                yield {"type": "content_block_delta", **at, "delta": {"type": kind, name: piece}}
            case "close":
                yield {"type": "content_block_stop", **at}
            case "end":
                whole = self.whole()
                delta = {name: whole[name] for name in ("stop_reason", "stop_sequence")}
                yield {"type": "message_delta", "delta": delta, "usage": whole["usage"]}
                yield {"type": "message_stop"}

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

    def shows_thoughts(self) -> bool:
        return bool(self.asked.settings.thinking)


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

    def events(self, moment: Moment, piece: str = "") -> Iterator[Data]:
        if moment == "begin":
            for kind in ("response.created", "response.in_progress"):
                yield {"type": kind, "response": self._response("in_progress")}
            return
        block, at = self.blocks[-1], {"output_index": len(self.blocks) - 1}
        call, inner = block.call, {"item_id": self._id(block), **at, **({} if block.call else {"content_index": 0})}
        match moment:
            case "open":
                begun = {"status": "in_progress"} if call else {"status": "in_progress", "content": []}
                yield {"type": "response.output_item.added", **at, "item": {**self._item(block), **begun}}
                if call is None:
                    yield {"type": "response.content_part.added", **inner, "part": _text("")}
            case "grow" if call is None:
                yield {"type": "response.output_text.delta", **inner, "delta": piece, "logprobs": []}
            case "grow":
                yield {"type": "response.function_call_arguments.delta", **inner, "delta": piece}
            case "close":
                text, item = block.text, self._item(block)
                if call is None:
                    yield {"type": "response.output_text.done", **inner, "text": text, "logprobs": []}
                    yield {"type": "response.content_part.done", **inner, "part": _text(text)}
                else:
                    about = {"name": call.name, "arguments": text}
                    yield {"type": "response.function_call_arguments.done", **inner, **about}
                yield {"type": "response.output_item.done", **at, "item": item}
            case "end":
                whole = self.whole()
                yield {"type": f"response.{whole['status']}", "response": whole}

    def whole(self) -> Data:
        is_cut = self.ended.finish_reason == "length"
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        return {
            **self._response("incomplete" if is_cut else "completed"),
            "output": [self._item(block) for block in self.blocks],
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "usage": {**self.usage(), **details},
        }

    def shows_thoughts(self) -> bool:
        return False

    def failure(self, problem: Data) -> Data:
        error = {name: problem["error"][name] for name in ("code", "message")}
        return {"type": "response.failed", "response": {**self._response("failed"), "error": error}}

    def encode(self, data: Data) -> bytes:
        self.number += 1
        return super().encode({**data, "sequence_number": self.number - 1})

    def _id(self, block: Block) -> str:
        return f"msg_{self.id}" if block.call is None else f"fc_{block.call.id}"

    def _item(self, block: Block) -> Data:
        about = {"id": self._id(block), "status": "completed"}
        if (call := block.call) is not None:
            called = {"call_id": call.id, "name": call.name, "arguments": block.text}
            return {**about, "type": "function_call", **called}
        return {**about, "type": "message", "role": "assistant", "content": [_text(block.text)]}

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
