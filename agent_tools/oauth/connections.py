"""The agents that a user has connected, and the user of an access token.

Records, lists and ends the agents that a user has connected.
"""

import re
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, Value
from django.db.models.functions import Greatest
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_refresh_token_model,
)

from agent_tools.models import AgentConnection
from agent_tools.oauth.addresses import bound_resource, plain_name, receiver_of, unbound_resource
from core.errors import NotFound
from core.isolation.acting import acting_as
from core.rate_limits import network_of
from intake.accounts import activity, sessions
from intake.models import Activity, User

AN_ID = re.compile(r"[0-9]{1,18}", re.ASCII)
# A client that was allowed has been changed at least this long after its creation.
MARK_OF_USE = timedelta(minutes=1)
USE_NOTED_EVERY = timedelta(minutes=1)
# The kind of an agent among the access that a session made.
AGENT_MADE = "agent"


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """`name` is the agent's own. `sent_to` is the receiver of the code when the user agreed.

    `projects`: to which its tokens are bound; "" among them for a token that sees everything.
    """

    id: int
    name: str
    sent_to: str
    scopes: tuple[str, ...]
    created_at: datetime
    last_used_at: datetime | None
    last_used_from: str
    projects: tuple[str, ...] = ()

    @property
    def bound_projects(self) -> tuple[str, ...]:
        return tuple(project for project in self.projects if project)

    @property
    def sees_everything(self) -> bool:
        return not self.projects or "" in self.projects


def note_tokens(token: Any, *, now: datetime) -> None:
    """An agent has got tokens, the first or later ones."""
    clients = get_application_model().objects.filter(pk=token.application_id)
    # Marks the client as allowed (`sweeping`).
    clients.update(updated=Greatest(Value(now), F("created") + MARK_OF_USE))
    with acting_as(token.user):
        _, is_new = AgentConnection.objects.update_or_create(
            user=token.user,
            application=token.application,
            defaults={"scopes": token.scope.split()},
            create_defaults={"scopes": token.scope.split(), "created_at": now},
        )
        if is_new:
            activity.note(token.user, Activity.AGENT_CONNECTED)


def note_use(token: Any, *, address: str, now: datetime) -> None:
    """To the minute: a write for every call would cost more than it is worth."""
    is_due = Q(last_used_at=None) | Q(last_used_at__lt=now - USE_NOTED_EVERY)
    with acting_as(token.user):
        AgentConnection.objects.filter(is_due, user=token.user, application=token.application_id).update(
            last_used_at=now, last_used_from=network_of(address)
        )


def list_connections(*, user: User, now: datetime) -> list[ConnectionInfo]:
    """Those that still have access, the newest first."""
    mine = {"user": OuterRef("user"), "application": OuterRef("application")}
    can_refresh = Exists(get_refresh_token_model().objects.filter(**mine, revoked=None, access_token__isnull=False))
    can_call = Exists(get_access_token_model().objects.filter(**mine, expires__gt=now))
    with acting_as(user):
        found = AgentConnection.objects.filter(can_refresh | can_call, user=user).select_related("application")
        bindings = _bindings(user, now)
        return [_info(each, bindings.get(each.application_id, ())) for each in found.order_by("-created_at")]


def end_connection(*, user: User, connection_id: str) -> None:
    """Revoke all access of the agent. Raises `NotFound` alike for malformed ids and for other users'."""
    if not AN_ID.fullmatch(connection_id):
        raise NotFound
    theirs = {"user": user, "application": int(connection_id)}
    with acting_as(user), transaction.atomic():
        if not AgentConnection.objects.filter(**theirs).exists():
            raise NotFound
        _delete(theirs, user)


def end_access_of(*, user: User, application_id: int) -> None:
    """Revoke all access of the agent, whether or not it has become a connection."""
    with acting_as(user), transaction.atomic():
        _delete({"user": user, "application": application_id}, user)


