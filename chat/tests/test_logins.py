"""Log-ins at servers of tools: begun and ended by a person, renewed once, and over when the server says so."""

import asyncio
import json
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from html import unescape
from types import SimpleNamespace

import httpx2
import pytest
from django.utils import timezone

from chat.agent.context import ChatDeps, deps_for
from chat.agent.logins import LogInFirst, WiderAccess, access_token
from chat.agent.servers import list_tools, tools_of_server
from chat.exporting import account_as_json
from chat.tests.oauth_servers import Guarded
from chat.tests.test_answers_followed import elsewhere, there  # noqa: F401 - the other process
from core.errors import Unavailable
from core.isolation.acting import acting_as
from intake.chats.consent import SERVERS, forget_logins, servers_of
from intake.llm.language_models import opened_key, sealed_key
from intake.models import InstallationSetting, ToolLogin, ToolServer
from intake.models.installation import read_kept_settings
from intake.tests.factories import NOW, a_turn, caller_for
from testing.examiner import as_a_worker
from testing.serving import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = "/settings/tools/"
NOT_TOLD = "The service could not be told."


@pytest.fixture
def guarded(monkeypatch):
    guarded = Guarded()
    with guarded.serving() as address:
        monkeypatch.setattr("core.pinned.PORTS", {"http": httpx2.URL(address).port, "https": 443})
        monkeypatch.setattr("core.pinned.is_public", lambda address: True)
        yield guarded


def begin(client, guarded, **form):
    """The address to which the page sends the person."""
    fields = {"name": "tracker", "address": guarded.address, **form} if form.get("connect") is None else form
    page = client.submit(PAGE, **fields)
    found = re.search(r'href="([^"]+)" rel="noreferrer"', page.text)
    assert found, page.text
    return unescape(found[1])


def agree(url):
    """Where the authorization server sends its person back to: the path and the query."""
    back = httpx2.get(url, follow_redirects=False).headers["Location"]
    return str(httpx2.URL(back).raw_path, "ascii")


def connected(client, guarded, **form):
    page = client.get(agree(begin(client, guarded, **form)))
    assert "Connected to tracker." in page.text, page.text
    return page


def the_server(person):
    with acting_as(person):
        return servers_of(person)[-1]


def call(person, title="Door"):
    """As an answer calls it, in a process that knows nothing yet."""
    offered = {tool.own_name: tool for tool in tools_of_server(the_server(person), set())}
    context = SimpleNamespace(deps=ChatDeps(caller=caller_for(person), now=NOW))
    return asyncio.run(offered["create_issue"].call(context, {"title": title})).return_value


def change(person, **values):
    login = ToolLogin.objects.get(user=person)
    login.sealed = sealed_key(json.dumps(json.loads(opened_key(login.sealed)) | values))
    login.save()


def test_a_person_connects_and_calls_with_tokens_that_nobody_sees(person, log_in, guarded, caplog):
    client = log_in(person)
    page = connected(client, guarded)
    assert "create_issue" in page.text and "Connect again" in page.text
    assert call(person) == "Made Door."
    assert guarded.others.calls == [("create_issue", "Door")]
    (form,) = guarded.asked
    assert (form["resource"], guarded.lost) == (guarded.address, [])
    (app,) = guarded.clients.values()
    assert (app["client_name"], app["redirect_uris"]) == ("Recollect", [form["redirect_uri"]])
    login = ToolLogin.objects.get()
    assert (login.state, login.pending) == ("", "")
    secrets = [*guarded.accepted, *guarded.renewals, form["code"], form["code_verifier"]]
    export = b"".join(account_as_json(user=person, now=NOW)).decode()
    assert guarded.address in export
    for place in (str(ToolLogin.objects.values()), page.text, client.get(PAGE).text, export, caplog.text):
        assert not [each for each in secrets if each in place]
    (client_id,), (token,) = guarded.clients, guarded.renewals
    page = client.submit(PAGE, remove=str(ToolServer.objects.get().pk))
    assert not ToolLogin.objects.exists() and NOT_TOLD not in page.text
    assert guarded.over == [{"token": token, "client_id": client_id, "resource": guarded.address}]


@pytest.mark.parametrize("endpoint", [None, "nothing", "over"])
def test_a_person_disconnects_and_reads_whether_the_service_knows(person, log_in, guarded, endpoint):
    client = log_in(person)
    guarded.metadata["revocation_endpoint"] = endpoint and f"{guarded.issuer}/{endpoint}"
    connected(client, guarded)
    page = client.submit(PAGE, disconnect=guarded.address)
    assert "Disconnected." in page.text and "You have to log in there before" in page.text
    assert ((NOT_TOLD in page.text), len(guarded.over)) == ((False, 1) if endpoint == "over" else (True, 0))
    with pytest.raises(LogInFirst):
        call(person)
    connected(client, guarded, connect=guarded.address)
    assert call(person) == "Made Door."
    server = the_server(person)
    change(person, revocation_endpoint="http://127.0.0.1:9/")
    page = client.submit(PAGE, remove=str(server.pk))
    assert "Removed." in page.text and NOT_TOLD in page.text
    assert not ToolServer.objects.exists() and not ToolLogin.objects.exists()


