"""A session that a hook appends turn by turn is the one that an import of its log brings: nothing twice, nothing lost."""

import json

import pytest

from evals.expectations import read_all
from imports.storing.turns import exchanges
from recollect_cli.transcripts import new_turns

AT = "2026-03-01T12:00:{:02}Z"
REFUSED = (
    "The user doesn't want to proceed with this tool use. The tool use was rejected (eg. if it was a file edit, the "
    "new_string was NOT written to the file). To tell you how to proceed, the user said:\nUse larch instead.\n\n"
    "Note: The user's next message may contain a correction or preference."
)
QUESTIONS = [{"question": "Which hinge?", "header": "Hinge"}, {"question": "Which oil?", "id": "oil", "header": "Oil"}]


def claude(node, parent, kind, content, second, **more):
    line = {"type": kind, "uuid": node, "parentUuid": parent, "sessionId": "s-1", "timestamp": AT.format(second)}
    return {**line, "cwd": "/home/me/app", "message": {"role": kind, "content": content}, **more}


def result(text):
    return [{"type": "tool_result", "tool_use_id": "t", "content": text}]


def text(words):
    return {"type": "text", "text": words}


def queue(operation, second, **more):
    return {
        "type": "queue-operation",
        "operation": operation,
        "sessionId": "s-1",
        "timestamp": AT.format(second),
        **more,
    }


CLAUDE_CODE = [
    claude("q1", None, "user", "Plan the sluice.", 1),
    claude("a1", "q1", "assistant", [{"type": "tool_use", "name": "ExitPlanMode", "input": {"plan": "Steel."}}], 2),
    claude("q2", "a1", "user", result(REFUSED), 3, toolUseResult="User rejected tool use"),
    claude("x1", None, "user", "Scan the shed", 4, isSidechain=True, agentId="scout"),
    claude("x2", "x1", "assistant", [text("Scanned.")], 4, isSidechain=True, agentId="scout"),
    claude(
        "a2",
        "q2",
        "assistant",
        [text("Larch, then."), {"type": "tool_use", "name": "AskUserQuestion", "input": {"questions": QUESTIONS}}],
        5,
    ),
    claude(
        "q3",
        "a2",
        "user",
        result("User has answered your questions: …"),
        6,
        toolUseResult={"questions": QUESTIONS, "answers": {"Which oil?": "linseed", "Which hinge?": "gunmetal"}},
    ),
    claude("a3", "q3", "assistant", [text("Noted.")], 7),
    queue("enqueue", 8, content="And paint it."),
    {
        **claude("n1", "a3", "attachment", "", 9),
        "attachment": {"type": "queued_command", "prompt": "And paint it.", "commandMode": "prompt"},
    },
    queue("remove", 9),
    queue("enqueue", 10, content="Ochre, please."),
    queue("remove", 11),
    claude("a4", "n1", "assistant", [text("Painted.")], 12),
    claude("q5", "a4", "user", "Thanks", 13),
    claude("a5", "q5", "assistant", [{"type": "tool_use", "name": "AskUserQuestion", "input": QUESTIONS[0]}], 14),
    claude("q6", "a5", "user", result('User has answered your questions: "Which hinge?"="iron".'), 15),
    claude("a6", "q6", "assistant", [text("Gladly.")], 16),
]


def codex(second, kind, **payload):
    return {"timestamp": AT.format(second), "type": kind, "payload": payload}


def message(second, role, words):
    kind = "output_text" if role == "assistant" else "input_text"
    return codex(second, "response_item", type="message", role=role, content=[{"type": kind, "text": words}])


CODEX = [
    codex(0, "session_meta", id="s-1", cwd="/home/me/app", timestamp=AT.format(0)),
    message(1, "user", "Set the gate."),
    message(2, "assistant", "It is set."),
    message(3, "user", "Paint it green."),
    message(4, "assistant", "It is green."),
    codex(5, "event_msg", type="thread_rolled_back", num_turns=1),
    message(6, "user", "Paint it ochre."),
    codex(
        7,
        "response_item",
        type="function_call",
        name="request_user_input",
        call_id="c1",
        arguments=json.dumps({"questions": [{"id": "coats", "question": "How many coats?"}]}),
    ),
    codex(
        8,
        "response_item",
        type="function_call_output",
        call_id="c1",
        output=json.dumps({"answers": {"coats": {"answers": ["Two", "user_note: thin ones"]}}}),
    ),
    message(9, "assistant", "Two thin coats."),
    codex(10, "event_msg", type="thread_rolled_back", num_turns=2),
    message(11, "user", "Leave it bare."),
    message(12, "assistant", "It is bare."),
]


