"""Where the tools listen: what a person deletes goes from the answers that are kept for a request sent again, and their
tokens end when they want all access ended.
"""

from typing import Any

from django.db.models import Model, QuerySet
from django.db.models.signals import post_delete
from django.dispatch import receiver

from agent_tools.models import AccessToken
from intake import idempotency
from intake.accounts.sessions import access_ended
from intake.models import User
from memory.models import MemoryRecord


@receiver(post_delete, sender=MemoryRecord, dispatch_uid="agent_tools.withdraw_record")
def withdraw_record(instance: MemoryRecord, origin: Model | QuerySet[Any], **kwargs: Any) -> None:
    """A person's answers go with the person, all at once."""
    kind = origin.model if isinstance(origin, QuerySet) else type(origin)
    if kind is not User:
        idempotency.withdraw(user_id=instance.user_id, about=str(instance.pk))


@receiver(access_ended, dispatch_uid="agent_tools.end_tokens")
def end_tokens(user: User, **kwargs: Any) -> None:
    AccessToken.objects.filter(user=user).delete()
