"""The benchmark's own client: it reads what a server may answer, and takes half an answer for none."""

import socket
import threading
from contextlib import closing, contextmanager

import pytest

from evals.children.kept_line import KeptLine


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
        b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n[1, 2,\n\r\n",
        b"3\r\n 3]\r\n0\r\n\r\n",
    ]
    with a_server(counted, chunked) as (port, heard), closing(KeptLine("127.0.0.1", port)) as line:
        assert line.post("/here", {"a": "ü"}, {"Authorization": "Bearer x"}) == (200, {"one": 1})
        assert line.post("/there", [], {}) == (404, [1, 2, 3])

    head, _, body = heard[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /here HTTP/1.1\r\n")
    assert b"Authorization: Bearer x" in head
    assert f"Content-Length: {len(body)}".encode() in head
    assert body == b'{"a": "\\u00fc"}'


def test_half_an_answer_is_none():
    half = [b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", b"[1,"]
    with a_server(half) as (port, _), closing(KeptLine("127.0.0.1", port)) as line, pytest.raises(ConnectionError):
        line.post("/", {}, {})
