"""Authenticates tokens and sessions; creates, lists and revokes tokens.

Authenticates a request: as the owner of a token with its scopes, or as the user of a session with all scopes.

`verify` is the only place that turns a secret into a caller, or says why not. `admit` also counts the call under its
owner's limit; every request with a token uses it, over REST and over MCP.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import Q
from django.db.models.expressions import RawSQL
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from pydantic import BeforeValidator, Field
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request

from agent_tools.models import ALL_SCOPES, DEFAULT_SCOPES, NEVER_BOUND, AccessToken, Keeps, TokenScope, secret_hash
from agent_tools.oauth import connections
from agent_tools.oauth.addresses import (
    ACCESS_PREFIX,
    checksum_of,
    is_resource,
    resource_of,
    tokens_resource_of,
    unbound_resource,
)
from core.errors import AuthenticationRequired, InsufficientScope, InvalidInput, NotFound
from core.ids import parse_id
from core.isolation.acting import BOUND_ELSEWHERE, bind, bound_to, node_loss_as_unavailable, project_for
from core.isolation.policies import can_bind
from core.rate_limits import DEFAULT_LIMIT, RequestThrottle, client_address, network_of, take_for
from core.text import LONGEST_PROJECT, Sentence, gettext_noop, project_label
from core.validation import Output
from intake.accounts import activity, sessions
from intake.models import Activity, User

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from rest_framework.views import APIView

SCHEMES = ("bearer", "token")
# The prefix of digests of OAuth tokens.
OAUTH = "oauth:"


class Refusal(StrEnum):
    """The reasons. A revoked token is deleted, and so looks like an unknown one."""

    MISSING = "Send a token: `Authorization: Bearer <token>`."
    MALFORMED = "The Authorization header is malformed. Send `Authorization: Bearer <token>`."
    UNKNOWN = "The token is not known. It may have been revoked."
    EXPIRED = "The token has expired. Make a new one."
    DEACTIVATED = "The account is deactivated."
    ELSEWHERE = "This token was issued for another address. Tokens of connected agents are good for /mcp alone."


class TokenRefused(AuthenticationRequired):
    def __init__(self, reason: Refusal) -> None:
        super().__init__(reason.value)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class TokenCaller:
    """The owner of a token and its scopes. `digest` is the token's key in the database, never the token.

    `project`: to which belongs what it appends; empty for none. A bound token's user has `bound_to`. `keeps`: what its
    chats by other programs leave here.
    """

    user: User
    scopes: frozenset[TokenScope]
    digest: str
    project: str = ""
    keeps: Keeps = Keeps.CHATS
    name: str = ""

    @classmethod
    def still_valid(cls, callers: "Collection[TokenCaller]", *, now: datetime) -> "set[TokenCaller]":
        """Those whose tokens are still valid: one query for all of a kind."""
        good = still_valid({each.digest for each in callers}, now=now)
        return {each for each in callers if each.digest in good}


def effective(names: Iterable[str]) -> frozenset[TokenScope]:
    """The scopes with these names, and the scopes that they include.

    `search` includes `read`. With `write`, it also includes `delete` and `chat`, because older tokens had both.
    """
    granted = {scope for scope in ALL_SCOPES if scope in set(names)}
    if TokenScope.SEARCH in granted:
        granted.add(TokenScope.READ)
        if TokenScope.WRITE in granted:
            granted |= {TokenScope.DELETE, TokenScope.CHAT}
    return frozenset(granted)


def secret_in(header: str | None) -> str | None:
    """The secret in an `Authorization` header; None without one, or with another scheme.

    No other place is read: addresses end up in logs and histories, so a token in one does not count.
    """
    scheme, _, rest = (header or "").strip().partition(" ")
    if scheme.lower() not in SCHEMES:
        return None
    secret = rest.strip()
    if not _is_well_formed(secret):
        raise TokenRefused(Refusal.MALFORMED)
    return secret


def verify(secret: str | None, *, now: datetime, address: str = "", resource: str | None = None) -> TokenCaller:
    """The caller of a secret; `address` is the client's, `resource` the MCP endpoint if the request is for it.

    Raises `TokenRefused`.
    """
    digest = digest_of(secret)
    if digest.startswith(OAUTH):
        return _connected(digest, now=now, address=address, resource=resource)
    return holder_of(digest, now=now, address=address)


def admit(
    secret: str | None, *, address: str, now: datetime, limit: str = DEFAULT_LIMIT, resource: str | None = None
) -> TokenCaller:
    """The caller, counted under `limit`. Raises `TokenRefused` and `RateLimited`."""
    caller = verify(secret, now=now, address=address, resource=resource)
    take_for(limit, user_id=caller.user.pk, address=address)
    return caller


def digest_of(secret: str | None) -> str:
    """A token's key in the database; raises `TokenRefused` for a malformed secret."""
    if not secret:
        raise TokenRefused(Refusal.MISSING)
    if not _is_well_formed(secret):
        raise TokenRefused(Refusal.MALFORMED)
    if secret.startswith(ACCESS_PREFIX):
        return OAUTH + checksum_of(secret)
    # Found by a digest of the complete secret: the time reveals nothing about a partial guess.
    return secret_hash(secret.encode()).hexdigest()


