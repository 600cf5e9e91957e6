"""What a number of people takes: turns, disk, memory and cores, and from them nodes, web processes and workers.

Arithmetic alone: `benchmark capacity` measures what a turn and a search cost, and shows the results.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

import numpy as np

DAYS_A_YEAR = 365
# Of a day's turns and searches. An even day has a twenty-fourth of them in each hour.
PEAK_HOUR = 0.1
# Of a node's cores, memory and disk, and of a process's core. The rest is for minutes busier than their hour, for the
# system, and for moving shards.
FULL = 0.7
# Ranks of Zipf's law that are summed one by one; the integral of the others is exact to a millionth then.
SUMMED = 1_000


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """Of one operation, milliseconds of a core; of many, busy cores: the application's process, and the database's."""

    process: float
    database: float


@dataclass(frozen=True, slots=True)
class TurnCosts:
    """`hot_bytes_per_turn`: of the vector blocks and terms, which every search of its person reads.

    `search` is one search among a history of average length, `save` both saves of a turn, `embedding` a worker's part.
    """

    bytes_per_turn: float
    hot_bytes_per_turn: float
    search: ProcessorTime
    save: ProcessorTime
    embedding: ProcessorTime


@dataclass(frozen=True, slots=True)
class NodeSize:
    """Gigabytes of 10⁹ bytes."""

    cores: float
    memory_gb: float
    disk_gb: float


@dataclass(frozen=True, slots=True)
class Population:
    """`active` is the share of people who come on a day; the rates are means of theirs, and Zipf's law has `zipf`."""

    active: float
    turns_a_day: float
    searches_a_day: float
    zipf: float
    years: float

    @property
    def history(self) -> float:
        """Stored turns of the average person."""
        return self.active * self.turns_a_day * DAYS_A_YEAR * self.years

    def assumptions(self, node: NodeSize) -> list[str]:
        return [
            f"On a day {self.active:.0%} of the people come; each of them says {self.turns_a_day:g} turns and searches "
            f"{self.searches_a_day:g} times, on average. Turns are kept for {self.years:g} years.",
            f"How much people say follows Zipf's law: the person of rank k says k^-{self.zipf:g} as much as the first.",
            f"The busiest hour has {PEAK_HOUR:.0%} of a day's turns and searches, and all of its turns are embedded "
            "within the hour.",
            "The vector blocks and terms of those who come on a day stay in memory; they are a fair sample of all.",
            f"A node has {node.cores:g} cores, {node.memory_gb:g} GB of memory and {node.disk_gb:g} GB of disk, and "
            f"is filled to {FULL:.0%}; so is the core of a web process or worker, which have machines of their own.",
            "Texts are as long as the synthetic ones, and a core is as quick as one of the machine that measured. Not "
            "counted: HTTP and pages around a search or save, standbys, backups, imports, language models, the "
            "coordinator, PostgreSQL's background processes.",
        ]


def zipf_sum(people: int, exponent: float) -> float:
    """Sum of k^-exponent for k from 1 to `people`: the generalised harmonic number."""
    summed = min(people, SUMMED)
    head = float((np.arange(1.0, summed + 1) ** -exponent).sum())
    low, high, power = summed + 0.5, people + 0.5, 1 - exponent
    return head + (float(np.log(high / low)) if power == 0 else (high**power - low**power) / power)


def needs(people: int, population: Population, costs: TurnCosts, node: NodeSize) -> dict[str, float]:
    """What so many people take, by name; `nodes` are those that the scarcest of cores, memory and disk asks for."""
    turns = people * population.history
    visitors = people * population.active
    turns_a_second = visitors * population.turns_a_day * PEAK_HOUR / 3600
    searches_a_second = visitors * population.searches_a_day * PEAK_HOUR / 3600
    saving, embedding = (_cores(turns_a_second, each) for each in (costs.save, costs.embedding))
    searching = _cores(searches_a_second, costs.search)
    disk, memory = turns * costs.bytes_per_turn / 1e9, turns * population.active * costs.hot_bytes_per_turn / 1e9
    cores = searching.database + saving.database + embedding.database
    ratios = _ratios(cores, memory, disk, node)
    largest = people / zipf_sum(people, population.zipf)
    return {
        "people": people,
        "stored_turns": turns,
        "disk_gb": disk,
        "hot_memory_gb": memory,
        "search_cores": searching.process + searching.database,
        "save_cores": saving.process + saving.database,
        "embedding_cores": embedding.process + embedding.database,
        "database_cores": cores,
        **{f"nodes_for_{name}": ratio for name, ratio in ratios.items()},
        "nodes": ceil(max(ratios.values())),
        "web_processes": ceil((searching.process + saving.process) / FULL),
        "workers": ceil(embedding.process / FULL),
        **_largest_person(largest * population.history, population, costs, node),
    }


def breaks_first(needed: Mapping[str, float]) -> str:
    """A sentence: the scarcest part of the nodes, and whether the largest person fits on one."""
    ratios = {name: needed[f"nodes_for_{name}"] for name in ("cores", "memory", "disk")}
    scarcest = max(ratios, key=lambda name: ratios[name])
    fits = "fits on a node" if needed["largest_share_of_a_node"] <= 1 else "DOES NOT FIT on a node"
    return (
        f"{needed['people']:,.0f} people: {scarcest} first ({ratios[scarcest]:,.2f} nodes' worth). The largest person, "
        f"with {needed['largest_turns']:,.0f} turns, {fits} ({needed['largest_share_of_a_node']:.2%} of one)."
    )


def _largest_person(turns: float, population: Population, costs: TurnCosts, node: NodeSize) -> dict[str, float]:
    """They come every day, all of theirs is hot, and a search's time grows with their history as a scan's does."""
    longer = turns / population.history
    a_second = PEAK_HOUR / 3600
    said = turns / (DAYS_A_YEAR * population.years) * a_second
    searched = population.searches_a_day * a_second
    cores = (
        _cores(said, costs.save).database
        + _cores(said, costs.embedding).database
        + _cores(searched, costs.search).database * longer
    )
    ratios = _ratios(cores, turns * costs.hot_bytes_per_turn / 1e9, turns * costs.bytes_per_turn / 1e9, node)
    return {
        "largest_turns": turns,
        "largest_search_ms": costs.search.process + costs.search.database * longer,
        "largest_share_of_a_node": max(ratios.values()),
    }


def _ratios(cores: float, memory_gb: float, disk_gb: float, node: NodeSize) -> dict[str, float]:
    return {
        "cores": cores / (node.cores * FULL),
        "memory": memory_gb / (node.memory_gb * FULL),
        "disk": disk_gb / (node.disk_gb * FULL),
    }


def _cores(a_second: float, each: ProcessorTime) -> ProcessorTime:
    return ProcessorTime(a_second * each.process / 1000, a_second * each.database / 1000)
