"""People and what they said, for tests."""

from collections.abc import Sequence
from datetime import UTC, datetime

from allauth.mfa.models import Authenticator
from cryptography.hazmat.primitives.asymmetric import ec
from fido2.cose import ES256
from fido2.utils import sha256
from fido2.webauthn import (
    Aaguid,
    AttestationObject,
    AttestedCredentialData,
    AuthenticatorAttestationResponse,
    AuthenticatorData,
    CollectedClientData,
    RegistrationResponse,
)

from core.isolation.acting import Caller, acting_as
from intake.chats import services
from intake.models import Conversation, Turn, User
from testing import ZONE_OF_PEOPLE

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def a_person(email: str = "alice@example.com") -> User:
    return User.objects.create_user(email, "password", time_zone=ZONE_OF_PEOPLE)


def a_visitor() -> User:
    return User.objects.create_visitor()


def caller_for(user: User) -> Caller:
    return Caller(user_id=user.pk, is_visitor=user.is_visitor)


def a_visitors_turn(visitor: User, message: str, answer: str = "Noted.") -> Turn:
    """As the chat saves it."""
    with acting_as(visitor):
        turn = services.create_turn(services.TurnRequest(message=message), caller=caller_for(visitor), now=NOW)
        services.finish_turn(turn_id=turn.pk, answer=services.Answer(text=answer, status=Turn.Status.COMPLETE))
    return turn


def a_turn(
    user: User,
    message: str,
    answer: str = "Noted.",
    *,
    conversation: Conversation | None = None,
    parent: int | None = None,
    said_at: datetime = NOW,
) -> Turn:
    with acting_as(user):
        conversation = conversation or Conversation.objects.create(user=user, title=services.title_from(message))
        return services.save_exchange(
            conversation=conversation, user_message=message, assistant_message=answer, said_at=said_at, parent=parent
        )


def a_temporary_turn(user: User, message: str, answer: str = "Between us.") -> Turn:
    """As the chat saves it, for a caller who acts as the user already. Its time is over."""
    request = services.TurnRequest(message=message, temporary=True)
    turn = services.create_turn(request, caller=caller_for(user), now=NOW)
    services.finish_turn(turn_id=turn.pk, answer=services.Answer(text=answer, status=Turn.Status.COMPLETE))
    return turn


def a_long_conversation(user: User, turns: int, *, parents: Sequence[int] = ()) -> Conversation:
    """For pages alone: its turns are written in one go and so tell nobody of themselves.

    `parents`: for each turn the number of the one that it follows, 0 for none; without them each follows the last.
    """
    conversation = Conversation.objects.create(
        user=user, title="Message 1", turn_count=turns, current_number=turns, last_active_at=NOW
    )
    numbers = range(1, turns + 1)
    parents = parents or range(turns)
    texts = [{"user_message": f"Message {number}", "assistant_message": f"Answer {number}"} for number in numbers]
    Turn.objects.bulk_create(
        Turn(
            conversation=conversation,
            user=user,
            turn_number=number,
            parent_number=parent or None,
            said_at=NOW,
            status=Turn.Status.COMPLETE,
            **text,
        )
        for number, parent, text in zip(numbers, parents, texts, strict=True)
    )
    return conversation


def a_passkey(user: User, *, name: str = "A key") -> Authenticator:
    """One as a browser registers it, whose private key nobody has."""
    secret = ec.generate_private_key(ec.SECP256R1())
    credential = AttestedCredentialData.create(
        Aaguid.NONE, b"credential of %d" % user.pk, ES256.from_cryptography_key(secret.public_key())
    )
    flags = AuthenticatorData.FLAG.UP | AuthenticatorData.FLAG.UV | AuthenticatorData.FLAG.AT
    data = AuthenticatorData.create(sha256(b"localhost"), flags, 0, credential)
    said = CollectedClientData.create(CollectedClientData.TYPE.CREATE, b"challenge", "http://localhost")
    response = RegistrationResponse(
        raw_id=credential.credential_id,
        response=AuthenticatorAttestationResponse(
            client_data=said, attestation_object=AttestationObject.create("none", data, {})
        ),
    )
    return Authenticator.objects.create(user=user, type="webauthn", data={"name": name, "credential": dict(response)})
