"""What the chats of further products and forms say, as their readers give it."""

import json

import pytest

from evals.expectations import read_all
from imports.reading.products import read
from imports.tests import histories
from imports.tests.test_every_file_is_accounted_for import zipped
from imports.tests.test_lost_words import chain, chat, node


@pytest.fixture
def reading(tmp_path):
    def of(value, name="export.json"):
        data = value if isinstance(value, bytes) else (value if isinstance(value, str) else json.dumps(value)).encode()
        (tmp_path / name).write_bytes(data)
        return read_all(tmp_path / name)

    return of


def said(found):
    return [(message.role, message.text) for message in found.messages]


# Claude's export in parts


MEMORY = {
    "account_uuid": "acc1",
    "conversations_memory": "Ada counts otters.",
    "memory_files": [{"path": "/topics/holts.md", "content": "Three holts.", "updated_at": "2026-09-20T08:00:00Z"}],
    "dreams": ["of eels"],
}
DESIGN = {
    "uuid": "d1",
    "title": "Otter poster",
    "project": {"uuid": "p", "name": "Poster"},
    "messages": [
        {"uuid": "y1", "role": "user", "content": {"content": "A poster with an otter."}},
        {"uuid": "y2", "role": "assistant", "content": [{"type": "text", "text": "Here is the otter."}]},
    ],
}
ARTIFACT = {
    "artifacts/f1/artifact.json": json.dumps({"id": "f1", "title": "Otter counter"}),
    "artifacts/f1/versions/2.html": "<p>Two</p>",
    "artifacts/f1/versions/10.html": "<p>Ten</p>",
}


def test_claude_files_of_the_memory_are_notes_of_their_account(reading):
    found = reading(zipped({"memories/acc1.json": json.dumps(MEMORY)}))
    assert [(each.external_id, each.text, each.account) for each in found.documents] == [
        ("memory:conversations", "Ada counts otters.", "acc1"),
        ("memory:file:/topics/holts.md", "Three holts.", "acc1"),
    ]
    assert [each.reason for each in found.skipped] == ["an entry without a text, of an unknown kind: dreams (1)"]


def test_claude_design_chats_are_chats_with_their_project(reading):
    (found,) = reading(zipped({"design_chats/d1.json": json.dumps(DESIGN)})).conversations
    assert (found.title, found.project) == ("Otter poster", "Poster")
    assert said(found) == [("user", "A poster with an otter."), ("assistant", "Here is the otter.")]


def test_claude_artifacts_are_files_in_their_last_version_and_earlier_ones_are_listed(reading):
    found = reading(zipped(ARTIFACT))
    (message,) = found.conversations[0].messages
    assert [(each.name, each.entry) for each in message.files] == [
        ("Otter counter.html", "artifacts/f1/versions/10.html")
    ]
    assert [each.where for each in found.skipped] == ["artifacts/f1/versions/2.html"]


def test_claude_parts_together_give_what_each_gives_alone(reading):
    parts = {
        "design_chats-000.zip": zipped({"d1.json": json.dumps(DESIGN)}),
        "memories-000.zip": zipped({"memories/acc1.json": json.dumps(MEMORY)}),
        "frames-000.zip": zipped(ARTIFACT),
        "light_metadata-000.zip": zipped({"users.json": '[{"uuid": "acc1", "full_name": "Ada"}]'}),
    }
    found = reading(zipped(parts))
    assert [each.title for each in found.conversations] == ["Otter poster", "Otter counter"]
    assert len(found.documents) == 2
    alone = reading(parts["light_metadata-000.zip"]).refusal
    assert alone.startswith("There is no history of Claude in this.") and alone.endswith("Found: users.json.")


def test_claude_list_of_parts_says_which_files_to_give(reading):
    parts = [
        {"name": "conversations-000.zip", "url": "https://example.org/c"},
        {"name": "projects-000.zip", "url": "x"},
    ]
    refusal = reading({"version": 1, "files": parts}).refusal
    assert refusal.startswith("This is the list of the files of your Claude export, not the export.")
    assert refusal.endswith("conversations-000.zip, projects-000.zip.")


