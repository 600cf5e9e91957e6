"""A server of OpenID Connect for tests: it knows one person, and lets them in without asking."""

import json
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CODE, TOKEN = "a-code", "an-access-token"


@dataclass
class Provider:
    """`claims`: what it says of the person. A code is given out for the challenge that came with the question."""

    claims: dict[str, Any]
    address: str = ""
    challenge: str = ""
    nonce: str | None = None
    key: rsa.RSAPrivateKey = field(
        default_factory=lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048)
    )

    def configuration(self) -> dict[str, Any]:
        return {
            "issuer": self.address,
            "authorization_endpoint": f"{self.address}/authorize",
            "token_endpoint": f"{self.address}/token",
            "userinfo_endpoint": f"{self.address}/userinfo",
            "jwks_uri": f"{self.address}/keys",
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
        }

    def authorize(self, asked: dict[str, str]) -> str:
        """Where the browser is sent back to."""
        assert asked["code_challenge_method"] == "S256"
        self.challenge, self.nonce = asked["code_challenge"], asked.get("nonce")
        return f"{asked['redirect_uri']}?{urlencode({'code': CODE, 'state': asked['state']})}"

    def token(self, asked: dict[str, str]) -> dict[str, Any] | None:
        digest = urlsafe_b64encode(sha256(asked["code_verifier"].encode()).digest()).rstrip(b"=").decode()
        if asked["code"] != CODE or digest != self.challenge:
            return None
        now = int(time.time())
        said = {**self.claims, "iss": self.address, "aud": asked["client_id"], "iat": now, "exp": now + 60}
        signed = jwt.encode({**said, "nonce": self.nonce}, self.key, algorithm="RS256", headers={"kid": "1"})
        return {"access_token": TOKEN, "token_type": "Bearer", "expires_in": 60, "id_token": signed}


@contextmanager
def serving_openid(**claims: Any) -> Iterator[Provider]:
    provider = Provider(claims)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
            match parts.path:
                case "/.well-known/openid-configuration":
                    self._answer(provider.configuration())
                case "/authorize":
                    self.send_response(302)
                    self.send_header("Location", provider.authorize(asked))
                    self.end_headers()
                case "/userinfo":
                    is_known = self.headers["Authorization"] == f"Bearer {TOKEN}"
                    self._answer(provider.claims if is_known else None)
                case _:
                    self._answer(None)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._answer(provider.token({name: values[0] for name, values in parse_qs(body).items()}))

        def _answer(self, data: dict[str, Any] | None) -> None:
            self.send_response(400 if data is None else 200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(data or {"error": "invalid_request"}).encode())

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
