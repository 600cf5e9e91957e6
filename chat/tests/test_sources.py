"""The sources of an answer: what it was given of the memory, where it leads, and how a person leaves it out."""

import json
import re
from html import escape, unescape

import pytest
from django.utils import timezone

from agent_tools.authentication import create_token
from agent_tools.models import TokenScope
from agent_tools.tests.callers import client_of
from chat.exporting import account_as_json
from core.isolation.acting import acting_as
from intake.chats.prompts import Prompt
from intake.models import ChatPreferences, Conversation, Turn
from intake.tests.factories import NOW, a_person, a_turn
from memory import documents, index, projects, records
from memory.models import MemoryDocument, MemoryRecord
from memory.models.documents import ABOUT_ME
from memory.tests.attached import attach
from testing.model_server import CallTool, Say

pytestmark = pytest.mark.django_db(transaction=True)

SCOPES = [TokenScope.SEARCH, TokenScope.READ, TokenScope.WRITE, TokenScope.CHAT]
LOOK, ANSWER = CallTool("search_history", {"query": "worktop"}), Say(("It is oak [1], 40 mm [2], and not [9].",))


@pytest.fixture
def client(person, log_in):
    return log_in(person)


@pytest.fixture
def memory(person):
    with acting_as(person):
        documents.append(user=person, day=None, text="- Tea, not coffee\n- The worktop came in May", now=NOW)
        documents.append(user=person, day=ABOUT_ME, text="- I am a carpenter in Bremen.", now=NOW)
        kept = records.create(user=person, content="The worktop is oak", type="decision", now=NOW)
    turn = a_turn(person, "The worktop shall be 40 mm thick", "Noted: 40 mm.")
    index.embed_pending()
    return {"record": f"{kept.id}", "turn": f"{turn.conversation_id}/{turn.turn_number}"}


def asked(client, language_model, *script, message="What is the worktop?", **fields):
    model = language_model(*(script or (LOOK, ANSWER)))
    return client.events(message, **fields)[-1].data, model


def page_of(client, data, name="prompt/"):
    return client.get(f"/c/{data['conversationId']}/turns/{data['turnNumber']}/{name}").text


def named(data, kind):
    return {source["id"]: source for source in data["sources"] if source["kind"] == kind}


def named_by_id(data):
    return {source["id"]: source for source in data["sources"]}


def press(client, page, text, of):
    """Presses a button beside the source with this text."""
    (form,) = [each for each in page.split("<form")[1:] if f'aria-label="{text}"' in each.split(">")[0]]
    fields = dict(re.findall(r'name="(leave|next)" value="([^"]*)"', form))
    response = client.post("/memory/context/change/", data=fields | {"of": of}, headers=client._csrf())
    assert response.status_code == 200 and f"{response.url}".endswith(fields["next"])


def left_out(client):
    return client.get("/memory/").text.split('id="left-out"')[1]


def bring_back(client, of=""):
    for digest in re.findall(r'name="bring" value="(\w+)"', left_out(client)):
        client.post("/memory/context/change/", data={"bring": digest, "of": of}, headers=client._csrf())


def test_an_answer_names_each_source_in_events_pages_tools_and_exports(person, client, language_model, memory):
    data, _ = asked(client, language_model)
    # The search found a chat and its only turn.
    assert {memory["turn"], memory["turn"].split("/")[0]} == named(data, "turn").keys()
    line = f"From your memory: {len(data['sources']) - 1}"
    assert data["sourcesLine"] == line
    record, turn = named(data, "record")[memory["record"]], named(data, "turn")[memory["turn"]]
    assert (record["title"], record["place"]) == ("The worktop is oak", f"/memory/records/{memory['record']}/")
    assert turn["title"].endswith("(2026-03-01)") and turn["place"].endswith("?turn=1#turn-1")
    assert {source["kind"] for source in data["sources"]} == {"about", "notes", "record", "turn"}
    assert all(source["used"] and source["tokens"] > 0 for source in data["sources"])
    chat, number = data["conversationId"], data["turnNumber"]
    (of_rest,) = client.get(f"/api/v1/conversations/{chat}/").json()["turns"]
    assert of_rest["sources"] == data["sources"]
    api = client_of(person)
    of_tool = api.post("/api/v1/tools/get_conversation/", {"conversationId": chat}, content_type="application/json")
    assert of_tool.json()["turns"][0]["sources"] == data["sources"]
    exported = json.loads(b"".join(account_as_json(user=person, now=NOW)))["conversations"]
    assert [turn["sources"] for each in exported for turn in each["turns"] if each["id"] == chat] == [data["sources"]]
    page = page_of(client, data)
    assert "The worktop is oak" in page and "Tea, not coffee" in page and "Changed since." not in page
    assert line in client.get(f"/c/{chat}/").text and number == 1


