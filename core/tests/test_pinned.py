"""Which addresses are called: by real servers on this machine, and by a resolver whose answers the test chooses."""

import asyncio
import gzip
import socket
from contextlib import asynccontextmanager
from time import monotonic

import httpx2
import pytest

from core.pinned import pinned_client

PRIVATE = """
127.0.0.1 127.1 127.0.1 0x7f.1 0x7f000001 2130706433 017700000001 0177.0.0.1 localhost LOCALHOST localhost. 0 0.0.0.0
10.0.0.1 10.1 172.16.0.1 172.31.255.255 192.168.1.1 192.168.257 100.64.0.1 169.254.169.254 0xa9fea9fe 2852039166
168.63.129.16 100.100.100.200 192.0.0.192 198.18.0.1 192.0.2.1 224.0.0.1 255.255.255.255 240.0.0.1
[::1] [::] [::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1] [fe80::1] [fc00::1] [fd00:ec2::254] [fd20:ce::254] [ff02::1]
[64:ff9b::7f00:1] [64:ff9b::a9fe:a9fe] [64:ff9b:1::a9fe:a9fe] [2002:7f00:1::] [2002:a9fe:a9fe::1]
[2001:0:4136:e378:8000:63bf:5601:5601] [2600::5efe:10.0.0.1] [2001:db8::1] [fec0::1] [100::1]
""".split()  # noqa: SIM905 - a list would be three times as long
METADATA = """
169.254.169.254 0xa9fea9fe 2852039166 169.254.43518 0xa9.0xfe.0xa9.0xfe 168.63.129.16 100.100.100.200 192.0.0.192
169.254.170.2 [::ffff:169.254.169.254] [64:ff9b::a9fe:a9fe] [64:ff9b:1:a9fe:a9:fe00::] [2002:a9fe:a9fe::] [fe80::1]
[fd00:ec2::254] [2001:0:4136:e378:8000:63bf:5601:5601]
""".split()  # noqa: SIM905 - a list would be three times as long


