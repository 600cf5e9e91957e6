"""`recollect login`: by the browser, or with a token; and where what it got is kept."""

import io
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import urlopen

import pytest

from agent_tools.authentication import create_token
from agent_tools.models import AccessToken, AgentConnection, TokenScope
from recollect_cli import client, configuration, connecting, mcp
from recollect_cli.client import Failure, Server


@pytest.fixture
def config(tmp_path, recollect, monkeypatch):
    monkeypatch.delenv("RECOLLECT_TOKEN")
    return tmp_path / "config" / "recollect" / "config.json"


def agreeing(monkeypatch, browser, **form):
    """What the user does in the browser: log in, agree, and follow the way back."""
    answers = []

    def follow(address):
        back = browser.post(address, data={"allow": "1", "scopes": form["scopes"]}, headers=browser._csrf())
        answers.append(back)

    def opened(address):
        thread = threading.Thread(target=follow, args=(address,))
        thread.start()
        return True

    monkeypatch.setattr("webbrowser.open", opened)
    return answers


def test_the_browser_gives_this_machine_a_token_of_its_own(server, recollect, config, monkeypatch, person, log_in):
    agreeing(monkeypatch, log_in(person), scopes=["search", "write", "import"])
    status, out, err = recollect("login", server)
    assert (status, "settings" in out) == (0, False), err
    assert f"{server}/oauth/authorize/" in err
    stored = json.loads(config.read_text())
    assert (stored["url"], config.stat().st_mode & 0o077) == (server, 0)
    token = AccessToken.objects.get(user=person)
    assert (sorted(token.scopes), token.name) == (["import", "search", "write"], connecting.machine_name())
    # What OAuth gave was for this alone.
    assert not AgentConnection.objects.exists()
    monkeypatch.delenv("RECOLLECT_URL")
    assert recollect("search", "Miso")[0] == 0


def test_who_does_not_agree_is_not_let_in(server, recollect, config, monkeypatch):
    def refuse(address):
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        back = urlencode({"error": "access_denied", "state": query["state"]})
        threading.Thread(target=lambda: urlopen(f"{query['redirect_uri']}?{back}").close()).start()

    monkeypatch.setattr("webbrowser.open", refuse)
    status, _, err = recollect("login", server)
    assert (status, config.exists()) == (1, False)
    assert "did not let this machine in: access_denied" in err


def test_an_answer_of_another_server_is_refused():
    with pytest.raises(Failure, match="another server's answer"):
        connecting._code_in({"code": "c", "iss": "https://evil.example"}, issuer="https://r.example")


def test_log_in_goes_on_waiting_after_a_request_with_a_wrong_state():
    with connecting._Return() as listener, ThreadPoolExecutor() as pool:
        waiting = pool.submit(listener.wait, 20, "right")
        for path in ("/?code=forged&state=wrong", "/?error=access_denied", "/favicon.ico"):
            with pytest.raises(HTTPError, match="404"):
                urlopen(f"http://127.0.0.1:{listener.port}{path}")
        with socket.create_connection(("127.0.0.1", listener.port)) as garbled:
            garbled.sendall(b"GET\r\n\r\n")
        urlopen(f"http://127.0.0.1:{listener.port}/?code=c&state=right").close()
        assert waiting.result() == {"code": "c", "state": "right"}


@pytest.mark.parametrize("is_piped", [True, False])
def test_a_pasted_token_is_tried_and_kept(server, recollect, config, alice, monkeypatch, is_piped):
    secret = create_token(user=alice, scopes=[TokenScope.SEARCH]).secret
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{secret}\n"))
    status, _, err = recollect("login", server, "--token", "-" if is_piped else f"{secret}\n")
    assert status == 0, err
    assert json.loads(config.read_text())["token"] == secret
    assert recollect("search", "Miso")[0] == 0
    assert recollect("login", server, "--token", "f" * 64)[0] == 1
    assert json.loads(config.read_text())["token"] == secret


def test_a_token_that_only_captures_is_good(server, recollect, config, alice):
    secret = create_token(user=alice, scopes=[TokenScope.CAPTURE]).secret
    status, _, err = recollect("login", server, "--token", secret)
    assert (status, err, json.loads(config.read_text())["token"]) == (0, "", secret)


def test_a_stored_token_goes_to_its_own_server_alone(recollect, config, monkeypatch):
    monkeypatch.delenv("RECOLLECT_URL")
    configuration.write_config({"url": "https://r.example", "token": "t"})
    assert configuration.server_of(None, None, otherwise="http://127.0.0.1:1").address == "https://r.example"
    with pytest.raises(Failure, match="recollect login"):
        configuration.server_of("https://other.example", None, otherwise="")


@pytest.mark.parametrize(
    ("address", "is_allowed"),
    [
        ("https://r.example", True),
        ("http://127.0.0.1:8000", True),
        ("http://localhost", True),
        ("http://[::1]:8000", True),
        ("http://192.168.1.5", True),
        ("http://10.0.0.1", True),
        ("http://nas.local:8000", True),
        ("http://r.example", False),
        ("http://8.8.8.8", False),
        ("http://[2606:4700::1]", False),
        ("http://localhost.evil.example", False),
        ("ftp://r.example", False),
        ("http://", False),
    ],
)
def test_plain_http_is_for_near_servers_alone(address, is_allowed):
    if is_allowed:
        assert Server(address, "t").address == address
    else:
        with pytest.raises(Failure):
            Server(address, "t")


def test_a_token_with_other_characters_is_refused_with_a_sentence():
    for token in ("a\nb", "tökén"):
        with pytest.raises(Failure, match="characters that no token has"):
            Server("https://r.example", token)


def test_a_silent_server_is_not_waited_for(recollect, monkeypatch):
    monkeypatch.setattr(client, "TIMEOUT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        status, _, err = recollect("add", "x", "--url", address)
    assert (status, err) == (1, f"recollect: {address} does not answer in time.\n")


@pytest.mark.parametrize("tools", ["all", "few"])
def test_mcp_over_standard_input_is_the_servers_own(server, alice, monkeypatch, tools):
    def message(number, method, **params):
        return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}) + "\n"

    about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    lines = [
        message(1, "initialize", **about),
        json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}) + "\n",
        message(2, "tools/list"),
        "not json\n",
        message(3, "no/method"),
    ]
    output = io.BytesIO()
    monkeypatch.setattr("sys.stdin", type("In", (), {"buffer": io.BytesIO("".join(lines).encode())}))
    monkeypatch.setattr("sys.stdout", type("Out", (), {"buffer": output}))
    mcp.serve_mcp(Server(server, create_token(user=alice).secret), tools=tools)
    answers = {each["id"]: each for each in map(json.loads, output.getvalue().splitlines())}
    assert answers[1]["result"]["serverInfo"]["name"] == "recollect"
    assert ("search_memory" in [tool["name"] for tool in answers[2]["result"]["tools"]]) is (tools == "all")
    assert answers[3]["error"]["code"] == -32601


def test_mcp_without_a_server_says_why(monkeypatch):
    server, there = Server("http://127.0.0.1:1", "t"), {"version": "", "path": "/mcp"}
    answer = mcp._answer_of(server, {"id": 1, "method": "tools/list"}, **there)
    assert answer["error"]["message"].startswith("Recollect: http://127.0.0.1:1 does not answer")
    assert mcp._answer_of(server, {"method": "notifications/x"}, **there) == {}
