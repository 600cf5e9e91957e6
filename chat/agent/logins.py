"""Logs a person in at servers of tools by OAuth: begins at *Connect*, ends at the return, and renews the tokens.

An open log-in is in the database, so any process ends it: once, within minutes, for the person who began it. What
renews the tokens is kept beside them, and one process at a time does, because a renewal that is used twice ends the
whole log-in at many servers (RFC 9700). A stop does not reach it for the same reason.
"""

import asyncio
import json
import re
import secrets
import time
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import lru_cache, partial
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import anyio
import httpx2
from django.db.models import Q
from django.utils import timezone
from mcp.client.auth import OAuthFlowError, PKCEParameters
from mcp.client.auth.oauth2 import check_registration_usable
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    create_client_registration_request,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    get_client_metadata_scopes,
    handle_auth_metadata_response,
    handle_protected_resource_response,
    handle_registration_response,
    issuers_match,
    union_scopes,
)
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthMetadata, OAuthToken
from mcp.shared.auth_utils import check_resource_allowed
from pydantic import AnyUrl
from pydantic_core import from_json

from agent_tools.threads import run_in_thread
from core.errors import Unavailable
from core.isolation.acting import Caller, acting_as
from core.pinned import origin_of, pinned_client
from core.resilience import Endpoint, LeftAlone
from core.text import capped, pg_text
from core.text import gettext_noop as _
from intake.llm.language_models import opened_key, sealed_key
from intake.models import ToolLogin, ToolServer

UNREACHABLE = _("The server cannot be reached: %(reason)s")
NO_LOGIN = _("This server offers no log-in that can be used here: %(reason)s")
NEEDS_CLIENT = _("Register an app at this server, which returns to %(address)s, and enter its client ID.")


class LogInFirst(Unavailable):
    retryable = False
    default_detail = _("The server asks you to log in: choose “Connect” at Agents, Tools from elsewhere.")


class WiderAccess(LogInFirst):
    """The log-in does not cover what was asked for. `scope`: the one that the server names."""

    default_detail = _("The server asks for wider access: choose “Connect again” at Agents, Tools from elsewhere.")

    def __init__(self, scope: str | None) -> None:
        super().__init__()
        self.scope = scope


async def begin(server: ToolServer, redirect_uri: str, caller: Caller) -> str:
    """The address at which the person logs in. Raises `Unavailable`."""
    async with _calling(server) as http:
        us = {"name": "Recollect", "version": "1"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": us}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        accept = {"Accept": "application/json, text/event-stream"}
        # Only the head: a server that lets anyone in may go on forever.
        async with http.stream("POST", server.address, json=asked, headers=accept) as response:
            named, scope = extract_resource_metadata_from_www_auth(response), extract_scope_from_www_auth(response)
        resource = None
        for url in build_protected_resource_metadata_discovery_urls(named, server.address):
            if resource := await handle_protected_resource_response(await http.get(url)):
                break
        if resource and not check_resource_allowed(server.address, str(resource.resource)):
            raise Unavailable(NO_LOGIN, reason=f"it is for {resource.resource}")
        issuer = str(resource.authorization_servers[0]) if resource else None
        metadata: OAuthMetadata | None = None
        for url in build_oauth_authorization_server_metadata_discovery_urls(issuer, server.address):
            is_there, metadata = await handle_auth_metadata_response(await http.get(url))
            if metadata or not is_there:
                break
        if metadata is None:
            raise Unavailable(NO_LOGIN, reason="it describes none")
        _refuse_unsafe(metadata, issuer, httpx2.URL(server.address))
        scope = get_client_metadata_scopes(scope, resource, metadata, ["authorization_code", "refresh_token"])
        login = await run_in_thread(partial(_login_of, caller, server))
        scope = union_scopes(opened_key(login.pending) if login.wants_wider else None, scope)
        client = await _client_at(server, metadata, redirect_uri, scope, http)
    pkce, state = PKCEParameters.generate(), secrets.token_urlsafe(32)
    pending: dict[str, Any] = {
        "issuer": str(metadata.issuer),
        "sends_issuer": bool(metadata.authorization_response_iss_parameter_supported),
        "token_endpoint": str(metadata.token_endpoint),
        "revocation_endpoint": str(metadata.revocation_endpoint or ""),
        "scope": scope,
        "client": client.model_dump(mode="json", include={"client_id", "client_secret", "token_endpoint_auth_method"}),
        "resource": str(resource.resource) if resource else server.address,
        "redirect_uri": redirect_uri,
        "verifier": pkce.code_verifier,
    }
    await run_in_thread(partial(_keep_pending, caller, server.address, state, pending))
    parameters = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": pkce.code_challenge,
        "code_challenge_method": "S256",
        "resource": pending["resource"],
        **({"scope": scope} if scope else {}),
        # Without it, many servers give nothing that renews the tokens.
        **({"prompt": "consent"} if scope and "offline_access" in scope.split() else {}),
    }
    try:
        return str(httpx2.URL(str(metadata.authorization_endpoint)).copy_merge_params(parameters))
    except httpx2.InvalidURL:
        raise Unavailable(NO_LOGIN, reason="its address is too long") from None


