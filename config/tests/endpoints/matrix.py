"""Opens every endpoint as whom it is for, as somebody else, as a visitor and as nobody, and says in sentences what should not be.

Somebody else's thing has to look like one that does not exist. So each question is asked twice in the very same words,
while its owner is here and after they have gone with all they had, and the answers have to be equal to the byte.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from difflib import unified_diff
from functools import cache
from http import HTTPStatus
from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.db import connection, transaction
from django.test import Client
from django.urls import resolve
from oauth2_provider.models import AccessToken as OAuthAccessToken
from oauth2_provider.models import Grant, RefreshToken

from agent_tools.models import AccessToken
from config.tests.endpoints.house import PASSWORD, Resident, drop_in, move_in, move_out
from config.tests.endpoints.registered import ENDPOINTS, Does, Endpoint, Probe
from config.tests.endpoints.walking import METHODS
from core.isolation.acting import acting_as, is_cluster
from core.isolation.checks import personal_models
from intake.models import Activity, ActivityEntry, Session, User, installation
from memory.models import MemoryDocument
from testing.examiner import as_the_application

# What two answers to the same question always differ in.
DIFFERENT_EVERY_TIME = [
    (r'(name="csrfmiddlewaretoken" value=")[^"]+', "a CSRF token"),
    (r"nonce(?:-|=\")[\w-]+", "a nonce"),
    (r"(?<=data )\d{4}(?=>)", "a random word"),
    (r"\b(csrftoken|sessionid|messages)=[^;\s]+", "a cookie's value"),
    (r"(?<=X-Recollect-For: v)[0-9a-f]{32}", "a new visitor"),
    (r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT", "a header's date"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?", "a moment"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", "a new row's id"),
    (r"(?<=code=)\w{30}|(?<=client_id\": \")\w{40}|(?<=client_secret\": \")\w{128}", "a new code or client"),
    (r"(?<=issued_at\": )\d+", "a second"),
    (r'"challenge": "[^"]+"', "a challenge"),
    (r'data:image/svg\+xml;base64,[^"]+|(?<=class="secret">)[A-Z2-7]+', "a new secret of an app"),
    (r"[0-9a-f]{64}|(?<=ETag: \"1-)[0-9a-f]{12}", "a new token or tag"),
]

LOGIN_PAGE = re.compile(r"^Location: /(admin/)?login/", re.MULTILINE)

PERSONAL_QUERYSETS = {type(model.objects.all()) for model in personal_models()}
REGISTER = "add it to config/tests/endpoints/registered.py, with what goes in and how one sees that it does its work."


# An endpoint, a method, and what goes in.
Slot = tuple[Endpoint, str, Probe]


def is_like_get(endpoint: Endpoint, method: str) -> bool:
    """The admin asks only whether a method is POST."""
    return method in ("PUT", "PATCH", "DELETE") and endpoint.probes.get(method, []) == endpoint.probes.get("GET")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: str
    body: str

    def __str__(self) -> str:
        return f"{self.status}\n{self.headers}\n\n{self.body}"

    @property
    def asks_for_a_login(self) -> bool:
        """Whether the door asks for a log-in."""
        return self.status == HTTPStatus.UNAUTHORIZED or LOGIN_PAGE.search(self.headers) is not None


def alike(answer: Answer, *, known: Sequence[str] = ()) -> str:
    """The answer without what differs every time. Ids that are `known` stay: none of them is a new row's."""
    text = str(answer)
    for index, name in enumerate(known):
        text = text.replace(name, f"<known {index}>")
    for pattern, what in DIFFERENT_EVERY_TIME:
        text = re.sub(pattern, f"<{what}>", text)
    return text


def difference(before: str, after: str) -> str:
    lines = (text.splitlines() for text in (before, after))
    return "\n".join(unified_diff(*lines, "while it is there", "without it", n=0, lineterm=""))


