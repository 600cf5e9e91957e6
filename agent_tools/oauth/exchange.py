"""The endpoints that exchange a code or a refresh token for tokens, and revoke them (RFC 6749, RFC 7009)."""

from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.db import IntegrityError
from django.http import HttpRequest, HttpResponse, JsonResponse
from oauth2_provider.views import RevokeTokenView as ToolkitRevokeView
from oauth2_provider.views import TokenView as ToolkitTokenView

GRANTS = ("authorization_code", "refresh_token")
MOST_FIELDS = 30
LONGEST_FIELD = 2000


class BoundedForm:
    """Refuses an oversized form before anything reads it."""

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        values = [value for _, given in request.POST.lists() for value in given]
        if len(values) > MOST_FIELDS or any(len(value) > LONGEST_FIELD or "\0" in value for value in values):
            sentence = f"At most {MOST_FIELDS} fields of {LONGEST_FIELD:,} characters each."
            return _refused("invalid_request", sentence)
        return super().post(request, *args, **kwargs)  # type: ignore[misc, no-any-return]


class ExchangeView(BoundedForm, ToolkitTokenView):  # type: ignore[misc]
    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if request.POST.get("grant_type") not in GRANTS:
            return _refused("unsupported_grant_type", f"Use one of: {', '.join(GRANTS)}.")
        try:
            response = super().post(request, *args, **kwargs)
        except (ObjectDoesNotExist, IntegrityError):
            # The user has ended the connection, or deleted the account, at this moment.
            return _refused("invalid_grant", "It was ended meanwhile.")
        # The toolkit leaves some of its errors without a type.
        response["Content-Type"] = "application/json"
        return response


class GiveBackView(BoundedForm, ToolkitRevokeView):  # type: ignore[misc]
    pass


def _refused(error: str, description: str) -> HttpResponse:
    return JsonResponse({"error": error, "error_description": description}, status=400)