def holder_of(digest: str, *, now: datetime, address: str = "") -> TokenCaller:
    """The caller of the token with this digest; raises `TokenRefused`. Records the time and network of the use."""
    token = AccessToken.objects.select_related("user").filter(digest=digest).first()
    if token is None:
        raise TokenRefused(Refusal.UNKNOWN)
    if token.expiry is not None and token.expiry <= now:
        raise TokenRefused(Refusal.EXPIRED)
    if not token.user.is_active:
        raise TokenRefused(Refusal.DEACTIVATED)
    # A write for every call would cost more than it is worth.
    if token.last_used_at is None or token.last_used_at < now - timedelta(minutes=1):
        # On a cluster this writes to every node, outside of `acting_as`.
        with node_loss_as_unavailable(connection):
            AccessToken.objects.filter(digest=digest).update(last_used_at=now, last_used_from=network_of(address))
    token.user.bound_to = token.project if token.is_bound else ""
    return TokenCaller(
        user=token.user,
        scopes=effective(token.scopes),
        digest=digest,
        project=token.project,
        keeps=Keeps(token.keeps),
        name=token.name,
    )


def _connected(digest: str, *, now: datetime, address: str, resource: str | None) -> TokenCaller:
    """The user who connected an agent; the access token must be for the requested endpoint."""
    token = connections.find(digest.removeprefix(OAUTH))
    if token is None:
        raise TokenRefused(Refusal.UNKNOWN)
    if token.expires <= now:
        raise TokenRefused(Refusal.EXPIRED)
    if not token.user.is_active:
        raise TokenRefused(Refusal.DEACTIVATED)
    # Issued for this endpoint (RFC 8707): a token that names none is for none.
    if resource is None or not any(is_resource(unbound_resource(named)[0], resource) for named in token.resource):
        raise TokenRefused(Refusal.ELSEWHERE)
    connections.note_use(token, address=address, now=now)
    project = token.user.bound_to = connections.project_of(token)
    return TokenCaller(user=token.user, scopes=effective(token.scope.split()), digest=digest, project=project)


def users_by_token(header: str, *, now: datetime) -> Any:
    """A query for the id of the owner of a valid token and whether they are a visitor; empty for any other header."""
    try:
        digest = digest_of(secret_in(header))
    except TokenRefused:
        digest = ""
    if digest.startswith(OAUTH):
        good = connections.good_tokens({digest.removeprefix(OAUTH)}, now=now)
    else:
        good = _good_tokens({digest}, now=now)
    return good.values_list("user_id", "user__is_visitor")


