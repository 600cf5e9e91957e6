from django.db import migrations


class Migration(migrations.Migration):
    """What was kept was kept for a day; a request that is repeated across this migration is taken for a new one."""

    dependencies = [
        ("agent_tools", "0003_isolation"),
        ("intake", "0004_isolation"),
    ]

    operations = [
        migrations.DeleteModel(name="IdempotentAnswer"),
    ]
