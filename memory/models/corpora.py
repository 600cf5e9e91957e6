"""What kinds of text are remembered; every row of the index says which kind it belongs to."""

from django.db import models


class Corpus(models.TextChoices):
    CHAT = "chat"
    MEMORY = "memory", "MEMORY.md"
    DAILY_LOG = "daily_log"
    RECORD = "record"
