"""The person's words in an agent's log that stand in no message: answers to questions, and why a call was refused.

The hook's capture and the readers of imports both call these functions, so that they store the same text.
"""

import json
import re
from typing import Any

from recollect_cli.values import Fields, joined, list_of, object_of, objects_of, value_at

# The tools by which an agent asks the person: of Claude Code, Codex, Gemini CLI and Cursor.
_ASKING = {"AskUserQuestion", "request_user_input", "ask_user", "AskQuestion"}
_REFUSED = re.compile(
    r"\s{0,20}(?:The user doesn't want to|Permission for this|The agent proposed|The user ).{0,1000}?"
    r"\bthe user (?:said|provided the following[^:\n]{0,60}):[ \t]*\n?",
    re.DOTALL | re.IGNORECASE,
)
_FOR_THE_MODEL = re.compile(r"\n\s{0,20}Note: The user's next message may contain.*", re.DOTALL)
_REPLIED = re.compile(r"\s{0,20}(?:User has answered|Your questions have been answered)")
_PAIR = re.compile(r"(?<!\\)\"((?:[^\"\\]|\\.){1,2000}+)\"=\"((?:[^\"\\]|\\.){0,20000}+)\"", re.DOTALL)
_NO_WORDS = {"id", "type", "kind", "questionId", "question_id", "question", "header", "preview"}


def questions_in(name: Any, arguments: Any) -> list[Fields]:
    """The questions of a call that asks the person; none for any other call."""
    if name not in _ASKING:
        return []
    found = _parsed(arguments)
    questions = value_at(found, "questions")
    listed = objects_of(questions if isinstance(questions, list) else [found])
    return [each for each in listed if isinstance(_question(each), str)]


def asked(questions: list[Fields]) -> str:
    """The questions as the agent's words; several are numbered, as their answers are."""
    texts = [_question(each).strip() for each in questions]
    return "\n".join(_numbered(place, text, len(texts)) for place, text in enumerate(texts, start=1))


def asked_in(calls: list[Fields], arguments: str) -> str:
    """The questions of all these calls. `arguments`: what the field with them is called."""
    return joined(asked(questions_in(each.get("name"), each.get(arguments))) for each in calls)


def replied(questions: list[Fields], answers: Any, notes: Any = None) -> str:
    """The answers in the order of the questions, by whose text, id, heading or place they are named.

    Every answer stays: one that names no question stands at the end.
    """
    named = _by_name(answers)
    left, found = dict(named), []
    for place, question in enumerate(questions, start=1):
        names = [_question(question), question.get("id"), question.get("header"), str(place - 1)]
        name = next((each for each in names if each in left), None)
        words = [*_words(left.pop(name, None)), *_words(_by_name(notes).get(name))]
        if words:
            found.append(_numbered(place, "\n".join(words), len(questions)))
    return "\n".join([*found, *(text for value in left.values() for text in _words(value))])


def answers_in_output(questions: list[Fields], output: Any) -> str:
    """The same of the result of a call, which has the answers as JSON; empty if the person gave none."""
    found = _parsed(output) if questions else None
    if isinstance(found, list):
        found = _parsed("".join(map(_text, objects_of(found))))
    for key in ("output", "content"):
        if isinstance(found, dict) and "answers" not in found and key in found:
            found = _parsed(found[key])
    return replied(questions, found["answers"]) if isinstance(found, dict) and "answers" in found else ""


def reply_to_call(call: Fields) -> str:
    """Of a call in a log of Gemini CLI, which has its results."""
    questions = questions_in(call.get("name"), call.get("args"))
    outputs = (value_at(each, "functionResponse", "response") for each in objects_of(call, "result"))
    return next(filter(None, (answers_in_output(questions, each) for each in outputs)), "")


def replies_in_results(line: Fields) -> str:
    """Of a line of Claude Code that has results of tools."""
    structured = object_of(line, "toolUseResult")
    if isinstance(answers := structured.get("answers"), dict):
        return replied(questions_in("AskUserQuestion", structured), answers, structured.get("annotations"))
    results = objects_of(line, "message", "content")
    return joined(_reply_in(_text(each)) for each in results if each.get("type") == "tool_result")


def _reply_in(text: str) -> str:
    if refused := _REFUSED.match(text):
        return _FOR_THE_MODEL.sub("", text[refused.end() :]).strip()
    if not _REPLIED.match(text):
        return ""
    pairs = dict(_PAIR.findall(text))
    return replied([{"question": each} for each in pairs], pairs)


def _text(block: Fields) -> str:
    for value in (block.get("text"), block.get("content")):
        if isinstance(value, str):
            return value
        if isinstance(value, list):
            return "\n".join(filter(None, map(_text, objects_of(value))))
    return ""


def _question(fields: Fields) -> Any:
    return fields.get("question") or fields.get("prompt")


def _numbered(place: int, text: str, count: int) -> str:
    return f"{place}. {text}" if count > 1 else text


def _parsed(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def _by_name(answers: Any) -> dict[Any, Any]:
    if isinstance(answers, dict):
        return answers
    entries = (each if isinstance(each, dict) else {"text": each} for each in list_of(answers))
    return {
        next((each[key] for key in ("questionId", "question_id", "id", "question") if key in each), str(place)): each
        for place, each in enumerate(entries)
    }


def _words(value: Any) -> list[str]:
    """Every text of an answer, without Codex's mark of the person's own words."""
    if isinstance(value, str):
        text = value.strip().removeprefix("user_note:").strip()
        return [text] if text else []
    if isinstance(value, dict):
        value = [each for name, each in value.items() if name not in _NO_WORDS]
    return [text for each in value for text in _words(each)] if isinstance(value, list) else []
