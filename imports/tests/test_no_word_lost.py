"""No word of the user is lost: generated exports of each product, whose messages all come in or are listed.

`IMPORT_EXAMPLES=500` for a long run.
"""

import json
import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evals.expectations import read_all
from imports.storing.turns import planned_turns
from imports.tests.exports import SAID
from imports.tests.test_envelopes import EXAMPLES as ENVELOPES
from imports.tests.test_envelopes import as_codex

EXAMPLES = int(os.environ.get("IMPORT_EXAMPLES", "20"))
AT = 1_772_000_000
SETTINGS = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])

# Words with signs that mean something to readers; no control signs, which no export holds.
WORDS = st.text(st.sampled_from("abc äß漢🙂<>[]`*_#:-\n\"'\\&.0"), max_size=30)
KINDS = ("plain", "before", "after", "between")


@st.composite
def said(draw, product):
    """What the user said: `(the message as the program writes it, the letters that must come)`, each with a number."""
    found = []
    envelopes = [envelope for envelope, alone in ENVELOPES.get(product, {}).items() if not alone]
    for number in range(draw(st.integers(1, 8))):
        words = f"w{number}x {draw(WORDS)}".strip()
        end = f"e{number}x"
        kind = draw(st.sampled_from(KINDS)) if envelopes else "plain"
        # In the middle of somebody's code nothing is an envelope.
        words = words.replace("`", "'") if kind != "plain" else words
        envelope = draw(st.sampled_from(envelopes)) if kind != "plain" else ""
        text = {"before": f"{envelope}\n{words} {end}", "after": f"{words} {end}\n{envelope}"}.get(
            kind, f"{words}\n{envelope}\n{end}"
        )
        found.append((text, letters(f"{words} {end}")))
    return found


def letters(text):
    return "".join(filter(str.isalnum, text))


@st.composite
def tree(draw, count):
    """The parent of each message: mostly the one before, at times an earlier one, none, or one that is not there."""
    parents = []
    for number in range(count):
        choice = draw(st.integers(0, 9)) if number else 9
        parents.append({0: draw(st.integers(0, number)) - 1 if number else -1, 1: "gone"}.get(choice, number - 1))
    return parents


def chatgpt(draw, messages):
    mapping = {"root": {"id": "root", "parent": None, "message": None}}
    style = draw(st.sampled_from(["parent", "children", "none", "both"]))
    parents = draw(tree(len(messages)))
    for number, text in enumerate(messages):
        content = {"content_type": "text", "parts": [text]}
        if draw(st.booleans()):
            content = {"content_type": "multimodal_text", "parts": [{"content_type": draw(st.sampled_from(["audio_transcription", "new_kind"])), "text": text}]}  # fmt: skip
        message = {"author": {"role": "user"}, "create_time": AT + number, "content": content}
        above = parents[number] if style in ("parent", "both") else number - 1
        above = "root" if above == -1 else above if above == "gone" else f"n{above}"
        mapping[f"n{number}"] = {"id": f"n{number}", "message": message}
        if style in ("parent", "both"):
            mapping[f"n{number}"]["parent"] = above
        if style in ("children", "both") and above in mapping:
            mapping[above].setdefault("children", []).append(f"n{number}")
    current = draw(st.sampled_from([f"n{len(messages) - 1}", "gone", None]))
    return {"conversations.json": json.dumps([{"conversation_id": "c", "create_time": AT, "mapping": mapping, "current_node": current}])}  # fmt: skip


def claude(draw, messages):
    parents = draw(st.one_of(st.none(), tree(len(messages))))
    found = []
    for number, text in enumerate(messages):
        block = {"type": draw(st.sampled_from(["text", "voice_note", "brand_new"])), "text": text}
        message = {"uuid": f"m{number}", "sender": draw(st.sampled_from(["human", "user"])), "created_at": AT + number}
        message |= {"content": [block], "text": ""} if draw(st.booleans()) else {"text": text, "content": None}
        if parents:
            message["parent_message_uuid"] = "gone" if parents[number] == "gone" else f"m{parents[number]}"
        found.append(message)
    return {"conversations.json": json.dumps([{"uuid": "c", "name": "", "chat_messages": found}])}


def open_webui(draw, messages):
    parents = draw(tree(len(messages)))
    found = {}
    for number, text in enumerate(messages):
        content = draw(st.sampled_from([text, [{"type": "text", "text": text}], [{"type": "new", "text": text}]]))
        above = parents[number]
        parent = None if above == -1 else "gone" if above == "gone" else f"m{above}"
        found[f"m{number}"] = {"id": f"m{number}", "role": "user", "content": content, "parentId": parent, "timestamp": AT + number}  # fmt: skip
    if draw(st.booleans()):
        chat = {"history": {"messages": found, "currentId": draw(st.sampled_from([*found, "gone", None]))}}
    else:
        chat = {"messages": list(found.values())}
    return {"chats.json": json.dumps([{"id": "c", "chat": chat}])}


