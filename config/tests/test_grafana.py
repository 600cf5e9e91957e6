"""The Grafana board and the alarms in the docs ask for metrics, labels and values that `/metrics` really has."""

import json
import re
from collections import defaultdict
from pathlib import Path

import pytest
from django.conf import settings
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(settings.BASE_DIR)
BOARD = json.loads((ROOT / "deploy/grafana.json").read_text())
# Prometheus adds these to what it scrapes.
OF_PROMETHEUS = {"job", "instance"}

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def labels(log_in, person, settings):
    """The label sets of each sample, by the sample's name, after one request of each kind that the queries name."""
    settings.METRICS_TOKEN = "scrape"
    client = log_in(person)
    body = {"query": "cats", "mode": "hybrid"}
    assert client.post("/api/v1/tools/search_chat_history/", json=body, headers=client._csrf()).status_code == 200
    shown = client.get("/metrics", headers={"Authorization": "Bearer scrape"})
    found = defaultdict(list)
    for family in text_string_to_metric_families(shown.text):
        for sample in family.samples:
            found[sample.name].append(sample.labels)
    return found


def of_the_board():
    targets = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]
    return targets + [each["query"]["query"] for each in BOARD["templating"]["list"] if each["type"] == "query"]


def of_the_alarms():
    section = (ROOT / "docs/operations.md").read_text().split("### Alarms")[1].split("\n## ")[0]
    # In a table a bar is escaped.
    return [code.replace("\\|", "|") for code in re.findall(r"`([^`]*recollect_[^`]*)`", section)]


def missing(query, labels):
    """What a query names and the product has not: metrics, labels, and values that are compared by `=`."""
    asked = {name for names in re.findall(r"\bby \(([^)]*)\)", query) for name in names.split(", ")}
    for metric, braces in re.findall(r"(recollect_\w+)(?:\{([^}]*)\})?", query):
        if metric not in labels:
            yield metric
            continue
        has = {name for each in labels[metric] for name in each} | OF_PROMETHEUS
        matchers = re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', braces)
        yield from ({name for name, _, _ in matchers} | asked) - has
        for name, operator, value in matchers:
            # Any status may come; the others are all there from the start or after one request.
            if (
                operator == "="
                and name in has - {"status"}
                and value not in {each.get(name) for each in labels[metric]}
            ):
                yield f"{metric}: {name}={value}"


def test_each_query_of_the_board_and_each_alarm_finds_what_it_names(labels):
    assert len(of_the_board()) > 10
    assert len(of_the_alarms()) > 3
    wanting = {query: list(missing(query, labels)) for query in [*of_the_board(), *of_the_alarms()]}
    assert {query: names for query, names in wanting.items() if names} == {}
    # And the search for what is missing does find it.
    assert list(missing("sum(recollect_nothing_total)", labels)) == ["recollect_nothing_total"]
    assert list(missing("sum by (colour) (recollect_requests_total)", labels)) == ["colour"]
    assert len(list(missing('recollect_requests_total{kind="nothing"}', labels))) == 1


def test_the_board_shows_every_metric_of_the_product(labels):
    """A histogram by its buckets; `_created` is the client library's own."""
    ours = {re.sub(r"_(bucket|sum|count)$", "", name) for name in labels if name.startswith("recollect_")}
    shown = {re.sub(r"_bucket$", "", name) for query in of_the_board() for name in re.findall(r"recollect_\w+", query)}
    assert {name for name in ours if not name.endswith("_created")} == shown


def test_the_board_is_one_that_grafana_loads():
    """Panels with a kind, a title, a place of their own and a source that is chosen on loading; none overlaps another."""
    panels = BOARD["panels"]
    assert BOARD["title"] == "Recollect"
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    cells = []
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells += [(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])]
        assert panel["type"] in {"timeseries", "stat"}
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]) > 0
    assert len(cells) == len(set(cells))
    assert {"datasource", "job"} == {variable["name"] for variable in BOARD["templating"]["list"]}
