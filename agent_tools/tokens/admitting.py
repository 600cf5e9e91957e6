"""Who calls, and whether they may once more: the way in for every request with a token, over REST as over MCP."""

from datetime import datetime

from agent_tools.tokens.verifying import TokenCaller, TokenRefused, digest_of, holder_of
from core.rate_limits import DEFAULT_LIMIT, counting_for, take_for

# Whom to count a call against is known from the token's last use, since its owner never changes: so Redis counts while
# the database looks at the token, which it does each time. No more is remembered than so many digests.
MOST_OWNERS = 10_000
_owners: dict[str, int] = {}


def admit(secret: str | None, *, address: str, now: datetime, limit: str = DEFAULT_LIMIT) -> TokenCaller:
    """The caller, counted under `limit`. Raises `TokenRefused` and `RateLimited`."""
    digest = digest_of(secret)
    owner_id = _owners.get(digest)
    if owner_id is None:
        caller = holder_of(digest, now=now)
        if len(_owners) >= MOST_OWNERS:
            _owners.clear()
        _owners[digest] = caller.user.pk
        take_for(limit, user_id=caller.user.pk, address=address)
        return caller
    try:
        with counting_for(limit, user_id=owner_id, address=address):
            return holder_of(digest, now=now)
    except TokenRefused:
        # Or whoever has one that was revoked could use up what its owner may ask for.
        _owners.pop(digest, None)
        raise
