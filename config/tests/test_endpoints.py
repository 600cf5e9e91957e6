"""The matrix of endpoints: each is opened by whom it is for, and by somebody else, a visitor and nobody, who learn nothing."""

import inspect
from dataclasses import replace

import pytest
from django.utils import timezone

from config.celery import app
from config.tests.endpoints import house, walking
from config.tests.endpoints.headers import loose_at
from config.tests.endpoints.matrix import (
    PERSONAL_QUERYSETS,
    REGISTER,
    InSession,
    Matrix,
    NamedInHeader,
    undone,
)
from config.tests.endpoints.registered import CALL, ENDPOINTS, GROUPS, MCP, MCP_TOOLS, TASKS, TOOLS
from core.isolation.acting import acting_as
from intake.models import Attachment, AttachmentPiece, Conversation, Turn, User
from intake.tests.attached import a_file
from intake.tests.factories import NOW, a_person, a_temporary_turn, a_turn
from memory.models import Embedding, PendingTerms
from memory.tests.vectors import directions, fill
from testing.examiner import as_a_worker, take_policies_away
from testing.kept_rows import kept_rows

pytestmark = pytest.mark.django_db


@pytest.fixture
def matrix(monkeypatch, settings, residents_then):
    # A result's score falls with its age: the same question has to be asked at the same moment.
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    # On a machine with other work a walk takes longer than a proof is good for, and the second answer would differ.
    settings.ACCOUNT_REAUTHENTICATION_TIMEOUT = 24 * 60 * 60
    return Matrix(**residents_then)


@pytest.fixture
def no_filters(monkeypatch):
    """The application forgets whose rows it asks for."""
    for queryset in PERSONAL_QUERYSETS:
        for name in {"for_user", "for_caller"} & set(dir(queryset)):
            monkeypatch.setattr(queryset, name, lambda self, *_: self.all())


@pytest.fixture
def no_policies(matrix):
    take_policies_away()


def behind_a_proxy(settings):
    settings.LOGIN_HEADER, settings.LOGIN_HEADER_FROM = "Remote-Email", ["192.0.2.7"]


@pytest.mark.medium
def test_a_header_of_a_proxy_opens_an_account_from_its_address(matrix, settings):
    """From another address it opens none: in the walk of the whole matrix nobody sends it."""
    behind_a_proxy(settings)
    settings.REGISTRATION = "closed"
    bob = matrix.other.user.email
    by_proxy, in_session = NamedInHeader(bob, address="192.0.2.7"), InSession(matrix.other)
    reading = [slot for slot in matrix._slots(ENDPOINTS, every_method=False) if slot[1] == "GET"]
    for endpoint, method, probe in reading[::10]:
        with undone():
            here = matrix._ask(by_proxy, endpoint, method, probe)
            there = matrix._ask(in_session, endpoint, method, probe)
        assert here.status == there.status, (endpoint.route, here, there)
        matrix._look_for_words(endpoint, method, probe, here, by_proxy.name, matrix.owner.words)
    assert not matrix.found, "\n".join(matrix.found)
    # The header does its work: otherwise the above would say nothing.
    account = next(slot for slot in reading if slot[0].route == "settings/account/")
    assert bob in matrix._ask(by_proxy, *account).body


@pytest.mark.parametrize(
    ("what", "found", "known"),
    [
        ("route", {route.pattern for route in walking.routes()}, set(ENDPOINTS)),
        ("tool", set(walking.tools()), set(TOOLS)),
        ("tool of MCP", set(walking.mcp_tools()), set(MCP_TOOLS)),
        ("method of MCP", set(walking.mcp_methods()), {*MCP, CALL}),
        ("task", set(walking.tasks()), TASKS),
    ],
    ids=["routes", "tools", "mcp_tools", "mcp", "tasks"],
)
def test_every_endpoint_is_in_the_matrix(what, found, known, pytestconfig):
    wrong = complaints(what, found, known)
    assert not wrong, "\n".join(wrong)
    methods = sum(len(endpoint.probes) for endpoint in ENDPOINTS.values())
    pytestconfig.stash[walking.ENDPOINTS_TRIED] = (
        f"Endpoints: {len(ENDPOINTS)} routes that answer {methods} methods, {len(TOOLS)} tools over REST, MCP and in the chat, "
        f"{len(MCP) + 1} methods of MCP, {len(TASKS)} tasks."
    )


def complaints(what, found, known):
    new = [f"Nobody tries the {what} {name!r}: {REGISTER}" for name in sorted(found - known)]
    gone = [f"There is no {what} {name!r} any more: take it out of the matrix." for name in sorted(known - found)]
    return new + gone


def test_an_endpoint_that_nobody_registered_is_named_with_what_to_do():
    assert complaints("route", {"new/", "old/"}, {"old/"}) == [f"Nobody tries the route 'new/': {REGISTER}"]


def test_an_answer_that_is_not_locked_down_is_named(matrix):
    endpoint = ENDPOINTS["login/"]
    matrix.also = lambda _, response: [f"has the status {response.status_code}"]
    matrix.walk(endpoints={endpoint.route: endpoint})
    assert any("GET /login/" in found and "answers nobody: has the status 200" in found for found in matrix.found)


def test_a_method_that_nobody_registered_is_named_with_what_to_do(matrix):
    endpoint = ENDPOINTS["api/v1/memory/records/<str:record_id>/"]
    matrix.walk(
        endpoints={endpoint.route: replace(endpoint, probes={"GET": endpoint.probes["GET"]})}, every_method=True
    )
    assert matrix.leaks == {f"{method} /{endpoint.route}" for method in ("PATCH", "DELETE")}
    assert REGISTER in matrix.found[0]


