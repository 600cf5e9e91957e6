"""Makes the signed statement of a deleted account: what was deleted and when, for its owner only.

It is not stored. Its address contains all data with a signature, so the server can verify it as long as it has the
`SECRET_KEY` that signed it, or keeps that key among the fallbacks.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from django.apps import apps
from django.core.signing import BadSignature, Signer
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext_noop

from core.isolation.checks import personal_models

FORMAT = "recollect-deletion-1"
SALT = "recollect.deletion"
LONGEST_SIGNED = 8_000
ALSO = (
    gettext_noop("Answers kept for a few minutes, and uploads of imports, went with it or go within an hour."),
    gettext_noop("Exports are sent while they are made, and never kept."),
    gettext_noop("Logs hold ids and counts alone."),
    gettext_noop("Backups hold what they held until they are replaced."),
)
# The plural names of all models that may have rows of a user: in English in the statement, translated on its page.
KINDS = (
    gettext_noop("access tokens"),
    gettext_noop("agent connections"),
    gettext_noop("applications"),
    gettext_noop("authenticators"),
    gettext_noop("chat preferences"),
    gettext_noop("conversations"),
    gettext_noop("deleted texts"),
    gettext_noop("device grants"),
    gettext_noop("email addresses"),
    gettext_noop("embeddings"),
    gettext_noop("entries of activity"),
    gettext_noop("grants"),
    gettext_noop("id tokens"),
    gettext_noop("idempotent answers"),
    gettext_noop("import entries"),
    gettext_noop("import jobs"),
    gettext_noop("imported changes"),
    gettext_noop("imported items"),
    gettext_noop("imports"),
    gettext_noop("indexed texts"),
    gettext_noop("log entries"),
    gettext_noop("map points"),
    gettext_noop("memory document versions"),
    gettext_noop("memory documents"),
    gettext_noop("memory maps"),
    gettext_noop("memory records"),
    gettext_noop("pending terms"),
    gettext_noop("refresh tokens"),
    gettext_noop("sessions"),
    gettext_noop("social accounts"),
    gettext_noop("telling words"),
    gettext_noop("term blocks"),
    gettext_noop("term segments"),
    gettext_noop("turns"),
    gettext_noop("users"),
    gettext_noop("vector blocks"),
)


@dataclass(frozen=True, slots=True)
class DeletionCertificate:
    """`deleted` has the number of rows by kind, and none of their contents."""

    account: int
    deleted_at: datetime
    deleted: dict[str, int]

    def as_data(self) -> dict[str, Any]:
        at = self.deleted_at.isoformat()
        return {"format": FORMAT, **asdict(self), "deleted_at": at, "also": list(ALSO), "signed": sign(self)}

    def as_text(self) -> str:
        rows = "".join(f"{number:>12,}  {name}\n" for name, number in self.deleted.items())
        opening = f"Account {self.account} was deleted at {self.deleted_at.isoformat()}.\n\n"
        return f"{opening}{rows}\n" + "\n".join(ALSO) + f"\n\nSigned: {sign(self)}\n"


def count_rows(user_id: int) -> Counter[str]:
    """Count the rows of every personal table, by model, while acting as the user, before the deletion."""
    return Counter(
        {model._meta.label: model._meta.base_manager.filter(user_id=user_id).count() for model in personal_models()}
    )


def certify(*, user_id: int, at: datetime, rows: Mapping[str, int]) -> DeletionCertificate:
    """`rows` has the number of rows of each model."""
    named: Counter[str] = Counter()
    for label, number in rows.items():
        # Two kinds of access tokens share one name.
        named[_name(label)] += number
    return DeletionCertificate(
        account=user_id, deleted_at=at, deleted={name: number for name, number in sorted(named.items()) if number}
    )


def sign(certificate: DeletionCertificate) -> str:
    """Sign it for use in an address."""
    held = [certificate.account, certificate.deleted_at.isoformat(), certificate.deleted]
    return Signer(salt=SALT).sign_object(held, compress=True)


def read(signed: str) -> DeletionCertificate | None:
    """None if this server did not sign it."""
    if len(signed) > LONGEST_SIGNED:
        return None
    try:
        account, at, deleted = Signer(salt=SALT).unsign_object(signed)
    except BadSignature:
        return None
    moment = parse_datetime(at)
    return None if moment is None else DeletionCertificate(account=account, deleted_at=moment, deleted=deleted)


def _name(label: str) -> str:
    return str(apps.get_model(label)._meta.verbose_name_plural)
