"""Signal receivers: revoke tokens and agents when a user ends all access."""

from typing import Any

from django.dispatch import receiver
from django.utils import timezone
from oauth2_provider.signals import app_authorized

from agent_tools.authentication import TOKEN_MADE
from agent_tools.models import AccessToken
from agent_tools.oauth.connections import end_all_connections, move_bindings, note_tokens
from intake.accounts import activity
from intake.accounts.sessions import access_ended, made
from intake.models import Activity, User
from memory.projects import label_changed


@receiver(label_changed, dispatch_uid="agent_tools.move_label")
def move_label(user: User, old: str, new: str, **kwargs: Any) -> None:
    """A token or agent that is bound to a deleted project would see what another project of this name gets."""
    if not new:
        AccessToken.objects.filter(user=user, project=old, is_bound=True).delete()
    AccessToken.objects.filter(user=user, project=old).update(project=new)
    move_bindings(user, old, new)


@receiver(app_authorized, dispatch_uid="agent_tools.note_connection")
def note_connection(token: Any, **kwargs: Any) -> None:
    note_tokens(token, now=timezone.now())


@receiver(access_ended, dispatch_uid="agent_tools.end_access")
def end_access(user: User, kept: frozenset[str], **kwargs: Any) -> int:
    """Returns how many tokens and agents lost their access."""
    tokens = AccessToken.objects.filter(user=user)
    doomed = [token.pk for token in tokens if made(TOKEN_MADE, token.public_id) not in kept]
    revoked, _ = AccessToken.objects.filter(pk__in=doomed).delete()
    activity.note(user, Activity.TOKEN_REVOKED, count=revoked)
    return revoked + end_all_connections(user=user, kept=kept)
