"""Calls addresses that a person, a model or a page names: each is resolved, judged, and connected to as it was judged.

Two rules. An address that anybody named must be public, on port 80 or 443. One origin (scheme, host, port) that the
administrator named may be private; its redirects are judged by the first rule. Neither reaches the metadata
services of clouds, which give keys to anyone who asks from inside.
"""

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpx2

from core.resilience import refuse_in_transaction

PORTS = {"http": 80, "https": 443}
# Besides the link-local ones: of Azure, which is a public one, Alibaba, Oracle, AWS, Google and Scaleway.
METADATA = {
    *map(IPv4Address, ("169.254.169.254", "168.63.129.16", "100.100.100.200", "192.0.0.192", "169.254.170.2")),
    *map(IPv6Address, ("fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42")),
}
# Of the public part of IPv6: the networks that carry an address of IPv4 (6to4, Teredo), and examples of documents.
NOT_PUBLIC = [ip_network(each) for each in ("2002::/16", "2001::/32", "2001:db8::/32", "3fff::/20", "192.88.99.0/24")]
GLOBAL_UNICAST = IPv6Network("2000::/3")


def is_metadata(address: IPv4Address | IPv6Address) -> bool:
    """Whether a cloud answers there with keys: also where an address of IPv6 carries that of IPv4 somewhere."""
    if isinstance(address, IPv6Address):
        # A translation to IPv4 leaves out the ninth byte (RFC 6052); Teredo inverts the last four.
        packed = address.packed
        inverted = bytes(255 - byte for byte in packed[12:])
        spellings = (packed, packed[:8] + packed[9:], inverted)
        if any(each.packed in spelling for each in METADATA if isinstance(each, IPv4Address) for spelling in spellings):
            return True
        address = address.ipv4_mapped or address
    return address in METADATA or address.is_link_local


def is_public(address: IPv4Address | IPv6Address) -> bool:
    # An interface of ISATAP (RFC 5214) delivers to the address of IPv4 in its last bytes.
    is_carrier = isinstance(address, IPv6Address) and address.packed[8:12] in (b"\0\0\x5e\xfe", b"\2\0\x5e\xfe")
    if is_carrier or (isinstance(address, IPv6Address) and address not in GLOBAL_UNICAST):
        return False
    is_named = any(address in network for network in NOT_PUBLIC)
    return address.is_global and not address.is_multicast and not is_named and not is_metadata(address)


async def judged_addresses(url: httpx2.URL, origin: httpx2.URL | None) -> list[tuple[str, int]]:
    """The addresses and ports of this URL's host, of which each may be called. Raises `httpx2.ConnectError`."""
    port = url.port or PORTS.get(url.scheme, 0)
    is_origin = origin is not None and origin_of(url) == origin_of(origin)
    if url.scheme not in PORTS or not (is_origin or port in PORTS.values()):
        raise httpx2.ConnectError("Only http on port 80 and https on port 443 are called.")
    try:
        name = url.raw_host.decode("ascii")
        found = await asyncio.get_running_loop().getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise httpx2.ConnectError(f"The name {url.host} leads nowhere.") from error
    addresses = [ip_address(str(each[4][0]).partition("%")[0]) for each in found]
    if not addresses or not all(not is_metadata(each) if is_origin else is_public(each) for each in addresses):
        raise httpx2.ConnectError(f"{url.host} is not a public address.")
    # Many machines have no IPv6, whose attempts would wait.
    return [(str(each), port) for each in sorted({*addresses}, key=lambda each: (each.version, int(each)))]


