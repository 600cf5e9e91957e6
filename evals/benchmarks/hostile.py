"""People whose stored texts and files take long to draw, to compare or to read: for `benchmark overload`."""

import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.core.management import CommandError

from agent_tools.authentication import create_token
from agent_tools.models import TokenScope
from core.isolation.acting import acting_as
from evals.client import Client
from evals.processes import call
from evals.reliability.product import Product, Visitor, new_visitor
from intake.accounts.identity import SessionStore
from intake.chats.services import save_exchange
from intake.models import Conversation, User
from memory import documents
from testing import files

NOW = datetime(2026, 2, 3, tzinfo=UTC)
# A row gets the cells that it lacks: a page of a megabyte from a few kilobytes.
WIDE = "|a" * 2_000 + "|\n" + "|-" * 2_000 + "|\n" + "|a\n" * 30
ATTACHMENTS = "/api/v1/attachments/"


@dataclass(frozen=True, slots=True)
class Hostile:
    """An account: its tokens, the cookie of its session, and its chat."""

    tokens: list[str]
    cookie: str
    chat: str


def make_hostile(*, count: int) -> list[tuple[list[str], str, str]]:
    """Runs in a process of the product's. Each has ten wide tables in a chat, and two versions of MEMORY.md."""
    made = []
    words = [str(number % 100) for number in range(499)]
    versions = ["\n".join(f"{word}\n{sign}{at}" for at, word in enumerate(words)) for sign in "ab"]
    for _ in range(count):
        user = User.objects.create_user(f"hostile-{secrets.token_hex(6)}@evals.invalid")
        tokens = [create_token(user=user, scopes=list(TokenScope)).secret for _ in range(8)]
        session = SessionStore()
        session[SESSION_KEY], session[HASH_SESSION_KEY] = str(user.pk), user.get_session_auth_hash()
        session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
        session.create()
        with acting_as(user):
            chat = Conversation.objects.create(user=user, title="Tables")
            for _ in range(10):
                save_exchange(conversation=chat, user_message="Draw this", assistant_message=WIDE, said_at=NOW)
            documents.create(user=user, day=None, content=versions[0], now=NOW)
            documents.replace(user=user, day=None, content=versions[1], expected=None, now=NOW)
        made.append((tokens, f"{settings.SESSION_COOKIE_NAME}={session.session_key}", str(chat.pk)))
    return made


def hostile_accounts(product: Product) -> list[Hostile]:
    return [Hostile(*made) for made in call(make_hostile, product.environment, count=2)]


def strangers(product: Product) -> list[Visitor]:
    return [new_visitor(product.address, "Hello") for _ in range(9)]


def pictures(address: str, visitors: list[Visitor]) -> list[str]:
    """The addresses of the thumbnails of a picture of each, a JPEG of 2,000 scans."""
    data = files.jpeg_of_scans(2_000, 4_000)
    return [f"{ATTACHMENTS}{_upload(address, each, 'picture.jpg', data)}/thumbnail/" for each in visitors]


def upload_sheets(address: str, visitors: list[Visitor]) -> None:
    """From each a sheet that is named 500,000 times."""
    names = '<sheet name="a" sheetId="1"/>' * 500_000
    sheet = files.zipped({"xl/workbook.xml": f"<workbook><sheets>{names}</sheets></workbook>"})
    for each in visitors:
        _upload(address, each, "sheet.xlsx", sheet)


def _upload(address: str, visitor: Visitor, name: str, data: bytes) -> str:
    edge = secrets.token_hex(16)
    head = f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    body = head.encode() + data + f"\r\n--{edge}--\r\n".encode()
    headers = {
        **visitor.headers,
        "Content-Type": f"multipart/form-data; boundary={edge}",
        # All of them come from one address.
        "X-Forwarded-For": "198.51.100.66",
    }
    with Client(address) as client:
        answer = client.ask("POST", ATTACHMENTS, body, headers)
    if not answer.is_ok:
        raise CommandError(f"A file could not be uploaded: {answer}")
    return str(json.loads(answer.body)["id"])


def searches(account: Hostile, path: str, queries: tuple[str, ...]) -> list[list[Any]]:
    """Eight, each with a token of its own."""
    return [
        ["POST", path, {"Authorization": f"Token {token}"}, json.dumps({"query": query, "rerank": True})]
        for token, query in zip(account.tokens, queries * 2, strict=False)
    ]
