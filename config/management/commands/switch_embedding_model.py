"""`manage.py switch_embedding_model`: makes the model of EMBEDDING_NEXT_… the active one, or the built-in model that is
set, where the other one made the index.
"""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from core.isolation.connecting import connected_as_worker
from memory.backends.embedders import EmbedderError, get_next_embedder
from memory.index.health import Switch

AFTERWARDS = "Now name it in EMBEDDING_… instead of EMBEDDING_NEXT_…, and start everything again."
NOTHING_ELSE = "Everything is searched by it now. There is nothing else to do."


class Command(BaseCommand):
    help = (
        "Embed everything with the model of EMBEDDING_NEXT_…, or with the built-in one where an older index has the "
        "other, beside the vectors that are searched meanwhile; then make it the active one in one step, and delete "
        "the former one's vectors. Safe to interrupt and to repeat."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--despite-refused", action="store_true", help="Switch although the next model refuses some parts."
        )

    def handle(self, *args: Any, despite_refused: bool, **options: Any) -> None:
        try:
            following = get_next_embedder()
            if following is None:
                raise CommandError("Name the next model in EMBEDDING_NEXT_…, and start everything again, first.")
            following.check()
            # It reads all users' texts, so it runs as a worker.
            with connected_as_worker():
                Switch(following, tell=self._tell).run(despite_refused=despite_refused)
        except EmbedderError as error:
            raise CommandError(f"{error}") from error
        self.stdout.write(AFTERWARDS if settings.EMBEDDER_NEXT else NOTHING_ELSE)

    def _tell(self, sentence: str) -> None:
        self.stdout.write(sentence)
        self.stdout.flush()
