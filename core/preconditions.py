"""Preconditions of writes (RFC 9110, section 13): `ETag`, `If-Match`, `If-None-Match`."""

import re
from collections.abc import Collection

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from core.errors import (
    InvalidInput,
    PreconditionRequired,
)
from core.text import Sentence
from core.text import gettext_noop as _

READ_FIRST = (
    "This exists already. Read it, and send what its ETag said as If-Match, so that nothing you have not seen is lost."
)


# Our tags have about 20 characters; a reader may send several.
LONGEST_HEADER = 1000
TAGS = {"type": "string", "maxLength": LONGEST_HEADER}

# Strong and weak tags, separated by commas.
_TAG = re.compile(r'(?:W/)?"[^"]*"')


def precondition_of(request: Request, *, exists: bool) -> tuple[Collection[str] | None, bool]:
    """The states in which a write is allowed, None for any; and whether it is allowed only if nothing exists.

    Raises `PreconditionRequired` if something exists and the writer does not name a state.
    """
    if_match, if_none_match = (_header(request, name) for name in ("If-Match", "If-None-Match"))
    if if_match is not None:
        # A weak tag starts with W/ and so is never equal: it does not promise the same bytes.
        # `*` allows any state.
        return None if if_match.strip() == "*" else [tag.strip('"') for tag in _TAG.findall(if_match)], False
    if exists and if_none_match != "*":
        raise PreconditionRequired(READ_FIRST)
    return None, True


def as_etag(state: str) -> str:
    return f'"{state}"'


def is_known(request: Request, etag: str) -> bool:
    """Whether the reader has the present state; weak tags are sufficient for that."""
    if_none_match = _header(request, "If-None-Match") or ""
    return if_none_match.strip() == "*" or etag in {tag.removeprefix("W/") for tag in _TAG.findall(if_none_match)}


def _header(request: Request, name: str) -> str | None:
    """Raises `InvalidInput` for a header that is too long."""
    value = request.headers.get(name)
    if value is not None and len(value) > LONGEST_HEADER:
        raise InvalidInput(errors={name: [Sentence(_("At most %(count)s characters."), count=LONGEST_HEADER)]})
    return value


ETAG = OpenApiParameter(
    "ETag",
    str,
    OpenApiParameter.HEADER,
    response=[200, 201],
    description="The document's state. It changes with every write and never comes back.",
)
IF_MATCH = OpenApiParameter(
    "If-Match",
    TAGS,
    OpenApiParameter.HEADER,
    description="The ETag of what you have read. Required where the document exists; `*` accepts any version.",
)
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match", TAGS, OpenApiParameter.HEADER, description="`*`: write only if there is no such document."
)
IF_KNOWN = OpenApiParameter(
    "If-None-Match", TAGS, OpenApiParameter.HEADER, description="The ETag of what you have: 304 if it is the same."
)