def test_a_number_leads_to_its_source_and_one_that_was_not_given_is_text(client, language_model, memory):
    evil = "https://evil.example/"
    hostile = (
        f"[9], [[1]], `[1]`, [1][2], [x](/y), [01], [1]({evil}), [[9]]({evil}), [see [9]]({evil}), ![[1]]({evil}), [2][]"
        f"\n\n[2]: {evil}\n[9]: {evil}\n[01]: {evil}\n"
    )
    data, _ = asked(client, language_model, LOOK, Say((hostile,)))
    given = {part.number: part.id for part in Prompt.of(Turn.objects.latest("pk").prompt).sources if part.number}
    assert [*given][:2] == [1, 2] and 9 not in given
    places = {number: escape(named_by_id(data)[id_]["place"]) for number, id_ in given.items()}
    links = re.findall(r'<a href="([^"]*)"[^>]*>(.*?)</a>', data["html"])
    cited = [(href, text) for href, text in links if re.fullmatch(r"\W*[0-9]+\W*", text)]
    assert cited == [(places[number], f"[{number}]") for number in (1, 1, 2, 1, 1, 2)]
    # Other addresses are those that a reader sees, or of other words.
    assert {href for href, text in links if evil in href and text != evil} <= {evil} and ("/y", "x") in links
    for text in ("[9],", "[[", "[01]", "<code>[1]</code>"):
        assert text in data["html"]
    assert client.get(f"/c/{data['conversationId']}/").text.count(">[1]</a>") == 4


@pytest.mark.parametrize("of_all", [True, False])
def test_what_is_left_out_the_next_prompt_and_its_tools_do_not_have(person, client, language_model, memory, of_all):
    api = client_of(person)
    data, model = asked(client, language_model)
    chat = data["conversationId"]
    assert "I am a carpenter" in str(model.requests) and "Tea, not coffee" in str(model.requests)
    page = page_of(client, data)
    for text in ("The worktop is oak", "- I am a carpenter in Bremen.", "- Tea, not coffee"):
        press(client, page, text, "" if of_all else chat)
    (turn,) = [source["title"] for source in data["sources"] if source["id"] == memory["turn"]]
    press(client, page, turn, "" if of_all else chat)
    again, model = asked(client, language_model, conversation_id=chat)
    sent = str(model.requests)
    assert not {memory["record"], memory["turn"]} & {source["id"] for source in again["sources"]}
    for words in ("carpenter", "Tea, not coffee", "worktop is oak", "40 mm thick"):
        assert words not in sent.replace(str(model.requests[0]["messages"][1:3]), "")
    _, other = asked(client, language_model)
    assert ("carpenter" not in str(other.requests)) == of_all == ("worktop is oak" not in str(other.requests))
    context = api.post("/api/v1/tools/get_context/", {"for": "session"}, content_type="application/json").json()["text"]
    assert ("Tea, not coffee" not in context) == of_all == ("worktop is oak" not in context)
    listed = left_out(client)
    assert listed.count("Bring back</button>") == 4 and "The worktop is oak" in listed
    bring_back(client, "" if of_all else chat)
    _, model = asked(client, language_model, conversation_id=chat)
    assert "carpenter" in str(model.requests) and "worktop is oak" in str(model.requests)


def test_a_corrected_record_is_what_the_next_prompt_has(person, client, language_model, memory):
    data, _ = asked(client, language_model)
    assert f'href="/memory/records/{memory["record"]}/replace/"' in page_of(client, data)
    with acting_as(person):
        newer = records.create(
            user=person, content="The worktop is beech", type="decision", facts={"replaces": memory["record"]}, now=NOW
        )
    index.embed_pending()
    again, model = asked(client, language_model)
    assert "worktop is beech" in str(model.requests) and "worktop is oak" not in str(model.requests)
    assert str(newer.id) in named(again, "record")
    assert "Replaced since." in page_of(client, data)