@asynccontextmanager
async def serving(answer):
    """A server of one function, which gets the request's head and the writer."""

    async def serve(reader, writer):
        try:
            await answer((await reader.readuntil(b"\r\n\r\n")).decode(), writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def answering(body=b"ok", head="200 OK", more=""):
    async def answer(_, writer):
        writer.write(f"HTTP/1.1 {head}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body)
        await writer.drain()

    return answer


async def get(url, *, seconds=2.0, most=100_000, origin="", redirects=5):
    async with pinned_client(seconds=seconds, most=most, origin=origin, redirects=redirects) as client:
        return await client.get(url)


async def get_from(answer, *, path="", **options):
    async with serving(answer) as port:
        origin = f"http://127.0.0.1:{port}"
        return await get(f"{origin}{path}", origin=origin, **options)


def resolving(monkeypatch, answers):
    """Names lead to these addresses, the last one for ever; returns the names that were asked for."""
    asked = []

    async def getaddrinfo(self, host, port, **_):
        asked.append(host)
        found = answers[host].pop(0) if len(answers[host]) > 1 else answers[host][0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    return asked


def connecting(monkeypatch):
    """Nothing leaves this machine: the addresses to which a connection would have been made."""
    made = []

    async def create(self, protocol, host=None, port=None, **_):
        made.append((host, port))
        raise OSError("No route")

    monkeypatch.setattr(asyncio.BaseEventLoop, "create_connection", create)
    return made


@pytest.mark.parametrize("host", PRIVATE)
def test_no_spelling_of_a_private_address_is_called(host, monkeypatch):
    assert len(PRIVATE) >= 40
    made = connecting(monkeypatch)
    with pytest.raises((httpx2.ConnectError, httpx2.InvalidURL)):
        asyncio.run(get(f"http://{host}/"))
    assert made == []


def test_a_name_is_asked_for_as_the_request_writes_it(monkeypatch):
    asked = resolving(monkeypatch, {"xn--fa-hia.de": [["93.184.216.34"]]})
    connecting(monkeypatch)
    with pytest.raises(httpx2.ConnectError):
        # Python's own encoding of names would ask for `fass.de`.
        asyncio.run(get("http://faß.de/"))
    assert asked == ["xn--fa-hia.de"]


@pytest.mark.parametrize("host", METADATA)
def test_an_administrators_origin_may_not_be_a_clouds_metadata(host, monkeypatch):
    made = connecting(monkeypatch)
    with pytest.raises(httpx2.ConnectError, match="not a public"):
        asyncio.run(get(f"http://{host}:8080/", origin=f"http://{host}:8080"))
    assert made == []


@pytest.mark.parametrize("url", ["http://93.184.216.34:8080/", "https://93.184.216.34:22/", "ftp://93.184.216.34/"])
def test_only_the_ports_of_the_web_are_called(url, monkeypatch):
    made = connecting(monkeypatch)
    with pytest.raises(httpx2.TransportError):
        asyncio.run(get(url))
    assert made == []


def test_a_rebinding_name_is_resolved_once_and_called_where_it_was_judged(monkeypatch):
    asked = resolving(monkeypatch, {"rebind.example": [["93.184.216.34"], ["127.0.0.1"]]})
    made = connecting(monkeypatch)
    with pytest.raises(httpx2.ConnectError):
        asyncio.run(get("https://rebind.example/"))
    assert asked == ["rebind.example"]
    assert made == [("93.184.216.34", 443)]


def test_one_private_address_among_public_ones_refuses_the_name(monkeypatch):
    resolving(monkeypatch, {"mixed.example": [["93.184.216.34", "10.0.0.1"]]})
    made = connecting(monkeypatch)
    with pytest.raises(httpx2.ConnectError, match="not a public"):
        asyncio.run(get("http://mixed.example/"))
    assert made == []


def test_the_certificate_and_the_host_are_those_of_the_name(monkeypatch):
    asked = {}

    async def send(self, request):
        asked["host"], asked["sni"] = request.headers["Host"], request.extensions["sni_hostname"]
        asked["to"] = request.url.host
        return httpx2.Response(200, stream=httpx2.ByteStream(b""))

    resolving(monkeypatch, {"named.example": [["93.184.216.34"]]})
    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", send)
    response = asyncio.run(get("https://named.example/a"))
    assert asked == {"host": "named.example", "sni": "named.example", "to": "93.184.216.34"}
    assert str(response.url) == "https://named.example/a"


def test_an_administrators_origin_answers_on_this_machine():
    assert asyncio.run(get_from(answering(b"found"))).text == "found"


@pytest.mark.parametrize("to", ["http://127.0.0.1:1/", "http://localhost/", "http://169.254.169.254/latest/"])
def test_a_redirect_leaves_the_administrators_origin_only_to_public_addresses(to):
    with pytest.raises(httpx2.ConnectError, match=r"public|port 80"):
        asyncio.run(get_from(answering(head="302 Found", more=f"Location: {to}\r\n")))


def test_each_redirect_of_a_page_is_judged_again(monkeypatch):
    asked = []

    async def send(self, request):
        asked.append(request.url.host)
        headers = {"Location": "http://10.0.0.7/"}
        return httpx2.Response(302, headers=headers, stream=httpx2.ByteStream(b""))

    resolving(monkeypatch, {"a.example": [["93.184.216.34"]], "10.0.0.7": [["10.0.0.7"]]})
    monkeypatch.setattr(httpx2.AsyncHTTPTransport, "handle_async_request", send)
    with pytest.raises(httpx2.ConnectError, match="not a public"):
        asyncio.run(get("http://a.example/"))
    assert asked == ["93.184.216.34"]


async def drip_body(_, writer):
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.05)


async def drip_head(_, writer):
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X: y\r\n")
        await writer.drain()
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("drip", [drip_body, drip_head])
def test_a_dripping_server_is_left_at_the_deadline(drip):
    begun_at = monotonic()
    with pytest.raises(httpx2.ReadTimeout, match="too long"):
        asyncio.run(get_from(drip, seconds=0.4))
    assert monotonic() - begun_at < 2


def test_redirects_share_one_deadline():
    async def answer(head, writer):
        await asyncio.sleep(0.3)
        await answering(head="302 Found", more="Location: /again\r\n")(head, writer)

    begun_at = monotonic()
    with pytest.raises(httpx2.ReadTimeout):
        asyncio.run(get_from(answer, seconds=0.5))
    assert monotonic() - begun_at < 1


def test_two_megabytes_in_one_event_are_too_much():
    body = b"data: " + b"x" * 2_000_000 + b"\n\n"
    with pytest.raises(httpx2.ReadError, match="too much"):
        asyncio.run(get_from(answering(body, more="Content-Type: text/event-stream\r\n"), most=1_000_000))


def test_a_body_that_is_compressed_unasked_is_refused():
    packed = gzip.compress(b"\0" * 10_000_000)
    with pytest.raises(httpx2.DecodingError):
        asyncio.run(get_from(answering(packed, more="Content-Encoding: gzip\r\n")))


def test_a_proxy_gets_names_alone(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    made = connecting(monkeypatch)
    hosts = "127.1 127.0x1 169.254.0xA9FE. 10.0.0.1 intranet public.example:8080"
    for url in (f"http://{host}/" for host in hosts.split()):
        with pytest.raises(httpx2.ConnectError, match="not a public"):
            asyncio.run(get(url))
    with pytest.raises(httpx2.ConnectError, match=r"(?i)connection"):
        asyncio.run(get("http://public.example/"))
    assert {host for host, _ in made} == {"127.0.0.1"}


def test_a_secret_header_follows_no_redirect_to_another_origin(monkeypatch):
    seen = []

    async def judged(url, origin):
        return [("127.0.0.1", url.port)]

    async def redirected():
        def answering_to(name, target):
            async def answer(head, writer):
                seen.append((name, "X-Key: 1" in head, "Accept: text/x" in head))
                await answering(head="307 Moved", more=f"Location: {target()}\r\n")(head, writer)

            return answer

        async with serving(answering_to("other", lambda: "/end")) as other:
            places = iter(["/again", f"http://127.0.0.1:{other}/"])
            async with serving(answering_to("own", lambda: next(places))) as port:
                headers = {"X-Key": "1", "Accept": "text/x"}
                options = {"seconds": 2, "most": 100, "headers": headers, "secret": ["X-Key"], "redirects": 2}
                async with pinned_client(**options) as client:
                    with pytest.raises(httpx2.TooManyRedirects):
                        await client.get(f"http://127.0.0.1:{port}/")

    monkeypatch.setattr("core.pinned.judged_addresses", judged)
    asyncio.run(redirected())
    assert seen == [("own", True, True), ("own", True, True), ("other", False, True)]