def gemini(node, kind, content, second, **more):
    return {"id": node, "type": kind, "content": content, "timestamp": AT.format(second), **more}


GEMINI = [
    {"sessionId": "s-1", "projectHash": "ab", "startTime": AT.format(0), "kind": "main"},
    gemini("u0", "user", [{"text": "<session_context>\nToday is Sunday.\n</session_context>"}], 1),
    gemini("u1", "user", [{"text": "Why does it hang?"}], 2),
    gemini("g1", "gemini", "It waits", 3),
    gemini("g1", "gemini", "It waits for a lock.", 3, model="gemini-3-pro"),
    {"$set": {"lastUpdated": AT.format(4)}},
    gemini("u2", "user", [{"text": "Kill it."}], 5),
    gemini("g2", "gemini", "Killed.", 6),
    {"$rewindTo": "u2"},
    gemini("u3", "user", [{"text": "Free it."}], 7),
    gemini("g3", "gemini", "Freed.", 8),
]
LOGS = {
    "claude-code": ("projects/-home-me-app/s-1.jsonl", CLAUDE_CODE),
    "codex": ("sessions/2026/03/01/rollout-2026-03-01T12-00-00-s-1.jsonl", CODEX),
    "gemini-cli": ("tmp/app/chats/session-2026-03-01T12-00-s-1.jsonl", GEMINI),
}
SAID = {
    "claude-code": [
        ("Plan the sluice.", ""),
        ("Use larch instead.", "Larch, then.\n\n1. Which hinge?\n2. Which oil?"),
        ("1. gunmetal\n2. linseed", "Noted."),
        ("And paint it.", "Painted."),
        ("Ochre, please.", ""),
        ("Thanks", "Which hinge?"),
        ("iron", "Gladly."),
    ],
    "codex": [
        ("Set the gate.", "It is set."),
        ("Paint it green.", "It is green."),
        ("Paint it ochre.", "How many coats?"),
        ("Two\nthin ones", "Two thin coats."),
        ("Leave it bare.", "It is bare."),
    ],
    "gemini-cli": [("Why does it hang?", "It waits for a lock."), ("Kill it.", "Killed."), ("Free it.", "Freed.")],
}


def imported(folder):
    (conversation,) = read_all(folder).conversations
    turns = {}
    for turn in exchanges(conversation):
        parent = turn.parent
        while parent is not None and parent.question is None:
            parent = parent.parent
        answer = "\n\n".join(each.text for each in turn.answers)
        turns[turn.question.id] = turn.question.text, answer, parent.question.id if parent else None
    return turns


@pytest.mark.parametrize("product", LOGS)
def test_a_session_appended_line_by_line_is_the_one_that_is_imported(tmp_path, product):
    name, lines = LOGS[product]
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    appended, position = {}, {}
    for line in lines:
        with path.open("a") as log:
            log.write(json.dumps(line) + "\n")
        turns, position = new_turns(product, path, position)
        appended |= {turn["uuid"]: turn for turn in turns}

    whole = imported(tmp_path)

    assert sorted((user, answer) for user, answer, _parent in whole.values()) == sorted(SAID[product])
    # The server hides what is a program's own.
    assert {node: (turn["user"], turn["answer"]) for node, turn in appended.items()} == {
        node: (user, answer) for node, (user, answer, _parent) in whole.items()
    }
    named = {node: turn["parent"] for node, turn in appended.items() if turn.get("parent")}
    # Where a parent is not named, the server takes the turn before.
    assert named.items() <= {node: parent for node, (_user, _answer, parent) in whole.items()}.items()
    assert not new_turns(product, path, position)[0] or product == "claude-code"
