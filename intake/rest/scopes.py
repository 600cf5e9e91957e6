"""What a token may do here: reading needs its scope `search`, changing its scope `write`; a session may do both."""

from typing import Literal

from rest_framework.request import Request

from intake.errors import AuthenticationRequired


def require_scope(request: Request, scope: Literal["search", "write"]) -> None:
    """Raises `AuthenticationRequired` for a token that was not made for this."""
    if request.auth is not None and scope not in request.auth.scopes:
        raise AuthenticationRequired(f"This token lacks the scope `{scope}`.")
