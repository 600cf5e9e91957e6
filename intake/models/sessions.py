"""A browser's session, which knows whose it is: an account that goes takes its sessions along."""

from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models

from intake.models.users import User


class Session(AbstractBaseSession):
    """Django's own, whose data names the person only in encoded form, with the person in a column beside it."""

    # Without a constraint: a log-in that crosses a deletion must fail on its next request, not while it is stored.
    user = models.ForeignKey(User, null=True, on_delete=models.CASCADE, db_constraint=False)

    class Meta(AbstractBaseSession.Meta):
        db_table = "intake_sessions"
