"""What any stranger may send to any endpoint: too much, too slowly, too deep, or no text at all; nothing breaks."""

import json
import socket
import time
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from intake.models import Turn
from intake.tests.factories import a_long_conversation
from testing.model_server import Say

pytestmark = pytest.mark.django_db(transaction=True)

ENDPOINTS = ["/", "/login/", "/register/", "/admin/login/", "/api/v1/intake/chat", "/api/v1/tools/search_chat_history/"]
CHAT, SEARCH = "/api/v1/intake/chat", "/api/v1/tools/search_chat_history/"


@pytest.fixture(autouse=True)
def small(settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100_000


def raw(server: str, request: bytes) -> tuple[bytes, float]:
    """Send these very bytes; returns the answer and how long it took."""
    address = urlsplit(server)
    started = time.monotonic()
    with socket.create_connection((address.hostname, address.port), timeout=5) as line:
        answer = b""
        # A server that has refused need not take the rest, nor let go of the line gently.
        with suppress(BrokenPipeError, ConnectionResetError):
            line.sendall(request)
            while piece := line.recv(65_536):
                answer += piece
    return answer, time.monotonic() - started


def post(path: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        "Connection: close",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def chunked(body: bytes, size: int = 10_000) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(f"{len(piece):x}\r\n".encode() + piece + b"\r\n" for piece in pieces) + b"0\r\n\r\n"


def is_refused(answer: bytes, path: str, status: int, code: str) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert b"connection: close" in head.lower()
    if path.startswith("/api/"):
        assert json.loads(body)["code"] == code
    else:
        assert b"<!doctype html>" in body


@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_length_that_is_too_large_is_refused_before_any_of_it_is_sent(server, path):
    answer, seconds = raw(server, post(path, "Content-Length: 100001"))
    is_refused(answer, path, 413, "too_large")
    assert seconds < 2


@pytest.mark.parametrize("path", ENDPOINTS)
def test_chunks_are_counted_though_no_length_was_announced(server, path):
    answer, _ = raw(server, post(path, "Transfer-Encoding: chunked", body=chunked(b"x" * 300_000)))
    is_refused(answer, path, 413, "too_large")


@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_body_that_trickles_in_is_given_up(server, monkeypatch, path):
    monkeypatch.setattr("config.bodies.BODY_SECONDS", 0.5)
    request = post(path, "Content-Length: 1000")
    address = urlsplit(server)
    started = time.monotonic()
    with socket.create_connection((address.hostname, address.port), timeout=5) as line:
        line.sendall(request)
        for _ in range(4):
            line.sendall(b" ")
            time.sleep(0.1)
        answer = b""
        while piece := line.recv(65_536):
            answer += piece
    is_refused(answer, path, 408, "timeout")
    assert time.monotonic() - started < 2


def test_a_body_of_the_length_that_is_allowed_is_read(visitor):
    body = json.dumps({"message": "x" * 40_000, "pad": "y" * 59_000}).encode()
    answer = visitor.post(CHAT, content=body, headers=visitor._csrf() | {"Content-Type": "application/json"})
    assert (answer.status_code, sorted(answer.json()["errors"])) == (400, ["pad"])


def test_an_answer_may_take_longer_than_a_body(visitor, monkeypatch, language_model):
    monkeypatch.setattr("config.bodies.BODY_SECONDS", 0.3)
    language_model(Say(("one ", "two ", "three"), seconds_apart=0.4))
    assert visitor.events("Count")[-1].name == "done"


NO_JSON = {
    "nested 100,000 deep": b'{"message": ' + b"[" * 45_000 + b"]" * 45_000 + b"}",
    "objects nested deep": b'{"a":' * 15_000 + b"1" + b"}" * 15_000,
    "nested about as deep as the reader can": b'{"message": ' + b"[" * 900 + b"]" * 900 + b"}",
    "a number of 90,000 digits": b'{"message": ' + b"9" * 90_000 + b"}",
    "a number too large for any type": b'{"message": 1e99999}',
    "NaN": b'{"message": NaN}',
    "Infinity": b'{"message": -Infinity}',
    "a lone surrogate as a name": b'{"\\ud800": "x"}',
    "a name given twice": b'{"message": "a", "message": "b"}',
    "a NUL alone": b'{"message": "\\u0000"}',
    "a raw NUL": b'{"message": "\x00"}',
    "bytes that are no UTF-8": b'{"message": "\xff\xfe"}',
    "an overlong encoding": b'{"message": "\xc0\xaf"}',
    "UTF-16": '{"message": "x"}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"message": "x"}',
    "an array": b"[]",
    "a string": b'"x"',
    "null": b"null",
    "nothing": b"",
    "half of it": b'{"message": "x',
}


@pytest.mark.parametrize("path", [CHAT, SEARCH, "/api/v1/account/", "/api/v1/conversations/{}/"])
def test_what_is_no_input_is_the_senders_mistake(log_in, person, path):
    conversation = a_long_conversation(person, 1)
    client = log_in(person)
    method = {"/api/v1/account/": "DELETE", "/api/v1/conversations/{}/": "PATCH"}.get(path, "POST")
    headers = client._csrf() | {"Content-Type": "application/json"}
    told = {}
    for name, body in NO_JSON.items():
        answer = client.request(method, path.format(conversation.pk), content=body, headers=headers)
        is_problem = answer.headers["content-type"] == "application/problem+json"
        told[name] = (answer.status_code, answer.json()["code"] if is_problem else answer.text, Turn.objects.count())
    assert told == dict.fromkeys(NO_JSON, (400, "validation_error", 1))


STRANGE_HEADERS = {
    "a session key with a NUL": 'Cookie: sessionid="aaaaaaaaaaaa\\000aaaa"',
    "a session key that is no text": "Cookie: sessionid=\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8",
    "a session key of 60,000 letters": "Cookie: sessionid=" + "a" * 60_000,
    "a CSRF token with a NUL": 'Cookie: csrftoken="\\000"',
    "a token that is no text": "Authorization: Token \xff\xfe",
    "a token without a token": "Authorization: Token",
    "a token in three words": "Authorization: Token a b",
    "another scheme": "Authorization: Bearer \xff",
    "a host that is none": "X-Forwarded-Host: a b c",
    "a strange content type": "Content-Type: \xff/\x7f; charset=\xff",
    "an unknown charset": "Content-Type: application/json; charset=nonsense",
    "a form": "Content-Type: multipart/form-data; boundary=x",
    "a form without a boundary": "Content-Type: multipart/form-data",
}


def broken(server, requests):
    """Those that were not answered, or by a failure of the server."""
    answers = {name: raw(server, request)[0].split(b" ", 2) for name, request in requests.items()}
    return {name: answer for name, answer in answers.items() if not (answer[1:] and 200 <= int(answer[1]) < 500)}


@pytest.mark.parametrize("path", ["/", "/conversations/", "/login/", CHAT, SEARCH, "/admin/login/"])
def test_strange_headers_break_nothing(server, path):
    requests = {}
    for name, header in STRANGE_HEADERS.items():
        for method, body in (("GET", b""), ("POST", b"{}")):
            lines = [
                f"{method} {path} HTTP/1.1",
                "Host: 127.0.0.1",
                "Connection: close",
                f"Content-Length: {len(body)}",
                header,
            ]
            requests[method, name] = "\r\n".join([*lines, "", ""]).encode("latin-1") + body
    assert broken(server, requests) == {}


STRANGE_PATHS = [
    "/c/%00/",
    "/c/%ff%fe/",
    "/c/%ed%a0%80/delete/",
    "/%00",
    "/conversations/?after=%00",
    "/conversations/?after=9999-99-99_x",
    "/conversations/?after=0001-01-01T00:00:00%2B14:00_0190a000-0000-7000-8000-000000000000",
    "/conversations/?after=9999-12-31T23:59:59-14:00_0190a000-0000-7000-8000-000000000000",
    "/login/?next=%00",
    "/login/?next=http://[",
    "/api/v1/tools/%00/",
    "/api/v1/conversations/?after=%00",
    "/?" + "&".join(f"a{number}=b" for number in range(2_000)),
]


def test_strange_addresses_break_nothing(log_in, person, server):
    session = log_in(person).cookies["sessionid"]
    headers = f"Host: 127.0.0.1\r\nConnection: close\r\nCookie: sessionid={session}"
    requests = {path: f"GET {path} HTTP/1.1\r\n{headers}\r\n\r\n".encode() for path in STRANGE_PATHS}
    assert broken(server, requests) == {}


STRANGE_FORMS = [
    b"username=%00&email=%00&password=%00",
    b"username=%ff%fe&email=%ff&password=%ff",
    b"username=%ed%a0%80&email=%ed%a0%80%40example.com&password=%ed%a0%80",
    b"&".join(b"a%d=b" % number for number in range(2_000)),
    b"next=http://[&username=a&password=b",
    b"email=" + b"a" * 90_000 + b"%40example.com&password=" + b"b" * 5_000,
    b"email=a%40example.com&password=correct+horse&time_zone=%00",
    b"csrfmiddlewaretoken=%00",
]


@pytest.mark.parametrize("path", ["/login/", "/register/", "/admin/login/"])
def test_strange_forms_break_nothing(visitor, path):
    headers = visitor._csrf() | {"Content-Type": "application/x-www-form-urlencoded"}
    statuses = {body[:80]: visitor.post(path, content=body, headers=headers).status_code for body in STRANGE_FORMS}
    assert {body: status for body, status in statuses.items() if not 200 <= status < 500} == {}