def test_correct_opens_what_each_kind_of_source_is_corrected_by(person, client, language_model, memory):
    """Lines in their note, instructions where they stand, and for a passage a record that begins with it."""
    today = timezone.localdate()
    file = attach(person, b"The worktop costs 900 euros.", "offer.txt")
    Conversation.objects.filter(pk=file.conversation_id).update(project="")
    with acting_as(person):
        documents.append(user=person, day=today, text="The worktop was oiled", now=NOW)
        ChatPreferences.objects.create(user=person, how_to_answer="In short.")
        note = MemoryDocument.objects.create(
            user=person, kind="note", title="Worktop", content="Beech worktop", created_at=NOW, updated_at=NOW
        )
    index.embed_pending()
    data, _ = asked(client, language_model)
    turn = Turn.objects.latest("pk")
    turn.prompt += f"\nnotes {note.pk}  1"
    turn.save(update_fields=["prompt"])
    page, found = page_of(client, data), {}
    for kind, href in re.findall(
        r'<li class="source".*?<span class="source-kind">(.*?)<.*?href="([^"]*)">Correct', page, re.S
    ):
        found.setdefault(kind, []).append(unescape(href))
    assert f"/memory/logs/{today}/edit/" in found["Notes"] and found["Instructions"] == ["/settings/account/"]
    (of_note,) = [href for href in found["Notes"] if "/correct/" in href]
    for kind, href, words in (
        ("turn", found["Chat"][0], "40 mm thick\n\nNoted: 40 mm."),
        ("file", *found["File"], "The worktop costs 900 euros."),
        ("note", of_note, "Beech worktop"),
    ):
        form = client.get(href).text
        assert words in form.split("<textarea")[1], kind


def test_a_corrected_passage_goes_and_its_correction_is_found(log_in, language_model, memory, client):
    data, _ = asked(client, language_model, LOOK, Say(("Oak.",)))
    page = page_of(client, data)
    (href,) = re.findall(r'href="([^"]*/correct/[^"]*)"', page)
    # Of the record, of the notes, and of the chat as a whole beside its turn.
    assert page.count('class="source-number"') == 4
    fields = {"content": "The worktop shall be 30 mm thick", "type": "fact", "leaves_out": "1"}
    assert client.post(href, data=fields | {"content": ""}, headers=client._csrf()).status_code == 400
    client.post(href, data=fields, headers=client._csrf())
    index.embed_pending()
    again, model = asked(client, language_model)
    assert "30 mm thick" in str(model.requests) and "40 mm" not in str(model.requests)
    record = MemoryRecord.objects.get(content=fields["content"])
    assert f"{record.source_conversation}/{record.source_turn}" == memory["turn"]
    assert str(record.pk) in named(again, "record") and memory["turn"] not in named_by_id(again)
    bob = log_in(a_person("bob@example.com"))
    assert bob.get(href).status_code == bob.post(href, data=fields, headers=bob._csrf()).status_code == 404
    assert client.get(href[:-2] + "x/").status_code == 404


def test_a_line_of_a_note_is_corrected_alone_and_refused_once_it_has_changed(person, client, language_model, memory):
    page = page_of(client, asked(client, language_model, Say(("Yes.",)))[0])
    tea, _came = re.findall(r'href="(/memory/edit/\?line=\w+)"', page)
    form = client.get(tea).text

    def send(content):
        fields = {"content": content, "state": re.findall(r'name="state" value="(\w+)"', form)[0]}
        return client.post(tea, data=fields, headers=client._csrf())

    assert form.split("<textarea")[1].split("\n")[1] == "Tea, not coffee</textarea>"
    with acting_as(person):
        documents.append(user=person, day=None, text="- One more", now=NOW)
    assert send("Cocoa").status_code == 200
    note = "- Cocoa\n- The worktop came in May\n- One more\n"
    assert MemoryDocument.objects.get(kind="memory").content == note
    _, model = asked(client, language_model)
    context = client_of(person).post("/api/v1/tools/get_context/", {"for": "session"}, content_type="application/json")
    for given in (str(model.requests), context.json()["text"]):
        assert "Cocoa" in given and "Tea, not coffee" not in given
    refused = send("Milk")
    assert refused.status_code == client.get(tea).status_code == 409
    assert "This line has changed since" in refused.text and "Milk</blockquote>" in refused.text
    assert note in refused.text and MemoryDocument.objects.get(kind="memory").content == note


