"""Finds the user of an OAuth access token by its checksum."""

from collections.abc import Collection
from datetime import datetime
from typing import Any

from oauth2_provider.models import get_access_token_model

from agent_tools.oauth.addresses import is_resource


def find(checksum: str) -> Any:
    """The toolkit's row with its user; None without a valid one."""
    return (
        get_access_token_model()
        .objects.select_related("user")
        .filter(token_checksum=checksum, user__isnull=False)
        .first()
    )


def is_for(token: Any, resource: str) -> bool:
    """Whether the token was issued for this endpoint (RFC 8707). A token that names none is for none."""
    return any(is_resource(named, resource) for named in token.resource)


def good_among(checksums: Collection[str], *, now: datetime) -> set[str]:
    """Those with a valid token of an active user: in one query."""
    tokens = get_access_token_model().objects
    found = tokens.filter(token_checksum__in=checksums, expires__gt=now, user__is_active=True)
    return set(found.values_list("token_checksum", flat=True))
