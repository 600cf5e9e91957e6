import pytest

from evals.benchmarks import population
from evals.benchmarks.population import NodeSize, Population, ProcessorTime, TurnCosts, breaks_first, needs, zipf_sum

# A thousand people of whom 360 come: 3,600 turns and 7,200 searches a day, of which the busiest hour has a tenth.
PEOPLE = Population(active=0.36, turns_a_day=10, searches_a_day=20, zipf=0, years=1)
COSTS = TurnCosts(
    bytes_per_turn=10_000,
    hot_bytes_per_turn=5_000,
    search=ProcessorTime(process=20, database=30),
    save=ProcessorTime(process=10, database=40),
    embedding=ProcessorTime(process=100, database=5),
)
NODE = NodeSize(cores=10, memory_gb=100, disk_gb=1_000)


def test_every_need_follows_from_the_costs_and_the_busiest_hour():
    needed = needs(1_000, PEOPLE, COSTS, NODE)

    assert needed["stored_turns"] == pytest.approx(1_000 * 0.36 * 10 * 365)
    assert needed["disk_gb"] == pytest.approx(13.14)
    assert needed["hot_memory_gb"] == pytest.approx(0.36 * 6.57)
    # 0.1 turns and 0.2 searches a second.
    assert needed["search_cores"] == pytest.approx(0.2 * 0.050)
    assert needed["save_cores"] == pytest.approx(0.1 * 0.050)
    assert needed["embedding_cores"] == pytest.approx(0.1 * 0.105)
    assert needed["database_cores"] == pytest.approx(0.2 * 0.030 + 0.1 * 0.045)
    assert needed["nodes_for_disk"] == pytest.approx(13.14 / 700)
    assert (needed["nodes"], needed["web_processes"], needed["workers"]) == (1, 1, 1)


def test_ten_thousand_times_as_many_people_take_as_many_nodes_as_the_scarcest_part_asks_for():
    needed = needs(10_000_000, PEOPLE, COSTS, NODE)

    assert needed["nodes_for_cores"] == pytest.approx(105 / 7)
    assert needed["nodes_for_disk"] == pytest.approx(131_400 / 700)
    assert needed["nodes_for_memory"] == pytest.approx(23_652 / 70)
    assert needed["nodes"] == 338
    assert needed["web_processes"] == 72  # 50 busy cores at 70 %
    assert needed["workers"] == 143  # 100 of them
    assert breaks_first(needed).startswith("10,000,000 people: memory first (337.89 nodes' worth).")


def test_the_largest_person_is_average_among_equals_and_may_outgrow_a_node_by_zipfs_law():
    assert needs(1_000, PEOPLE, COSTS, NODE)["largest_turns"] == pytest.approx(PEOPLE.history)

    steep = Population(active=0.36, turns_a_day=10, searches_a_day=20, zipf=2, years=1)
    needed = needs(10_000_000, steep, COSTS, NODE)

    # The first of 1/k² has 6/π² of everything.
    assert needed["largest_turns"] == pytest.approx(0.6079271 * needed["stored_turns"], rel=1e-6)
    assert "DOES NOT FIT on a node" in breaks_first(needed)


@pytest.mark.parametrize("exponent", [0, 0.5, 1, 1.5])
def test_the_sum_of_zipfs_law_by_an_integral_is_that_of_all_ranks(exponent, monkeypatch):
    near = zipf_sum(100_000, exponent)
    monkeypatch.setattr(population, "SUMMED", 100_000)

    assert near == pytest.approx(zipf_sum(100_000, exponent), rel=1e-6)
