"""Projects: a name, a colour, instructions and the folders and repositories that belong to a label."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import core.ids
from core.isolation.policies import isolate

# Tables of a cluster that is distributed already are placed here, before their foreign keys. On every other server this
# does nothing.
PLACES = """
    DO $$
    BEGIN
        IF EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') THEN
            IF EXISTS (SELECT FROM pg_dist_partition
                        WHERE logicalrelid = 'intake_conversations'::regclass AND partmethod = 'h') THEN
                PERFORM create_distributed_table('intake_projects', 'user_id', colocate_with => 'intake_conversations');
            END IF;
        END IF;
    END
    $$
"""
KEYS = "ALTER TABLE intake_projects DROP CONSTRAINT intake_projects_pkey, ADD PRIMARY KEY (user_id, id)"
FOREIGN_KEY = """
    ALTER TABLE intake_projects
        ADD CONSTRAINT intake_projects_user FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE
"""


class Migration(migrations.Migration):
    dependencies = [
        ("intake", "0009_what_agents_do_not_get"),
    ]

    operations = [
        migrations.CreateModel(
            name="Project",
            fields=[
                ("id", models.UUIDField(default=core.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=200)),
                (
                    "colour",
                    models.CharField(
                        choices=[
                            ("blue", "blue"),
                            ("teal", "teal"),
                            ("green", "green"),
                            ("yellow", "yellow"),
                            ("orange", "orange"),
                            ("red", "red"),
                            ("pink", "pink"),
                            ("purple", "purple"),
                        ],
                        default="blue",
                        max_length=8,
                    ),
                ),
                ("instructions", models.TextField(blank=True, default="")),
                ("is_closed", models.BooleanField(default=False)),
                ("labels", models.JSONField(blank=True, default=list)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                (
                    "user",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "db_table": "intake_projects",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("user", "name"), include=("is_closed",), name="intake_projects_named_once"
                    )
                ],
            },
        ),
        migrations.RunSQL(KEYS, migrations.RunSQL.noop),
        migrations.RunSQL([PLACES], migrations.RunSQL.noop),
        migrations.RunSQL(FOREIGN_KEY, migrations.RunSQL.noop),
        isolate("intake_projects"),
    ]
