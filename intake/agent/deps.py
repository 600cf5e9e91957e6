"""What the tools of one answer know about whom they work for; the model never sees or sets it."""

from dataclasses import dataclass
from datetime import datetime

from intake.models.conversations import Caller


@dataclass(frozen=True, slots=True)
class ChatDeps:
    caller: Caller
    now: datetime
