"""Reacts to log-ins and account changes: updates the session, moves a visitor's chats, and writes the audit log."""

from functools import partial
from typing import Any

from allauth.account import signals as account
from allauth.account.signals import authentication_step_completed
from allauth.mfa import signals as factors
from allauth.mfa.models import Authenticator
from allauth.socialaccount import signals as services
from django.contrib.admin.models import LogEntry
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.db.models.signals import post_save, pre_save
from django.dispatch import receiver
from django.http import HttpRequest
from django.utils import timezone

from intake.accounts import activity, devices, methods, proofs, sessions, visitors
from intake.accounts.identity import VISITOR, tell_what_came_along
from intake.models import Activity, User
from intake.models.activity import ActivityEntry
from intake.models.sessions import DEVICE, LOGGED_IN_AT


@receiver(user_logged_in, dispatch_uid="intake.move_visitor_chats")
def move_visitor_chats(*, request: HttpRequest | None, user: User, **kwargs: Any) -> None:
    visitor: User | None = request.META.pop(VISITOR, None) if request is not None else None
    if request is None or visitor is None or visitor.pk == user.pk:
        return
    tell_what_came_along(request, visitors.move_to_account(visitor=visitor, user=user))


@receiver(user_logged_in, dispatch_uid="intake.note_login")
def note_login(*, request: HttpRequest | None, **kwargs: Any) -> None:
    if request is not None:
        request.session[DEVICE] = devices.in_words(request.headers.get("User-Agent", ""))
        request.session[LOGGED_IN_AT] = timezone.now().isoformat()
        proofs.note(request)


@receiver(authentication_step_completed, dispatch_uid="intake.note_proof")
def note_proof(*, request: HttpRequest, **kwargs: Any) -> None:
    """A log-in with several steps counts when it is complete."""
    if kwargs.get("reauthenticated"):
        proofs.note(request)


@receiver(pre_save, sender=Authenticator, dispatch_uid="intake.add_digests")
def add_digests(*, instance: Authenticator, raw: bool = False, **kwargs: Any) -> None:
    """So that recovery codes outlive a SECRET_KEY."""
    if not raw:
        methods.add_digests(instance)


# The audit log's entry for each of these signals, which are sent with `user`.
NOTED = {
    user_logged_in: Activity.LOGGED_IN,
    user_logged_out: Activity.LOGGED_OUT,
    account.password_set: Activity.PASSWORD_CHANGED,
    account.password_changed: Activity.PASSWORD_CHANGED,
    account.password_reset: Activity.PASSWORD_RESET,
    account.email_added: Activity.EMAIL_ADDED,
    account.email_removed: Activity.EMAIL_REMOVED,
    factors.authenticator_removed: Activity.FACTOR_REMOVED,
    factors.authenticator_reset: Activity.FACTOR_RESET,
    factors.authentication_failed: Activity.CODE_FAILED,
}


def _note(what: Activity, *, user: User | None = None, **kwargs: Any) -> None:
    activity.note(user, what)


for signal, what in NOTED.items():
    signal.connect(partial(_note, what), weak=False, dispatch_uid=f"intake.note_{what}")


@receiver(account.email_changed, dispatch_uid="intake.note_email")
def note_email(*, user: User, from_email_address: Any, **kwargs: Any) -> None:
    """The first confirmed address replaces none."""
    activity.note(user, Activity.EMAIL_CHANGED if from_email_address else Activity.EMAIL_CONFIRMED)


@receiver(factors.authenticator_added, dispatch_uid="intake.note_factor")
def note_factor(*, user: User, authenticator: Authenticator, **kwargs: Any) -> None:
    """Recovery codes come with the first second factor, which has an entry of its own."""
    are_codes = authenticator.type == Authenticator.Type.RECOVERY_CODES
    activity.note(user, Activity.FACTOR_RESET if are_codes else Activity.FACTOR_ADDED)
    sessions.note_made(user, sessions.made("factor", authenticator.pk))


@receiver(user_login_failed, dispatch_uid="intake.note_failed_login")
def note_failed_login(*, credentials: dict[str, Any], **kwargs: Any) -> None:
    """For the account with that name, if there is one."""
    email = User.objects.normalize_email(str(credentials.get("username") or ""))
    activity.note(User.objects.filter(email=email, is_visitor=False).first(), Activity.LOGIN_FAILED)


@receiver(services.social_account_added, dispatch_uid="intake.note_service")
def note_service(*, sociallogin: Any, **kwargs: Any) -> None:
    activity.note(sociallogin.user, Activity.SERVICE_CONNECTED)
    sessions.note_made(sociallogin.user, sessions.made("service", sociallogin.account.pk))


@receiver(services.social_account_removed, dispatch_uid="intake.note_no_service")
def note_no_service(*, socialaccount: Any, **kwargs: Any) -> None:
    activity.note(socialaccount.user, Activity.SERVICE_REMOVED)


@receiver(post_save, sender=LogEntry, dispatch_uid="intake.note_staff")
def note_staff(*, instance: LogEntry, **kwargs: Any) -> None:
    """Log a change that staff made to an account in the admin."""
    if instance.content_type is not None and instance.content_type.model_class() is User and not instance.is_addition():
        ActivityEntry.objects.create(user_id=int(instance.object_id or 0), what=Activity.STAFF_CHANGED)
