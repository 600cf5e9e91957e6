import django.contrib.postgres.fields
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

import agent_tools.models
import core.ids
from core.isolation.policies import EVERYTHING, grant, isolate


class Migration(migrations.Migration):
    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("oauth2_provider", "0022_refreshtoken_token_family_index"),
    ]

    operations = [
        migrations.CreateModel(
            name="AccessToken",
            fields=[
                ("digest", models.CharField(max_length=128, primary_key=True, serialize=False)),
                ("public_id", models.UUIDField(default=core.ids.uuid7, editable=False, unique=True)),
                ("name", models.CharField(blank=True, default="", max_length=80)),
                (
                    "scopes",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.CharField(max_length=16), default=agent_tools.models.default_scopes, size=None
                    ),
                ),
                ("created", models.DateTimeField(auto_now_add=True)),
                ("expiry", models.DateTimeField(blank=True, null=True)),
                ("last_used_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("last_used_from", models.CharField(blank=True, default="", editable=False, max_length=64)),
                (
                    "user",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="access_tokens",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={"db_table": "access_tokens"},
        ),
        # Looked up by its digest, before its owner is known.
        grant("access_tokens", web=EVERYTHING),
        migrations.CreateModel(
            name="AgentConnection",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "user_id", "application_id", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "scopes",
                    django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=16), size=None),
                ),
                ("created_at", models.DateTimeField()),
                ("last_used_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("last_used_from", models.CharField(blank=True, default="", editable=False, max_length=64)),
                (
                    "application",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="agent_connections",
                        to="oauth2_provider.application",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="agent_connections",
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={"db_table": "agent_connections"},
        ),
        isolate("agent_connections", worker=("SELECT", "DELETE")),
        # The toolkit's: each is looked up by a checksum, a code or a client's name, before anybody is known. The worker
        # removes what has expired; it can make no token, nor change whose one is.
        grant("oauth2_provider_application", web=EVERYTHING, worker=("SELECT", "DELETE")),
        grant("oauth2_provider_grant", web=EVERYTHING, worker=("SELECT", "DELETE")),
        grant(
            "oauth2_provider_accesstoken",
            web=EVERYTHING,
            worker=("SELECT", "UPDATE (source_refresh_token_id)", "DELETE"),
        ),
        grant("oauth2_provider_refreshtoken", web=EVERYTHING, worker=("SELECT", "UPDATE (access_token_id)", "DELETE")),
        # The toolkit's for what is not offered: nobody can write into them, and a person's deletion looks there.
        *(
            grant(f"oauth2_provider_{table}", web=("SELECT", "DELETE"), worker=("SELECT", "DELETE"))
            for table in ("idtoken", "devicegrant")
        ),
    ]
