"""When a visitor becomes a person: whichever way they log in, what they said in this browser comes along."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import ngettext

from core.isolation.acting import acting_as
from core.isolation.caller import Caller
from intake.identity import forget_visitor
from intake.models import User
from intake.services import link_visitor


@receiver(user_logged_in, dispatch_uid="intake.bring_along_what_the_visitor_said")
def bring_along_what_the_visitor_said(*, request: HttpRequest | None, user: User, **kwargs: Any) -> None:
    """Logging in keeps an anonymous session's data, so the visitor's key is still there."""
    if request is None or not hasattr(request, "session"):
        return
    visitor_key = forget_visitor(request)
    if visitor_key is None:
        return
    # Both at once: the rows are the visitor's until they are the person's.
    with acting_as(Caller(user_id=user.pk, visitor_key=visitor_key)):
        count = link_visitor(user=user, visitor_key=visitor_key, now=timezone.now())
    if count:
        sentence = ngettext(
            "The message you wrote in this browser is yours now.",
            "The %(count)d messages you wrote in this browser are yours now.",
            count,
        )
        messages.success(request, sentence % {"count": count}, fail_silently=True)
