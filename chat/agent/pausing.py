"""Pauses an answer whose calls wait for the person, and goes on with it in any process.

The library counts its requests and steps by run and resumes a consent as often as it is told to. So the steps, the
tokens and the results so far are kept here, and `intake.chats.consent` lets each pause be resumed once.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ToolReturnPart
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied

from chat.agent.context import ApprovalAsked, ChatDeps, ChatTool, ToolCalled
from core.text import UNSEEN, UntrustedData, as_it_looks, kept, pg_value
from intake.chats.prompts import OF_MEMORY, PromptPart
from intake.models import PausedTurn
from intake.models.tools import Pause

DENIED = "The person did not allow this call. Do without it, and do not make it again."
# So many words in a row are a passage; fewer stand in any text.
WORDS_OF_A_PASSAGE = 4
# With the accents that stand as signs of their own.
_WORD = re.compile(rf"\w[\w{UNSEEN}\u0300-\u036f]*")


def approval_of(tool: ChatTool, why: str, data: dict[str, Any], ctx: RunContext[ChatDeps]) -> dict[str, Any]:
    """What is kept of a call that waits."""
    return {
        "why": why,
        **kept(why),
        "marks": recalled_in(data, ctx),
        "tool": tool.own_name or tool.name,
        "origin": tool.origin,
        "address": tool.address,
        "fingerprint": tool.fingerprint,
        "may_always": bool(tool.address) and not tool.destroys,
    }


def asked_of(requests: DeferredToolRequests, calls: dict[str, ToolCalled]) -> list[ApprovalAsked]:
    """`calls`: without results, by the vendor's id."""
    asked = []
    for id_, about in requests.metadata.items():
        shown = {"why": about["why"], **kept(about["why"]), "marks": about["marks"], "place": about["address"]}
        shown |= {"chat": bool(about["address"]), "always": about["may_always"]}
        asked.append(ApprovalAsked(calls[id_], shown))
    return asked


def pause_of(
    requests: DeferredToolRequests,
    messages: list[ModelMessage],
    *,
    calls: dict[str, ToolCalled],
    deps: ChatDeps,
    step: int,
    counted: dict[str, Any],
) -> Pause:
    """`step`: the last of this answer; `counted`: what its tools have used up and brought (`BoundedToolset`)."""
    called = {id_: asdict(calls[id_]) for id_ in requests.metadata}
    waiting = {called[id_]["id"]: {**about, "vendor": id_, **called[id_]} for id_, about in requests.metadata.items()}
    state = {
        "messages": ModelMessagesTypeAdapter.dump_python(messages, mode="json"),
        "mark": deps.untrusted.mark,
        "model": deps.model.name if deps.model is not None else "",
        "step": step,
        "history_length": deps.history_length,
        "results_tokens": deps.results_tokens,
        "beyond": [asdict(part) for part in deps.beyond],
        "foreign": deps.foreign,
        **counted,
    }
    return Pause(calls=pg_value(waiting), state=pg_value(state))


def resumed_deps(deps: ChatDeps, state: dict[str, Any]) -> ChatDeps:
    """The context of a prompt that is made anew, as far as it was when the answer paused."""
    return replace(
        deps,
        steps_before=state["step"],
        history_length=state["history_length"],
        results_tokens=state["results_tokens"],
        beyond=tuple(PromptPart(**part) for part in state["beyond"]),
        foreign=list(state["foreign"]),
        untrusted=UntrustedData(state["mark"]),
    )


def calls_of(paused: PausedTurn) -> dict[str, ToolCalled]:
    return {
        call["vendor"]: ToolCalled(
            call["id"], call["name"], call.get("edited", call["input"]), call["origin"], call["tool"]
        )
        for call in paused.calls.values()
    }


def results_of(paused: PausedTurn) -> DeferredToolResults:
    results = DeferredToolResults()
    for call in paused.calls.values():
        if call["decision"] == "no":
            said = f" They said: {call['reason']}" if call["reason"] else ""
            results.approvals[call["vendor"]] = ToolDenied(DENIED + said)
            continue
        results.approvals[call["vendor"]] = ToolApproved(override_args=call.get("edited"))
        results.metadata[call["vendor"]] = {name: call[name] for name in ("fingerprint", "address")}
    return results


def recalled_in(data: dict[str, Any], ctx: RunContext[ChatDeps]) -> list[str]:
    """The passages of these arguments that were recalled from the memory and are not in the person's own message."""
    parts = (part for message in ctx.messages for part in message.parts)
    recalled = [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]
    recalled += [part.text for part in (*ctx.deps.parts, *ctx.deps.beyond) if part.kind in (*OF_MEMORY, "beginning")]
    known, own, passages = f" {' '.join(map(_plain, recalled))} ", f" {_plain(ctx.deps.message)} ", []
    for text in texts_in(data):
        words, start = [*_WORD.finditer(text)], 0
        while start + WORDS_OF_A_PASSAGE <= len(words):
            end, run = start, " "
            while end < len(words) and (run := f"{run}{_plain(words[end][0])} ") in known:
                end += 1
            passage = text[words[start].start() : words[max(start, end - 1)].end()]
            if end - start >= WORDS_OF_A_PASSAGE and f" {_plain(passage)} " not in own:
                passages.append(passage)
            start = max(end, start + 1)
    return passages


def texts_in(value: Any, schema: str = "") -> Iterable[str]:
    """Every text in these arguments, as deep as it may be; a number as it is written; and each name that is none of
    this schema, which is JSON.
    """
    match value:
        case dict():
            for name, each in value.items():
                if f"{json.dumps(name)}:" not in schema:
                    yield name
                yield from texts_in(each, schema)
        case list():
            for each in value:
                yield from texts_in(each, schema)
        case None | bool():
            return
        case _:
            yield str(value)


def _plain(text: str) -> str:
    return " ".join(_WORD.findall(as_it_looks(text).casefold()))
