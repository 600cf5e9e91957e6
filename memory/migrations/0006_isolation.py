from django.db import migrations

from core.isolation.policies import grant, isolate

# What becomes of a row while its vector is made; whose it is and what it stands for never changes.
PROGRESS = "UPDATE (vector, embedded_at, attempts, last_error, next_attempt_at, quarantined_at)"

# It locks what it indexes, which takes the right to change some column: one that nothing depends on.
LOCK = "UPDATE (created_at)"


class Migration(migrations.Migration):
    dependencies = [
        ("memory", "0005_documents_and_records"),
        ("intake", "0004_isolation"),
    ]

    operations = [
        isolate("embeddings", worker=["SELECT", "INSERT", "DELETE", PROGRESS], staff=["SELECT", PROGRESS]),
        isolate("memory_documents", worker=["SELECT", LOCK]),
        isolate("memory_records", worker=["SELECT", LOCK]),
        # Words are text: staff see none of them.
        isolate("indexed_texts", worker=["SELECT", "INSERT", "DELETE"]),
        isolate("postings", worker=["SELECT", "INSERT", "DELETE"]),
        grant("embedding_models", web=["SELECT", "INSERT"], worker=["SELECT", "INSERT"], staff=["SELECT"]),
    ]
