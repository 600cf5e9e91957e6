"""Tokens that are bound to a project, at every endpoint: REST, MCP and streams show and change nothing of another one."""

from contextlib import contextmanager
from datetime import date
from types import SimpleNamespace
from uuid import UUID

import pytest
from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.utils import timezone
from oauth2_provider.models import AccessToken as OAuthAccessToken

from agent_tools import registry
from agent_tools.authentication import create_token
from agent_tools.models import TokenScope
from agent_tools.tests.callers import call, client_of
from agent_tools.tests.mcp_messages import post
from agent_tools.tests.test_oauth import RESOURCE, connected, refresh
from config.tests.endpoints import house
from config.tests.endpoints.matrix import WithToken, path_of, undone, written_rows, written_since
from config.tests.endpoints.registered import CALL, ENDPOINTS, MCP_TOOLS, TOOLS, Does
from core.errors import InvalidInput
from core.isolation import acting
from core.isolation.acting import ActingAsAnother, Caller, acting_as, bound_to
from core.isolation.checks import personal_models
from core.isolation.policies import BOUND, USER
from intake.chats import versions
from intake.models import Conversation, Project, Turn
from intake.tests.factories import NOW, a_person, a_turn
from memory import index
from memory.index import scoring, segments
from memory.models import MemoryDocument, MemoryRecord, Proposal
from memory.models.documents import Corpus, Scope
from memory.projects import save_project
from memory.search import chat_history
from testing.examiner import as_a_worker, as_the_application

pytestmark = pytest.mark.django_db

WORD, ELSEWHERE = "rumpelstiltskin", "Elsewhere"
SCOPES = [TokenScope.SEARCH, TokenScope.WRITE, TokenScope.CHAT, TokenScope.CAPTURE]
API = {route: endpoint for route, endpoint in ENDPOINTS.items() if route.startswith("api/v1/")}


@pytest.fixture
def alice(monkeypatch, alice_then):
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    return alice_then


class Bound(WithToken):
    """The person's own agent, bound to one of their projects."""

    def __init__(self, resident, project):
        super().__init__(resident)
        made = create_token(user=resident.user, scopes=SCOPES, project=project, is_bound=True)
        self._secret = made.secret


# Every write adds rows to these tables: it is counted, recorded and indexed.
BESIDE_TEXTS = {"intake_activity", "imports", "imported_items", "memory_maps", "pending_terms"}
TEXTS = {model._meta.db_table for model in personal_models()} - BESIDE_TEXTS


def rows_of(resident, tables=TEXTS):
    """Every row of theirs in these tables, as text."""
    found = {}
    for table in tables & TEXTS:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT t::text FROM {table} t WHERE user_id = %s", [resident.user.pk])
            found[table] = {row for (row,) in cursor.fetchall()}
    return found


def walk(alice, who, *, methods=("GET", "POST", "PUT", "PATCH", "DELETE")):
    """What leaks or breaks, and where the answer was a success that shows the word."""
    wrong, shown = [], set()
    before = rows_of(alice)
    for endpoint in API.values():
        for method in methods:
            for probe in endpoint.probes.get(method, []):
                if probe.is_streamed:
                    continue
                with undone():
                    written = written_rows()
                    answer = who.ask(method, path_of(endpoint, alice), probe, alice.things.fill)
                    after = rows_of(alice, written_since(written)) if method != "GET" else {}
                name = f"{method} /{endpoint.route} {probe.query or probe.body or ''}"
                sent = str(alice.things.fill([probe.query, probe.form or {}, probe.body or {}]))
                if WORD in str(answer).lower() and WORD not in sent:
                    shown.add(name)
                if answer.status >= 500:
                    wrong.append(f"{name} broke: {answer}")
                lost = {table: before[table] - rows for table, rows in after.items() if before[table] - rows}
                if lost:
                    wrong.append(f"{name} changed {lost}")
    return wrong, shown


@pytest.mark.medium
def test_a_bound_token_learns_and_changes_nothing_of_another_project(alice):
    wrong, shown = walk(alice, Bound(alice, ELSEWHERE))
    assert (wrong, shown) == ([], set())