def test_a_source_that_is_gone_or_of_another_project_is_said_to_be_so(person, client, language_model, memory):
    file = attach(person, b"The worktop costs 900 euros.", "offer.txt")
    Conversation.objects.filter(pk=file.conversation_id).update(project="")
    index.embed_pending()
    data, _ = asked(client, language_model)
    (of_file,) = named(data, "file").values()
    assert of_file["title"].startswith("offer.txt")
    Conversation.objects.filter(pk=memory["turn"].split("/")[0]).update(project="Kitchen")
    client.delete(f"/api/v1/attachments/{file.pk}/", headers=client._csrf())
    with acting_as(person):
        records.delete(user=person, record_id=memory["record"])
        documents.append(user=person, day=None, text="- One more", now=NOW)
    page = page_of(client, data)
    assert page.count("This is no longer there.") == 2 and "offer.txt" not in page and "worktop is oak" not in page
    assert "In the project Kitchen, which alone shows it" in page and "40 mm thick (" not in page
    assert "Changed since." in page
    (turn,) = client.get(f"/api/v1/conversations/{data['conversationId']}/").json()["turns"]
    assert [source["title"] for source in turn["sources"] if source["kind"] in ("file", "record", "turn")].count(
        ""
    ) >= 3


def test_an_agent_of_a_project_learns_of_its_sources_alone(person, client, language_model, memory):
    with acting_as(person):
        projects.save_project(user=person, name="Kitchen", instructions="Use millimetres.")
        documents.append(user=person, day=None, project="Kitchen", text="- Doors open left", now=NOW)
        records.create(user=person, content="The worktop is sealed", type="note", project_id="Kitchen", now=NOW)
    index.embed_pending()
    data, _ = asked(client, language_model, project="Kitchen")
    assert {source["kind"] for source in data["sources"]} > {"about", "record", "notes", "instructions"}
    bound = client_of(person, scopes=SCOPES, project="Kitchen", is_bound=True)
    path = f"/api/v1/conversations/{data['conversationId']}/"
    (turn,) = bound.get(path).json()["turns"]
    assert {(source["kind"], source["id"] in ("project", memory["record"])) for source in turn["sources"]} == {
        ("instructions", True),
        ("notes", True),
        ("record", False),
    }
    assert memory["record"] not in bound.get(path).text and "carpenter" not in bound.get(path).text
    sent = bound.post(
        "/api/v1/tools/get_conversation/", {"conversationId": data["conversationId"]}, content_type="application/json"
    )
    assert sent.json()["turns"][0]["sources"] == turn["sources"]


def test_recall_mode_names_its_quotes_as_sources_and_what_it_did_not_quote(client, memory):
    data = client.events("How thick is the worktop?")[-1].data
    used = {source["id"] for source in data["sources"] if source["used"]}
    assert memory["record"] in used, data
    assert data["sourcesLine"] == f"From your memory: {len(used)}"
    assert not {"about", "instructions"} & {source["kind"] for source in data["sources"]}
    page = page_of(client, data)
    assert "How thick is the worktop?</pre>" in page and "Changed since." not in page and "Gone since." not in page


def test_an_answer_without_memory_and_an_imported_one_say_nothing(client, language_model, memory):
    data, _ = asked(client, language_model, Say(("Hello.",)), memory=False)
    assert (data["sourcesLine"], data["sources"]) == ("", [])
    chat = memory["turn"].split("/")[0]
    assert "From your memory" not in client.get(f"/c/{chat}/").text
    assert "Nothing is known of the prompt" in client.get(f"/c/{chat}/turns/1/prompt/").text


def test_nobody_else_sees_or_changes_what_an_answer_was_given(client, log_in, language_model, memory):
    data, _ = asked(client, language_model)
    (digest, *_more) = re.findall(r'name="leave" value="(\w+)"', page_of(client, data))
    bob = log_in(a_person("bob@example.com"))
    assert bob.get(f"/c/{data['conversationId']}/turns/1/prompt/").status_code == 404
    for fields in ({"leave": digest}, {"bring": digest}, {"bring": ""}):
        of_chat = {**fields, "of": data["conversationId"]}
        assert bob.post("/memory/context/change/", data=of_chat, headers=bob._csrf()).status_code == 404
    bob.post("/memory/context/change/", data={"leave": digest}, headers=bob._csrf())
    assert "worktop" not in bob.get("/memory/").text
    assert not Conversation.objects.exclude(left_out=[]).exists()
    assert [each.user.email for each in ChatPreferences.objects.exclude(left_out=[])] == ["bob@example.com"]


