"""The log-in methods of an account besides its password."""

import hashlib
import hmac
import secrets

from allauth.mfa.models import Authenticator
from django.conf import settings
from django.db import transaction
from django.utils.translation import gettext, ngettext

from intake.accounts.adapters import is_readable
from intake.models import User

# Recovery codes are encrypted with SECRET_KEY, so that their owner can see them again. Each also has a digest, with
# which it still lets its owner in when a backup was restored under another key.

# In the data of a set of recovery codes.
DIGESTS, SALT, USED = "digests", "salt", "used_mask"


def in_words(user: User) -> str:
    types = list(Authenticator.objects.filter(user=user).values_list("type", flat=True))
    passkeys = types.count(Authenticator.Type.WEBAUTHN)
    words = []
    if passkeys:
        words.append(ngettext("%d passkey", "%d passkeys", passkeys) % passkeys)
    if Authenticator.Type.TOTP in types:
        words.append(gettext("codes of an app"))
    return gettext(" and ").join(words) if words else gettext("None yet")


def add_digests(codes: Authenticator) -> None:
    """Add the digests of recovery codes that have none yet, before they are stored."""
    if codes.type != Authenticator.Type.RECOVERY_CODES or DIGESTS in codes.data or not is_readable(codes.data):
        return
    salt = secrets.token_hex(16)
    digests = [_digest(code, salt) for code in codes.wrap().generate_codes()]
    codes.data = {**codes.data, SALT: salt, DIGESTS: digests}


def keep_digests(user: User) -> None:
    """Add the digests of a set that was made before there were any."""
    for codes in Authenticator.objects.filter(user=user, type=Authenticator.Type.RECOVERY_CODES):
        if DIGESTS not in codes.data and is_readable(codes.data):
            codes.save()


def use_digest(user: User, code: str) -> Authenticator | None:
    """The recovery codes of which `code` is an unused one, by its digest; it is used up then."""
    digits = "".join(code.split())
    with transaction.atomic():
        codes = (
            Authenticator.objects.select_for_update().filter(user=user, type=Authenticator.Type.RECOVERY_CODES).first()
        )
        if codes is None or DIGESTS not in codes.data:
            return None
        requested = _digest(digits, codes.data[SALT])
        for number, digest in enumerate(codes.data[DIGESTS]):
            used = int(codes.data.get(USED, 0))
            if not used & 1 << number and hmac.compare_digest(digest, requested):
                codes.data = {**codes.data, USED: used | 1 << number}
                codes.save(update_fields=["data"])
                return codes
    return None


def _digest(code: str, salt: str) -> str:
    return hashlib.scrypt(code.encode(), salt=bytes.fromhex(salt), **settings.RECOVERY_CODE_SCRYPT).hex()
