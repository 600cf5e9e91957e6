"""The digests of answers that other programs have, by which their next requests find the turns."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

from core.isolation.policies import isolate

# Tables of a cluster that is distributed already are placed here, before their foreign keys. On every other server this
# does nothing.
PLACES = """
    DO $$
    BEGIN
        IF EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') THEN
            IF EXISTS (SELECT FROM pg_dist_partition
                        WHERE logicalrelid = 'intake_conversations'::regclass AND partmethod = 'h') THEN
                PERFORM create_distributed_table(
                    'intake_known_answers', 'user_id', colocate_with => 'intake_conversations'
                );
            END IF;
        END IF;
    END
    $$
"""
KEYS = "ALTER TABLE intake_known_answers DROP CONSTRAINT intake_known_answers_pkey, ADD PRIMARY KEY (user_id, id)"
FOREIGN_KEY = """
    ALTER TABLE intake_known_answers
        ADD CONSTRAINT intake_known_answers_user FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE
"""


class Migration(migrations.Migration):
    dependencies = [("intake", "0013_what_answers_were_made_of")]

    operations = [
        migrations.CreateModel(
            name="KnownAnswer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("digest", models.CharField(max_length=64)),
                ("turn_id", models.BigIntegerField(null=True)),
                ("gone_at", models.DateTimeField(null=True)),
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
                "db_table": "intake_known_answers",
                "indexes": [models.Index(fields=["user", "digest"], name="idx_ika_digest")],
            },
        ),
        migrations.RunSQL(KEYS, migrations.RunSQL.noop),
        migrations.RunSQL([PLACES], migrations.RunSQL.noop),
        migrations.RunSQL(FOREIGN_KEY, migrations.RunSQL.noop),
        isolate("intake_known_answers", worker=("SELECT", "UPDATE", "DELETE")),
    ]
