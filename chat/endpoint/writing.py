"""Writes an answer in each protocol: as the events of a stream, or whole."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar

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
    """Writes one answer by `begin`, `write`, and `end` or `fail`, which return the events of a stream; then `whole` is
    the answer as one object. Each protocol says what it writes of a block that opens, grows and closes.

    `id` is that of the answer, without the protocol's prefix; `created` its time, in seconds.
    """

    keep_alive: ClassVar[bytes] = b": waiting\n\n"
    # After the last event.
    ending: ClassVar[bytes] = b""
    names_events: ClassVar[bool] = True

    def __init__(self, asked: Asked, *, id: str, created: int) -> None:
        self.asked, self.id, self.created = asked, id, created
        self.blocks: list[Block] = []

    @property
    def calls(self) -> list[Block]:
        return [block for block in self.blocks if block.call is not None]

    def begin(self) -> Iterable[Data]:
        raise NotImplementedError

    def write(self, event: AgentEvent) -> Iterator[Data]:
        """A block ends where one of another kind begins."""
        call = event if isinstance(event, ToolCalled) else None
        if call is not None:
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

    def end(self, ended: AnswerEnded) -> Iterator[Data]:
        if not self.blocks:
            # Clients expect a block.
            yield from self.write(TextWritten(""))
        yield from self.close(self.blocks[-1])
        yield from self.finish(ended)

    @property
    def shows_thoughts(self) -> bool:
        return True

    def open(self, _block: Block) -> Iterable[Data]:
        return ()

    def grow(self, block: Block, piece: str) -> Iterable[Data]:
        raise NotImplementedError

    def close(self, _block: Block) -> Iterable[Data]:
        return ()

    def finish(self, ended: AnswerEnded) -> Iterable[Data]:
        raise NotImplementedError

    def fail(self, problem: Data) -> Data:
        return problem

    def whole(self, ended: AnswerEnded) -> Data:
        raise NotImplementedError

    def encode(self, data: Data) -> bytes:
        """A server-sent event; JSON has no raw line breaks. A lone surrogate becomes a question mark."""
        name = f"event: {data['type']}\n" if self.names_events else ""
        body = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        return f"{name}data: {body}\n\n".encode(errors="replace")


def _usage(ended: AnswerEnded, asked: str = "input_tokens", written: str = "output_tokens") -> dict[str, int]:
    usage = {asked: ended.input_tokens or 0, written: ended.output_tokens or 0}
    return {**usage, "total_tokens": sum(usage.values())}


class ChatCompletion(Writer):
    """OpenAI's Chat Completions. A call is written in one piece, and that of `functions` in their own form."""

    ending, names_events = b"data: [DONE]\n\n", False

    def begin(self) -> Iterable[Data]:
        return [self._chunk({"role": "assistant", "content": ""})]

    def grow(self, block: Block, piece: str) -> Iterable[Data]:
        if block.call is not None:
            return [self._chunk(self._calls([block], index=len(self.calls) - 1))]
        return [self._chunk({"content" if block.kind == "text" else "reasoning_content": piece})]

    def finish(self, ended: AnswerEnded) -> Iterator[Data]:
        yield self._chunk({}, reason=self._reason(ended))
        if self.asked.has_usage:
            usage = _usage(ended, "prompt_tokens", "completion_tokens")
            yield {**self._head("chat.completion.chunk"), "choices": [], "usage": usage}

    def whole(self, ended: AnswerEnded) -> Data:
        texts = {kind: "".join(b.text for b in self.blocks if b.kind == kind) for kind in ("text", "thoughts")}
        message: Data = {"role": "assistant", "content": texts["text"] or None, "refusal": None}
        if texts["thoughts"]:
            message["reasoning_content"] = texts["thoughts"]
        if self.calls:
            message |= self._calls(self.calls)
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._reason(ended)}
        usage = _usage(ended, "prompt_tokens", "completion_tokens")
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage}

    def _calls(self, blocks: list[Block], **at: int) -> Data:
        found: list[Data] = [
            {**at, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": block.text}}
            for block in blocks
            if (call := block.call) is not None
        ]
        return {"function_call": found[0]["function"]} if self.asked.is_legacy else {"tool_calls": found}

    def _reason(self, ended: AnswerEnded) -> str:
        if self.calls:
            return "function_call" if self.asked.is_legacy else "tool_calls"
        return ended.finish_reason if ended.finish_reason in ("length", "content_filter") else "stop"

    def _chunk(self, delta: Data, *, reason: str | None = None) -> Data:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def _head(self, kind: str) -> Data:
        return {"id": f"chatcmpl-{self.id}", "object": kind, "created": self.created, "model": self.asked.model}


class AnthropicMessage(Writer):
    """Anthropic's Messages."""

    keep_alive = b'event: ping\ndata: {"type":"ping"}\n\n'

    @property
    def shows_thoughts(self) -> bool:
        return bool(self.asked.settings.thinking)

    def begin(self) -> Iterable[Data]:
        message = self.whole(AnswerEnded(None, None, None, None))
        return [{"type": "message_start", "message": {**message, "stop_reason": None}}]

    def open(self, block: Block) -> Iterable[Data]:
        return [{**self._at("start"), "content_block": _content(block)}]

    def grow(self, block: Block, piece: str) -> Iterable[Data]:
        names = {"text": ("text_delta", "text"), "thoughts": ("thinking_delta", "thinking")}
        kind, name = names.get(block.kind, ("input_json_delta", "partial_json"))
        return [{**self._at("delta"), "delta": {"type": kind, name: piece}}]

    def close(self, _block: Block) -> Iterable[Data]:
        return [self._at("stop")]

    def finish(self, ended: AnswerEnded) -> Iterable[Data]:
        delta = {"stop_reason": self._reason(ended), "stop_sequence": None}
        return [{"type": "message_delta", "delta": delta, "usage": _usage(ended)}, {"type": "message_stop"}]

    def whole(self, ended: AnswerEnded) -> Data:
        about = {"id": f"msg_{self.id}", "type": "message", "role": "assistant", "model": self.asked.model}
        content, reason = [_content(block) for block in self.blocks], self._reason(ended)
        return {**about, "content": content, "stop_reason": reason, "stop_sequence": None, "usage": _usage(ended)}

    def _at(self, kind: str) -> Data:
        return {"type": f"content_block_{kind}", "index": len(self.blocks) - 1}

    def _reason(self, ended: AnswerEnded) -> str:
        reasons = {"length": "max_tokens", "content_filter": "refusal"}
        return "tool_use" if self.calls else reasons.get(ended.finish_reason or "", "end_turn")


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
        at, begun = self._at(block), {**self._item(block), "status": "in_progress"}
        if block.call is None:
            begun["content"] = []
        yield {"type": "response.output_item.added", "output_index": at["output_index"], "item": begun}
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

    def finish(self, ended: AnswerEnded) -> Iterable[Data]:
        whole = self.whole(ended)
        return [{"type": f"response.{whole['status']}", "response": whole}]

    def fail(self, problem: Data) -> Data:
        error = {name: problem["error"][name] for name in ("code", "message")}
        return {"type": "response.failed", "response": {**self._response("failed"), "error": error}}

    def whole(self, ended: AnswerEnded) -> Data:
        is_cut = ended.finish_reason == "length"
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        return {
            **self._response("incomplete" if is_cut else "completed"),
            "output": [self._item(block) for block in self.blocks],
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "usage": {**_usage(ended), **details},
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
