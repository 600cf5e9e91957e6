"""The servers of a person, what was allowed of their tools, and the turns that wait for an answer."""

import django.db.models.deletion
import django.utils.timezone
from django.conf import settings
from django.db import migrations, models

import core.ids
from core.isolation.policies import isolate

TABLES = ("intake_paused_turns", "intake_tool_consents", "intake_tool_servers")
# Tables of a cluster that is distributed already are placed here, before their foreign keys. On every other server this
# does nothing.
PLACES = """
    DO $$
    DECLARE name text;
    BEGIN
        IF EXISTS (SELECT FROM pg_extension WHERE extname = 'citus') THEN
            IF EXISTS (SELECT FROM pg_dist_partition
                        WHERE logicalrelid = 'intake_conversations'::regclass AND partmethod = 'h') THEN
                FOREACH name IN ARRAY ARRAY['intake_paused_turns', 'intake_tool_consents', 'intake_tool_servers'] LOOP
                    PERFORM create_distributed_table(name, 'user_id', colocate_with => 'intake_conversations');
                END LOOP;
            END IF;
        END IF;
    END
    $$
"""
KEYS = [f"ALTER TABLE {table} DROP CONSTRAINT {table}_pkey, ADD PRIMARY KEY (user_id, id)" for table in TABLES]
FOREIGN_KEYS = [
    *(
        f"ALTER TABLE {table} ADD CONSTRAINT {table}_user FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE"
        for table in TABLES
    ),
    "ALTER TABLE intake_paused_turns ADD CONSTRAINT intake_paused_turns_turn FOREIGN KEY (user_id, turn_id)"
    " REFERENCES intake_conversation_turns (user_id, id) ON DELETE CASCADE",
]
OWNER = models.ForeignKey(
    db_constraint=False,
    db_index=False,
    on_delete=django.db.models.deletion.CASCADE,
    to=settings.AUTH_USER_MODEL,
)


class Migration(migrations.Migration):
    dependencies = [("intake", "0015_pages_that_answers_read")]

    operations = [
        migrations.AlterField(
            model_name="turn",
            name="status",
            field=models.CharField(
                choices=[
                    ("streaming", "Streaming"),
                    ("complete", "Complete"),
                    ("interrupted", "Interrupted"),
                    ("failed", "Failed"),
                    ("waiting", "Waiting"),
                ],
                default="streaming",
                max_length=16,
            ),
        ),
        migrations.CreateModel(
            name="PausedTurn",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("turn_id", models.BigIntegerField()),
                ("calls", models.JSONField()),
                ("state", models.JSONField()),
                ("until", models.DateTimeField()),
                ("user", OWNER.clone()),
            ],
            options={
                "db_table": "intake_paused_turns",
                "indexes": [models.Index(fields=["until"], name="idx_ipt_until")],
                "constraints": [
                    models.UniqueConstraint(fields=("user", "turn_id"), name="intake_paused_turns_once"),
                ],
            },
        ),
        migrations.CreateModel(
            name="ToolConsent",
            fields=[
                ("id", models.UUIDField(default=core.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ("address", models.CharField(max_length=500)),
                ("tool", models.CharField(max_length=200)),
                ("fingerprint", models.CharField(max_length=64)),
                ("conversation_id", models.UUIDField(null=True)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ("user", OWNER.clone()),
            ],
            options={
                "db_table": "intake_tool_consents",
                "indexes": [models.Index(fields=["user", "address", "tool"], name="idx_itc_tool")],
            },
        ),
        migrations.CreateModel(
            name="ToolServer",
            fields=[
                ("id", models.UUIDField(default=core.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ("name", models.CharField(max_length=40)),
                ("address", models.CharField(max_length=500)),
                ("header", models.CharField(blank=True, default="", max_length=60)),
                ("sealed", models.TextField(blank=True, default="")),
                ("tools", models.JSONField(default=list)),
                ("created_at", models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ("user", OWNER.clone()),
            ],
            options={
                "db_table": "intake_tool_servers",
                "constraints": [
                    models.UniqueConstraint(fields=("user", "address"), name="intake_tool_servers_once"),
                ],
            },
        ),
        migrations.RunSQL(KEYS, migrations.RunSQL.noop),
        migrations.RunSQL([PLACES], migrations.RunSQL.noop),
        migrations.RunSQL(FOREIGN_KEYS, migrations.RunSQL.noop),
        # A worker closes what has waited for too long, and reads no more than that of it.
        isolate("intake_paused_turns"),
        isolate("intake_tool_consents"),
        isolate("intake_tool_servers"),
        migrations.RunSQL(
            [
                f"CREATE POLICY worker ON intake_paused_turns TO {settings.DATABASE_ROLES.worker} USING (until < now())",
                f"GRANT SELECT (user_id, id, turn_id, until), DELETE ON intake_paused_turns"
                f" TO {settings.DATABASE_ROLES.worker}",
            ],
            ["DROP POLICY IF EXISTS worker ON intake_paused_turns"],
        ),
    ]