class Nobody:
    """Somebody who has said nothing yet, and so is known by nothing."""

    name = "nobody"

    def __init__(self, resident: Resident | None = None) -> None:
        self.resident = resident
        # The response to the last question.
        self.got: Any = None
        self._client = Client(raise_request_exception=False)
        if resident is not None:
            self._be(resident)
        self._cookies = dict(self._client.cookies)

    def _be(self, resident: Resident) -> None:
        raise NotImplementedError

    def ask(self, method: str, path: str, probe: Probe, fill: Callable[[object], Any]) -> Answer:
        """The answer; whatever was changed on the way is as before."""
        self._client.cookies.clear()
        self._client.cookies.update(self._cookies)
        headers = {**self._headers(), **fill(probe.headers)}
        for file in filter(lambda value: hasattr(value, "seek"), (probe.form or {}).values()):
            # It was read for the question before.
            file.seek(0)
        data: dict[str, Any] = {"data": fill(probe.form)} if probe.form is not None and method == "POST" else {}
        if probe.body is not None and method not in ("GET", "HEAD"):
            data = {"data": fill(probe.body), "content_type": probe.content_type}
        ask = getattr(self._client, method.lower())
        self.got = got = ask(f"/{path}", query_params=fill(probe.query), headers=headers, **data)
        text = "" if got.streaming else got.content.decode(errors="backslashreplace")
        given = "\n".join(f"{name}: {value}" for name, value in sorted(got.headers.items()))
        return Answer(got.status_code, given + "\n" + got.cookies.output(), text)

    def _headers(self) -> dict[str, str]:
        return {}


class InSession(Nobody):
    """A person, or a visitor, in their browser."""

    def _be(self, resident: Resident) -> None:
        self.name = "a visitor" if resident.user.is_visitor else "a person in a session"
        self._client.force_login(resident.user)


class WithToken(Nobody):
    """A person's agent."""

    name = "a person with a token"

    def _be(self, resident: Resident) -> None:
        self._secret = resident.secret

    def _headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self._secret}"}


class NamedInHeader(Nobody):
    """Sends the header in which a proxy names a person (`LOGIN_HEADER`), from this address."""

    def __init__(self, email: str, *, address: str) -> None:
        super().__init__()
        self.name = f"a sender of the header for {email} from {address}"
        self._email = email
        self._client.defaults["REMOTE_ADDR"] = address

    def _headers(self) -> dict[str, str]:
        return {settings.LOGIN_HEADER: self._email}


# What each was told.
Told = list[tuple[Nobody, str]]
# A digest of the rows of each table.
Rows = dict[str, str | None]