@pytest.mark.medium
def test_a_bound_token_sees_its_own_project_by_every_tool_and_endpoint_of_it(alice):
    _, shown = walk(alice, Bound(alice, alice.things.project), methods=("GET", "POST"))
    for tool in ("search_chat_history", "search_history", "search_memory", "get_context", "get_conversation"):
        assert [name for name in shown if f"/tools/{tool}/" in name], (tool, sorted(shown))
    assert [name for name in shown if name.startswith("GET /api/v1/conversations/<str:conversation_id>/ ")]
    assert [name for name in shown if name.startswith("GET /api/v1/memory/records/<str:record_id>/ ")]


@pytest.fixture
def no_filters(monkeypatch):
    """The application forgets that the caller is bound, and tells the database alone."""
    monkeypatch.setattr(registry, "in_project", lambda requested, user: requested)
    monkeypatch.setattr(chat_history, "limited", lambda scope, **_: scope)


def without_the_project(table, condition):
    return f"id = {USER}" if table == "users" else f"user_id = {USER}"


def alter_policies(condition_of):
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for table, (condition, _) in BOUND.items():
            cursor.execute(f"ALTER POLICY bound ON {table} USING ({condition_of(table, condition)})")


@pytest.fixture
def no_policies(alice):
    """The policies of bound callers ask for the user alone."""
    alter_policies(without_the_project)


@contextmanager
def policies_that_forget_the_project():
    """The same where changes are committed."""
    alter_policies(without_the_project)
    try:
        yield
    finally:
        alter_policies(lambda _, condition: condition)


@pytest.mark.medium
def test_with_the_applications_filters_gone_the_policies_keep_to_the_project(alice, no_filters):
    _, shown = walk(alice, Bound(alice, ELSEWHERE), methods=("GET", "POST"))
    assert shown == set()


def test_with_the_condition_of_the_policies_gone_the_endpoints_stand_open(alice, no_policies):
    _, shown = walk(alice, Bound(alice, ELSEWHERE), methods=("GET",))
    assert {name.split(" ")[1] for name in shown} >= {
        "/api/v1/conversations/",
        "/api/v1/conversations/<str:conversation_id>/",
        "/api/v1/memory/records/<str:record_id>/",
    }


def test_every_personal_table_is_empty_for_a_caller_bound_to_an_empty_project(alice):
    shown = {}
    with as_the_application(), bound_to(ELSEWHERE), acting_as(alice.user):
        for model in personal_models():
            with connection.cursor() as cursor:
                cursor.execute(f"SELECT count(*) FROM {model._meta.db_table}")
                shown[model._meta.db_table] = cursor.fetchone()[0]
    # They hold no text: `core.isolation.policies` says why.
    allowed = {table for table, (condition, _) in BOUND.items() if condition == f"user_id = {USER}"}
    assert {table for table, count in shown.items() if count} <= allowed
    assert shown["intake_conversations"] == shown["memory_records"] == shown["intake_chat_preferences"] == 0


def test_the_database_refuses_a_bound_caller_to_write_into_another_project(alice):
    def refused(work):
        with pytest.raises(DatabaseError, match=r"row-level security|permission denied"), transaction.atomic():
            work()

    with as_the_application(), bound_to(alice.things.project), acting_as(alice.user):
        mine = Conversation.objects.get()
        refused(lambda: Conversation.objects.create(user=alice.user, project=ELSEWHERE))
        refused(lambda: Conversation.objects.filter(pk=mine.pk).update(project=""))
        refused(lambda: MemoryRecord.objects.create(user=alice.user, content="x", type="note"))
        refused(lambda: MemoryDocument.objects.create(user=alice.user, kind="memory", project=ELSEWHERE))
        refused(lambda: connection.cursor().execute("DELETE FROM intake_conversations"))
        refused(lambda: Project.objects.update(name=ELSEWHERE))