def test_an_agent_of_a_project_hears_no_count_of_other_sources(person, client, language_model, memory, new_client):
    with acting_as(person):
        records.create(user=person, content="The worktop is sealed", type="note", project_id="Kitchen", now=NOW)
    index.embed_pending()
    data, _ = asked(client, language_model, project="Kitchen")
    (own,) = [each for each in data["sources"] if each["title"] == "The worktop is sealed"]
    assert len(data["sources"]) > 2
    secret = create_token(user=person, scopes=SCOPES, project="Kitchen", is_bound=True).secret
    path = f"/api/v1/intake/turns/{Turn.objects.latest('pk').pk}/events"
    done = new_client().get(path, headers={"authorization": f"Bearer {secret}"}).text.split("event: done")[1]
    ended = json.loads(done.split("data: ")[1].split("\n")[0])
    assert (ended["sources"], ended["sourcesLine"]) == ([own], "From your memory: 1")


def test_a_deleted_chat_is_no_longer_there_for_answers_that_quoted_it(client, language_model, memory):
    data, _ = asked(client, language_model)
    client.delete(f"/api/v1/conversations/{memory['turn'].split('/')[0]}/", headers=client._csrf())
    page = page_of(client, data)
    assert "This is no longer there." in page and memory["turn"].split("/")[0] not in page.split("<ol")[0]
    (turn,) = client.get(f"/api/v1/conversations/{data['conversationId']}/").json()["turns"]
    (gone,) = [each for each in turn["sources"] if each["id"] == memory["turn"]]
    assert (gone["title"], gone["place"]) == ("", "")
    assert "[2]" in client.get(f"/c/{data['conversationId']}/").text


def test_deleting_a_record_or_a_note_withdraws_its_words_everywhere(person, client, language_model, memory):
    data, _ = asked(client, language_model, LOOK, Say(("Yes.",)))
    with acting_as(person):
        records.delete(user=person, record_id=memory["record"])
        documents.delete(user=person, day=None, expected=None)
    exported = b"".join(account_as_json(user=person, now=NOW)).decode()
    chat = client.get(f"/api/v1/conversations/{data['conversationId']}/").text
    for text in (page_of(client, data), chat, client.get(f"/c/{data['conversationId']}/").text, exported):
        assert "worktop is oak" not in text and "Tea, not coffee" not in text


def test_texts_that_are_given_whole_are_left_out_alone_and_brought_back(person, client, language_model):
    """Instructions for all chats, of a project and of a chat, and the notes of both: each by itself."""
    words = {"all": "In short.", "project": "Use millimetres.", "chat": "In rhymes."}
    with acting_as(person):
        projects.save_project(user=person, name="Kitchen", instructions=words["project"])
        ChatPreferences.objects.create(user=person, how_to_answer=words["all"])
    data, _ = asked(client, language_model, Say(("Yes.",)), project="Kitchen", instructions=words["chat"])
    for id_, title in (
        ("all", "How you want answers in all chats"),
        ("project", "Instructions of this project"),
        ("chat", "Instructions of this chat"),
    ):
        press(client, page_of(client, data), title, "")
        _, model = asked(client, language_model, Say(("Yes.",)), conversation_id=data["conversationId"])
        sent = str(model.requests)
        assert {each for each in words if words[each] in sent} == words.keys() - {id_}
        bring_back(client)


def test_a_line_that_stands_twice_in_a_note_goes_twice_under_its_heading_alone(person, client, language_model, memory):
    line = "- Varnish comes in May\n"
    with acting_as(person):
        text = f"# Oak\n\n{line}\n# Beech\n\n{line}{line}"
        documents.replace(user=person, day=None, content=text, expected=None, now=NOW)
    data, model = asked(client, language_model, Say(("Yes.",)))
    assert str(model.requests).count("Varnish comes in May") == 3
    press(client, page_of(client, data), "- Beech: Varnish comes in May", "")
    _, model = asked(client, language_model, Say(("Yes.",)))
    assert str(model.requests).count("Varnish comes in May") == 1
    bring_back(client)
    _, model = asked(client, language_model, Say(("Yes.",)))
    assert str(model.requests).count("Varnish comes in May") == 3


def test_a_temporary_chat_keeps_no_trace_on_other_pages(person, client, language_model, memory):
    data, _ = asked(client, language_model, temporary=True)
    page = page_of(client, data)
    press(client, page, "- Tea, not coffee", data["conversationId"])
    _, model = asked(client, language_model, conversation_id=data["conversationId"])
    assert "Tea, not coffee" not in str(model.requests)
    assert data["conversationId"] not in client.get("/memory/").text
    assert data["conversationId"] not in b"".join(account_as_json(user=person, now=NOW)).decode()
