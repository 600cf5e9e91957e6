from django.db import migrations

# Somebody waits while a row is written, and it is read once or twice: to compress it costs more than the room is worth.
UNCOMPRESSED = "ALTER TABLE unposted_words SET (toast_tuple_target = 8160)"
COMPRESSED = "ALTER TABLE unposted_words RESET (toast_tuple_target)"


class Migration(migrations.Migration):
    dependencies = [("memory", "0010_words_in_one_row_first")]

    operations = [migrations.RunSQL(UNCOMPRESSED, COMPRESSED)]