@pytest.mark.parametrize(
    ("fields", "properties", "listed"),
    [
        ({"prompt_template": "In metres."}, ((("description", "Where otters sleep"),),), 0),
        (
            {"prompt_template": "", "docs": [{"filename": "a.md", "content": "x"}]},
            ((("description", "Where otters sleep"),),),
            0,
        ),
        ({"prompt_template": ""}, (), 1),
    ],
)
def test_claude_keeps_a_projects_description(reading, fields, properties, listed):
    found = reading({"uuid": "p", "name": "Survey", "description": "Where otters sleep", "docs": [], **fields})
    assert tuple(each.properties for each in found.documents) == properties
    assert [each.reason.rpartition(": ")[2] for each in found.skipped] == ["Where otters sleep"] * listed


# ChatGPT's marks


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Clay. citeturn0search1turn0search12", "Clay."),
        ("Clay filecite\ue202turn0file1 seals.", "Clay  seals."),
        ('\ue200entity\ue202["people", "Marie Curie", "physicist"]\ue201 knew.', "Marie Curie knew."),
        ("See \ue200url\ue202the page\ue202https://example.org\ue201.", "See the page."),
        ("Here: ![image](sediment://file_0000abc)", "Here:"),
        ("I cite turn0 of the mill.", "I cite turn0 of the mill."),
    ],
)
def test_chatgpt_marks_go_and_their_words_stay(reading, text, shown):
    (found,) = reading(
        [chat(*chain(node("q", "user", "How?"), node("a", "assistant", text)), current_node="a")]
    ).conversations
    assert found.messages[-1].text == shown


def test_chatgpt_input_of_a_tool_for_pictures_is_no_answer(reading):
    nodes = chain(
        node("q", "user", "Draw a mill"),
        node("t", "assistant", '{"prompt": "A mill at dawn", "size": "1024x1024"}'),
        node("a", "assistant", "Here it is."),
        node("j", "user", "As JSON"),
        node("k", "assistant", '{"prompt": "A mill", "author": "Ada"}'),
    )
    (found,) = reading([chat(*nodes, current_node="k")]).conversations
    assert [message.text for message in found.messages] == [
        "Draw a mill", "Here it is.", "As JSON", '{"prompt": "A mill", "author": "Ada"}',
    ]  # fmt: skip
    assert found.messages[1].tool_calls[0]["input"] == '{"prompt": "A mill at dawn", "size": "1024x1024"}'


# Gemini


@pytest.mark.parametrize(
    ("entry", "question", "attachments"),
    [
        (histories.gemini("Prompted Sum it up.\nAttached 1 file."), "Sum it up.", ("Attached 1 file.",)),
        (
            histories.gemini("Prompted Sum it up. Attached 2 files.", subtitles=[{"name": "a.pdf"}]),
            "Sum it up.",
            ("a.pdf",),
        ),
        (histories.gemini("Searched for damp rye", header="AI Mode"), "damp rye", ()),
        (histories.gemini("Asked damp rye?", header="KI-Modus"), "damp rye?", ()),
    ],
)
def test_gemini_takes_the_persons_words_alone(reading, entry, question, attachments):
    (found,) = reading([entry], "MyActivity.json").conversations
    assert (found.messages[0].text, found.messages[0].attachments) == (question, attachments)
    assert found.messages[1].text == "The rye."


def test_gemini_conversations_of_workspace_are_read_beside_the_activity(reading):
    turns = [
        {"user_turn": {"prompt": "A menu?", "turn_index": 0, "turn_last_modified": "2026-08-09T17:29:40+00:00"}},
        {"system_turn": {"text": [{"data": "Smoked eel."}, {"data": "Quince."}], "turn_index": 1}},
        {"gem_turn": {}},
    ]
    talk = {"title": "Menu", "creation_time": "2026-08-09T17:29:00Z", "conversation_turns": turns}
    files = {"Takeout/Gemini in Workspace/conversation_17.txt": json.dumps(talk), **histories.HISTORIES["gemini"]}
    found = reading(zipped(files))
    menu, activity = found.conversations
    assert (menu.title, menu.external_id) == ("Menu", "conversation_17")
    assert said(menu) == [("user", "A menu?"), ("assistant", "Smoked eel.\n\nQuince.")]
    assert said(activity)[0] == ("user", "Which loaf?")
    assert [each.reason for each in found.skipped] == ["an entry without a text, of an unknown kind: gem_turn (1)"]