def test_a_call_that_needs_a_wider_scope_asks_for_it_beside_the_old_one(person, log_in, guarded):
    client = log_in(person)
    guarded.metadata["scopes_supported"] = ["read"]
    connected(client, guarded)
    guarded.needs = "write delete"
    wider = "The server asks for wider access"
    assert wider not in client.get(PAGE).text
    for _ in range(2):
        with pytest.raises(WiderAccess, match=wider):
            call(person)
    page = client.get(PAGE).text
    assert wider in page and "You have to log in there before" not in page
    assert len(asyncio.run(list_tools(the_server(person), caller_for(person)))) == 3
    assert (len(guarded.asked), guarded.others.calls) == (1, [])
    connected(client, guarded, connect=guarded.address)
    assert guarded.scope == "read write delete" and wider not in client.get(PAGE).text
    assert call(person) == "Made Door."
    # The next one too asks for what was given before.
    guarded.needs = "admin"
    with pytest.raises(WiderAccess):
        call(person)
    connected(client, guarded, connect=guarded.address)
    assert guarded.scope == "read write delete admin"


def test_a_client_id_that_the_person_has_entered_is_used(person, log_in, guarded):
    client = log_in(person)
    guarded.metadata["registration_endpoint"] = None
    page = client.submit(PAGE, name="tracker", address=guarded.address)
    assert "Register an app at this server" in page.text and "/settings/tools/return/" in page.text
    back = f"{str(client.base_url).rstrip('/')}/settings/tools/return/"
    guarded.clients["app"] = {"redirect_uris": [back], "client_secret": "of-the-app"}
    connected(client, guarded, client_id="app", key="of-the-app")
    assert call(person) == "Made Door."


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://other.example"},
        {"code_challenge_methods_supported": None},
        {"token_endpoint": "http://other.example/token"},
        {"authorization_endpoint": "javascript:alert(1)"},
    ],
)
def test_a_log_in_that_would_be_unsafe_is_not_begun(person, log_in, guarded, metadata):
    guarded.metadata = metadata
    page = log_in(person).submit(PAGE, name="tracker", address=guarded.address)
    assert "offers no log-in" in page.text and 'rel="noreferrer"' not in page.text
    assert not guarded.clients and not ToolLogin.objects.exclude(state="").exists()


def test_a_page_says_where_it_sends_its_person_and_never_breaks(person, log_in, guarded):
    client = log_in(person)
    guarded.metadata = {"authorization_endpoint": "https://known.example@other.example/go"}
    page = client.submit(PAGE, name="tracker", address=guarded.address)
    assert "Go on to other.example<" in page.text
    guarded.metadata = {"scopes_supported": ["x" * 70_000]}
    page = client.submit(PAGE, connect=guarded.address)
    assert page.status_code == 200 and "its address is too long" in page.text


@pytest.mark.parametrize(
    "tokens",
    [
        b"[" * 10_000,
        b'{"refresh_token": "s3cret"}',
        b'{"access_token": "s3cret\\r\\nX: y", "token_type": "bearer"}',
        b'{"access_token": "\xe2\x82\xac s3cret", "token_type": "bearer"}',
    ],
)
def test_tokens_that_are_none_are_refused_and_not_shown(person, log_in, guarded, tokens):
    client, guarded.tokens = log_in(person), tokens
    page = client.get(agree(begin(client, guarded)))
    assert page.status_code == 200 and "it gave no valid token" in page.text and "s3cret" not in page.text
    assert not ToolLogin.objects.exclude(sealed="").exists()


@pytest.mark.parametrize("seconds", [10**400, -(10**400)])
def test_tokens_may_be_good_for_any_time(person, log_in, guarded, seconds):
    guarded.expires_in = seconds
    connected(log_in(person), guarded)
    assert call(person) == "Made Door."


# The failures of others that this is tested against, each by its number there.


def test_2_tokens_are_renewed_where_they_came_from_before_anything_is_asked(person, log_in, guarded):
    connected(log_in(person), guarded)
    change(person, expires_at=0)
    assert call(person) == "Made Door."
    assert guarded.asked[-1]["grant_type"] == "refresh_token" and guarded.asked[-1]["resource"] == guarded.address
    assert (guarded.lost, guarded.renewed) == ([], 1)


def test_3_two_answers_at_once_renew_once(person, log_in, guarded):
    connected(log_in(person), guarded)
    change(person, expires_at=0)
    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(lambda number: call(person, f"Door {number}"), range(4))]
    assert sorted(found) == [f"Made Door {number}." for number in range(4)]
    assert guarded.renewed == 1


def test_4_a_renewed_token_that_is_refused_asks_the_person(person, log_in, guarded):
    client = log_in(person)
    connected(client, guarded)
    guarded.refuses_all = True
    for _ in range(3):
        with pytest.raises(LogInFirst):
            call(person)
    assert (guarded.renewed, guarded.others.calls) == (1, [])
    assert "You have to log in there before" in client.get(PAGE).text
    with acting_as(person):
        chat = a_turn(person, "Hello").conversation
        assert deps_for(caller_for(person), chat, now=NOW, can_ask=True).servers == ()
    guarded.refuses_all = False
    connected(client, guarded, connect=guarded.address)
    assert call(person) == "Made Door."