def librechat(draw, messages):
    parents = draw(tree(len(messages)))
    found = []
    for number, text in enumerate(messages):
        message = {"messageId": f"m{number}", "isCreatedByUser": True, "createdAt": AT + number}
        message |= {"text": text} if draw(st.booleans()) else {"text": "", "content": [{"type": "new", "text": text}]}
        above = parents[number]
        message["parentMessageId"] = "gone" if above == "gone" else f"m{above}"
        found.append(message)
    return {"chat.json": json.dumps({"conversationId": "c", "exportAt": "1", "messages": found})}


def gemini(draw, messages):
    records = [{"header": "Gemini Apps", "title": f"Prompted {text}", "time": AT + 60 * number} for number, text in enumerate(messages)]  # fmt: skip
    return {"MyActivity.json": json.dumps(records[::-1])}


def claude_code(draw, messages):
    parents = draw(tree(len(messages)))
    lines = []
    for number, text in enumerate(messages):
        above = parents[number]
        parent = None if above == -1 else "gone" if above == "gone" else f"m{above}"
        content = draw(st.sampled_from([text, [{"type": "text", "text": text}], [{"type": "new", "text": text}]]))
        line = {"type": "user", "uuid": f"m{number}", "parentUuid": parent, "sessionId": "s", "timestamp": AT + number}
        line |= {"message": {"role": "user", "content": content}}
        if draw(st.integers(0, 5)) == 0:
            line = {"type": "queue-operation", "operation": "enqueue", "content": text, "sessionId": "s", "timestamp": AT + number}  # fmt: skip
        lines.append(json.dumps(line))
        if draw(st.booleans()):
            lines.append(json.dumps(line))
    return {"projects/-a/s.jsonl": "\n".join(lines) + "\n"}


def codex(draw, messages):
    ((name, text),) = as_codex(messages).items()
    if draw(st.booleans()):
        lines = [json.dumps({"type": "event_msg", "payload": {"type": "user_message", "message": each}}) for each in messages]  # fmt: skip
        text = text.splitlines()[0] + "\n" + "\n".join(lines) + "\n"
    return {name: text}


def openclaw(draw, messages):
    parents = draw(tree(len(messages)))
    lines = [json.dumps({"type": "session", "id": "s"})]
    for number, text in enumerate(messages):
        above = parents[number]
        parent = None if above == -1 else "gone" if above == "gone" else f"m{above}"
        message = {"role": "user", "content": draw(st.sampled_from([text, [{"type": "new", "text": text}]]))}
        lines.append(json.dumps({"type": "message", "id": f"m{number}", "parentId": parent, "timestamp": AT + number, "message": message}))  # fmt: skip
        if draw(st.integers(0, 3)) == 0:
            answer = {"role": "assistant", "content": draw(st.sampled_from(["NO_REPLY", "Well."]))}
            lines.append(json.dumps({"type": "message", "id": f"a{number}", "parentId": f"m{number}", "message": answer}))  # fmt: skip
    return {"agents/main/sessions/s.jsonl": "\n".join(lines) + "\n"}


MAKERS = {
    "chatgpt": chatgpt,
    "claude": claude,
    "open-webui": open_webui,
    "librechat": librechat,
    "gemini": gemini,
    "claude-code": claude_code,
    "codex": codex,
    "openclaw": openclaw,
}


def reading_of(files, product):
    folder = Path(tempfile.mkdtemp())
    try:
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        return read_all(folder, product)
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("product", MAKERS)
def test_every_message_of_the_user_comes_in_once(product):
    @SETTINGS
    @given(st.data())
    def check(data):
        messages = data.draw(said(product))
        reading = reading_of(MAKERS[product](data.draw, [text for text, _ in messages]), product)
        assert reading.refusal is None
        assert reading.skipped == []
        asked = [
            message
            for each in reading.conversations
            for message in (*each.messages, *each.other_branches)
            if message.role == "user"
        ]
        assert Counter(letters(message.text) for message in asked) == Counter(words for _, words in messages)
        # A version repeats the question of which it is another answer.
        turns = [turn for each in reading.conversations for turn in planned_turns(each, otherwise=SAID)]
        assert {turn.user_message for turn in turns if turn.user_message} == {message.text for message in asked}

    check()


def test_every_word_of_a_note_comes_in():
    @SETTINGS
    @given(WORDS, WORDS, st.sampled_from(["---\n{}\n---\n{}", "---\n{}\n\n{}", "+++\n{}\n+++\n{}", "{}\n{}"]))
    def check(head, body, frame):
        head = f"{head.strip()}h1x".replace("\n", " ")
        reading = reading_of({"note.md": frame.format(head, f"w1x {body}")}, "markdown")
        (note,) = reading.documents
        assert letters(f"w1x {body}") in letters(note.text)
        # What is neither a title nor a date stays.
        assert "h1x" in note.text or "h1x" in note.title or ":" in head or "=" in head

    check()
