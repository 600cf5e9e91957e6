from django.db import migrations

from intake.isolation.policies import EVERYTHING, grant


class Migration(migrations.Migration):
    dependencies = [
        ("agent_tools", "0001_access_tokens"),
        ("intake", "0003_isolation"),
    ]

    operations = [
        # Looked up by its digest, before anybody is known.
        grant("access_tokens", web=EVERYTHING),
    ]
