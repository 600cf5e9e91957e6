"""The client: it reads what a server may answer, takes half an answer for none, and leaves when it is told to."""

import socket
import threading
from contextlib import contextmanager

import pytest

from evals.client import Client, Refused, mcp_request
from testing.sse_client import Event


@contextmanager
def a_server(*answers):
    """Gives each request the next answer, in pieces, and hangs up after the last; `heard` is what it was sent."""
    listener = socket.create_server(("127.0.0.1", 0))
    heard = []

    def serve():
        with listener.accept()[0] as line:
            for pieces in answers:
                heard.append(line.recv(65_536))
                for piece in pieces:
                    line.sendall(piece)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1], heard
    finally:
        thread.join(10)
        listener.close()


def test_requests_on_one_line_go_out_in_one_piece_and_get_their_answers():
    counted = [b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", b'{"one"', b": 1}"]
    chunked = [
        b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\nSet-Cookie: a=1; Path=/\r\nset-cookie: b=2\r\n\r\n7\r\n[1, 2,\n\r\n",
        b"3\r\n 3]\r\n0\r\n\r\n",
    ]
    with a_server(counted, chunked) as (port, heard), Client(f"http://127.0.0.1:{port}") as client:
        first = client.ask("POST", "/here", {"a": "ü"}, {"Authorization": "Bearer x"})
        assert (first.status, first.is_ok, first.data) == (200, True, {"one": 1})
        second = client.ask("POST", "/there", b"[]")
        assert (second.status, second.is_ok, second.data) == (404, False, [1, 2, 3])
        assert second.cookies == {"a": "1", "b": "2"}
        assert b"a=1" in second.everything

    head, _, body = heard[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /here HTTP/1.1\r\n")
    assert b"Authorization: Bearer x" in head
    assert f"Content-Length: {len(body)}".encode() in head
    assert body == b'{"a": "\\u00fc"}'


def test_half_an_answer_is_none():
    half = [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", b"[1,"]
    with a_server(half) as (port, _), Client(f"http://127.0.0.1:{port}") as client, pytest.raises(ConnectionError):
        client.ask("GET", "/")


def test_events_come_one_by_one_however_they_are_cut():
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    pieces = [
        head + b"9\r\nevent: tu\r\n",
        b"11\r\nrn\ndata: {}\n\neven\r\n",
        b"d\r\nt: done\ndata:\r\n6\r\n {}\n\n\n\r\n0\r\n\r\n",
    ]
    with a_server(pieces) as (port, _), Client(f"http://127.0.0.1:{port}") as client:
        assert list(client.events("GET", "/")) == [Event("turn", {}), Event("done", {})]


def test_a_stream_with_another_status_is_refused():
    busy = [b"HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\n{}"]
    with a_server(busy) as (port, _), Client(f"http://127.0.0.1:{port}") as client, pytest.raises(Refused, match="503"):
        list(client.events("GET", "/"))


def test_a_client_that_leaves_has_what_had_come():
    half = [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", b"[1,"]
    with a_server(half) as (port, _), Client(f"http://127.0.0.1:{port}") as client:
        assert client.ask_and_leave("GET", "/", None, None, seconds=0.3).endswith(b"[1,")


def test_requests_over_mcp_say_who_asks_since_the_revision_that_wants_it():
    message, headers = mcp_request("tools/call", name="search_memory", arguments={})
    assert message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == headers["MCP-Protocol-Version"]
    assert (headers["Mcp-Method"], headers["Mcp-Name"]) == ("tools/call", "search_memory")
    message, headers = mcp_request("tools/call", "2025-11-25", name="search_memory", arguments={})
    assert message["params"] == {"name": "search_memory", "arguments": {}}
    assert "Mcp-Method" not in headers
