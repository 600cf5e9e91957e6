"""When somebody logs in, whichever page they do it on: the session learns when and on what device, and what a visitor
said in this browser comes along.
"""

from typing import Any

from allauth.account.signals import authentication_step_completed
from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver
from django.http import HttpRequest
from django.utils import timezone

from intake import visitors
from intake.accounts import devices, proof
from intake.identity import VISITOR, tell_what_came_along
from intake.models import User
from intake.models.sessions import DEVICE, LOGGED_IN_AT


@receiver(user_logged_in, dispatch_uid="intake.bring_along_what_the_visitor_said")
def bring_along_what_the_visitor_said(*, request: HttpRequest | None, user: User, **kwargs: Any) -> None:
    visitor: User | None = request.META.pop(VISITOR, None) if request is not None else None
    if request is None or visitor is None or visitor.pk == user.pk:
        return
    tell_what_came_along(request, visitors.move_to_account(visitor=visitor, user=user))


@receiver(user_logged_in, dispatch_uid="intake.note_login")
def note_login(*, request: HttpRequest | None, **kwargs: Any) -> None:
    if request is not None:
        request.session[DEVICE] = devices.in_words(request.headers.get("User-Agent", ""))
        request.session[LOGGED_IN_AT] = timezone.now().isoformat()
        proof.note(request)


@receiver(authentication_step_completed, dispatch_uid="intake.note_proof")
def note_proof(*, request: HttpRequest, **kwargs: Any) -> None:
    """One that a log-in consists of counts when it is complete."""
    if kwargs.get("reauthenticated"):
        proof.note(request)
