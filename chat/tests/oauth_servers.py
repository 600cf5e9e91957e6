"""An authorization server, and a server of tools that asks for its tokens; both count what reaches them."""

import asyncio
import base64
import hashlib
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from chat.tests.mcp_servers import Others
from testing.serving import serving


class Guarded:
    """`asked`: each form of the token endpoint. `lost`: requests where nothing is. Each refresh token works once; one
    that comes twice ends the whole log-in, as RFC 9700 says.
    """

    def __init__(self) -> None:
        self.others, self.address, self.issuer = Others(), "", ""
        self.asked: list[dict[str, str]] = []
        self.lost: list[str] = []
        self.clients: dict[str, dict[str, Any]] = {}
        self.codes: dict[str, dict[str, str]] = {}
        self.accepted: set[str] = set()
        self.over: list[dict[str, str]] = []
        self.renewals: dict[str, bool] = {}
        # What a test changes.
        self.expires_in, self.guards_calls_only, self.refuses_all, self.metadata = 3600, False, False, dict[str, Any]()
        self.tokens: bytes | None = None
        # That calls need, and the one that was asked for last.
        self.needs = self.scope = ""
        self.may_answer = threading.Event()
        self.may_answer.set()

    @contextmanager
    def serving(self) -> Iterator[str]:
        inner = self.others.server.streamable_http_app()
        routes = [
            Route("/.well-known/oauth-protected-resource/mcp", self.resource),
            Route("/.well-known/oauth-authorization-server/as", self.describe),
            Route("/as/apps", self.register, methods=["POST"]),
            Route("/as/go", self.authorize),
            Route("/as/renewing", self.token, methods=["POST"]),
            Route("/as/over", self.revoke, methods=["POST"]),
        ]
        own = Starlette(routes=routes)

        async def application(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                await inner(scope, receive, send)
            elif scope["path"] != "/mcp":
                if not any(route.path == scope["path"] for route in routes):
                    self.lost.append(scope["path"])
                await own(scope, receive, send)
            else:
                await self.guard(inner, scope, receive, send)

        with serving(application) as origin:
            self.address, self.issuer = f"{origin}/mcp", f"{origin}/as"
            self.origin = origin
            yield self.address

    async def guard(self, inner: Any, scope: Any, receive: Any, send: Any) -> None:
        body = await Request(scope, receive).body()
        key = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
        is_free = self.guards_calls_only and b'"tools/call"' not in body
        if not is_free and (self.refuses_all or key not in self.accepted):
            named = f'Bearer resource_metadata="{self.origin}/.well-known/oauth-protected-resource/mcp"'
            await Response(status_code=401, headers={"WWW-Authenticate": named})(scope, receive, send)
            return
        if b'"tools/call"' in body and not {*self.needs.split()} <= {*self.scope.split()}:
            named = f'Bearer error="insufficient_scope", scope="{self.needs}"'
            await Response(status_code=403, headers={"WWW-Authenticate": named})(scope, receive, send)
            return
        sent = iter([{"type": "http.request", "body": body}])

        async def again() -> Any:
            return next(sent, None) or await receive()

        await inner(scope, again, send)

    async def resource(self, request: Request) -> Response:
        return JSONResponse({"resource": self.address, "authorization_servers": [self.issuer]})

    async def describe(self, request: Request) -> Response:
        about = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/go",
            "token_endpoint": f"{self.issuer}/renewing",
            "registration_endpoint": f"{self.issuer}/apps",
            "revocation_endpoint": f"{self.issuer}/over",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_post"],
            "authorization_response_iss_parameter_supported": True,
        }
        return JSONResponse({**about, **self.metadata})

    async def register(self, request: Request) -> Response:
        client = {**await request.json(), "client_id": secrets.token_hex(8)}
        self.clients[client["client_id"]] = client
        return JSONResponse(client, status_code=201)

    async def authorize(self, request: Request) -> Response:
        """Its person agrees at once."""
        sent = dict(request.query_params)
        client = self.clients[sent["client_id"]]
        assert sent["redirect_uri"] in client["redirect_uris"] and sent["response_type"] == "code"
        assert sent["code_challenge_method"] == "S256" and sent["resource"] == self.address
        code, self.scope = secrets.token_hex(8), sent.get("scope", "")
        self.codes[code] = sent
        back = urlencode({"code": code, "state": sent["state"], "iss": self.issuer})
        return RedirectResponse(f"{sent['redirect_uri']}?{back}", status_code=302)

    async def token(self, request: Request) -> Response:
        form = {name: str(value) for name, value in (await request.form()).items()}
        self.asked.append(form)
        client = self.clients.get(form.get("client_id", ""), {})
        if client.get("client_secret") != form.get("client_secret") or form.get("resource") != self.address:
            return JSONResponse({"error": "invalid_client"}, status_code=401)
        if form["grant_type"] == "authorization_code":
            asked = self.codes.pop(form["code"], {"code_challenge": ""})
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            is_right = asked["code_challenge"] == base64.urlsafe_b64encode(digest).decode().rstrip("=")
            if not is_right or form["redirect_uri"] != asked["redirect_uri"]:
                return JSONResponse({"error": "invalid_grant"}, status_code=400)
        elif not self.renewals.get(form["refresh_token"]):
            self.accepted.clear()
            self.renewals.clear()
            return JSONResponse({"error": "invalid_grant"}, status_code=400)
        else:
            self.renewals[form["refresh_token"]] = False
        access, renewal = secrets.token_hex(8), secrets.token_hex(8)
        self.accepted = {access}
        self.renewals[renewal] = True
        about = {"access_token": access, "token_type": "bearer", "refresh_token": renewal}
        await asyncio.to_thread(self.may_answer.wait, 30)
        if self.tokens is not None:
            return Response(self.tokens)
        return JSONResponse({**about, "expires_in": self.expires_in})

    async def revoke(self, request: Request) -> Response:
        self.over.append({name: str(value) for name, value in (await request.form()).items()})
        return Response()

    @property
    def renewed(self) -> int:
        return [form["grant_type"] for form in self.asked].count("refresh_token")