def origin_of(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or PORTS.get(url.scheme)


class PinnedTransport(httpx2.AsyncHTTPTransport):
    """Judges each request, each redirect too. A request with its redirects has `seconds` until its last byte, and each
    response `most` bytes. The headers named in `secret` follow no redirect to another origin. With the proxy of the
    environment (`HTTPS_PROXY`), that one finds the addresses.
    """

    def __init__(self, *, seconds: float, most: int, origin: str = "", secret: Collection[str] = ()) -> None:
        # A connection is to an address and one name's certificate, so none is kept for another name.
        super().__init__(limits=httpx2.Limits(max_keepalive_connections=0), trust_env=False)
        self.seconds, self.most, self.origin = seconds, most, httpx2.URL(origin) if origin else None
        self.secret = secret

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        refuse_in_transaction(request.url.host)
        # The redirects of a request have its extensions.
        until = request.extensions.setdefault("until", asyncio.get_running_loop().time() + self.seconds)
        if origin_of(request.url) != request.extensions.setdefault("asked", origin_of(request.url)):
            for name in self.secret:
                request.headers.pop(name, None)
        # A compressed kilobyte may be a gigabyte.
        request.headers["Accept-Encoding"] = "identity"
        url = request.url
        try:
            async with asyncio.timeout_at(until):
                response = await self._send(request)
        except TimeoutError as error:
            raise httpx2.ReadTimeout(f"{url.host} took too long.", request=request) from error
        finally:
            request.url = url
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            await response.aclose()
            raise httpx2.DecodingError(f"{url.host} compresses what was asked for plain.", request=request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)  # noqa: S101 - tells the types what the parent returns
        response.stream = _Bounded(response.stream, until, self.most, request)
        return response

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        proxy = None if self.origin or proxy_bypass(url.host) else getproxies().get(url.scheme)
        if proxy:
            self._refuse_by_proxy(url)
            limits = httpx2.Limits(max_keepalive_connections=0)
            transport = httpx2.AsyncHTTPTransport(proxy=proxy, trust_env=False, limits=limits)
            return await transport.handle_async_request(request)
        failure: Exception = httpx2.ConnectError(f"{url.host} does not answer.", request=request)
        for address, port in await judged_addresses(url, self.origin):
            request.url = url.copy_with(host=address, port=port)
            request.extensions["sni_hostname"] = url.raw_host.decode("ascii")
            try:
                return await super().handle_async_request(request)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error
        raise failure

    @staticmethod
    def _refuse_by_proxy(url: httpx2.URL) -> None:
        """The proxy decides where a name leads; an address and a name of this network are refused here."""
        try:
            is_named = is_public(ip_address(url.host))
        except ValueError:
            last = url.host.rstrip(".").rpartition(".")[2]
            # A number at the end makes an address of it: `169.254.0xa9fe`.
            is_named = "." in url.host.strip(".") and re.fullmatch(r"\d+|0[xX][0-9a-fA-F]*", last) is None
        if not is_named or (url.port or PORTS.get(url.scheme)) not in PORTS.values():
            raise httpx2.ConnectError(f"{url.host} is not a public address.")


class _Bounded(httpx2.AsyncByteStream):
    """The body of a response until its deadline and its bound."""

    def __init__(self, stream: httpx2.AsyncByteStream, until: float, most: int, request: httpx2.Request) -> None:
        self.stream, self.until, self.most, self.request = stream, until, most, request

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks, size = aiter(self.stream), 0
        while True:
            try:
                async with asyncio.timeout_at(self.until):
                    chunk = await anext(chunks, None)
            except TimeoutError as error:
                raise httpx2.ReadTimeout(f"{self.request.url.host} took too long.", request=self.request) from error
            if chunk is None:
                return
            size += len(chunk)
            if size > self.most:
                raise httpx2.ReadError(f"{self.request.url.host} sends too much.", request=self.request)
            yield chunk

    async def aclose(self) -> None:
        await self.stream.aclose()


@asynccontextmanager
async def pinned_client(
    *,
    seconds: float,
    most: int,
    origin: str = "",
    headers: Mapping[str, str] | None = None,
    secret: Collection[str] = (),
    redirects: int = 5,
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of httpx2 with this transport alone. Without redirects a response of one is returned as it is."""
    transport = PinnedTransport(seconds=seconds, most=most, origin=origin, secret=secret)
    options: Any = {"follow_redirects": bool(redirects), "max_redirects": redirects, "trust_env": False}
    async with httpx2.AsyncClient(transport=transport, timeout=seconds, headers=headers, **options) as client:
        yield client
