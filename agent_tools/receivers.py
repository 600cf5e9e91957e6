"""Where the tools listen: what a person deletes goes from the answers that are kept for a request sent again."""

from typing import Any

from django.db.models import Model, QuerySet
from django.db.models.signals import post_delete
from django.dispatch import receiver

from intake import idempotency
from intake.models import User
from memory.models import MemoryRecord


@receiver(post_delete, sender=MemoryRecord, dispatch_uid="agent_tools.withdraw_record")
def withdraw_record(instance: MemoryRecord, origin: Model | QuerySet[Any], **kwargs: Any) -> None:
    """A person's answers go with the person, all at once."""
    kind = origin.model if isinstance(origin, QuerySet) else type(origin)
    if kind is not User:
        idempotency.withdraw(user_id=instance.user_id, about=str(instance.pk))
