"""The one form into which each protocol is read: what a program sends, and how its model is asked.

No field means two things in the three protocols, so one reader reads them all. A field that it does not know is
ignored: programs send what their vendor knows.
"""

import base64
import binascii
import json
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition

from chat.agent.context import TOKENS_OF_A_PICTURE
from core.errors import InvalidInput
from intake.llm.language_models import ANTHROPIC, LanguageModel
from intake.llm.models import model_settings
from intake.llm.tokens import TOKENS_OF_A_MESSAGE, tokens_of

Data = dict[str, Any]
NO_ADDRESS = "Send pictures and files themselves, as base64: this server opens no addresses."
NO_PICTURES = "The model {name} does not see pictures. Choose another one, or leave them out."
NO_FILES = "The model {name} reads only text and pictures. Send the text of the file, or attach it in the chat's page."
NO_PART = "This server reads no parts of the type {kind!r}: send text, pictures and files."
EFFORTS: dict[Any, Any] = {"none": False} | {each: each for each in ("minimal", "low", "medium", "high", "xhigh")}
ROLES = {"developer": "system", "function": "tool"}

# A vendor's server takes no larger number.
Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class Message(BaseModel):
    """`text` joins the texts of all parts. `call_id`: of a tool's result, the call that it answers. `refers`: the id of
    an answer of ours that the program names instead of sending it.
    """

    model_config = ConfigDict(frozen=True)

    role: Literal["system", "user", "assistant", "tool"]
    text: str = ""
    files: tuple[BinaryContent, ...] = ()
    calls: tuple[ToolCallPart, ...] = ()
    call_id: str = ""
    refers: str = ""


class Settings(BaseModel):
    """By the names of pydantic-ai."""

    temperature: FiniteFloat | None = None
    top_p: FiniteFloat | None = None
    top_k: Whole | None = None
    seed: Whole | None = None
    max_tokens: Whole | None = None
    stop_sequences: list[str] | None = None
    parallel_tool_calls: bool | None = None
    thinking: bool | Literal["minimal", "low", "medium", "high", "xhigh"] | None = None
    tool_choice: Literal["auto", "none", "required"] | list[str] | None = None


class Asked(BaseModel):
    """`chat`: a name of the conversation in the body. `follows`: the id of the response that the messages follow.

    `format`: of the answer, in the form of OpenAI's `response_format`. `stores`: false where the program asked so.
    `is_legacy`: its tools were OpenAI's `functions`, and their calls are written so.
    """

    model_config = ConfigDict(frozen=True)

    model: str
    messages: list[Message]
    tools: list[ToolDefinition] = []
    settings: Settings
    format: Data | None = None
    is_streamed: bool = False
    has_usage: bool = False
    stores: bool = True
    chat: str = ""
    follows: str = ""
    is_legacy: bool = False

    @property
    def last_question(self) -> int:
        """The index of the last message of the user. Raises `InvalidInput` without any."""
        for number in range(len(self.messages) - 1, -1, -1):
            if self.messages[number].role == "user":
                return number
        raise InvalidInput("There is no message of the user.")

    def count(self) -> int:
        """The tokens of its prompt by our own count, which is higher than most tokenizers'."""
        texts = [f"{tool.name} {tool.description} {json.dumps(tool.parameters_json_schema)}" for tool in self.tools]
        for message in self.messages:
            texts += [message.text, *(call.args_as_json_str() for call in message.calls)]
        pictures = sum(len(message.files) for message in self.messages)
        return sum(map(tokens_of, texts)) + TOKENS_OF_A_MESSAGE * len(self.messages) + TOKENS_OF_A_PICTURE * pictures


