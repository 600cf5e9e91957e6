"""A user's preferences for answers: the default model, and instructions for every model."""

from django.db import models

from intake.models.conversations import MODEL_NAME_LENGTH, OwnedQuerySet
from intake.models.users import User


class ChatPreferences(models.Model):
    """One row per user, created with the first choice. Separate from the user's row, which staff may read."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, db_index=False, db_constraint=False)
    model = models.CharField(max_length=MODEL_NAME_LENGTH, blank=True, default="")
    how_to_answer = models.TextField(blank=True, default="")

    objects = OwnedQuerySet["ChatPreferences"].as_manager()

    class Meta:
        db_table = "intake_chat_preferences"
        verbose_name_plural = "chat preferences"
        constraints = [models.UniqueConstraint(fields=["user"], name="intake_chat_preferences_once")]

    def __str__(self) -> str:
        return f"of user {self.user_id}"