def test_what_a_bound_token_saves_belongs_to_its_project_and_no_other_can_be_named(alice):
    client = client_of(alice.user, scopes=SCOPES, project="House", is_bound=True)
    assert call(client, "save_memory", {"content": "We use oak"}).status_code == 200
    assert call(client, "append_daily_log", {"text": "Oak arrived"}).status_code == 200
    assert MemoryRecord.objects.get(content="We use oak").project_id == "House"
    assert MemoryDocument.objects.get(content__contains="Oak arrived").project == "House"
    for tool, body in {
        "save_memory": {"content": "Other", "project_id": "Other"},
        "search_history": {"query": "oak", "project": "-House"},
        "search_memory": {"query": "oak", "project_id": "Other"},
        "append_daily_log": {"text": "Other", "project": "Other"},
    }.items():
        refused = call(client, tool, body)
        assert (refused.status_code, refused.json()["code"]) == (403, "insufficient_scope"), tool
    assert refused.json()["detail"] == "This token is bound to another project."


def test_a_kept_answer_is_told_to_no_token_of_another_project(alice):
    body, key = {"content": "We use oak"}, {"Idempotency-Key": "one"}
    inside = client_of(alice.user, scopes=SCOPES, project="House", is_bound=True)
    other = client_of(alice.user, scopes=SCOPES, project=ELSEWHERE, is_bound=True)
    first = call(inside, "save_memory", body, **key).json()
    again = call(inside, "save_memory", body, **key)
    assert (again.json(), again["Idempotency-Replayed"]) == (first, "true")
    assert call(other, "save_memory", body, **key).json()["record"]["id"] != first["record"]["id"]
    assert set(MemoryRecord.objects.filter(content="We use oak").values_list("project_id", flat=True)) == {
        "House",
        ELSEWHERE,
    }


def append(client, session, **more):
    body = {
        "product": "claude-code",
        "session": session,
        "turns": [{"uuid": "u1", "saidAt": "2026-02-03T10:00:00Z", "user": "Hello", "answer": "Hi"}],
        **more,
    }
    return client.post("/api/v1/sessions/append/", body, content_type="application/json")


def test_a_bound_hook_appends_to_its_project_and_to_no_session_of_another(alice):
    Project.objects.create(user=alice.user, name="House", labels=["me/house"])
    bound = client_of(alice.user, scopes=[TokenScope.CAPTURE], project="House", is_bound=True)
    assert append(bound, "s1").json() == {"stored": 1, "here": 0}
    assert append(bound, "s2", project="https://git.example/me/house.git", cwd="/home/me/house").status_code == 200
    assert set(Conversation.objects.filter(source="claude-code").values_list("project", flat=True)) == {"House"}
    assert append(bound, "s3", project="me/other").status_code == 403
    unbound = client_of(alice.user, scopes=[TokenScope.CAPTURE])
    append(unbound, "s4", project="me/other")
    assert append(bound, "s4").status_code == 403
    a_turn(alice.user, "Elsewhere")
    Conversation.objects.filter(title="Elsewhere").update(source="claude-code", external_id="s5")
    assert append(bound, "s5").status_code == 403
    assert Turn.objects.filter(user_message="Hello").count() == 3


def test_endpoints_about_more_than_a_project_refuse_a_bound_token_with_a_sentence(alice):
    client = client_of(alice.user, scopes=SCOPES, project=alice.things.project, is_bound=True)
    for path in ("memory/timeline/", "memory/map/", "imports/", "projects/", "account/export/", "tokens/"):
        refused = client.get(f"/api/v1/{path}")
        assert refused.status_code == 403, path
        assert refused.json()["detail"] == "This token is bound to a project, and this is not about one project."
    assert client.delete(f"/api/v1/conversations/{alice.things.conversation}/").status_code == 403


def test_a_request_after_one_of_a_bound_token_is_not_bound(alice):
    client = client_of(alice.user, scopes=SCOPES, project=ELSEWHERE, is_bound=True)
    assert client.get("/api/v1/conversations/").json() == {"conversations": []}
    assert acting.binding_of(None) == ""
    assert client_of(alice.user).get("/api/v1/conversations/").json()["conversations"]


def test_acting_with_another_binding_meanwhile_is_refused(alice):
    user = alice.user
    with acting_as(user):
        with pytest.raises(ActingAsAnother), bound_to("House"), acting_as(user):
            pytest.fail("it went on")
        with pytest.raises(ActingAsAnother), acting_as(Caller(user_id=user.pk, bound_to="House")):
            pytest.fail("it went on")
    with bound_to("House"), acting_as(user):
        with acting_as(Caller(user_id=user.pk)):
            assert not Turn.objects.exists()
        with pytest.raises(ActingAsAnother), bound_to(ELSEWHERE), acting_as(user):
            pytest.fail("it went on")


