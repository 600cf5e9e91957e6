"""Removes old OAuth data: expired tokens, and clients that no user has allowed."""

from datetime import datetime, timedelta

from django.db.models import Exists, F, OuterRef, Q
from oauth2_provider.models import (
    clear_expired,
    get_access_token_model,
    get_application_model,
    get_grant_model,
    get_refresh_token_model,
)

from agent_tools.models import AgentConnection
from agent_tools.oauth.connections import MARK_OF_USE
from agent_tools.oauth.validator import HONOURED_AGAIN_FOR
from core.periodic import steps

# For a client that was never allowed; and for one that was, and may return.
NEVER_USED_FOR = timedelta(days=1)
UNUSED_FOR = timedelta(days=30)


def sweep(*, now: datetime) -> None:
    """Run as the worker role, which sees all rows; a second run changes nothing."""
    # A used refresh token keeps its access token while it may be honoured again.
    steps(
        "agent_tools.sweep_oauth",
        clear_expired,
        lambda: _remove_used(now),
        _remove_connections,
        lambda: _remove_clients(now),
    )


def _remove_used(now: datetime) -> None:
    may_not_be_used = Q(expires__lt=now, refresh_token__revoked__lt=now - HONOURED_AGAIN_FOR)
    get_access_token_model().objects.filter(may_not_be_used).delete()


def _remove_connections() -> None:
    theirs = {"user": OuterRef("user"), "application": OuterRef("application")}
    can_refresh = Exists(get_refresh_token_model().objects.filter(**theirs, revoked=None))
    has_access = Exists(get_access_token_model().objects.filter(**theirs))
    AgentConnection.objects.exclude(can_refresh | has_access).delete()


def _remove_clients(now: datetime) -> None:
    was_never_used = Q(created__lt=now - NEVER_USED_FOR, updated__lt=F("created") + MARK_OF_USE)
    is_forgotten = was_never_used | Q(updated__lt=now - UNUSED_FOR)
    # A used code stays for a day, and keeps no client.
    has_code = Exists(get_grant_model().objects.filter(application=OuterRef("pk"), expires__gt=now))
    get_application_model().objects.filter(
        is_forgotten, ~has_code, accesstoken=None, refreshtoken=None, agent_connections=None
    ).exclude(registration_source="manual").delete()
