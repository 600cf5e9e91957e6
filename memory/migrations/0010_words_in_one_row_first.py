from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models
from django.db.models.deletion import CASCADE, DO_NOTHING

from core.isolation.policies import EVERYTHING, isolate

# In this order, each a statement that sees what was committed before it: whoever deletes a text that is being posted
# waits for that at its unposted words, and then finds it counted and its postings there. No word outlives its text,
# whoever deletes it.
FOLLOW = """
CREATE FUNCTION words_follow_their_texts() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    unposted bigint[];
BEGIN
    WITH deleted AS (
        DELETE FROM unposted_words USING gone WHERE text_id = gone.id RETURNING text_id
    )
    SELECT coalesce(array_agg(text_id), '{}') FROM deleted INTO unposted;
    UPDATE text_totals AS totals
       SET texts = totals.texts - fewer.texts, said_length = totals.said_length - fewer.said_length,
           answered_length = totals.answered_length - fewer.answered_length
      FROM (SELECT user_id, corpus, count(*) AS texts, sum(said_length) AS said_length,
                   sum(answered_length) AS answered_length
              FROM gone
             WHERE id <> ALL(unposted)
             GROUP BY user_id, corpus) AS fewer
     WHERE totals.user_id = fewer.user_id AND totals.corpus = fewer.corpus;
    DELETE FROM postings USING gone WHERE text_id = gone.id;
    RETURN NULL;
END $$
"""
TRIGGER = """
CREATE TRIGGER deleted_take_their_words_along AFTER DELETE ON indexed_texts
    REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION words_follow_their_texts()
"""
NO_TRIGGER = (
    "DROP TRIGGER deleted_take_their_words_along ON indexed_texts",
    "DROP FUNCTION words_follow_their_texts()",
)
# Everybody's, which even the owner sees only while the policies do not bind it.
COUNT = (
    "ALTER TABLE indexed_texts NO FORCE ROW LEVEL SECURITY",
    "ALTER TABLE text_totals NO FORCE ROW LEVEL SECURITY",
    """
    INSERT INTO text_totals (user_id, corpus, texts, said_length, answered_length)
    SELECT user_id, corpus, count(*), sum(said_length), sum(answered_length) FROM indexed_texts GROUP BY user_id, corpus
    """,
    "ALTER TABLE indexed_texts FORCE ROW LEVEL SECURITY",
    "ALTER TABLE text_totals FORCE ROW LEVEL SECURITY",
)
# Rows come and go.
VACUUM = """
ALTER TABLE unposted_words SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)
"""
CORPORA = [("chat", "Chat"), ("memory", "MEMORY.md"), ("daily_log", "Daily Log"), ("record", "Record")]


class Migration(migrations.Migration):
    dependencies = [
        ("memory", "0009_vectors_in_blocks"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name="UnpostedWords",
            fields=[
                (
                    "text",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=DO_NOTHING,
                        primary_key=True,
                        serialize=False,
                        to="memory.indexedtext",
                    ),
                ),
                (
                    "user",
                    models.ForeignKey(
                        db_constraint=False, db_index=False, on_delete=CASCADE, to=settings.AUTH_USER_MODEL
                    ),
                ),
                ("corpus", models.CharField(choices=CORPORA, max_length=16)),
                ("said_length", models.PositiveIntegerField()),
                ("answered_length", models.PositiveIntegerField()),
                ("lexemes", ArrayField(models.TextField())),
                ("said", ArrayField(models.PositiveSmallIntegerField())),
                ("answered", ArrayField(models.PositiveSmallIntegerField())),
            ],
            options={
                "db_table": "unposted_words",
                "indexes": [models.Index(fields=["user", "corpus"], name="idx_unposted_words")],
            },
        ),
        migrations.RunSQL(VACUUM, migrations.RunSQL.noop),
        isolate("unposted_words", worker=EVERYTHING),
        migrations.CreateModel(
            name="TextTotals",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("user", models.ForeignKey(db_index=False, on_delete=CASCADE, to=settings.AUTH_USER_MODEL)),
                ("corpus", models.CharField(choices=CORPORA, max_length=16)),
                ("texts", models.BigIntegerField(default=0)),
                ("said_length", models.BigIntegerField(default=0)),
                ("answered_length", models.BigIntegerField(default=0)),
            ],
            options={
                "db_table": "text_totals",
                "constraints": [models.UniqueConstraint(fields=["user", "corpus"], name="text_totals_once")],
            },
        ),
        isolate("text_totals", worker=EVERYTHING),
        migrations.RunSQL([*COUNT], migrations.RunSQL.noop),
        migrations.AlterField(
            model_name="posting",
            name="text",
            field=models.ForeignKey(db_constraint=False, db_index=False, on_delete=DO_NOTHING, to="memory.indexedtext"),
        ),
        migrations.RunSQL([FOLLOW, TRIGGER], [*NO_TRIGGER]),
    ]