def test_a_takeout_without_my_activity_says_where_the_chats_are(reading):
    refusal = reading(zipped({"Takeout/Gemini/gemini_gems_data.html": "<div></div>"})).refusal
    assert refusal.startswith("This Takeout has no chats with Gemini: they are in My Activity.")


# Products with one form


def test_qwen_chats_are_open_webuis_within_data(reading):
    answer = [{"content": "A rhyme is asked.", "phase": "think"}, {"content": "The river winds.", "phase": "answer"}]
    (found,) = reading({"success": True, "data": [histories.open_webui(content_list=answer)]}).conversations
    assert said(found) == [("user", "A rhyme?"), ("assistant", "The river winds.")]
    assert found.messages[1].tool_calls == ({"name": "thinking", "summary": "A rhyme is asked."},)


def test_grok_gives_titles_times_and_words_and_lists_other_entries(reading):
    card = '<grok:render card_id="a" type="render_inline_citation"><argument name="id">1</argument></grok:render>'
    found = reading({**histories.grok(message=f"Winter rye.{card}"), "tasks": [{"prompt": "Each day"}], "projects": []})
    (rye,) = found.conversations
    assert (rye.title, rye.messages[0].at.isoformat()) == ("Rye", "2025-09-09T06:40:00+00:00")
    assert said(rye) == [("user", "Which rye?"), ("assistant", "Winter rye.")]
    assert [each.where for each in found.skipped] == ["export.json:tasks[1]"]


def test_deepseek_is_not_chatgpt_and_folds_its_thinking(reading):
    (found,) = reading([histories.deepseek()]).conversations
    assert (found.product, said(found)) == ("deepseek", [("user", "How do I seal it?"), ("assistant", "With clay.")])
    assert found.messages[1].tool_calls == ({"name": "thinking", "summary": "They mean clay."},)


def test_deepseek_messages_without_fragments_take_turns(reading):
    old = histories.deepseek()
    for number, text in (("1", "How?"), ("2", "So.")):
        old["mapping"][number]["message"] = {
            "content": text,
            "reasoning_content": None,
            "inserted_at": histories.SAID_AT,
        }
    (found,) = reading([old]).conversations
    assert said(found) == [("user", "How?"), ("assistant", "So.")]


def test_le_chat_joins_chunks_and_keeps_canvases_and_several_chats_of_a_file(reading):
    other = {"id": "z", "chatId": "m", "role": "user", "content": "Autre", "createdAt": histories.SAID_AT}
    first, second = histories.le_chat()
    first["canvas"] = [{"title": "Recipe", "content": "Flour, water"}]
    found = reading([first, second, other])
    assert [said(each) for each in found.conversations] == [
        [("user", "Which flour?"), ("assistant", "The T110, milled.")],
        [("user", "Autre")],
    ]
    assert [(each.name, each.text) for each in found.conversations[0].messages[0].files] == [
        ("Recipe.txt", "Flour, water")
    ]
    assert found.skipped == []


def test_perplexity_is_read_in_the_forms_of_both_exporters(reading):
    (found,) = reading(histories.perplexity()).conversations
    answer = "In 1782 [1].\n\n1. [Archive](https://example.org/dam)"
    assert (found.title, said(found)) == ("The dam", [("user", "When?"), ("assistant", answer)])
    blocks = [
        {"intended_usage": "ask_text", "markdown_block": {"answer": "In 1782 [1]."}},
        {"web_result_block": {"web_results": [{"name": "Archive", "url": "https://example.org/dam"}]}},
    ]
    entry = {"uuid": "q", "query_str": "When?", "entry_created_datetime": histories.SAID_AT, "blocks": blocks}
    (other,) = reading({"entries": [entry], "thread_metadata": {"title": "The dam"}}).conversations
    assert (other.title, said(other)) == ("The dam", [("user", "When?"), ("assistant", answer)])
    formerly = {
        "uuid": "q",
        "query_str": "When?",
        "text": json.dumps([{"content": {"answer": '{"answer": "In 1782."}'}}]),
    }
    assert said(reading({"entries": [formerly]}).conversations[0])[1] == ("assistant", "In 1782.")