def _refuse_unsafe(metadata: OAuthMetadata, issuer: str | None, origin: httpx2.URL) -> None:
    if not issuers_match(str(metadata.issuer), issuer or f"{origin.scheme}://{origin.netloc.decode()}"):
        raise Unavailable(NO_LOGIN, reason=f"{metadata.issuer} is not the one that it names")
    if "S256" not in (metadata.code_challenge_methods_supported or ()):
        raise Unavailable(NO_LOGIN, reason="it does not support PKCE")
    endpoints = (metadata.authorization_endpoint, metadata.token_endpoint, metadata.revocation_endpoint)
    for endpoint in filter(None, endpoints):
        target = httpx2.URL(str(endpoint))
        if target.scheme != "https" and origin_of(target) != origin_of(origin):
            raise Unavailable(NO_LOGIN, reason=f"{target.host} is not encrypted")


async def _client_at(
    server: ToolServer, metadata: OAuthMetadata, redirect_uri: str, scope: str | None, http: httpx2.AsyncClient
) -> OAuthClientInformationFull:
    """The one that the person has entered, or a new one."""
    accepted = metadata.token_endpoint_auth_methods_supported or ["client_secret_basic"]
    if server.client_id:
        secret = opened_key(server.sealed) or None
        method = "client_secret_basic" if "client_secret_basic" in accepted else "client_secret_post"
        return OAuthClientInformationFull(
            client_id=server.client_id, client_secret=secret, token_endpoint_auth_method=method if secret else "none"
        )
    endpoint = metadata.registration_endpoint
    if endpoint is None:
        raise Unavailable(NEEDS_CLIENT, address=redirect_uri)
    about = OAuthClientMetadata(
        client_name="Recollect",
        redirect_uris=[AnyUrl(redirect_uri)],
        token_endpoint_auth_method="none" if "none" in accepted else None,
        application_type="web",
        scope=scope,
    )
    client = await handle_registration_response(
        await http.send(create_client_registration_request(metadata, about, ""))
    )
    check_registration_usable(client)
    return client


async def finish(server: ToolServer, pending: dict[str, Any], code: str, issuer: str | None, caller: Caller) -> None:
    """Keeps the tokens for the code that came back with the state of `pending`. Raises `Unavailable`."""
    if issuer != pending["issuer"] and (issuer is not None or pending["sends_issuer"]):
        raise Unavailable(NO_LOGIN, reason="another server answered")
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": pending["redirect_uri"],
        "code_verifier": pending["verifier"],
    }
    held = await _tokens(server, pending, form)

    def keep() -> None:
        # A server that was removed meanwhile has no row.
        with acting_as(caller):
            about = {"sealed": sealed_key(json.dumps(held)), "connected_at": timezone.now(), "renewing_until": None}
            ToolLogin.objects.for_caller(caller).filter(address=server.address).update(**about)

    await run_in_thread(keep)