def still_valid(digests: Collection[str], *, now: datetime) -> set[str]:
    """Those of the digests whose tokens are still valid: one query for all of a kind.

    For long-running work after the first check: a stream, a session over pipes.
    """
    checksums = {digest.removeprefix(OAUTH) for digest in digests if digest.startswith(OAUTH)}
    good = set()
    if checksums:
        found = connections.good_tokens(checksums, now=now).values_list("token_checksum", flat=True)
        good = {OAUTH + checksum for checksum in found}
    others = {digest for digest in digests if not digest.startswith(OAUTH)}
    if others:
        good |= set(_good_tokens(others, now=now).values_list("digest", flat=True))
    return good


def _good_tokens(digests: Collection[str], *, now: datetime) -> "QuerySet[AccessToken]":
    unexpired = Q(expiry=None) | Q(expiry__gt=now)
    return AccessToken.objects.filter(unexpired, digest__in=digests, user__is_active=True)


def _is_well_formed(secret: str) -> bool:
    return 0 < len(secret) <= 256 and secret.isascii() and secret.isprintable() and " " not in secret


# The counts of a day are [texts for sessions, texts for prompts, tokens]. Older days are dropped.
_GOT = """
coalesce((SELECT jsonb_object_agg(day, counts) FROM jsonb_each(got) AS each(day, counts) WHERE day > %s), '{}'::jsonb)
|| jsonb_build_object(%s::text, jsonb_build_array(
       coalesce((got -> %s ->> 0)::int, 0) + %s, coalesce((got -> %s ->> 1)::int, 0) + %s,
       coalesce((got -> %s ->> 2)::int, 0) + %s))
"""


def note_got(caller: object, *, is_session: bool, tokens: int, now: datetime) -> None:
    """Counts a text of context, in one statement."""
    if not isinstance(caller, TokenCaller) or not tokens or caller.digest.startswith(OAUTH):
        return
    day, since = f"{now:%Y-%m-%d}", f"{now - timedelta(days=30):%Y-%m-%d}"
    values = [since, day, day, int(is_session), day, int(not is_session), day, tokens]
    with node_loss_as_unavailable(connection):
        AccessToken.objects.filter(digest=caller.digest).update(got=RawSQL(_GOT, values))  # noqa: S611 - values apart


def got_since(*, user: User, since: datetime) -> dict[UUID, list[int]]:
    """The counts of each of the user's tokens that got something, by its public id."""
    found = {}
    for id_, got in AccessToken.objects.filter(user=user).exclude(got={}).values_list("public_id", "got"):
        days = [counts for day, counts in got.items() if day > f"{since:%Y-%m-%d}"]
        if days:
            found[id_] = [sum(each) for each in zip(*days, strict=True)]
    return found


class AccessTokenAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[User, TokenCaller] | None:
        secret = secret_in(request.META.get("HTTP_AUTHORIZATION"))
        if secret is None:
            return None
        view = request.parser_context.get("view")
        if view is None:
            # The chat is not a DRF view and counts its messages itself.
            caller = verify(secret, now=timezone.now(), address=client_address(request))
        else:
            limit = getattr(view, "throttle_scope", DEFAULT_LIMIT)
            address = client_address(request)
            caller = admit(secret, address=address, now=timezone.now(), limit=limit, resource=_resource(request, view))
            if caller.user.bound_to and request.method not in getattr(view, "takes_bound", ()):
                raise InsufficientScope(BOUND_ELSEWHERE)
        bind(caller.user.bound_to)
        return caller.user, caller

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


def _resource(request: Request, view: "APIView") -> str | None:
    """Of the tokens of OAuth that are good here: an agent's, a command line's that makes its own token, or none."""
    if getattr(view, "takes_agents", False):
        # The address of an agent's tokens is that of this server.
        return resource_of(request)
    is_for_machines = request.method == "POST" and getattr(view, "makes_tokens", False)
    return tokens_resource_of(request) if is_for_machines else None