def test_a_binding_ends_with_its_transaction_and_sums_count_everything(alice):
    with bound_to(ELSEWHERE), acting_as(alice.user):
        assert not Turn.objects.exists()
        with acting.counting():
            assert Turn.objects.count() > 1
        assert not Turn.objects.exists()
    with acting_as(alice.user):
        assert Turn.objects.count() > 1


def test_a_token_is_bound_only_to_a_project_and_without_scopes_that_reach_further(alice):
    for options, field in (
        ({"project": ""}, "project"),
        ({"project": "House", "scopes": [TokenScope.DELETE]}, "scopes"),
        ({"project": "House", "scopes": [TokenScope.IMPORT]}, "scopes"),
    ):
        with pytest.raises(InvalidInput) as refused:
            create_token(user=alice.user, is_bound=True, **options)
        assert refused.value.errors.keys() == {field}


def test_a_database_without_the_policies_binds_no_token(alice):
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("DROP POLICY bound ON intake_conversations")
    with pytest.raises(InvalidInput, match="create_roles") as refused:
        create_token(user=alice.user, is_bound=True, project="House")
    assert refused.value.errors.keys() == {"bound"}


def test_a_person_without_a_binding_acts_by_the_web_role_and_its_one_equality():
    bob = a_person("bob@example.com")
    with acting_as(bob), connection.cursor() as cursor:
        cursor.execute("SELECT current_user, current_setting('app.project', true)")
        assert cursor.fetchone() == (settings.DATABASE_ROLES.web, "")
    with bound_to("House"), acting_as(bob), connection.cursor() as cursor:
        cursor.execute("SELECT current_user, current_setting('app.project', true)")
        assert cursor.fetchone() == (settings.DATABASE_ROLES.bound, "House")


# -- By other inputs than a project's name --------------------------------------------------------------------------------


@pytest.fixture
def outsider(alice):
    """Bound to a project in which one chat is, so that a refusal is about the row and not about an empty project."""
    turn = a_turn(alice.user, "Here the kettle is blue", "Blue.")
    Conversation.objects.filter(pk=turn.conversation_id).update(project=ELSEWHERE)
    return client_of(alice.user, scopes=SCOPES, project=ELSEWHERE, is_bound=True)


def in_json(client, method, path, body=None):
    return getattr(client, method)(f"/api/v1/{path}", body, content_type="application/json")


def test_rows_of_another_project_cannot_be_named_in_a_write(alice, outsider):
    things = alice.things
    for propose in (False, True):
        body = {"content": "Not so", "replaces": things.record, "propose": propose}
        assert call(outsider, "save_memory", body).status_code in (400, 404), propose
    chat = {"message": "Go on", "conversation_id": things.conversation}
    assert in_json(outsider, "post", "intake/chat", chat).status_code == 404
    for file in (things.file, things.unsent):
        answer = in_json(outsider, "post", "intake/chat", {"message": "Read it", "attachments": [file]})
        assert (answer.status_code, answer.json()["code"]) == (403, "insufficient_scope"), file
    for number in ("regenerate", "edit", "parent"):
        body = {
            "conversation_id": things.conversation,
            number: 1,
            **({"message": "x"} if number != "regenerate" else {}),
        }
        assert in_json(outsider, "post", "intake/chat", body).status_code == 404, number
    chat = f"conversations/{things.conversation}/"
    for path in (f"{chat}turns/1/branch/", f"{chat}turns/1/choose/"):
        assert in_json(outsider, "post", path).status_code == 404, path
    for path, body in (
        (chat, {"title": "Mine"}),
        (f"memory/records/{things.record}/", {"content": "Mine"}),
        (f"memory/proposals/{things.proposal}/decision/", {"state": "accepted"}),
    ):
        assert in_json(outsider, "patch", path, body).status_code in (403, 404), path