@pytest.mark.parametrize("group", GROUPS)
def test_nobody_learns_anything_of_somebody_else_and_visitors_are_let_in_as_nobody_is(matrix, settings, logged, group):
    """At every endpoint, and from the log; and each answer is locked down.

    Nobody sends the header that logs Alice in behind a proxy, from an address that is not the proxy's.
    """
    behind_a_proxy(settings)
    forger = NamedInHeader(matrix.owner.user.email, address="192.0.2.8")
    matrix = replace(matrix, nobody=forger, also=loose_at)
    matrix.walk(endpoints=GROUPS[group], every_method=True)
    assert not matrix.found, "\n\n".join(matrix.found)
    assert not matrix.differently_received, "\n".join(matrix.differently_received)
    assert logged.lines
    assert not [line for word in ("rumpelstiltskin", "kwyjibo", "zebedee") for line in logged.about(word)]


@pytest.mark.medium
def test_what_a_visitor_said_is_theirs_alone(matrix):
    visitors = replace(matrix, owner=matrix.visitor, visitor=house.drop_in("mumbletypeg"))
    theirs = {
        route: endpoint for route, endpoint in ENDPOINTS.items() if route in ("", "conversations/") or route[:2] == "c/"
    }
    # A visitor has no projects, whose groups a page would show.
    listed = theirs["conversations/"]
    probes = {"GET": [probe for probe in listed.probes["GET"] if "groups" not in probe.query]}
    theirs["conversations/"] = replace(listed, probes={**listed.probes, **probes})
    visitors.walk(endpoints=theirs, every_method=True)
    assert not visitors.found, "\n\n".join(visitors.found)


def walk_without_a_guard(matrix, group):
    """Staff must still be told no words. The others come to the admin's door, which asks neither guard: not again."""
    if group == "staff":
        # What they read is asked, and what they write only where nothing is read.
        staffs = GROUPS[group].items()
        matrix.open_all({route: replace(each, probes=dict([*each.probes.items()][:1])) for route, each in staffs})
    else:
        matrix.walk(endpoints=GROUPS[group], is_opened=False)
    assert not matrix.found, "\n\n".join(matrix.found)


@pytest.mark.extended
@pytest.mark.medium
@pytest.mark.parametrize("group", GROUPS)
def test_with_the_applications_filters_gone_the_database_refuses_at_every_endpoint(matrix, no_filters, group):
    matrix.has_one_stranger = True
    walk_without_a_guard(matrix, group)


@pytest.mark.extended
@pytest.mark.parametrize(
    ("group", "has_one_stranger"),
    [
        *(pytest.param(group, True, marks=pytest.mark.medium) for group in GROUPS),
        *((group, False) for group in GROUPS if group != "staff"),
    ],
)
def test_with_the_databases_policies_gone_the_application_refuses(matrix, no_policies, group, has_one_stranger):
    matrix.has_one_stranger = has_one_stranger
    walk_without_a_guard(matrix, group)


@pytest.mark.extended
@pytest.mark.medium
def test_with_both_gone_the_matrix_finds_the_endpoints_open(matrix, no_policies, no_filters):
    matrix.has_one_stranger = True
    of_one_thing = {route: endpoint for route, endpoint in ENDPOINTS.items() if "<str:" in route}
    matrix.walk(endpoints=of_one_thing, is_opened=False)
    assert {leak for leak in matrix.leaks if "<str:conversation_id>" in leak} >= {
        f"{method} /{endpoint.route}"
        for endpoint in ENDPOINTS.values()
        for method, probes in endpoint.probes.items()
        if "conversation}" in endpoint.at and "undo" not in endpoint.at and not probes[0].is_streamed
    }
    assert len(matrix.leaks) >= 30, sorted(matrix.leaks)


def is_embedded():
    return not Embedding.objects.filter(vector=None).exists()


def is_flushed():
    return not PendingTerms.objects.exists()


def is_closed():
    return not Turn.objects.filter(status=Turn.Status.STREAMING).exists()


def is_removed():
    return not User.objects.filter(is_visitor=True).exists()


def is_forgotten():
    return not AttachmentPiece.objects.exists()


def is_read():
    return not Attachment.objects.filter(state="waiting").exists()


def is_over():
    return not Conversation.objects.exclude(expires_at=None).exists()


def has_bits():
    return not Embedding.objects.filter(bits=None).exclude(vector=None).exists()


@kept_rows
def work_for_every_task():
    house.drop_in("zebedee")
    User.objects.filter(is_visitor=True).update(joined_at=NOW)
    alice = a_person()
    a_turn(alice, "rumpelstiltskin")
    a_file(alice, b"rumpelstiltskin", "rumpelstiltskin.txt")
    with acting_as(alice):
        a_temporary_turn(alice, "rumpelstiltskin")
    fill(alice, directions(2, seed=1), has_bits=False)


@pytest.mark.parametrize(
    ("name", "is_done"),
    [
        ("memory.embed_pending", is_embedded),
        ("memory.flush_terms", is_flushed),
        ("memory.sweep_pending", is_embedded),
        ("memory.close_abandoned_turns", is_closed),
        ("memory.sweep_deleted", has_bits),
        ("memory.remove_silent_visitors", is_removed),
        ("memory.remove_temporary_chats", is_over),
        ("memory.remove_forgotten_files", is_forgotten),
        ("memory.read_attachments", is_read),
    ],
)
def test_a_task_takes_nothing_does_its_work_and_tells_nothing(name, is_done, work_for_every_task, logged):
    assert name in TASKS
    assert not is_done()
    with as_a_worker():
        done = app.tasks[name].apply()
    assert (done.state, done.result) == ("SUCCESS", None)
    assert is_done()
    assert not inspect.signature(app.tasks[name].run).parameters
    assert logged.about("rumpelstiltskin") + logged.about("zebedee") == []
