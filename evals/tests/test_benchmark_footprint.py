"""What a product takes of a machine at rest may only fall: its processes and their memory."""

import pytest

from evals.benchmarks import footprint

pytestmark = pytest.mark.extended


def test_a_product_at_rest_is_three_processes_of_660_megabytes():
    figures = footprint.run({"rest": 20, "seconds": 20, "turns": 0}, print)
    assert [each["name"] for each in figures["processes"] if each["name"] not in footprint.SERVERS] == [
        "supervisor",
        "web",
        "worker",
    ]
    assert figures["own_mb"] <= 660, footprint.table(figures)
