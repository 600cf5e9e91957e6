"""The log-ins of a person at servers of tools."""

import django.db.models.deletion
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
                PERFORM create_distributed_table(
                    'intake_tool_logins', 'user_id', colocate_with => 'intake_conversations'
                );
            END IF;
        END IF;
    END
    $$
"""
KEYS = "ALTER TABLE intake_tool_logins DROP CONSTRAINT intake_tool_logins_pkey, ADD PRIMARY KEY (user_id, id)"
FOREIGN_KEY = """
    ALTER TABLE intake_tool_logins
        ADD CONSTRAINT intake_tool_logins_user FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE
"""
WORKER = settings.DATABASE_ROLES.worker


class Migration(migrations.Migration):
    dependencies = [("intake", "0016_tools_from_elsewhere")]

    operations = [
        migrations.AddField(
            model_name="toolserver",
            name="client_id",
            field=models.CharField(blank=True, db_default="", default="", max_length=500),
        ),
        migrations.CreateModel(
            name="ToolLogin",
            fields=[
                ("id", models.UUIDField(default=core.ids.uuid7, editable=False, primary_key=True, serialize=False)),
                ("address", models.CharField(max_length=500)),
                ("sealed", models.TextField(blank=True, default="")),
                ("pending", models.TextField(blank=True, default="")),
                ("pending_until", models.DateTimeField(null=True)),
                ("state", models.CharField(blank=True, default="", max_length=64)),
                ("renewing_until", models.DateTimeField(null=True)),
                ("connected_at", models.DateTimeField(null=True)),
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
                "db_table": "intake_tool_logins",
                "constraints": [
                    models.UniqueConstraint(fields=("user", "address"), name="intake_tool_logins_once"),
                ],
            },
        ),
        migrations.RunSQL(KEYS, migrations.RunSQL.noop),
        migrations.RunSQL([PLACES], migrations.RunSQL.noop),
        migrations.RunSQL(FOREIGN_KEY, migrations.RunSQL.noop),
        # A worker removes those at servers that are gone, and reads no more of either than the address.
        isolate("intake_tool_logins"),
        migrations.RunSQL(
            [
                f"CREATE POLICY worker ON intake_tool_logins TO {WORKER} USING (true)",
                f"CREATE POLICY worker ON intake_tool_servers TO {WORKER} USING (true)",
                f"GRANT SELECT (user_id, id, address), DELETE ON intake_tool_logins TO {WORKER}",
                f"GRANT SELECT (user_id, address) ON intake_tool_servers TO {WORKER}",
            ],
            [
                "DROP POLICY IF EXISTS worker ON intake_tool_logins",
                "DROP POLICY IF EXISTS worker ON intake_tool_servers",
            ],
        ),
    ]