class Throttle(RequestThrottle):
    """DRF's default throttle. Requests with a token were counted during authentication."""

    def allow_request(self, request: Request, view: "APIView") -> bool:
        return isinstance(request.auth, TokenCaller) or super().allow_request(request, view)


class AccessTokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = AccessTokenAuthentication
    name = "accessToken"

    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "A token made at /settings/tokens/."}


class HasScope(BasePermission):
    """Checks a token's scope at every endpoint: `read`, `write` or `delete` by the method, unless the view names one.

    A view sets `required_scope`; None requires no particular one. `answers_with` names methods whose responses contain
    more than was sent, and which therefore also require `read`. A session has all scopes.
    """

    def has_permission(self, request: Request, view: "APIView") -> bool:
        if not isinstance(request.auth, TokenCaller):
            return True
        by_method = TokenScope.DELETE if request.method == "DELETE" else TokenScope.WRITE
        by_method = TokenScope.READ if request.method in SAFE_METHODS else by_method
        requested = [getattr(view, "required_scope", by_method)]
        if request.method in getattr(view, "answers_with", ()):
            requested.append(TokenScope.READ)
        for scope in requested:
            if scope is not None and scope not in request.auth.scopes:
                raise InsufficientScope(gettext_noop("This token lacks the scope `%(scope)s`."), scope=scope)
        return True


LONGEST_DAYS: int = settings.TOKEN_DAYS_MOST
LONGEST_NAME = 80
MOST_TOKENS = 100
# The kind of a token among the access that a session made (`intake.accounts.sessions.made`).
TOKEN_MADE = "token"  # noqa: S105 - a kind's name


NO_PROJECT = gettext_noop("Name the project that the token is bound to.")
NOT_BOUND = gettext_noop("A token that is bound to a project cannot have: %(scopes)s.")
CANNOT_BIND = gettext_noop(
    "This database cannot bind tokens to a project. Its administrator runs `manage.py create_roles` and then "
    "`manage.py migrate`; a Citus cluster has no such tokens."
)


class TokenShown(Output):
    """A token without its secret."""

    id: Annotated[UUID, Field(validation_alias="public_id")]
    name: str
    scopes: tuple[TokenScope, ...]
    created_at: Annotated[datetime, Field(validation_alias="created")]
    expires_at: Annotated[datetime | None, Field(validation_alias="expiry")]
    last_used_at: Annotated[datetime | None, Field(description="To the minute; null if never.")]
    last_used_from: Annotated[str, Field(description="The network it was used from; empty if never.")]
    project: Annotated[
        str | None,
        BeforeValidator(lambda label: label or None),
        Field(description="To which belongs what it appends, if to one."),
    ] = None
    bound: Annotated[
        bool, Field(validation_alias="is_bound", description="Whether it sees nothing but its project.")
    ] = False
    keeps: Annotated[Keeps, Field(description="What is kept of the requests of other programs.")] = Keeps.CHATS


class TokenMade(TokenShown):
    secret: Annotated[str, Field(alias="token", description="The token. It is shown only in this response.")]


def create_token(
    *,
    user: User,
    name: str = "",
    scopes: Iterable[TokenScope] = DEFAULT_SCOPES,
    days: int = LONGEST_DAYS,
    project: str = "",
    is_bound: bool = False,
    keeps: Keeps = Keeps.CHATS,
) -> TokenMade:
    """Create a token; only the return value contains the secret. `project`: to which belongs what it appends.

    `is_bound`: it sees nothing else, and stores into nothing else. It cannot delete or import.

    Raises `InvalidInput` naming the wrong field.
    """
    name = " ".join(name.replace("\x00", "").split())
    requested = sorted(set(scopes))
    _validate(name, requested, days, project)
    if is_bound:
        _check_binding(project, requested)
    if AccessToken.objects.filter(user=user).count() >= MOST_TOKENS:
        message = gettext_noop("There are %(count)s tokens already. Revoke one that is no longer used.")
        raise InvalidInput(message, count=MOST_TOKENS)
    expiry = timezone.now() + timedelta(days=days)
    token, secret = AccessToken.objects.issue(
        user=user,
        name=name,
        scopes=list(requested),
        expiry=expiry,
        project=project_label(project),
        is_bound=is_bound,
        keeps=keeps,
    )
    activity.note(user, Activity.TOKEN_MADE)
    sessions.note_made(user, sessions.made(TOKEN_MADE, token.public_id))
    return TokenMade(secret=secret, **dict(TokenShown.model_validate(token)))


