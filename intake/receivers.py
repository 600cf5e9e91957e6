"""When a visitor logs in to an account: whichever page they do it on, what they said in this browser comes along."""

from typing import Any

from django.contrib.auth.signals import user_logged_in
from django.dispatch import receiver
from django.http import HttpRequest

from intake import visitors
from intake.identity import VISITOR, tell_what_came_along
from intake.models import User


@receiver(user_logged_in, dispatch_uid="intake.bring_along_what_the_visitor_said")
def bring_along_what_the_visitor_said(*, request: HttpRequest | None, user: User, **kwargs: Any) -> None:
    visitor: User | None = request.META.pop(VISITOR, None) if request is not None else None
    if request is None or visitor is None or visitor.pk == user.pk:
        return
    tell_what_came_along(request, visitors.move_to_account(visitor=visitor, user=user))