# The plain form


MESSAGES = [
    {"role": "developer", "content": "Be brief."},
    {"role": "User", "content": [{"type": "text", "text": "How deep?"}], "createdAt": "2026-09-11T10:00:00Z"},
    {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "measure", "arguments": "{}"}}]},
    {"role": "tool", "content": "2 m"},
    {"role": "assistant", "content": "Two \ud800 metres.", "reasoning_content": "Deep."},
    {"role": "narrator", "content": "They left."},
]
ASKED = [("user", "How deep?"), ("assistant", "Two \ufffd metres.")]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (json.dumps({"title": "Pit", "messages": MESSAGES}), "a.json"),
        (json.dumps([{"messages": MESSAGES}]), "a.json"),
        (json.dumps({"messages": MESSAGES}) + "\n", "a.jsonl"),
        (json.dumps(MESSAGES), "a.json"),
        ("\n".join(map(json.dumps, MESSAGES)), "a.jsonl"),
        ("\n".join(map(json.dumps, MESSAGES)), "messages"),
        (json.dumps([MESSAGES]), "a.json"),
        (json.dumps({"chats": [{"messages": MESSAGES}]}), "a.json"),
        ('Author;Time;Text\nuser;2026-09-11T10:00:00Z;"How\ndeep?"\nassistant;;Two \ufffd metres.\n', "a.csv"),
    ],
)
def test_the_plain_form_is_read_as_json_lines_or_a_table(reading, text, name):
    found = reading(text, name)
    (one,) = found.conversations
    assert [(role, text.replace("\n", " ")) for role, text in said(one)] == ASKED
    assert one.messages[0].at.isoformat() == "2026-09-11T10:00:00+00:00"
    if not name.endswith(".csv"):
        assert [each.reason for each in found.skipped] == [
            "an entry without a text, of an unknown kind: role narrator (1)"
        ]
        assert "are hidden: 1." in found.notices[0]


def test_the_plain_form_tells_conversations_that_begin_alike_apart(reading):
    talks = [{"messages": [{"role": "user", "content": "Hello"}, {"role": "user", "content": end}]} for end in "ab"]
    first = reading("\n".join(map(json.dumps, talks)), "a.jsonl").conversations
    again = reading("\n".join(map(json.dumps, talks)), "b.jsonl").conversations
    assert len({each.external_id for each in first}) == 2
    assert [each.external_id for each in first] == [each.external_id for each in again]


def test_a_table_of_copilot_has_a_chat_for_each_of_its_conversations(reading):
    rows = [
        "Conversation,Time,Author,Message",
        'Rye bread,2026-09-11T10:00:00,Human,"How damp, at most?"',
        "Rye bread,2026-09-11T10:00:05,AI,Fourteen percent.",
        "The dam,2026-09-12T10:00:00,Human,And clay?",
    ]
    rye, dam = reading("\r\n".join(rows), "copilot.csv").conversations
    assert (rye.title, said(rye)) == ("Rye bread", [("user", "How damp, at most?"), ("assistant", "Fourteen percent.")])
    assert (dam.title, said(dam)) == ("The dam", [("user", "And clay?")])


def test_a_broken_line_of_the_plain_form_is_listed_and_the_others_are_read(reading):
    line = json.dumps(histories.plain())
    found = reading(f'{line}\n{{broken\n{line[:-1]}, "id": "two"}}\n', "a.jsonl")
    assert len(found.conversations) == 2
    assert [each.where for each in found.skipped] == ["a.jsonl:2"]


def test_a_stronger_reader_is_preferred_to_the_plain_form(reading):
    talk = {"models": ["m"], "messages": [{"role": "user", "content": "Hello"}]}
    assert [each.product for each in reading(talk).conversations] == ["open-webui"]


def test_values_one_after_the_other_are_all_read_by_every_reader(tmp_path):
    path = tmp_path / "conversations.jsonl"
    path.write_text("\n".join(json.dumps({**histories.claude(), "uuid": str(number)}) for number in range(3)))
    assert [item.external_id for item in read(path)] == ["0", "1", "2"]
