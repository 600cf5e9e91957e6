"""The process that imports: `python -m imports.storing.process` works on the jobs that are due, and ends.

The worker starts it. An export that needs more memory than there may be fails with a sentence, before the kernel kills
another process; one that takes too long, or hangs, takes no thread of the worker's with it.
"""

import gc
import os
import resource
import signal
import sys
from types import FrameType

import django


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings.local")
    gc.disable()
    django.setup()
    from django.conf import settings

    from core.isolation.checks import refuse_unless_isolated
    from core.priority import share_from_now_on, step_back
    from imports.storing import worker

    share_from_now_on()
    # People wait for their answers and their messages for their vectors.
    step_back()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGALRM, _be_too_late)
    refuse_unless_isolated(settings.DATABASE_ROLES.web)
    most = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (settings.IMPORTS_MEMORY_BYTES, most))
    signal.alarm(worker.LONGEST_SECONDS * worker.AT_ONCE)
    worker.work()


def _be_too_late(number: int, frame: FrameType | None) -> None:
    from imports.storing.worker import TookTooLong

    raise TookTooLong


if __name__ == "__main__":
    main()