def test_a_bound_token_makes_no_version_of_a_message_with_files(alice):
    turn = Turn.objects.filter(user=alice.user, attachment_count__gt=0).first()
    project = Conversation.objects.get(pk=turn.conversation_id).project
    inside = client_of(alice.user, scopes=SCOPES, project=project or alice.things.project, is_bound=True)
    Conversation.objects.filter(pk=turn.conversation_id).update(project=project or alice.things.project)
    body = {"conversation_id": str(turn.conversation_id), "edit": turn.turn_number, "message": "Anew"}
    refused = in_json(inside, "post", "intake/chat", body)
    assert (refused.status_code, "sends no files" in refused.json()["detail"]) == (403, True)


def test_documents_of_another_project_or_of_none_cannot_be_named(alice, outsider):
    for project in (alice.things.project, f"-{ELSEWHERE}", f"me/{WORD}"):
        for path in ("memory/documents/memory/", "memory/documents/daily-logs/2026-02-03/"):
            query = f"?project={project}"
            assert outsider.get(f"/api/v1/{path}{query}").status_code in (400, 403, 404), (path, project)
            written = in_json(outsider, "post", f"{path}append/{query}", {"text": "Mine"})
            assert written.status_code in (400, 403, 404), (path, project)
        assert WORD not in outsider.get(f"/api/v1/memory/documents/daily-logs/?project={project}").content.decode()
        listed = outsider.get(f"/api/v1/memory/records/?project_id={project}")
        assert alice.things.record not in listed.content.decode()
    assert in_json(outsider, "post", "memory/documents/memory/append/", {"text": "Mine"}).status_code == 200
    assert MemoryDocument.objects.get(content__contains="Mine").project == ELSEWHERE


def test_texts_that_are_elsewhere_are_neither_the_same_nor_nearly_the_same(alice, outsider):
    content = MemoryRecord.objects.get(pk=alice.things.record).content
    proposed = call(outsider, "save_memory", {"content": content, "propose": True})
    assert proposed.status_code == 200, proposed.json()
    # Nearly the same as the outsider's own, once that is saved.
    for text in (content, f"{content}!"):
        saved = call(outsider, "save_memory", {"content": text}).json()
        assert "alreadySaved" not in saved and alice.things.record not in str(saved), saved


@pytest.mark.medium
def test_no_spelling_and_no_mode_of_a_search_shows_a_word_of_another_project(alice, outsider):
    index.embed_pending()
    for query in (
        WORD[:-1],
        f'"{WORD[:6]}"',
        f"title:{WORD}",
        "in:all",
        "has:code",
        "before:2030-01-01",
        WORD[:-2] + "x",
    ):
        for tool, body in (
            ("search_history", {"query": query, "include_replaced": True}),
            ("search_history", {"query": query, "exclude_session": alice.things.conversation}),
            ("search_chat_history", {"query": query, "mode": "substring"}),
            ("search_memory", {"query": query, "include_replaced": True}),
        ):
            answer = call(outsider, tool, body)
            text = answer.content.decode().lower().replace(query.lower(), "")
            # Also that is the caller's own: it says so of any word that this project has not.
            text = text.replace(f"no text has: title, {WORD}", "")
            assert WORD not in text and alice.things.conversation not in text, (tool, query)
            assert alice.things.record not in text, (tool, query)


@pytest.mark.parametrize("is_flushed", [True, False])
def test_how_common_a_word_is_elsewhere_changes_no_score_of_a_bound_caller(is_flushed):
    mine = ["a heron by the weir", "an otter by the weir", "an otter and a longer story about the mill and its wheel"]

    def scores(*elsewhere):
        person = a_person(f"{len(elsewhere)}@example.com")
        with acting_as(person):
            for project, texts in (("Here", mine), (ELSEWHERE, elsewhere)):
                save_project(user=person, name=project)
                for text in texts:
                    chat = Conversation.objects.create(user=person, title=project, project=project)
                    a_turn(person, text, "Yes", conversation=chat)
        if is_flushed:
            with as_a_worker():
                segments.flush()
        with acting_as(Caller(user_id=person.pk, bound_to="Here")):
            person.bound_to = "Here"
            found = scoring.score(Scope(person, (Corpus.CHAT,)), query="heron otter pangolin", limit=10)
        return [(hit.lexical, hit.length, hit.has_only) for hit in found.hits], found.ideal, found.absent

    alone = scores()
    assert len(alone[0]) == 3
    assert scores(*["the heron is everywhere here"] * 30, "otter " * 400) == alone


