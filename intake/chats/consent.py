"""The person's answers to the calls of a turn that waits, and what they have allowed until they take it back.

Each call is answered once, under the lock of its turn. With the last answer the row of the pause is deleted and the
turn is reopened in the same transaction, so only one process can go on with it.
"""

from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

from django.db import transaction
from django.db.models import Q
from django.utils import timezone
from pydantic import ConfigDict, Field

from core.errors import AlreadyDecided, InvalidInput, NoLongerWaits, NotFound
from core.isolation.acting import Caller
from core.text import gettext_noop as _
from core.text import pg_value
from core.validation import Input
from intake.chats import changes, services
from intake.chats.running import refuse_one_too_many
from intake.models import PausedTurn, ToolConsent, ToolLogin, ToolServer, Turn, User
from intake.models.installation import kept_setting


class Decision(Input):
    model_config = ConfigDict(frozen=True)

    decision: Literal["once", "chat", "always", "no"]
    reason: str = Field("", max_length=1_000, description="For the model, with `no`.")
    input: dict[str, Any] | None = Field(None, description="Other arguments, with which the call is made instead.")


@dataclass(frozen=True, slots=True)
class Decided:
    """How many calls still wait. `paused` is what to go on from, once none does: by then its row is deleted."""

    left: int
    turn: Turn
    paused: PausedTurn | None = None


def decide(decision: Decision, *, caller: Caller, turn_id: int, call_id: str) -> Decided:
    """Raises `NotFound`, `AlreadyDecided`, `NoLongerWaits`, `InvalidInput`, and `RateLimited` if too many answers are
    being written; then nothing is decided.
    """
    with transaction.atomic():
        mine = Turn.objects.for_caller(caller)
        holding = mine.filter(pk=turn_id).values_list("conversation_id", flat=True).first()
        if holding is None:
            raise NotFound
        services.lock_conversation(caller, holding)
        turn = mine.select_for_update(of=("self",)).select_related("conversation").get(pk=turn_id)
        shown = next((call for call in turn.tool_calls if call["id"] == call_id and "approval" in call), None)
        if shown is None:
            raise NotFound
        if "decision" in shown["approval"]:
            raise AlreadyDecided
        if turn.status != Turn.Status.WAITING:
            raise NoLongerWaits
        paused = PausedTurn.objects.for_caller(caller).get(turn_id=turn_id)
        call = paused.calls[call_id]
        if decision.decision in ("chat", "always") and not (
            call["address"] and (decision.decision == "chat" or call["may_always"])
        ):
            raise InvalidInput(_("This call can only be allowed once."), errors={"decision": [_("Not for this tool.")]})
        shown["approval"] |= {"decision": decision.decision, "reason": pg_value(decision.reason)}
        if decision.input is not None and decision.decision != "no":
            shown["input"] = call["edited"] = pg_value(decision.input)
        call |= shown["approval"]
        if decision.decision in ("chat", "always"):
            ToolConsent.objects.create(
                user_id=turn.user_id,  # type: ignore[misc]
                address=call["address"],
                tool=call["tool"],
                fingerprint=call["fingerprint"],
                conversation_id=turn.conversation_id if decision.decision == "chat" else None,
            )
        left = sum("decision" not in each for each in paused.calls.values())
        changes.tell(caller, turn.conversation_id)
        if left:
            paused.save(update_fields=["calls"])
            turn.save(update_fields=["tool_calls", "updated_at"])
            return Decided(left, turn)
        PausedTurn.objects.for_caller(caller).filter(pk=paused.pk).delete()
        services.reopen(turn, keeps_text=True)
        refuse_one_too_many(caller=caller, now=timezone.now())
        return Decided(0, turn, paused)


SERVERS = "tool_servers"


def servers_of(user: User) -> list[ToolServer]:
    """The person's own, and those that staff have added for all: these have no row."""
    servers = list(ToolServer.objects.for_user(user).order_by("created_at"))
    for each in kept_setting(SERVERS) or []:
        server = ToolServer(**{name: value for name, value in each.items() if name != "wants_login"})
        server.wants_login = each.get("wants_login", False)
        servers.append(server)
    logins = {login.address: login for login in ToolLogin.objects.for_user(user)} if servers else {}
    for server in servers:
        if (login := logins.get(server.address)) is not None:
            server.wants_login, server.wants_wider = True, login.wants_wider
            server.is_connected = bool(login.sealed)
    return servers


def forget_logins(user_id: int) -> None:
    """Those at servers that are gone, where nobody can use the tokens any more; for a worker."""
    for_all = [each["address"] for each in kept_setting(SERVERS) or []]
    own = ToolServer.objects.filter(user_id=user_id).values("address")
    gone = ToolLogin.objects.filter(user_id=user_id).exclude(address__in=for_all).exclude(address__in=own)
    ToolLogin.objects.filter(user_id=user_id, pk__in=[*gone.values_list("pk", flat=True)]).delete()


def is_allowed(*, caller: Caller, address: str, tool: str, fingerprint: str, conversation_id: UUID | None) -> bool:
    """Whether the person allowed this tool as it is described now, always or in this chat."""
    here = Q(conversation_id=None) | Q(conversation_id=conversation_id)
    allowed = ToolConsent.objects.for_caller(caller).filter(address=address, tool=tool, fingerprint=fingerprint)
    return allowed.filter(here).exists()
