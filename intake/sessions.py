"""The session engine (`SESSION_ENGINE`): Django's database sessions, each stored with the person it belongs to."""

import re
from typing import Any

from django.contrib.auth import SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore as DatabaseStore

from intake.models import Session

KEY = re.compile(r"[a-z0-9]{8,40}", re.ASCII)


class SessionStore(DatabaseStore):
    def __init__(self, session_key: str | None = None) -> None:
        """A key from a cookie may be anything; one that no session can have is as good as none."""
        super().__init__(session_key if session_key and KEY.fullmatch(session_key) else None)

    @classmethod
    def get_model_class(cls) -> type[Session]:
        return Session

    def create_model_instance(self, data: dict[str, Any]) -> Session:
        return _with_user(super().create_model_instance(data), data)

    async def acreate_model_instance(self, data: dict[str, Any]) -> Session:
        return _with_user(await super().acreate_model_instance(data), data)


def _with_user(session: Any, data: dict[str, Any]) -> Session:
    user_id = data.get(SESSION_KEY)
    session.user_id = int(user_id) if user_id is not None else None
    stored: Session = session
    return stored
