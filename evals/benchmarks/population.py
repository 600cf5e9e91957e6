"""The needs of a number of people: turns, disk, memory and cores, and from them nodes, web processes and workers.

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
    """Of one operation, milliseconds of a core: the application's process, and the database's."""

    process: float
    database: float

    @property
    def both(self) -> float:
        return self.process + self.database


@dataclass(frozen=True, slots=True)
class TurnCosts:
    """`hot_bytes_per_turn`: of the index of bits and of the terms, which every search of its person reads.

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
            "The bits and terms of those who come on a day stay in memory; they are a fair sample of all.",
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
    """The needs of so many people, by name; `nodes` are those that the scarcest of cores, memory and disk asks for."""
    turns, visitors = people * population.history, people * population.active
    said, searched = (_a_second(visitors * each) for each in (population.turns_a_day, population.searches_a_day))
    hot = turns * population.active
    cores, ratios = _nodes(costs, node, turns=turns, hot=hot, said=said, searched=searched)
    # The largest person comes every day, all of theirs is hot, and a search grows with their history as a scan does.
    largest = turns / zipf_sum(people, population.zipf)
    longer = largest / population.history
    _, largest_ratios = _nodes(
        costs,
        node,
        turns=largest,
        hot=largest,
        said=_a_second(largest / (DAYS_A_YEAR * population.years)),
        searched=_a_second(population.searches_a_day) * longer,
    )
    return {
        "people": people,
        "stored_turns": turns,
        "disk_gb": turns * costs.bytes_per_turn / 1e9,
        "hot_memory_gb": hot * costs.hot_bytes_per_turn / 1e9,
        "search_cores": searched * costs.search.both / 1000,
        "save_cores": said * costs.save.both / 1000,
        "embedding_cores": said * costs.embedding.both / 1000,
        "database_cores": cores,
        **{f"nodes_for_{name}": ratio for name, ratio in ratios.items()},
        "nodes": ceil(max(ratios.values())),
        "web_processes": ceil((searched * costs.search.process + said * costs.save.process) / 1000 / FULL),
        "workers": ceil(said * costs.embedding.process / 1000 / FULL),
        "largest_turns": largest,
        "largest_search_ms": costs.search.process + costs.search.database * longer,
        "largest_share_of_a_node": max(largest_ratios.values()),
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


def _a_second(a_day: float) -> float:
    """In the busiest hour."""
    return a_day * PEAK_HOUR / 3600


def _nodes(
    costs: TurnCosts, node: NodeSize, *, turns: float, hot: float, said: float, searched: float
) -> tuple[float, dict[str, float]]:
    """The database's busy cores, and how many nodes' worth of cores, memory and disk it takes.

    `said` and `searched`: turns and searches of average length a second.
    """
    cores = (said * (costs.save.database + costs.embedding.database) + searched * costs.search.database) / 1000
    return cores, {
        "cores": cores / (node.cores * FULL),
        "memory": hot * costs.hot_bytes_per_turn / 1e9 / (node.memory_gb * FULL),
        "disk": turns * costs.bytes_per_turn / 1e9 / (node.disk_gb * FULL),
    }
