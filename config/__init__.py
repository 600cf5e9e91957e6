"""How the parts are put together: settings, addresses, the web process, the workers, the embedded servers."""

from config.celery import app as celery_app

__all__ = ["celery_app"]
