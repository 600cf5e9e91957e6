"""Every endpoint, with what is put into it and how one sees that it does its work.

`at` and what goes in name somebody's things in braces (`Things`). An endpoint that is found and is not here fails the suite.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from django.core.files.base import ContentFile

from agent_tools.tests.mcp_messages import LEGACY, MODERN
from config.tests.endpoints.house import A_LINE, CALL_ID, CALLBACK, PASSWORD, SAVED, TOPIC


class Does(Enum):
    """How one sees that an endpoint works, when it is opened by whom it is for."""

    SHOWS = auto()  # the person's own word
    NAMES = auto()  # the person's address, to staff
    CHANGES = auto()  # what is in the database
    ANSWERS = auto()  # without being about anybody
    CLOSED = auto()  # to everybody, by a refusal
    ASKS = auto()  # for a secret that was not sent, by the protocol's own error


@dataclass(frozen=True)
class Probe:
    does: Does
    query: dict[str, str] = field(default_factory=dict)
    body: Any = None
    form: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    # Only the served application can open it: its answer is streamed, from threads.
    is_streamed: bool = False


@dataclass(frozen=True)
class Endpoint:
    route: str
    at: str
    probes: dict[str, list[Probe]]

    @property
    def is_staffs(self) -> bool:
        return self.route.startswith(("admin/", "staff/"))

    @property
    def group(self) -> str:
        """Whose walk is a test of its own, so that several processes share the whole."""
        if self.is_staffs:
            return "staff"
        if self.route.startswith("api/v1/"):
            return "api"
        return "memory" if self.route.startswith("memory/") else "pages"


def shows(**options: Any) -> Probe:
    return Probe(Does.SHOWS, **options)


def names(**options: Any) -> Probe:
    return Probe(Does.NAMES, **options)


def changes(**options: Any) -> Probe:
    return Probe(Does.CHANGES, **options)


def answers(**options: Any) -> Probe:
    return Probe(Does.ANSWERS, **options)


def closed(**options: Any) -> Probe:
    return Probe(Does.CLOSED, **options)


def asks(**options: Any) -> Probe:
    return Probe(Does.ASKS, **options)


def endpoint(route: str, at: str | None = None, **probes: Probe | Sequence[Probe]) -> Endpoint:
    listed = {method: [given] if isinstance(given, Probe) else list(given) for method, given in probes.items()}
    return Endpoint(route, route if at is None else at, listed)


def staffs(route: str, at: str | None = None, *, get: Probe, post: Probe | None = None) -> Endpoint:
    """The admin answers every method that is not POST like GET."""
    probes = {"GET": get, "POST": post or get, "PUT": get, "PATCH": get, "DELETE": get}
    return endpoint(f"admin/{route}", f"admin/{route if at is None else at}", **probes)


def both(
    route: str,
    at: str | None = None,
    *,
    form: dict[str, Any] | None = None,
    does: Callable[..., Probe] = answers,
    changes_it: bool = False,
) -> list[Endpoint]:
    """A page with a form. `at`: its address, or what stands in the place of the one thing that it is about."""
    post = changes if changes_it else answers
    address = route.replace("<int:pk>", at) if at and "<int:pk>" in route else at
    return [endpoint(route, address, GET=does(), POST=post(form=form or {}))]


PASSKEY = "settings/account/factors/passkeys/<int:pk>"
A_FILE = ContentFile(b"A file like any other", name="file.txt")
ANY_MATCH = {"If-Match": "*"}
TEXT = {"content": f"A new {TOPIC}"}
ASKED = {
    "response_type": "code",
    "client_id": "{client}",
    "redirect_uri": CALLBACK,
    "code_challenge": "c" * 43,
    "code_challenge_method": "S256",
}

# What a tool is asked: the same over REST, over MCP and in the chat.
TOOLS: dict[str, list[Probe]] = {
    "get_context": [
        shows(body={"for": "session", "maxTokens": 4000}),
        shows(body={"for": "prompt", "query": TOPIC}),
        shows(body={"for": "session", "project": "{project}", "session": "{conversation}"}),
        shows(body={"for": "prompt", "query": TOPIC, "project": "{project}"}),
    ],
    "search_chat_history": [
        shows(body={"query": TOPIC}),
        shows(body={"query": TOPIC, "mode": "hybrid", "limit": 20}),
        shows(body={"query": TOPIC, "project": "{project}"}),
        shows(body={"query": TOPIC, "mode": "hybrid", "project": "{project}"}),
        shows(body={"query": TOPIC, "excludeSession": "{temporary}"}),
    ],
    "search_history": [
        shows(body={"query": TOPIC}),
        shows(body={"query": TOPIC, "scope": "memory"}),
        shows(body={"query": TOPIC, "scope": "daily_log", "date_from": "{day}", "date_to": "{day}"}),
        shows(body={"query": TOPIC, "scope": "sessions"}),
        shows(body={"query": TOPIC, "project": "{project}"}),
        shows(body={"query": TOPIC, "excludeSession": "{temporary}"}),
    ],
    "search_memory": [
        shows(body={"query": TOPIC, "tags": ["{project}"]}),
        shows(body={"query": TOPIC, "project_id": "{project}"}),
    ],
    "get_conversation": [
        shows(body={"conversationId": "{conversation}"}),
        shows(body={"conversationId": "{conversation}", "around": 2, "window": 0}),
    ],
    "read_attachment": [
        shows(body={"attachmentId": "{file}"}),
        shows(body={"attachmentId": "{file}", "from": 0}),
    ],
    "list_recent_conversations": [shows(body={})],
    "save_memory": [changes(body=SAVED), changes(body=SAVED | {"propose": True})],
    "append_daily_log": [changes(body={"text": f"The {TOPIC} again", "date": "{day}"})],
}
# And over MCP alone.
MCP_TOOLS: dict[str, list[Probe]] = {
    "search": [shows(body={"query": TOPIC})],
    "fetch": [
        shows(body={"id": "record:{record}"}),
        shows(body={"id": "conversation:{conversation}:{turn}"}),
        shows(body={"id": "file:{file}:0"}),
    ],
}
# Over REST a write may bear a key, under which its answer is kept.
KEPT = {"save_memory": [shows(body=SAVED, headers={"Idempotency-Key": "{key}"})]}

PAGES = [
    endpoint("", GET=shows()),
    endpoint(
        "c/<str:conversation_id>/",
        "c/{conversation}/",
        GET=[shows(), shows(query={"turn": "{turn}"}), shows(query={"before": "2"})],
    ),
    endpoint(
        "c/<str:conversation_id>/rename/",
        "c/{conversation}/rename/",
        GET=shows(),
        POST=changes(form={"title": "Renamed"}),
    ),
    endpoint("c/<str:conversation_id>/delete/", "c/{conversation}/delete/", GET=shows(), POST=changes(form={})),
    endpoint(
        "c/<str:conversation_id>/turns/<str:turn_number>/prompt/",
        "c/{conversation}/turns/{turn}/prompt/",
        GET=[shows(), shows(headers={"X-Recollect-Part": "main"})],
    ),
    endpoint(
        "c/<str:conversation_id>/turns/<str:turn_number>/delete/",
        "c/{conversation}/turns/{turn}/delete/",
        GET=shows(),
        POST=changes(form={}),
    ),
    endpoint(
        "conversations/",
        GET=[
            shows(),
            shows(query={"after": "2999-01-01T00:00:00+00:00_{conversation}"}),
            shows(query={"q": TOPIC}),
            shows(query={"only": "{conversation}"}),
            shows(query={"project": "{project}"}),
            shows(query={"groups": "1", "project": "{project}"}),
            answers(query={"archived": "1"}),
        ],
    ),
    endpoint(
        "c/<str:conversation_id>/outline/",
        "c/{conversation}/outline/",
        GET=[shows(), shows(query={"q": TOPIC}), answers(query={"on": "2026-03-01"})],
    ),
    endpoint("c/<str:conversation_id>/pin/", "c/{conversation}/pin/", POST=changes(form={"on": "1"})),
    endpoint("c/<str:conversation_id>/archive/", "c/{conversation}/archive/", POST=changes(form={"on": "1"})),
    endpoint("c/<str:conversation_id>/keep/", "c/{temporary}/keep/", POST=changes()),
    endpoint("c/<str:conversation_id>/leave/", "c/{temporary}/leave/", POST=changes()),
    endpoint(
        "conversations/change/",
        POST=[
            changes(form={"id": "{conversation}", "do": "archive"}),
            changes(form={"id": "{conversation}", "do": "move", "project": "Elsewhere"}),
            changes(form={"id": "{conversation}", "do": "delete", "sure": "1"}),
            shows(form={"id": "{conversation}", "do": "delete"}),
            shows(form={"id": "{conversation}", "do": "export"}),
        ],
    ),
    endpoint("settings/account/", GET=answers(), POST=changes(form={"time_zone": "Asia/Tokyo"})),
    endpoint("settings/phone/", GET=answers()),
    endpoint("settings/account/titles/", POST=changes(form={"proposes": "on"})),
    endpoint("settings/account/pages/", POST=changes(form={"keeps_not": "on"})),
    endpoint("settings/account/language/", POST=changes(form={"language": "de"})),
    endpoint("settings/account/home/", POST=changes(form={"hide": "open"})),
    endpoint("about/", GET=answers()),
    endpoint("settings/account/answers/", POST=changes(form={"how_to_answer": "Briefly"})),
    endpoint("settings/account/delete/", POST=changes(form={"password": PASSWORD})),
    endpoint("settings/account/export/", GET=answers(query={"as": "markdown"})),
    endpoint(
        "settings/account/password/",
        GET=answers(),
        POST=[
            answers(form={"old_password": "wrong", "new_password": "correct horse battery"}),
            changes(form={"old_password": PASSWORD, "new_password": "correct horse battery"}),
        ],
    ),
    # Its address is all that it knows.
    endpoint("settings/account/activity/", GET=answers()),
    endpoint("settings/account/sessions/", GET=answers()),
    endpoint("settings/account/sessions/end-others/", POST=answers(form={})),
    endpoint(
        "settings/account/sessions/<str:name>/end/",
        "settings/account/sessions/{session}/end/",
        POST=answers(form={}),
    ),
    *both("settings/account/email/", form={"email": "new@example.com", "action_add": ""}, changes_it=True),
    *both("settings/account/confirm/", form={"password": "wrong"}),
    *both("settings/account/confirm/code/", form={"code": "000000"}),
    *both("settings/account/confirm/passkey/", form={"credential": "{{}}"}),
    endpoint("settings/account/factors/", GET=shows()),
    *both("settings/account/factors/app/", form={"code": "000000"}),
    *both("settings/account/factors/app/off/", changes_it=True),
    *both("settings/account/factors/passkeys/add/", form={"credential": "{{}}"}),
    *both(f"{PASSKEY}/", "{passkey}", form={"name": "Renamed"}, does=shows, changes_it=True),
    *both(f"{PASSKEY}/remove/", "{passkey}", does=shows, changes_it=True),
    endpoint("settings/account/factors/codes/", GET=answers()),
    *both("settings/account/factors/codes/new/", changes_it=True),
    endpoint("settings/account/factors/codes/file/", GET=answers()),
    *both("settings/account/services/"),
    endpoint("settings/agents/", GET=shows()),
    endpoint("settings/apps/", GET=answers(), POST=changes(form={"name": "New", "keeps": "chats"})),
    endpoint("settings/tools/return/", GET=answers()),
    endpoint("settings/tools/", GET=answers(), POST=answers(form={"take_back": "{token}"})),
    endpoint("settings/tokens/", GET=shows(), POST=changes(form={"name": "New", "scopes": ["search"], "days": "7"})),
    endpoint("settings/tokens/<str:token_id>/revoke/", "settings/tokens/{token}/revoke/", POST=changes(form={})),
    endpoint(
        "settings/connections/<str:connection_id>/end/",
        "settings/connections/{connection}/end/",
        POST=changes(form={}),
    ),
    # A client's name belongs to nobody. The code that comes of it is the person's own.
    endpoint(
        "oauth/authorize/",
        GET=answers(query=ASKED),
        POST=changes(query=ASKED, form={"allow": "1", "scopes": ["search"]}),
    ),
    endpoint(
        "oauth/token/", POST=asks(form={"grant_type": "refresh_token", "refresh_token": "x", "client_id": "{client}"})
    ),
    # With a token alone: `chat/endpoint/tests` opens them.
    endpoint("v1/models", GET=asks()),
    endpoint("v1/models/<path:name>", "v1/models/recollect", GET=asks()),
    endpoint("v1/embeddings", POST=asks(body={"model": "recollect", "input": TOPIC})),
    endpoint("v1/messages/count_tokens", POST=asks(body={"model": "recollect", "messages": []})),
    endpoint("v1/messages", POST=asks(body={"model": "recollect", "messages": []}, is_streamed=True)),
    endpoint("v1/chat/completions", POST=asks(body={"model": "recollect", "messages": []}, is_streamed=True)),
    endpoint("v1/responses", POST=asks(body={"model": "recollect", "input": TOPIC}, is_streamed=True)),
    endpoint("oauth/revoke/", POST=answers(form={"token": "x", "client_id": "{client}"})),
    endpoint("oauth/register/", POST=answers(body={"redirect_uris": [CALLBACK]})),
    *(
        endpoint(f".well-known/{document}", GET=answers())
        for document in (
            "oauth-protected-resource/mcp/",
            "oauth-protected-resource/mcp",
            "oauth-protected-resource",
            "oauth-authorization-server",
        )
    ),
    # These look at what is asked for, and not at the method.
    endpoint("search/live/", GET=shows(query={"q": TOPIC}), POST=shows(query={"q": TOPIC}, form={})),
    endpoint(
        "search/",
        GET=[shows(query={"q": TOPIC}), shows(query={"q": TOPIC, "project": "{project}"})],
        POST=shows(query={"q": TOPIC}, form={}),
    ),
    endpoint("memory/logs/", GET=answers(), POST=answers(form={})),
    endpoint(
        "memory/proposals/",
        GET=[shows(), shows(query={"chat": "{conversation}"})],
        POST=[
            changes(form={"id": "{proposal}", "do": "accept"}),
            changes(form={"id": "{proposal}", "do": "reject"}),
            changes(form={"id": "{proposal}", "do": "never"}),
            changes(form={"id": "{refused}", "do": "undo"}),
        ],
    ),
    endpoint(
        "memory/correct/<str:conversation_id>/<str:turn_number>/<str:digest>/",
        "memory/correct/{conversation}/{turn}/{passage}/",
        GET=shows(),
        POST=changes(form={"content": f"Another {TOPIC}", "type": "note", "leaves_out": "1"}),
    ),
    endpoint("memory/records/<str:record_id>/", "memory/records/{record}/", GET=shows(), POST=shows(form={})),
    endpoint("memory/about/", GET=answers()),
    endpoint("memory/about/edit/", GET=shows(), POST=changes(form={"content": TOPIC, "state": "{about_state}"})),
    endpoint("memory/about/history/", GET=answers(), POST=answers(form={})),
    endpoint("year/", GET=[shows(query={"year": "2026"}), answers()], POST=answers(form={})),
    endpoint("projects/", GET=shows(), POST=changes(form={"name": "A project of mine"})),
    endpoint("projects/<str:key>/", "projects/{project}/", GET=shows(), POST=answers(form={})),
    endpoint(
        "projects/<str:key>/edit/",
        "projects/{project}/edit/",
        GET=shows(),
        POST=changes(form={"name": "Renamed", "colour": "red"}),
    ),
    endpoint("projects/<str:key>/delete/", "projects/{project}/delete/", GET=shows(), POST=changes(form={})),
    endpoint("memory/timeline/", GET=[shows(), shows(query={"project": "{project}"})], POST=shows(form={})),
    endpoint(
        "memory/timeline/<str:month>/",
        "memory/timeline/{month}/",
        GET=[shows(), shows(query={"project": "{project}"})],
        POST=shows(form={}),
    ),
    endpoint("memory/map/", GET=[shows(), shows(query={"project": "{project}"})], POST=shows(form={})),
    endpoint("memory/context/", GET=shows(query={"tokens": "4000"}), POST=shows(form={})),
    endpoint(
        "memory/context/change/",
        POST=[changes(form={"leave": "0" * 32}), changes(form={"leave": "0" * 32, "of": "{conversation}"})],
    ),
    endpoint(
        "memory/map/found/",
        GET=[answers(query={"q": TOPIC}), answers(query={"q": TOPIC, "project": "{project}"})],
        POST=answers(query={"q": TOPIC}, form={}),
    ),
    endpoint("memory/map/texts/<str:text_id>/", "memory/map/texts/{text}/", GET=shows(), POST=shows(form={})),
    endpoint("memory/notes/", GET=answers()),
    endpoint("memory/notes/<str:note_id>/", "memory/notes/{note}/", GET=shows(), POST=shows(form={})),
    endpoint("memory/notes/<str:note_id>/delete/", "memory/notes/{note}/delete/", GET=shows(), POST=changes(form={})),
    endpoint("memory/files/", GET=[shows(), shows(query={"q": "txt"})], POST=shows(form={})),
    endpoint("memory/pages/<str:file_id>/", "memory/pages/{page}/", GET=shows(), POST=shows(form={})),
    endpoint("memory/files/<str:file_id>/delete/", "memory/files/{file}/delete/", GET=shows(), POST=changes(form={})),
    endpoint("memory/", GET=shows()),
    endpoint("memory/edit/", GET=shows(), POST=changes(form={"content": TOPIC, "state": "{memory_state}"})),
    endpoint("memory/history/", GET=[shows(query={"version": "1"}), answers()], POST=answers(form={})),
    endpoint("memory/logs/<str:date>/history/", "memory/logs/{day}/history/", GET=answers(), POST=answers(form={})),
    endpoint(
        "memory/logs/<str:date>/move/",
        "memory/logs/{day}/move/",
        GET=shows(),
        POST=changes(form={"date": "2026-01-31", "state": "{log_state}"}),
    ),
    endpoint(
        "memory/logs/<str:date>/edit/",
        "memory/logs/{day}/edit/",
        GET=shows(),
        POST=changes(form={"content": TOPIC, "state": "{log_state}"}),
    ),
    endpoint("memory/logs/<str:date>/", "memory/logs/{day}/", GET=shows(), POST=changes(form={"text": "More"})),
    endpoint(
        "memory/logs/<str:date>/delete/",
        "memory/logs/{day}/delete/",
        GET=shows(),
        POST=changes(form={"state": "{log_state}"}),
    ),
    endpoint(
        "memory/records/",
        GET=[shows(), shows(query={"project": "{project}", "tag": "{project}"})],
        POST=changes(form={"content": f"A new {TOPIC}", "type": "note"}),
    ),
    endpoint(
        "memory/records/<str:record_id>/edit/",
        "memory/records/{record}/edit/",
        GET=shows(),
        POST=changes(form={"content": TOPIC, "type": "note", "state": "{record_state}"}),
    ),
    endpoint(
        "memory/records/<str:record_id>/replace/",
        "memory/records/{record}/replace/",
        GET=shows(),
        POST=changes(form={"content": f"Another {TOPIC}", "type": "note"}),
    ),
    endpoint(
        "memory/records/<str:record_id>/tick/",
        "memory/records/{todo}/tick/",
        GET=answers(),
        POST=changes(form={"done": "1"}),
    ),
    endpoint(
        "memory/records/<str:record_id>/bring-back/",
        "memory/records/{replaced}/bring-back/",
        GET=answers(),
        POST=changes(form={}),
    ),
    endpoint("memory/preview/", GET=answers(), POST=answers(form={"content": TOPIC})),
    endpoint(
        "memory/records/<str:record_id>/delete/",
        "memory/records/{record}/delete/",
        GET=shows(),
        POST=changes(form={}),
    ),
    endpoint("import/", GET=shows()),
    endpoint("import/<str:import_id>/", "import/{import_}/", GET=shows()),
    # Whoever is logged in is sent home by these, whatever the method; a visitor is whom they are for. That an address is
    # taken cannot be kept from whoever tries to register with it; everything else about it can.
    *(
        endpoint(route, GET=answers(), **dict.fromkeys(("POST", "PUT", "PATCH", "DELETE"), answers(form=form)))
        for route, form in {
            "register/": {"email": "new@example.com", "password": "correct horse battery"},
            "login/": {"username": "{email}", "password": "wrong"},
        }.items()
    ),
    endpoint("logout/", POST=answers(form={})),
    # Steps of logging in, for everybody.
    endpoint("login/inactive/", GET=answers()),
    *both("login/code/", form={"code": "000000"}),
    *both("login/passkey/", form={"credential": "{{}}"}),
    *both("login/password/", form={"email": "{email}"}),
    endpoint("login/password/sent/", GET=answers()),
    endpoint("login/password/changed/", GET=answers()),
    *both(
        "login/password/(?P<uidb36>[0-9A-Za-z]{1,20})-(?P<key>[-0-9A-Za-z]{1,100})/$",
        "login/password/1-set-password/",
        form={"password1": "correct horse battery"},
    ),
    endpoint("login/by/cancelled/", GET=answers()),
    endpoint("login/by/error/", GET=closed()),
    *both("login/by/oidc/(?P<provider_id>[^/]+)/login/", "login/by/oidc/oidc/login/"),
    endpoint(
        "login/by/oidc/(?P<provider_id>[^/]+)/login/callback/",
        "login/by/oidc/oidc/login/callback/",
        GET=closed(query={"code": "wrong", "state": "wrong"}),
        POST=closed(form={}),
    ),
    *both("register/by/", form={"email": "{email}"}),
    endpoint("email/sent/", GET=answers()),
    endpoint(r"email/(?P<key>[-:\w]{1,200})/$", "email/none/", GET=answers(), POST=closed(form={})),
    endpoint("healthz", GET=answers()),
    endpoint("worker.js", GET=answers()),
    endpoint("preview/", GET=answers()),
    endpoint("share/", GET=answers(), POST=shows(form={"title": "A page", "url": "https://example.com/"})),
    endpoint("offline/", GET=answers()),
    endpoint("favicon.ico", GET=answers()),
    endpoint("language/<str:language>.js", at="language/de.js", GET=answers()),
    endpoint("api/docs/", GET=answers()),
    endpoint(".well-known/security.txt", GET=answers()),
    endpoint("metrics", GET=closed()),
]

LOG = ("daily-logs/<str:date>/", "daily-logs/{day}/")
DOCUMENT = {
    "GET": shows(),
    "PUT": changes(body=TEXT, headers=ANY_MATCH),
    "DELETE": changes(headers=ANY_MATCH),
}

API = [
    endpoint("intake/events", GET=answers(is_streamed=True)),
    endpoint(
        "intake/chat",
        POST=[
            shows(body={**asked, "conversation_id": "{conversation}"}, is_streamed=True)
            for asked in (
                {"message": TOPIC},
                {"message": TOPIC, "parent": 1},
                {"message": TOPIC, "edit": 1},
                {"regenerate": 1},
                {"continue": 3},
            )
        ],
    ),
    endpoint(
        "conversations/",
        GET=[
            shows(),
            shows(query={"after": "2999-01-01T00:00:00+00:00_{conversation}"}),
            shows(query={"q": TOPIC}),
            answers(query={"archived": "true"}),
        ],
    ),
    endpoint("attachments/", POST=changes(form={"file": A_FILE})),
    endpoint(
        "attachments/<str:attachment_id>/",
        "attachments/{unsent}/",
        GET=shows(),
        DELETE=changes(),
    ),
    endpoint("attachments/<str:attachment_id>/content", "attachments/{file}/content", GET=shows(is_streamed=True)),
    endpoint("attachments/<str:attachment_id>/thumbnail", "attachments/{picture}/thumbnail", GET=answers()),
    endpoint(
        "intake/turns/<str:turn_id>/events",
        "intake/turns/{turn_id}/events",
        GET=[shows(is_streamed=True), shows(is_streamed=True, headers={"Last-Event-ID": "1-0", "Prefer": "blocks"})],
    ),
    endpoint("intake/turns/<str:turn_id>/stop", "intake/turns/{turn_id}/stop", POST=answers(is_streamed=True)),
    endpoint(
        "intake/turns/<str:turn_id>/approvals/<str:call_id>",
        "intake/turns/{turn_id}/approvals/nothing",
        POST=answers(is_streamed=True, body={"decision": "once"}),
    ),
    endpoint("intake/answering", GET=answers(is_streamed=True)),
    endpoint(
        "conversations/<str:conversation_id>/",
        "conversations/{conversation}/",
        GET=[shows(), shows(query={"turn": "{turn}"}), shows(query={"before": "2"})],
        PATCH=[
            changes(body={"title": "Renamed"}),
            changes(body={"pinned": True, "archived": False}),
            changes(body={"instructions": "Briefly", "temperature": 0.5, "memory": False}),
        ],
        DELETE=changes(),
    ),
    endpoint(
        "conversations/<str:conversation_id>/turns/<str:turn_number>/",
        "conversations/{conversation}/turns/{turn}/",
        GET=shows(),
        DELETE=[changes(), changes(query={"from_here": "3"})],
    ),
    endpoint(
        "conversations/<str:conversation_id>/turns/<str:turn_number>/choose/",
        "conversations/{conversation}/turns/{version}/choose/",
        POST=changes(),
    ),
    endpoint(
        "conversations/<str:conversation_id>/turns/<str:turn_number>/branch/",
        "conversations/{conversation}/turns/{turn}/branch/",
        POST=changes(),
    ),
    endpoint(
        "conversations/<str:conversation_id>/turns/<str:turn_number>/tool-calls/<str:call_id>/undo/",
        f"conversations/{{conversation}}/turns/{{turn}}/tool-calls/{CALL_ID}/undo/",
        POST=changes(),
    ),
    endpoint(
        "conversations/<str:conversation_id>/export/",
        "conversations/{conversation}/export/",
        GET=[shows(is_streamed=True), shows(query={"as": "json"}, is_streamed=True)],
    ),
    endpoint("projects/", GET=shows(), POST=changes(body={"name": "New", "labels": ["me/app"]})),
    endpoint("projects/move/", POST=changes(body={"conversations": ["{conversation}"], "project": "Elsewhere"})),
    endpoint(
        "projects/<str:project_id>/",
        "projects/{described}/",
        PATCH=[changes(body={"name": "Another", "closed": True}), changes(body={"instructions": "Briefly"})],
        DELETE=[changes(), changes(query={"contents": "true"})],
    ),
    endpoint("models/", GET=answers()),
    endpoint(
        "account/export/",
        GET=[
            shows(is_streamed=True),
            shows(query={"as": "markdown"}, is_streamed=True),
            shows(query={"project": "{project}"}, is_streamed=True),
        ],
    ),
    endpoint("account/", DELETE=changes(body={"password": PASSWORD})),
    endpoint("tools/", GET=[answers(), answers(query={"format": "openai"})]),
    *(endpoint(f"tools/{name}/", POST=[*probes, *KEPT.get(name, [])]) for name, probes in TOOLS.items()),
    endpoint("tools/<str:name>/", "tools/no_such_tool/", POST=closed(body={})),
    endpoint("tokens/", GET=shows(), POST=changes(body={"name": "New"})),
    endpoint("tokens/<str:token_id>/", "tokens/{token}/", DELETE=changes()),
    endpoint("memory/documents/memory/", **DOCUMENT),
    endpoint("memory/documents/about/", **DOCUMENT),
    endpoint("memory/documents/memory/append/", POST=changes(body={"text": "More"})),
    endpoint("memory/documents/daily-logs/", GET=[answers(), answers(query={"before": "{day}"})]),
    endpoint(f"memory/documents/{LOG[0]}", f"memory/documents/{LOG[1]}", **DOCUMENT),
    endpoint(
        f"memory/documents/{LOG[0]}append/", f"memory/documents/{LOG[1]}append/", POST=changes(body={"text": "More"})
    ),
    endpoint(
        f"memory/documents/{LOG[0]}take-back/",
        f"memory/documents/{LOG[1]}take-back/",
        POST=changes(body={"text": A_LINE}),
    ),
    endpoint(
        "memory/proposals/",
        GET=[
            shows(),
            shows(query={"conversation": "{conversation}"}),
            shows(query={"state": "rejected", "limit": "1"}),
        ],
    ),
    endpoint(
        "memory/proposals/<str:proposal_id>/decision/",
        "memory/proposals/{proposal}/decision/",
        PATCH=[shows(body={"state": "accepted"}), shows(body={"state": "never"})],
        DELETE=answers(),
    ),
    endpoint(
        "memory/records/",
        GET=[
            shows(),
            shows(query={"project_id": "{project}", "tag": "{project}"}),
            shows(query={"after": "2999-01-01T00:00:00Z_{record}"}),
        ],
        POST=changes(body=TEXT),
    ),
    endpoint(
        "memory/records/<str:record_id>/",
        "memory/records/{record}/",
        GET=shows(),
        PATCH=changes(body=TEXT),
        DELETE=changes(),
    ),
    endpoint("memory/timeline/", GET=[shows(), answers(query={"project": "{project}"})]),
    endpoint(
        "memory/timeline/<str:month>/",
        "memory/timeline/{month}/",
        GET=[shows(query={"skip": "0"}), shows(query={"project": "{project}"})],
    ),
    endpoint("memory/map/", GET=[shows(), answers(query={"project": "{project}"})]),
    endpoint("memory/map/points/", GET=[answers(), answers(query={"project": "{project}"})]),
    endpoint("memory/map/points/<str:text_id>/", "memory/map/points/{text}/", GET=shows()),
    endpoint("imports/", GET=shows(), POST=changes(body={"filename": "export.zip", "bytes": 1})),
    endpoint("imports/<str:import_id>/", "imports/{import_}/", GET=shows(), DELETE=changes()),
    endpoint(
        "imports/<str:import_id>/content/",
        "imports/{upload}/content/",
        PUT=changes(body=b"x", content_type="application/octet-stream", headers={"Content-Range": "bytes 0-0/2"}),
    ),
    endpoint("imports/<str:import_id>/preview/", "imports/{import_}/preview/", GET=shows()),
    endpoint("imports/<str:import_id>/start/", "imports/{import_}/start/", POST=changes(body={})),
    endpoint("imports/<str:import_id>/cancel/", "imports/{import_}/cancel/", POST=changes()),
    endpoint("imports/<str:import_id>/undo/", "imports/{imported}/undo/", POST=changes(body={"force": True})),
    endpoint("imports/<str:import_id>/events/", "imports/{import_}/events/", GET=shows(is_streamed=True)),
    endpoint(
        "sessions/append/",
        POST=changes(
            body={
                "product": "claude-code",
                "session": "s1",
                "turns": [{"uuid": "u1", "saidAt": "2026-02-03T10:00:00Z", "user": A_LINE, "answer": A_LINE}],
            }
        ),
    ),
    endpoint("schema/", GET=answers()),
]


def _index(
    model: str, thing: str, *, change: Endpoint, listed: Probe, history: Probe, add: Endpoint, delete: Endpoint
) -> list[Endpoint]:
    return [
        staffs(f"{model}/", get=listed),
        add,
        staffs(f"{model}/<path:object_id>/history/", f"{model}/{thing}/history/", get=history),
        delete,
        change,
        staffs(f"{model}/<path:object_id>/", f"{model}/{thing}/", get=answers()),
    ]


def _part(model: str, thing: str, what: str, **probes: Probe) -> Endpoint:
    return staffs(f"{model}/<path:object_id>/{what}/", f"{model}/{thing}/{what}/", **probes)


EMBEDDING, MODEL, PERSON, GROUP = "memory/embedding", "memory/embeddingmodel", "intake/user", "auth/group"
INVITATION = "intake/invitation"
NEW_PASSWORD = {"password1": "correct horse battery", "password2": "correct horse battery"}

ADMIN = [
    staffs("", get=answers()),
    *(
        endpoint(f"admin/{route}", GET=answers(), POST=answers(form=form), PUT=answers(form=form))
        for route, form in {
            "login/": {"username": "{email}", "password": "wrong"},
            "password_change/": {"old_password": "wrong"},
        }.items()
    ),
    endpoint("admin/logout/", POST=answers(form={})),
    endpoint("admin/password_change/done/", GET=answers()),
    endpoint(
        "admin/autocomplete/",
        GET=names(query={"app_label": "memory", "model_name": "embedding", "field_name": "user", "term": "{email}"}),
    ),
    endpoint("admin/jsi18n/", GET=answers()),
    # No row that staff may know of has a page outside the admin.
    staffs("r/<path:content_type_id>/<path:object_id>/", "r/{content_type}/{person}/", get=closed()),
    *_index(
        GROUP,
        "{group}",
        listed=answers(),
        history=answers(),
        add=staffs(f"{GROUP}/add/", get=answers(), post=changes(form={"name": "More"})),
        delete=_part(GROUP, "{group}", "delete", get=answers(), post=changes(form={"post": "yes"})),
        change=_part(GROUP, "{group}", "change", get=answers(), post=changes(form={"name": "Less"})),
    ),
    *_index(
        MODEL,
        "{model}",
        listed=answers(),
        history=answers(),
        add=staffs(f"{MODEL}/add/", get=closed()),
        delete=_part(MODEL, "{model}", "delete", get=closed()),
        change=_part(MODEL, "{model}", "change", get=answers(), post=closed(form={})),
    ),
    staffs(f"{EMBEDDING}/health/", get=answers()),
    *_index(
        EMBEDDING,
        "{embedding}",
        listed=names(query={"q": "{email}"}),
        history=answers(),
        add=staffs(f"{EMBEDDING}/add/", get=closed()),
        delete=_part(EMBEDDING, "{embedding}", "delete", get=closed()),
        change=_part(EMBEDDING, "{embedding}", "change", get=names(), post=closed(form={})),
    ),
    staffs(
        f"{PERSON}/<id>/password/",
        f"{PERSON}/{{person}}/password/",
        get=names(),
        post=changes(form={"usable_password": "true", **NEW_PASSWORD}),
    ),
    *_index(
        PERSON,
        "{person}",
        listed=names(),
        history=names(),
        add=staffs(
            f"{PERSON}/add/",
            get=answers(),
            post=changes(form={"email": "new@example.com", "usable_password": "true", **NEW_PASSWORD}),
        ),
        delete=_part(PERSON, "{person}", "delete", get=closed()),
        change=_part(
            PERSON,
            "{person}",
            "change",
            get=names(),
            post=changes(form={"email": "{email}", "time_zone": "UTC"}),
        ),
    ),
    *_index(
        INVITATION,
        "{invitation}",
        listed=answers(),
        history=answers(),
        add=staffs(f"{INVITATION}/add/", get=answers(), post=changes(form={"uses": "1", "days": "7"})),
        delete=_part(INVITATION, "{invitation}", "delete", get=answers(), post=changes(form={"post": "yes"})),
        change=_part(INVITATION, "{invitation}", "change", get=answers(), post=closed(form={})),
    ),
    staffs("(?P<app_label>auth|memory|intake)/$", "memory/", get=answers()),
    staffs("(?P<url>.*)$", "no/such/page/", get=closed()),
]

# A model needs no server to be added or removed.
A_MODEL = {"name": "fast", "id": "gpt-5-mini"}
STAFF = [
    endpoint(
        "staff/settings/",
        GET=answers(),
        POST=[
            changes(form={"registration": "closed", "visitors": "no"}),
            changes(form={"part": "quotas", "turns": "7"}),
            changes(form={"part": "instructions", "instructions": "Briefly"}),
        ],
    ),
    endpoint("staff/invite/", POST=changes(form={})),
    endpoint("staff/people/", GET=[names(), names(query={"q": "{email}"})]),
    endpoint(
        "staff/people/<str:user_id>/",
        "staff/people/{person}/",
        GET=names(),
        POST=[
            changes(form={"do": "disable"}),
            changes(form={"do": "reset"}),
            changes(form={"do": "promote"}),
            changes(form={"do": "quotas", "text_megabytes": "5"}),
        ],
    ),
    endpoint("staff/", GET=names()),
    endpoint("staff/index/", GET=answers(), POST=answers(form={})),
    endpoint("staff/search/", GET=answers(), POST=changes(form={"kind": ""})),
    endpoint("staff/models/", GET=answers(), POST=closed(form={"do": "remove", "key": "none"})),
    endpoint("staff/models/<str:key>/", "staff/models/new/", GET=answers(), POST=changes(form=A_MODEL)),
]

ENDPOINTS = {
    each.route: each
    for each in [
        *PAGES,
        *(Endpoint(f"api/v1/{each.route}", f"api/v1/{each.at}", each.probes) for each in API),
        *ADMIN,
        *STAFF,
    ]
}

GROUPS = {
    group: {route: each for route, each in ENDPOINTS.items() if each.group == group}
    for group in ("pages", "memory", "api", "staff")
}

# MCP's methods other than a tool's call, each with a revision that has it.
MCP = {"ping": LEGACY, "server/discover": MODERN, "tools/list": MODERN}
CALL = "tools/call"

# A task takes nothing: whatever could put a message before a worker can name nobody.
TASKS = {
    "agent_tools.sweep_oauth",
    "imports.sweep",
    "imports.work",
    "memory.close_abandoned_turns",
    "memory.draw_maps",
    "memory.embed_pending",
    "memory.flush_terms",
    "memory.index_older_attachments",
    "memory.read_attachments",
    "memory.read_ended_chats",
    "memory.remove_expired_sessions",
    "memory.remove_forgotten_files",
    "memory.remove_old_activity",
    "memory.remove_old_turns",
    "memory.remove_silent_visitors",
    "memory.remove_temporary_chats",
    "memory.sweep_deleted",
    "memory.sweep_lost",
    "memory.sweep_pending",
}
