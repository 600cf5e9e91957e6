import sys
from subprocess import check_output

from django.conf import settings

CODE = """
import gc; from core.priority import share_from_now_on as share; share()
kept = [[] for _ in range(200_000)]; print(sum(each["collections"] for each in gc.get_stats()))
"""


def test_the_collector_seldom_stops_a_thread_that_makes_many_objects():
    assert int(check_output([sys.executable, "-c", CODE], cwd=settings.BASE_DIR)) < 30