def test_answers_that_are_written_elsewhere_are_not_listed(alice, outsider):
    Turn.objects.filter(conversation_id=alice.things.conversation).update(status=Turn.Status.STREAMING)
    assert outsider.get("/api/v1/intake/answering").json() == {"answers": []}
    Turn.objects.filter(conversation__project=ELSEWHERE).update(status=Turn.Status.STREAMING)
    assert len(outsider.get("/api/v1/intake/answering").json()["answers"]) == 1


def test_a_branch_that_was_moved_shows_none_of_the_turns_that_it_shares(alice, outsider):
    chat = Conversation.objects.get(pk=alice.things.conversation)
    with acting_as(alice.user):
        branch = versions.branch(caller=alice.caller, conversation_id=chat.pk, turn_number=1, now=NOW)
    a_turn(alice.user, "Only the branch", conversation=Conversation.objects.get(pk=branch.pk))
    Conversation.objects.filter(pk=branch.pk).update(project=ELSEWHERE, title="")
    path = f"/api/v1/conversations/{branch.pk}/"
    read = [
        outsider.get(path),
        outsider.get(f"{path}turns/1/"),
        call(outsider, "get_conversation", {"conversation_id": str(branch.pk)}),
    ]
    for answer in read:
        assert answer.status_code in (200, 404), answer.content
        assert WORD not in answer.content.decode().lower()


def test_a_bound_token_proposes_and_sees_the_proposals_of_its_project_alone(alice, outsider):
    Proposal.objects.filter(pk=alice.things.proposal).update(project_id=alice.things.project)
    made = call(outsider, "save_memory", {"content": "The kettle is blue.", "propose": True}).json()["record"]
    assert (made["project_id"], Proposal.objects.get(pk=made["id"]).project_id) == (ELSEWHERE, ELSEWHERE)
    refused = call(outsider, "save_memory", {"content": "It is red.", "propose": True, "project_id": "Other"})
    assert refused.status_code == 403
    seen = {}
    for name, project in (("elsewhere", ELSEWHERE), ("inside", alice.things.project)):
        with as_the_application(), bound_to(project), acting_as(alice.user):
            seen[name] = set(Proposal.objects.values_list("pk", flat=True))
    assert seen["elsewhere"] == {UUID(made["id"])}
    assert UUID(made["id"]) not in seen["inside"] and UUID(alice.things.proposal) in seen["inside"]
    # The person sees it; and on the page of a project's chat nobody sees one of another project.
    page = Client()
    page.force_login(alice.user)
    assert "The kettle is blue." in page.get("/memory/proposals/").content.decode()
    save_project(user=alice.user, name=ELSEWHERE, is_closed=True)
    for path in ("/memory/proposals/", f"/memory/proposals/?chat={alice.things.conversation}", "/"):
        assert "The kettle is blue." not in page.get(path).content.decode(), path


def test_a_connected_hook_that_is_bound_appends_to_its_project_alone(alice):
    scopes = {"scope": "capture", "scopes": ["capture"]}
    Project.objects.create(user=alice.user, name="House", labels=["me/house"])
    _, tokens = connected(alice.user, project="House", **scopes)
    bound = Client(headers={"authorization": f"Bearer {tokens['access_token']}"})
    assert append(bound, "s1").json() == {"stored": 1, "here": 0}
    assert append(bound, "s2", project="me/other").status_code == 403
    assert Conversation.objects.get(source="claude-code").project == "House"
    for path in ("conversations/", "tools/", "account/export/", "tokens/"):
        assert bound.get(f"/api/v1/{path}").status_code == 401, path


# -- MCP and streams, by the served application ------------------------------------------------------------------------


@pytest.fixture
def served(server, monkeypatch, transactional_db):
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    return SimpleNamespace(address=server, alice=house.move_in("alice", WORD, day=date(2026, 2, 3)))


def by_token(served, project):
    return create_token(user=served.alice.user, scopes=SCOPES, project=project, is_bound=True).secret