@dataclass
class Matrix:
    """Bob, a visitor and nobody at Alice's endpoints. `found` is what should not be; nothing should.

    `has_one_stranger`: Bob alone asks, by his token where endpoints know tokens. The database's policies know no more of
    visitors than of him: an id that is not the row's.
    """

    owner: Resident
    other: Resident
    staff: Resident
    visitor: Resident
    nobody: Nobody = field(default_factory=Nobody)
    found: list[str] = field(default_factory=list)
    # Where a visitor is answered by another status than nobody is.
    differently_received: list[str] = field(default_factory=list)
    leaks: set[str] = field(default_factory=set)
    asked: int = 0
    has_one_stranger: bool = False
    # A further check of each response, for every caller: the faults that it finds, in sentences.
    also: Callable[[Endpoint, Any], list[str]] | None = None
    _looked_at: set[tuple[object, ...]] = field(default_factory=set)
    # By route and method, who had to log in before anything else was asked of them.
    _turned_away: set[tuple[str, str, str]] = field(default_factory=set)
    # By route, what its `Allow` does not list.
    _refused: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._strangers = [InSession(self.other), InSession(self.visitor), self.nobody, WithToken(self.other)]
        self._owner = InSession(self.owner)
        self._staff = InSession(self.staff)
        things = self.owner.things
        kept = MemoryDocument.objects.filter(user=self.owner.user)
        self._known = [things.conversation, things.record, things.token, *(str(document.pk) for document in kept)]

    def walk(
        self,
        *,
        endpoints: Mapping[str, Endpoint] = ENDPOINTS,
        every_method: bool = False,
        is_opened: bool = True,
    ) -> None:
        """All questions with the owner here; then all of them again without.

        Before that, each is asked by whom it is for, unless another walk has done so.
        """
        slots = list(self._slots(endpoints, every_method))
        if is_opened:
            self._open(slots)
        belongings = self._belongings()
        with_owner = [self._ask_strangers(*slot, belongings) for slot in slots]
        with moved_out(self.owner):
            for slot, told in zip(slots, with_owner, strict=True):
                self._ask_again(*slot, told)

    def open_all(self, endpoints: Mapping[str, Endpoint] = ENDPOINTS) -> None:
        """Each as whom it is for."""
        self._open(list(self._slots(endpoints, every_method=False)))

    def _strangers_at(self, endpoint: Endpoint, method: str) -> list[Nobody]:
        """Pages know no tokens.

        One stranger is enough of OPTIONS, of HEAD, which the view of GET answers, and of the admin, whose door asks for
        no method: each stranger asks it by GET. A method that its owner was refused as such needs none.
        """
        if method in ("HEAD", "OPTIONS") or (endpoint.is_staffs and method != "GET"):
            return self._strangers[:1]
        if method not in endpoint.probes:
            return []
        has_tokens = endpoint.route.startswith("api/")
        if self.has_one_stranger:
            return self._strangers[3:] if has_tokens else self._strangers[:1]
        return self._strangers if has_tokens else self._strangers[:3]

    def _slots(self, endpoints: Mapping[str, Endpoint], every_method: bool) -> Iterator[Slot]:
        for endpoint in endpoints.values():
            for method in METHODS if every_method else tuple(endpoint.probes):
                if endpoint.is_staffs and is_like_get(endpoint, method):
                    continue
                for probe in endpoint.probes.get(method) or next(iter(endpoint.probes.values()))[:1]:
                    if not probe.is_streamed:
                        yield endpoint, method, probe

    def _open(self, slots: Sequence[Slot]) -> None:
        """As whom each is for: one that is registered does its work, and any other does not answer.

        The first that is refused says in `Allow` which else would answer, and only those are tried.
        """
        everything = self._everything()
        for endpoint, method, probe in slots:
            if method not in ("HEAD", "OPTIONS") and (endpoint.route, method) not in self._refused:
                with undone():
                    self._open_one(endpoint, method, probe, everything)

    def _open_one(self, endpoint: Endpoint, method: str, probe: Probe, everything: Rows) -> None:
        who = self._staff if endpoint.is_staffs else self._owner
        if endpoint.is_staffs and probe.does is Does.CHANGES and is_cluster(connection):
            # In one transaction no role reads on a node what another has written there: tests of the admin have it.
            return
        before = written_rows() if probe.does is Does.CHANGES else {}
        answer = self._ask(who, endpoint, method, probe)
        if method not in endpoint.probes:
            if answer.status != HTTPStatus.METHOD_NOT_ALLOWED:
                self._complain(endpoint, method, probe, f"answers, and nobody says what for: {REGISTER}")
            elif allowed := who.got.headers.get("Allow"):
                others = {*METHODS} - {*allowed.split(", "), *endpoint.probes}
                self._refused |= {(endpoint.route, other) for other in others}
        elif not (works(probe, answer, self.owner) and (not before or self._has_changed(everything, before))):
            self._complain(endpoint, method, probe, f"does not do its work ({probe.does.name}):\n{answer}")
        if endpoint.is_staffs:
            self._look_for_words(endpoint, method, probe, answer, "staff", self.owner.words + self.other.words)

    def _has_changed(self, everything: Rows, before: Mapping[str, int]) -> bool:
        tables = written_since(before)
        return self._everything(tables) != {table: everything[table] for table in tables if table in everything}

    def _everything(self, tables: Collection[str] | None = None) -> Rows:
        """On a cluster as the owner sees it, in the transaction in which she has changed something."""
        return self._belongings(tables) if is_cluster(connection) else everything(tables)

    def _belongings(self, tables: Collection[str] | None = None) -> Rows:
        if not is_cluster(connection):
            return belongings(self.owner, tables)
        with as_the_application(), acting_as(self.owner.user):
            return belongings(self.owner, tables)

    def _ask(self, who: Nobody, endpoint: Endpoint, method: str, probe: Probe) -> Answer:
        self.asked += 1
        answer = who.ask(method, path_of(endpoint, self.owner), probe, self.owner.things.fill)
        # The same question with the owner gone has the same kind of answer.
        kind = (endpoint.route, method, who.name, answer.status)
        if self.also and kind not in self._looked_at:
            self._looked_at.add(kind)
            for what in self.also(endpoint, who.got):
                self._complain(endpoint, method, probe, f"answers {who.name}: {what}")
        return answer

    def _ask_strangers(self, endpoint: Endpoint, method: str, probe: Probe, belongings: Rows) -> Told:
        """What each is told, without what differs every time. Every question is undone, and so finds the same belongings.

        An endpoint that turned somebody away to log in has not looked at what went in: nor is it asked anything else.
        """
        told: Told = []
        statuses: dict[Nobody, int] = {}
        for who in self._strangers_at(endpoint, method):
            key = (endpoint.route, method, who.name)
            if key in self._turned_away:
                continue
            with undone():
                answer = self._ask_without_harm(who, endpoint, method, probe, belongings)
            statuses[who] = answer.status
            if answer.asks_for_a_login:
                self._turned_away.add(key)
            if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                self._complain(endpoint, method, probe, f"broke for {who.name}:\n{answer}")
            self._look_for_words(endpoint, method, probe, answer, who.name, self._words_kept_from(who, probe))
            if method != "HEAD" and answer.status != HTTPStatus.METHOD_NOT_ALLOWED:
                told.append((who, alike(answer, known=self._known)))
        a_visitors, nobodys = (statuses.get(who) for who in self._strangers[1:3])
        if a_visitors != nobodys:
            self.differently_received.append(
                f"{method} /{endpoint.route}: {a_visitors} to a visitor, {nobodys} to nobody"
            )
        return told

    def _ask_again(self, endpoint: Endpoint, method: str, probe: Probe, told: Told) -> None:
        """Without the owner, at what is not known to leak: of those who were told the same, the first."""
        if f"{method} /{endpoint.route}" in self.leaks:
            return
        for before, who in {text: who for who, text in reversed(told)}.items():
            with undone():
                answer = self._ask(who, endpoint, method, probe)
            self._look_for_words(endpoint, method, probe, answer, who.name, self._words_kept_from(who, probe))
            if (after := alike(answer, known=self._known)) != before:
                what = f"tells {who.name} whether it exists:\n{difference(before, after)}"
                self._complain(endpoint, method, probe, what)

    def _ask_without_harm(self, who: Nobody, endpoint: Endpoint, method: str, probe: Probe, belongings: Rows) -> Answer:
        if method in ("GET", "HEAD", "OPTIONS") or method not in endpoint.probes:
            return self._ask(who, endpoint, method, probe)
        before = written_rows()
        answer = self._ask(who, endpoint, method, probe)
        if self._has_lost(belongings, before):
            self._complain(endpoint, method, probe, f"let {who.name} change what is somebody else's")
        return answer

    def _has_lost(self, belongings: Rows, before: Mapping[str, int]) -> bool:
        tables = written_since(before)
        return self._belongings(tables) != {table: belongings[table] for table in tables if table in belongings}

    def _words_kept_from(self, who: Nobody, probe: Probe) -> list[str]:
        """What they typed themselves may come back to them."""
        residents = [one for one in (self.owner, self.other, self.visitor) if one is not who.resident]
        sent = str(self.owner.things.fill([probe.query, probe.form or {}, probe.body or {}]))
        words = [word for resident in residents for word in (*resident.words, resident.email_word)]
        return [word for word in words if word not in sent]

    def _look_for_words(
        self, endpoint: Endpoint, method: str, probe: Probe, answer: Answer, who: str, words: Sequence[str]
    ) -> None:
        if any(word in str(answer).lower() for word in words):
            self._complain(endpoint, method, probe, f"tells {who} a word of somebody's:\n{answer}")

    def _complain(self, endpoint: Endpoint, method: str, probe: Probe, what: str) -> None:
        self.leaks.add(f"{method} /{endpoint.route}")
        self.found.append(f"{method} /{endpoint.route} {probe.query or probe.body or probe.form or ''} {what[:3000]}")


