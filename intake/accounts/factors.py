"""Describes the log-in methods of an account besides its password."""

from allauth.mfa.models import Authenticator
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from intake.models import User


def in_words(user: User) -> str:
    types = list(Authenticator.objects.filter(user=user).values_list("type", flat=True))
    passkeys = types.count(Authenticator.Type.WEBAUTHN)
    words = []
    if passkeys:
        words.append(ngettext("%d passkey", "%d passkeys", passkeys) % passkeys)
    if Authenticator.Type.TOTP in types:
        words.append(_("codes of an app"))
    return _(" and ").join(words) if words else _("None yet")