def read(body: Data) -> Data:
    """The fields of `Asked`. Raises what reading JSON of another shape raises."""
    if body.get("n") not in (None, 1):
        raise InvalidInput("This server writes one answer to a request: leave out `n`.")
    items = body["input"] if "input" in body else body["messages"]
    if not items:
        raise InvalidInput("There is no message.")
    items = [{"role": "user", "content": items}] if isinstance(items, str) else items
    output, stop = body.get("output_config") or {}, body.get("stop", body.get("stop_sequences"))
    tools, choice = body.get("tools"), body.get("tool_choice", body.get("function_call"))
    is_parallel = body.get("parallel_tool_calls")
    if isinstance(choice, dict):
        is_parallel = not choice["disable_parallel_tool_use"] if "disable_parallel_tool_use" in choice else is_parallel
        name, kind = (choice.get("function") or choice).get("name"), choice.get("type")
        choice = [name] if name else "required" if kind == "any" else kind
    format_ = body.get("response_format") or (body.get("text") or {}).get("format") or output.get("format")
    if format_ and format_["type"] == "json_schema" and "json_schema" not in format_:
        about = {name: value for name, value in format_.items() if name != "type"}
        format_ = {"type": "json_schema", "json_schema": {"name": "answer", **about}}
    effort = body.get("reasoning_effort") or (body.get("reasoning") or {}).get("effort")
    thinks = {"disabled": False, "enabled": True, "adaptive": EFFORTS.get(output.get("effort"), True)}
    return {
        "model": body["model"],
        "messages": [
            {"role": "system", **contents(body.get("instructions") or body.get("system"))},
            *(message for each in items for message in _messages(each)),
        ],
        # Those that the vendors' own servers run have another type and no schema.
        "tools": [
            _tool(each)
            for each in tools or body.get("functions") or ()
            if each.get("type", "function") == "function" or "input_schema" in each
        ],
        "settings": {
            **{name: body.get(name) for name in ("temperature", "top_p", "top_k", "seed")},
            "max_tokens": body.get("max_completion_tokens") or body.get("max_output_tokens") or body.get("max_tokens"),
            "stop_sequences": [stop] if isinstance(stop, str) else stop,
            "parallel_tool_calls": is_parallel,
            "thinking": (EFFORTS | thinks).get((body.get("thinking") or {}).get("type") or effort),
            "tool_choice": choice,
        },
        "format": None if not format_ or format_["type"] == "text" else format_,
        "is_streamed": body.get("stream") or False,
        "has_usage": (body.get("stream_options") or {}).get("include_usage") or False,
        "stores": body.get("store") is not False,
        "chat": body.get("prompt_cache_key") or _session((body.get("metadata") or {}).get("user_id")),
        "follows": body.get("previous_response_id") or "",
        "is_legacy": bool(body.get("functions") and not tools),
    }


def _session(user_id: object) -> str:
    """Claude Code names its session within the id of its user."""
    try:
        return str(json.loads(str(user_id))["session_id"])
    except (ValueError, TypeError, KeyError):
        return ""


def _tool(sent: Data) -> Data:
    function = sent.get("function") or sent
    schema = function.get("parameters") or function.get("input_schema") or {"type": "object", "properties": {}}
    about = {name: function.get(name) for name in ("description", "strict")}
    return {"name": function["name"], "parameters_json_schema": schema, **about}


def _messages(sent: Data) -> Iterator[Data]:
    """Of a message, or an item of Responses. Results of tools come before what the user says with them."""
    match sent.get("type", "message"):
        case "item_reference":
            yield {"role": "assistant", "refers": sent["id"]}
        case "function_call":
            yield {"role": "assistant", "calls": [_call(sent["call_id"], sent["name"], sent["arguments"])]}
        case "function_call_output":
            yield {"role": "tool", **contents(sent["output"]), "call_id": sent["call_id"]}
        case "message":
            content, role, results, calls = sent.get("content"), sent["role"], list[Data](), list[Data]()
            for part in content if isinstance(content, list) else ():
                kind = None if isinstance(part, str) else part["type"]
                if kind == "tool_result":
                    results.append({"role": "tool", **contents(part.get("content")), "call_id": part["tool_use_id"]})
                elif kind == "tool_use":
                    calls.append(_call(part["id"], part["name"], part["input"]))
            for call in sent.get("tool_calls") or ():
                calls.append(_call(call["id"], call["function"]["name"], call["function"]["arguments"]))
            if function := sent.get("function_call"):
                calls.append(_call(function["name"], function["name"], function["arguments"]))
            yield from results
            message = contents(content, is_users=role == "user")
            if message["text"] or message["files"] or not results:
                id_ = sent.get("tool_call_id") or sent.get("name") or ""
                yield {**message, "role": ROLES.get(role, role), "calls": calls, "call_id": id_}


def _call(id_: str, name: str, arguments: Any) -> Data:
    return {"tool_name": name, "args": arguments or "{}", "tool_call_id": id_}