async def access_token(server: ToolServer, caller: Caller, *, refused: str | None = None) -> str:
    """The token of this person at the server, renewed if it has expired; empty without a log-in. `refused`: the one
    that the server has just refused, or the empty one. Raises `LogInFirst`, `Unavailable`.
    """
    while True:
        login = await run_in_thread(partial(_login_of, caller, server))
        held = _held(login.sealed)
        if not held and refused is None:
            return ""
        token = held.get("access_token")
        if token and token != refused and time.time() < held["expires_at"]:
            return str(token)
        if not held.get("refresh_token"):
            await forget(server, caller, token or "")
            raise LogInFirst
        if await run_in_thread(partial(_change, caller, login, renewing_until=timezone.now() + timedelta(seconds=30))):
            # A stop may not end it: a token that was renewed and not kept is lost.
            renewal = asyncio.create_task(_renew(server, caller, login, held))
            _renewals.add(renewal)
            renewal.add_done_callback(_renewals.discard)
            return await asyncio.shield(renewal)
        await asyncio.sleep(0.1)


_renewals = set[asyncio.Task[str]]()


async def _renew(server: ToolServer, caller: Caller, login: ToolLogin, held: dict[str, Any]) -> str:
    sealed = login.sealed
    try:
        held = await _tokens(server, held, {"grant_type": "refresh_token", "refresh_token": held["refresh_token"]})
        sealed = sealed_key(json.dumps(held))
    except LogInFirst:
        sealed = ""
        raise
    finally:
        await run_in_thread(partial(_change, caller, login, sealed=sealed, renewing_until=None))
    return str(held["access_token"])


async def forget(server: ToolServer, caller: Caller, token: str) -> None:
    """The person has to log in, for the first time or again; unless they have a newer token than this one."""
    login = await run_in_thread(partial(_login_of, caller, server))
    if login.sealed and _held(login.sealed).get("access_token", "") == token:
        await run_in_thread(partial(_change, caller, login, sealed=""))


async def ask_for(server: ToolServer, caller: Caller, scope: str | None) -> None:
    """*Connect again* asks for this scope too. What the tokens cover already stays in use."""
    login = await run_in_thread(partial(_login_of, caller, server))
    wider = sealed_key(union_scopes(_held(login.sealed).get("scope"), scope) or "")
    await run_in_thread(partial(_change, caller, login, state="", pending=wider))


async def revoke(server: ToolServer, sealed: str) -> bool:
    """Tells the service that this log-in is over (RFC 7009); whether it knows now."""
    held = _held(sealed)
    if not held.get("revocation_endpoint"):
        return not sealed
    with suppress(Unavailable):
        async with _calling(server) as http:
            # With it, the service revokes what it gave for it.
            form = {"token": held["refresh_token"] or held["access_token"]}
            return (await _post(http, held["revocation_endpoint"], held, form)).is_success
    return False


async def _post(http: httpx2.AsyncClient, url: str, kept: dict[str, Any], form: dict[str, str]) -> httpx2.Response:
    client, headers = kept["client"], {"Accept": "application/json"}
    match client["token_endpoint_auth_method"], client["client_secret"]:
        case "client_secret_basic", str(secret):
            pair = f"{quote(client['client_id'], safe='')}:{quote(secret, safe='')}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        case "client_secret_post", str(secret):
            form = {**form, "client_id": client["client_id"], "client_secret": secret}
        case _:
            form = {**form, "client_id": client["client_id"]}
    return await http.post(url, data={**form, "resource": kept["resource"]}, headers=headers)


