"""The task of this app: sweeps old OAuth data."""

from celery import shared_task
from django.utils import timezone

from agent_tools.oauth.clients import sweep


@shared_task(name="agent_tools.sweep_oauth")
def sweep_oauth() -> None:
    sweep(now=timezone.now())
