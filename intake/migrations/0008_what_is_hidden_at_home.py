"""The parts of the home page that a person does not want to see."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("intake", "0007_settings_of_the_installation"),
    ]

    operations = [
        migrations.AddField(
            model_name="chatpreferences",
            name="hidden_at_home",
            field=models.CharField(blank=True, db_default="", default="", max_length=100),
        ),
    ]
