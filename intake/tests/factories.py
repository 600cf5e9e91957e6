"""People and what they said, for tests."""

from datetime import UTC, datetime

from intake import services
from intake.models import Conversation, Turn, User

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def a_person(email: str = "alice@example.com") -> User:
    return User.objects.create_user(email, "password")


def a_turn(user: User, message: str, answer: str = "Noted.", *, conversation: Conversation | None = None) -> Turn:
    conversation = conversation or Conversation.objects.create(user=user, title=services.title_from(message))
    return services.record_turn(conversation=conversation, user_message=message, assistant_message=answer, said_at=NOW)