def test_5_a_token_that_is_refused_early_is_renewed_and_the_call_made_once(person, log_in, guarded):
    connected(log_in(person), guarded)
    guarded.accepted.clear()
    assert call(person) == "Made Door."
    assert guarded.others.calls == [("create_issue", "Door")]
    assert [form["grant_type"] for form in guarded.asked] == ["authorization_code", "refresh_token"]


def test_6_a_server_that_asks_only_at_the_call_offers_to_connect_then(person, log_in, guarded):
    client, guarded.guards_calls_only = log_in(person), True
    assert "create_issue" in client.submit(PAGE, name="tracker", address=guarded.address).text
    assert "Connect" not in client.get(PAGE).text.partition("Add a server")[0].partition("<h1>")[2]
    with pytest.raises(LogInFirst):
        call(person)
    connected(client, guarded, connect=guarded.address)
    assert call(person) == "Made Door."


@pytest.mark.parametrize("way", ["elsewhere", "logged out"])
def test_7_the_return_ends_the_log_in_in_any_process(person, log_in, new_client, guarded, elsewhere, way):  # noqa: F811
    back = agree(begin(log_in(person), guarded))
    client = elsewhere() if way == "elsewhere" else new_client()
    page = client.get(back)
    assert page.url.path == "/login/" and not ToolLogin.objects.exclude(sealed="").exists()
    there_again = str(page.url.raw_path, "ascii")
    page = client.post(
        there_again,
        data={"username": person.email, "password": "password"},
        headers=client._csrf(),
        follow_redirects=True,
    )
    assert "Connected to tracker." in page.text
    assert call(person) == "Made Door."


def test_a_log_in_ends_once_for_its_person_and_soon(person, stranger, log_in, guarded):
    client = log_in(person)
    back = agree(begin(client, guarded))
    over = "This log-in is over."
    assert over in log_in(stranger).get(back).text and over in client.get(f"{PAGE}return/?code=x&state=").text
    assert guarded.asked == []
    ToolLogin.objects.update(pending_until=timezone.now() - timedelta(seconds=1))
    assert over in client.get(back).text
    back = agree(begin(client, guarded, connect=guarded.address))
    assert "another server answered" in client.get(back.replace("iss=", "iss=x")).text
    assert over in client.get(back).text
    assert guarded.asked == [] and not ToolLogin.objects.exclude(sealed="").exists()
    assert (
        "access_denied"
        in client.get(
            re.sub("code=[^&]+", "error=access_denied", agree(begin(client, guarded, connect=guarded.address)))
        ).text
    )


def test_a_renewal_that_fails_otherwise_keeps_the_log_in(person, log_in, guarded):
    connected(log_in(person), guarded)
    change(person, expires_at=0, token_endpoint=f"{guarded.issuer}/nothing")
    with pytest.raises(Unavailable, match="404"):
        call(person)
    change(person, token_endpoint=f"{guarded.issuer}/renewing")
    assert call(person) == "Made Door."


def test_a_server_for_everybody_is_connected_by_each_for_themselves(person, stranger, log_in, guarded, language_model):
    person.is_staff = True
    person.save()
    client = log_in(person)
    connected(client, guarded, for_all="on")
    (row,) = InstallationSetting.objects.get(name=SERVERS).value
    assert len(row["tools"]) == 3 and row["wants_login"]
    others = log_in(stranger)
    assert "You have to log in there before" in others.get(PAGE).text
    with pytest.raises(LogInFirst):
        call(stranger)
    connected(others, guarded, connect=guarded.address)
    assert call(stranger) == "Made Door."
    assert ToolLogin.objects.exclude(sealed="").count() == 2
    # A worker removes what is left of servers that are gone, and nothing of others.
    ToolServer.objects.create(user=stranger, name="own", address="https://own.example")
    ToolLogin.objects.create(user=stranger, address="https://own.example", sealed="x")
    for left in (3, 1):
        with as_a_worker():
            for user in (person, stranger):
                forget_logins(user.pk)
        assert ToolLogin.objects.count() == left
        client.submit(PAGE, remove=guarded.address, for_all="1")
    InstallationSetting.objects.filter(name=SERVERS).delete()
    read_kept_settings()


def test_a_stop_does_not_lose_what_was_renewed(person, log_in, guarded):
    connected(log_in(person), guarded)
    change(person, expires_at=0)

    async def stopped(server):
        guarded.may_answer.clear()
        task = asyncio.create_task(access_token(server, caller_for(person)))
        await asyncio.to_thread(wait_until, lambda: guarded.renewed)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        guarded.may_answer.set()
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))

    asyncio.run(stopped(the_server(person)))
    assert (call(person), guarded.renewed) == ("Made Door.", 1)
    assert len(asyncio.run(list_tools(the_server(person), caller_for(person)))) == 3