def path_of(endpoint: Endpoint, owner: Resident) -> str:
    path = str(owner.things.fill(endpoint.at))
    assert resolve(f"/{path}").route.removeprefix("^") == endpoint.route, f"/{path} does not lead to {endpoint.route}"
    return path


def a_matrix() -> "Matrix":
    return Matrix(**residents())


def residents() -> dict[str, Resident]:
    alice = move_in("alice", "rumpelstiltskin", day=date(2026, 2, 3))
    bob = move_in("bob", "kwyjibo", day=date(2026, 2, 4))
    root = User.objects.create_superuser("root@example.com", PASSWORD)
    staff = Resident(words=(), email_word="root", things=bob.things, user=root)
    return {"owner": alice, "other": bob, "staff": staff, "visitor": drop_in("zebedee")}


def works(probe: Probe, answer: Answer, owner: Resident) -> bool:
    match probe.does:
        case Does.SHOWS:
            return answer.status == HTTPStatus.OK and any(word in answer.body.lower() for word in owner.words)
        case Does.NAMES:
            return answer.status == HTTPStatus.OK and owner.email_word in answer.body
        case Does.CHANGES | Does.ANSWERS:
            return answer.status < HTTPStatus.BAD_REQUEST
        case Does.ASKS:
            return answer.status in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED)
        case Does.CLOSED:
            return answer.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)