def create_machine_token(
    *,
    caller: TokenCaller,
    name: str,
    scopes: Iterable[TokenScope],
    days: int,
    project: str = "",
    is_bound: bool = False,
    keeps: Keeps = Keeps.CHATS,
) -> TokenMade:
    """The own token of a command line that its user let in by the browser; it ends the access by OAuth.

    It is bound to the project that the user chose, if to one.

    Raises `InsufficientScope` for more than the user agreed to, `InvalidInput` and `TokenRefused`.
    """
    granted = connections.find(caller.digest.removeprefix(OAUTH))
    if granted is None:
        raise TokenRefused(Refusal.UNKNOWN)
    requested = frozenset(scopes)
    if not requested <= caller.scopes:
        missing = ", ".join(sorted(requested - caller.scopes))
        raise InsufficientScope(gettext_noop("The user did not agree to the scope `%(scope)s`."), scope=missing)
    about: dict[str, Any] = {"project": project_for(caller.user, project), "keeps": keeps}
    about["is_bound"] = is_bound or bool(caller.user.bound_to)
    # The user agreed to this token, whose tables are of no project.
    user = User.objects.get(pk=caller.user.pk)
    with bound_to(""):
        made = create_token(user=user, name=name, scopes=requested, days=days, **about)
        connections.end_access_of(user=user, application_id=granted.application_id)
    return made


def list_tokens(*, user: User) -> list[TokenShown]:
    """The user's tokens, the newest first, expired ones included."""
    return [
        TokenShown.model_validate(token)
        for token in AccessToken.objects.filter(user=user).order_by("-created", "-public_id")
    ]


def revoke_token(*, user: User, token_id: str) -> None:
    """Raises the same `NotFound` for a malformed id, an unknown one and another user's."""
    deleted, _ = AccessToken.objects.filter(user=user, public_id=parse_id(token_id)).delete()
    if not deleted:
        raise NotFound
    activity.note(user, Activity.TOKEN_REVOKED)


def _validate(name: str, scopes: list[TokenScope], days: int, project: str) -> None:
    for field, text, most in (("project", project, LONGEST_PROJECT), ("name", name, LONGEST_NAME)):
        if len(text) > most:
            raise InvalidInput(errors={field: [Sentence(gettext_noop("At most %(count)s characters."), count=most)]})
    if not scopes:
        raise InvalidInput(errors={"scopes": [gettext_noop("Choose what the token may do.")]})
    if not 1 <= days <= LONGEST_DAYS:
        raise InvalidInput(
            errors={"expiresInDays": [Sentence(gettext_noop("From 1 to %(most)s days."), most=str(LONGEST_DAYS))]}
        )


def _check_binding(project: str, scopes: list[TokenScope]) -> None:
    """Raises `InvalidInput`."""
    if not project_label(project):
        raise InvalidInput(errors={"project": [NO_PROJECT]})
    if not_bound := sorted(NEVER_BOUND & set(scopes)):
        raise InvalidInput(errors={"scopes": [Sentence(NOT_BOUND, scopes=", ".join(not_bound))]})
    if not can_bind():
        raise InvalidInput(CANNOT_BIND, errors={"bound": [CANNOT_BIND]})
