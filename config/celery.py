"""The Celery application: workers fill vectors, beat sweeps for rows that no message announced."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.local")

app = Celery("recollect")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