def by_oauth(served, project):
    """The access token of an agent that its person bound on the page, after it was refreshed."""
    client_id, tokens = connected(served.alice.user, project=project)
    secret = refresh(client_id, tokens).json()["access_token"]
    for token in OAuthAccessToken.objects.filter(user=served.alice.user, application__client_id=client_id):
        here = [named.replace(RESOURCE, f"{served.address}/mcp") for named in token.resource]
        OAuthAccessToken.objects.filter(pk=token.pk).update(resource=here)
    return secret


def mcp_told(served, secret):
    for name, probes in {**TOOLS, **MCP_TOOLS}.items():
        for probe in probes:
            arguments = served.alice.things.fill(probe.body)
            if probe.does is Does.SHOWS:
                yield name, post(served.address, secret, CALL, {"name": name, "arguments": arguments}).text.lower()


@pytest.mark.medium
@pytest.mark.parametrize("secret_of", [by_token, by_oauth])
def test_over_mcp_a_bound_caller_is_shown_its_project_and_no_other(served, secret_of):
    a_turn(served.alice.user, "Only the label")
    Conversation.objects.filter(title="Only the label").update(project=ELSEWHERE)
    elsewhere, inside = (secret_of(served, project) for project in (ELSEWHERE, served.alice.things.project))
    assert [(name, text) for name, text in mcp_told(served, elsewhere) if WORD in text] == []
    shown = {name for name, text in mcp_told(served, inside) if WORD in text}
    assert shown >= {"search_chat_history", "search_history", "get_conversation", "search_memory", "search", "fetch"}


@pytest.mark.medium
@pytest.mark.parametrize("secret_of", [by_token, by_oauth])
def test_over_mcp_the_policies_alone_keep_a_bound_caller_to_its_project(served, secret_of, no_filters):
    a_turn(served.alice.user, "Only the label")
    Conversation.objects.filter(title="Only the label").update(project=ELSEWHERE)
    assert [(name, text) for name, text in mcp_told(served, secret_of(served, ELSEWHERE)) if WORD in text] == []


@pytest.mark.medium
def test_over_mcp_a_bound_agent_without_policies_opens_chats_by_id(served):
    a_turn(served.alice.user, "Only the label")
    Conversation.objects.filter(title="Only the label").update(project=ELSEWHERE)
    secret = by_oauth(served, ELSEWHERE)
    with policies_that_forget_the_project():
        shown = {name for name, text in mcp_told(served, secret) if WORD in text}
    assert "get_conversation" in shown
    assert "search_chat_history" not in shown


@pytest.mark.medium
def test_streams_of_a_bound_token_are_of_its_project(served, new_client):
    things, client = served.alice.things, new_client()
    headers = {}
    for project in (ELSEWHERE, things.project):
        made = create_token(user=served.alice.user, scopes=SCOPES, project=project, is_bound=True)
        headers[project] = {"Authorization": f"Bearer {made.secret}"}
    path = f"/api/v1/intake/turns/{things.turn_id}"
    assert client.get(f"{path}/events", headers=headers[ELSEWHERE]).status_code == 404
    assert client.post(f"{path}/stop", headers=headers[ELSEWHERE]).status_code == 404
    assert WORD in client.get(f"{path}/events", headers=headers[things.project]).text
    said = {"message": house.TOPIC, "conversation_id": things.conversation}
    assert client.post("/api/v1/intake/chat", json=said, headers=headers[ELSEWHERE]).status_code == 404
    begun = client.post("/api/v1/intake/chat", json={"message": house.TOPIC}, headers=headers[ELSEWHERE])
    assert begun.status_code == 200 and WORD not in begun.text.lower(), begun.text
    assert Conversation.objects.get(project=ELSEWHERE).turns.get().status == Turn.Status.COMPLETE
    assert client.get("/api/v1/intake/events", headers=headers[ELSEWHERE]).status_code == 403
    inside = client.post("/api/v1/intake/chat", json={"message": house.TOPIC}, headers=headers[things.project])
    assert WORD in inside.text.lower(), inside.text
    one = f"/api/v1/conversations/{things.conversation}/export/"
    assert client.get(one, headers=headers[ELSEWHERE]).status_code == 404
    assert WORD in client.get(one, headers=headers[things.project]).text