async def _tokens(server: ToolServer, kept: dict[str, Any], form: dict[str, str]) -> dict[str, Any]:
    """What `access_token` reads. `kept` has the endpoints, the client, the resource and the scope."""
    async with _calling(server) as http:
        response = await _post(http, kept["token_endpoint"], kept, form)
        body = None
        # Which is a `ValueError` also where the JSON is too deep.
        with suppress(ValueError):
            body = from_json(response.content)
        error = body.get("error") if isinstance(body, dict) else None
        # Any other failure is none of the tokens: the next call tries them again.
        if error in ("invalid_grant", "invalid_client", "unauthorized_client", "invalid_target"):
            raise LogInFirst
        if response.status_code != httpx2.codes.OK:
            raise Unavailable(UNREACHABLE, reason=f"{response.status_code} {str(error or '')[:100]}".strip())
        try:
            tokens = OAuthToken.model_validate(body)
        except ValueError:
            tokens = OAuthToken(access_token="")
        if not re.fullmatch("[!-~]+", tokens.access_token):
            # Without the words of the failure, which quote what came.
            raise Unavailable(UNREACHABLE, reason="it gave no valid token")
    return {
        **{name: kept.get(name) for name in ("token_endpoint", "revocation_endpoint", "client", "resource", "scope")},
        "access_token": tokens.access_token,
        "refresh_token": tokens.refresh_token or form.get("refresh_token"),
        "expires_at": time.time()
        - 10
        + (10**9 if tokens.expires_in is None else max(0, min(tokens.expires_in, 10**9))),
    }


@asynccontextmanager
async def _calling(server: ToolServer) -> AsyncIterator[httpx2.AsyncClient]:
    """No redirect is followed: it would take a code or a secret along."""
    try:
        async with (
            within(server.address, 20.0),
            pinned_client(seconds=20, most=200_000, origin=origin_for(server), redirects=0) as http,
        ):
            yield http
    except (httpx2.HTTPError, httpx2.InvalidURL, OAuthFlowError, ValueError, TimeoutError, LeftAlone) as error:
        raise Unavailable(UNREACHABLE, reason=capped(pg_text(str(error)), 200) or type(error).__name__) from None


def origin_for(server: ToolServer) -> str:
    """What staff have added has no row, and may stand in this network."""
    return server.address if server.user_id is None else ""


@asynccontextmanager
async def within(address: str, seconds: float) -> AsyncIterator[None]:
    with _endpoint(address).call(TimeoutError), anyio.fail_after(seconds):
        yield


@lru_cache(maxsize=500)
def _endpoint(address: str) -> Endpoint:
    return Endpoint(address)


def take_pending(caller: Caller, state: str) -> tuple[str, dict[str, Any]] | None:
    """The address and the open log-in to which this state belongs, once; None if there is none of this person."""
    with acting_as(caller):
        mine = ToolLogin.objects.for_caller(caller)
        open_ = mine.filter(state=_digest(state), pending_until__gt=timezone.now()).select_for_update().first()
        if open_ is None:
            return None
        mine.filter(pk=open_.pk).update(state="", pending="")
    opened = opened_key(open_.pending)
    return (open_.address, json.loads(opened)) if opened else None


def _keep_pending(caller: Caller, address: str, state: str, pending: dict[str, Any]) -> None:
    until = timezone.now() + timedelta(minutes=10)
    about = {"state": _digest(state), "pending": sealed_key(json.dumps(pending)), "pending_until": until}
    with acting_as(caller):
        mine = ToolLogin.objects.for_caller(caller)
        mine.update_or_create(user_id=caller.user_id, address=address, defaults=about)  # type: ignore[misc]


def _login_of(caller: Caller, server: ToolServer) -> ToolLogin:
    """Empty where there was none: the page offers to connect then."""
    with acting_as(caller):
        mine = ToolLogin.objects.for_caller(caller)
        return mine.get_or_create(user_id=caller.user_id, address=server.address)[0]  # type: ignore[misc]


def _held(sealed: str) -> dict[str, Any]:
    held: dict[str, Any] = json.loads(opened_key(sealed) or "{}")
    return held


def _change(caller: Caller, login: ToolLogin, **values: Any) -> bool:
    """Only these tokens: others may have been renewed, got anew or deleted meanwhile. Only one process claims them."""
    with acting_as(caller):
        mine = ToolLogin.objects.for_caller(caller).filter(pk=login.pk, sealed=login.sealed)
        if values.get("renewing_until"):
            mine = mine.filter(Q(renewing_until=None) | Q(renewing_until__lt=timezone.now()))
        return bool(mine.update(**values))


def _digest(state: str) -> str:
    return sha256(state.encode()).hexdigest()