@contextmanager
def undone() -> Iterator[None]:
    """Whatever is done within is not done."""
    remembered = installation._kept[0]
    with transaction.atomic():
        yield
        transaction.set_rollback(True)
    # What this process remembers of it.
    if installation._kept[0] is not remembered:
        installation.read_kept_settings()


@contextmanager
def moved_out(resident: Resident) -> Iterator[None]:
    with undone():
        move_out(resident)
        yield


def belongings(resident: Resident, tables: Collection[str] | None = None) -> Rows:
    """Every row of theirs; but anybody may try their password in vain, and it is noted for them."""
    owners = {**_tables(), Session._meta.db_table: "user_id"}
    wheres = {table: f"{who} = {resident.user.pk}" for table, who in owners.items()}
    wheres[ActivityEntry._meta.db_table] += f" AND what <> '{Activity.LOGIN_FAILED}'"
    return _digests(wheres, tables)


def everything(tables: Collection[str] | None = None) -> Rows:
    others = ("auth_group", "intake_invitations", "installation_settings")
    return _digests(dict.fromkeys([*_tables(), *others], "true"), tables)


@cache
def _tables() -> dict[str, str]:
    """Of persons, and the column that names them."""
    proofs = (AccessToken, Grant, OAuthAccessToken, RefreshToken, EmailAddress, Authenticator, SocialAccount)
    named = {model._meta.db_table: "user_id" for model in (*personal_models(), *proofs)}
    return {**named, User._meta.db_table: "id"}


def _digests(wheres: Mapping[str, str], tables: Collection[str] | None) -> Rows:
    """Of these tables, or all."""
    rows = [
        f"SELECT '{table}', md5(string_agg(t::text, '|' ORDER BY t::text)) FROM {table} t WHERE {where}"
        for table, where in wheres.items()
        if tables is None or table in tables
    ]
    if not rows:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join(rows))
        return dict(cursor.fetchall())


def written_rows() -> dict[str, int]:
    """How many rows of each table this transaction has written, whether it took that back or not.

    PostgreSQL counts them: a question after which it has counted none has changed nothing, and no table is read.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT relname, pg_stat_get_xact_tuples_inserted(oid) + pg_stat_get_xact_tuples_updated(oid)
                          + pg_stat_get_xact_tuples_deleted(oid)
              FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
            """
        )
        return dict(cursor.fetchall())


def written_since(before: Mapping[str, int]) -> set[str]:
    """The coordinator of a cluster counts for none of its nodes: there it may be any table."""
    return {table for table, count in written_rows().items() if is_cluster(connection) or count != before[table]}