def contents(value: Any, *, is_users: bool = False) -> Data:
    """The `text` and the `files` of a message's content: a text, or a list of parts in any of the protocols' forms.

    Raises `InvalidInput` if it `is_users` and a part is of another type; of others, these are the vendor's.
    """
    texts, files = list[str](), list[BinaryContent]()
    for part in [value] if isinstance(value, str | dict) else value or []:
        if isinstance(part, str):
            texts.append(part)
            continue
        match part["type"]:
            case "text" | "input_text" | "output_text" | "refusal" as kind:
                texts.append(part["refusal" if kind == "refusal" else "text"])
            case "image_url" | "input_image":
                url = part.get("image_url")
                files.append(_file(url["url"] if isinstance(url, dict) else url))
            case "file" | "input_file":
                file = part.get("file") or part
                files.append(_file(file.get("file_data"), name=file.get("filename")))
            case "image" | "document":
                source = part["source"]
                if source["type"] == "text":
                    texts.append(source["data"])
                elif source["type"] == "content":
                    texts.append(contents(source["content"])["text"])
                else:
                    files.append(_file(source.get("data"), source.get("media_type"), name=part.get("title")))
            case kind if is_users and kind not in ("tool_result", "tool_use"):
                raise InvalidInput(NO_PART.format(kind=str(kind)[:100]))
    return {"text": "\n".join(texts), "files": files}


def _file(data: str | None, media_type: str | None = None, *, name: str | None = None) -> BinaryContent:
    """Of a data URL, or of base64 with its media type."""
    if media_type is None and data is not None and data.startswith("data:"):
        head, _, data = data.partition(",")
        media_type = head.removeprefix("data:").partition(";")[0]
    if not data or not media_type:
        raise InvalidInput(NO_ADDRESS)
    try:
        content = base64.b64decode(data, validate=True)
    except binascii.Error:
        raise InvalidInput(NO_ADDRESS) from None
    return BinaryContent(content, media_type=str(media_type).lower(), identifier=str(name or "file"))


def why_unread(model: LanguageModel, file: BinaryContent) -> str:
    """Empty if the model reads the file; of text, it is sent as text."""
    if file.is_image:
        return "" if model.sees_pictures else NO_PICTURES.format(name=model.name)
    return NO_FILES.format(name=model.name) if model.base_url and not file.media_type.startswith("text/") else ""


def request_to(model: LanguageModel, asked: Asked, *, memory: str) -> Data:
    """The arguments of `loop.complete`. The memory comes after all that the program itself instructs."""
    sent = asked.settings.model_dump(exclude_none=True)
    settings: Any = {**model_settings(model, temperature=sent.pop("temperature", None)), **sent}
    if not asked.tools:
        settings.pop("tool_choice", None)
    parameters = ModelRequestParameters(function_tools=asked.tools)
    if asked.format is not None and not model.id.startswith(ANTHROPIC):
        settings["extra_body"] = {"response_format": asked.format}
    elif asked.format is not None and (schema := asked.format.get("json_schema")):
        parameters.output_object = OutputObjectDefinition(json_schema=schema["schema"], name=schema.get("name"))
        parameters.output_mode = "native"
    messages = _as_model_messages(asked.messages, memory, model)
    return {"messages": messages, "model": model, "settings": settings, "parameters": parameters}


def _as_model_messages(messages: Sequence[Message], memory: str, model: LanguageModel) -> list[ModelMessage]:
    """The instructions come first, as one: many models' templates take no others."""
    instructions = [each.text for each in messages if each.role == "system"] + [memory]
    instructions = [text for text in instructions if text.strip()]
    parts: list[ModelRequestPart] = [SystemPromptPart("\n\n".join(instructions))] if instructions else []
    found: list[ModelMessage] = []
    names = {call.tool_call_id: call.tool_name for each in messages for call in each.calls}
    for message in messages:
        # The text of a file is part of the text: not every model's server takes it as a file.
        texts, files = [message.text], list[BinaryContent]()
        for file in message.files:
            if file.media_type.startswith("text/"):
                texts.append(f"{file.identifier}:\n{file.data.decode(errors='replace')}")
            elif why := why_unread(model, file):
                texts.append(why)
            else:
                files.append(file)
        text = "\n\n".join(text for text in texts if text)
        content: Any = [text, *files] if files else text
        if message.role == "user":
            parts.append(UserPromptPart(content))
        elif message.role == "tool":
            parts.append(ToolReturnPart(names.get(message.call_id, "tool"), content, message.call_id))
        elif message.role == "assistant" and (text or message.calls):
            if parts:
                found.append(ModelRequest(parts))
            parts = []
            found.append(ModelResponse([*([TextPart(text)] if text else []), *message.calls]))
    return [*found, ModelRequest(parts)] if parts else found