def end_all_connections(*, user: User, kept: frozenset[str] = frozenset()) -> int:
    """Revoke all access of every agent except the kept ones (`sessions.made`); returns their number."""
    with acting_as(user), transaction.atomic():
        # A client that has only a code is no connection yet.
        named = {
            pk
            for model in (get_grant_model(), get_access_token_model(), get_refresh_token_model(), AgentConnection)
            for pk in model.objects.filter(user=user).values_list("application", flat=True)
        }
        doomed = [pk for pk in named if sessions.made(AGENT_MADE, pk) not in kept]
        return _delete({"user": user, "application__in": doomed}, user)


def _delete(theirs: dict[str, Any], user: User) -> int:
    get_grant_model().objects.filter(**theirs).delete()
    # A refresh locks the old token first. Either it has ended, and the next query sees its new tokens; or it waits, and
    # finds the token deleted.
    while list(get_refresh_token_model().objects.filter(**theirs).select_for_update().values_list("pk")):
        get_refresh_token_model().objects.filter(**theirs).delete()
    get_access_token_model().objects.filter(**theirs).delete()
    ended, _ = AgentConnection.objects.filter(**theirs).delete()
    activity.note(user, Activity.AGENT_REMOVED, count=ended)
    return ended


def _bindings(user: User, now: datetime) -> dict[int, tuple[str, ...]]:
    """By application, the projects of its tokens that still work."""
    refreshing = get_refresh_token_model().objects.filter(user=user, revoked=None, access_token__isnull=False)
    calling = get_access_token_model().objects.filter(user=user, expires__gt=now)
    found: dict[int, set[str]] = defaultdict(set)
    for tokens in (refreshing, calling):
        for token in tokens.only("application_id", "resource"):
            found[token.application_id].add(project_of(token))
    return {application_id: tuple(sorted(projects)) for application_id, projects in found.items()}


def move_bindings(user: User, old: str, new: str) -> None:
    """What is bound to a project follows its new name, and ends with it (`new` empty).

    The caller holds the lock of the user's row. New tokens take it too before they read their binding
    (`validator._lock_user`), so none keeps the old name.
    """
    ended, models = set(), (get_grant_model(), get_refresh_token_model(), get_access_token_model())
    for model in models:
        for row in model.objects.filter(user=user).exclude(resource=[]):
            if project_of(row) != old:
                continue
            if new:
                resource = [bound_resource(unbound_resource(named)[0], new) for named in row.resource]
                model.objects.filter(pk=row.pk).update(resource=resource)
            else:
                ended.add(row.application_id)
                model.objects.filter(pk=row.pk).delete()
    with acting_as(user):
        for application_id in ended:
            theirs = {"user": user, "application": application_id}
            if not any(model.objects.filter(**theirs).exists() for model in models):
                gone, _ = AgentConnection.objects.filter(**theirs).delete()
                activity.note(user, Activity.AGENT_REMOVED, count=gone)


def _info(connection: AgentConnection, projects: tuple[str, ...]) -> ConnectionInfo:
    application: Any = connection.application
    receivers = dict.fromkeys(receiver_of(address) for address in application.redirect_uris.split())
    return ConnectionInfo(
        id=application.pk,
        name=plain_name(application.name),
        sent_to=", ".join(receivers),
        scopes=tuple(connection.scopes),
        created_at=connection.created_at,
        last_used_at=connection.last_used_at,
        last_used_from=connection.last_used_from,
        projects=projects,
    )


def find(checksum: str) -> Any:
    """The toolkit's row with its user; None without a valid one."""
    return (
        get_access_token_model()
        .objects.select_related("user")
        .filter(token_checksum=checksum, user__isnull=False)
        .first()
    )


def project_of(token: Any) -> str:
    """The project to which a code or token is bound; empty for one that sees everything."""
    return next((project for named in token.resource if (project := unbound_resource(named)[1])), "")


def good_tokens(checksums: Collection[str], *, now: datetime) -> Any:
    """The rows of those that are valid tokens of an active user: one query."""
    tokens = get_access_token_model().objects
    return tokens.filter(token_checksum__in=checksums, expires__gt=now, user__is_active=True)
