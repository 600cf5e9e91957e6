from django.conf import settings
from django.db import migrations, models

import memory.models.postings
from memory.trigrams import trigram_filter

AT_ONCE = 500


def tell_from_turns(apps, schema_editor):
    """When a turn was said and what it may contain are both in the turn; a text without one is gone, and goes."""
    IndexedText = apps.get_model("memory", "IndexedText")
    Turn = apps.get_model("intake", "Turn")
    turns = Turn.objects.filter(
        conversation_id=models.OuterRef("source_id"), turn_number=models.OuterRef("chunk_index")
    )
    texts = IndexedText.objects.annotate(turn_id=models.Subquery(turns.values("pk")))
    texts.filter(turn_id=None).delete()
    batch = []
    for text in texts.iterator(chunk_size=AT_ONCE):
        turn = Turn.objects.get(pk=text.turn_id)
        text.said_at = turn.said_at
        text.signature = trigram_filter(turn.user_message, "" if turn.is_recall else turn.assistant_message)
        batch.append(text)
        if len(batch) == AT_ONCE:
            IndexedText.objects.bulk_update(batch, ["said_at", "signature"])
            batch = []
    IndexedText.objects.bulk_update(batch, ["said_at", "signature"])


class Migration(migrations.Migration):
    dependencies = [
        ("intake", "0002_conversations_user_id"),
        ("memory", "0003_postings"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    # It reads what the owner of the tables cannot see once policies bind the owner too.
    run_before = [("intake", "0004_isolation")]

    # Altering a table whose rows were just changed in the same transaction is refused.
    atomic = False

    operations = [
        migrations.AddField("indexedtext", "said_at", models.DateTimeField(null=True)),
        migrations.AddField("indexedtext", "signature", memory.models.postings.SignatureField(null=True)),
        migrations.RunPython(tell_from_turns, migrations.RunPython.noop),
        migrations.AlterField("indexedtext", "said_at", models.DateTimeField()),
        migrations.AlterField(
            "indexedtext",
            "signature",
            memory.models.postings.SignatureField(
                help_text="Which stretches of three characters it may contain: see memory.trigrams."
            ),
        ),
        migrations.RemoveConstraint("indexedtext", "indexed_texts_once"),
        migrations.AddConstraint(
            "indexedtext",
            models.UniqueConstraint(
                fields=("user", "corpus", "source_id", "chunk_index"),
                include=("id", "said_at", "said_length", "answered_length"),
                name="indexed_texts_once",
            ),
        ),
        migrations.AddIndex(
            "indexedtext",
            models.Index(
                fields=["user", "corpus"],
                include=("source_id", "chunk_index", "said_at", "signature"),
                name="idx_indexed_texts_signatures",
            ),
        ),
    ]
