from django.db import migrations

from core.isolation.policies import EVERYTHING, grant, isolate


class Migration(migrations.Migration):
    dependencies = [
        ("agent_tools", "0002_scoped_tokens_and_idempotent_answers"),
        ("intake", "0004_isolation"),
    ]

    operations = [
        # Looked up by its digest, before anybody is known.
        grant("access_tokens", web=EVERYTHING),
        isolate("idempotent_answers"),
    ]
