"""The endpoints that exchange a code or a refresh token for tokens, and revoke them (RFC 6749, RFC 7009)."""

import json
from http import HTTPStatus
from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.db import IntegrityError
from django.http import HttpRequest, HttpResponse, JsonResponse
from oauth2_provider.views import RevokeTokenView as ToolkitRevokeView
from oauth2_provider.views import TokenView as ToolkitTokenView

FORM = "application/x-www-form-urlencoded"
GRANTS = ("authorization_code", "refresh_token")
VERIFIER_IS_WRONG = "The code_verifier does not match the code_challenge with which the code was requested."
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
        if request.content_type not in ("", FORM, "multipart/form-data"):
            return _refused("invalid_request", f"Send the fields as a form ({FORM}), not as {request.content_type}.")
        if not (grant_type := request.POST.get("grant_type")):
            return _refused("invalid_request", f"The field grant_type is missing. Use one of: {', '.join(GRANTS)}.")
        if grant_type not in GRANTS:
            return _refused("unsupported_grant_type", f"Use one of: {', '.join(GRANTS)}.")
        try:
            response = super().post(request, *args, **kwargs)
        except (ObjectDoesNotExist, IntegrityError):
            # The user has ended the connection, or deleted the account, at this moment.
            return _refused("invalid_grant", "It was ended meanwhile.")
        # The toolkit leaves some of its errors without a type.
        response["Content-Type"] = "application/json"
        if response.status_code >= HTTPStatus.BAD_REQUEST:
            _say_what_is_wrong(response)
        return response


class GiveBackView(BoundedForm, ToolkitRevokeView):  # type: ignore[misc]
    pass


def _say_what_is_wrong(response: HttpResponse) -> None:
    """The toolkit refuses a wrong verifier without a word; every other refused grant has its sentence already."""
    told = json.loads(response.content)
    if not told.get("error_description"):
        is_verifier = told.get("error") == "invalid_grant"
        told["error_description"] = VERIFIER_IS_WRONG if is_verifier else "The request cannot be answered."
        response.content = json.dumps(told)


def _refused(error: str, description: str) -> HttpResponse:
    return JsonResponse({"error": error, "error_description": description}, status=400)
