"""Every address there is, with any text in its places and parameters: none ends in an internal error.

The addresses come from the URL resolver. The names of a page's parameters are those for which it asks while it is
fuzzed, so that a new page or parameter is covered without being registered here.
"""

import re
from collections import Counter, defaultdict
from urllib.parse import quote, urlencode

import pytest
from django.db import transaction
from django.http import QueryDict
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config.tests.endpoints import house, walking
from config.tests.endpoints.registered import ENDPOINTS, GROUPS
from config.tests.test_limits_of_inputs import operations
from intake.models import User

pytestmark = [pytest.mark.extended, pytest.mark.django_db]

# What has once been an internal error somewhere, and its relatives.
KNOWN = [
    "", "\0", "a\0b", "0", "-1", "1.5", "½", "٣", "9" * 19, "9" * 5000, "1e999", "nan", "0001-01", "9999-12", "0000-00",
    "0001-01-01", "9999-12-31", "2026-02-30", "2026-W01-1", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59",
    "2026-01-01T00:00:00Z_", "9999-12-31T23:59:59Z_0190c0de-0000-7000-8000-000000000001",
    "0190c0de-0000-7000-8000-000000000001", "0190c0de-0000-7000-8000-00000000000", "on", "on 31 December 9999",
    "in the year 1", "9999 years ago", "%", "\\", "'", '"', "*", "[", "(", "..", ".", "\ud7ff", "\uffff", "😀",
    "é\u0301" * 40, "\u202e", "\r\n", "\t", "{}", "[[[[", "null", "true", "id", "x" * 3000, "archive", "markdown",
]  # fmt: skip
TEXTS = st.sampled_from(KNOWN) | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PLACES = re.compile(r"<(?:\w+:)?(\w+)>|\(\?P<(\w+)>[^)]*\)")
# A query string may hold bytes that are no text.
NO_TEXT = ["%ff", "%ed%a0%80", "%00", "%", "%zz"]
ENCODED = [*map(quote, KNOWN), *NO_TEXT]
# The worst that any of them may answer: a service that is away, which says so itself.
WORST = 500
EXAMPLES = 4
# At this many routes a place or parameter of one name gets its full share of what is known. At the others, where the same
# code reads it, a smaller share, which differs by route.
FULLY = 1


class Asked(dict):
    """By route, the names of the parameters for which its view has asked."""

    def __init__(self):
        self.names = defaultdict(set)
        self.route = ""


@pytest.fixture(scope="module")
def asked():
    """Notes each name for which a view looks in the query string, whether it is there or not."""
    noted = Asked()
    with pytest.MonkeyPatch.context() as patch:
        for method in ("get", "getlist", "__getitem__", "__contains__"):
            patch.setattr(QueryDict, method, _noting(noted, getattr(QueryDict, method)))
        yield noted


def _noting(noted, method):
    def wrapper(self, key, *args, **kwargs):
        if isinstance(key, str):
            noted.names[noted.route].add(key)
        return method(self, key, *args, **kwargs)

    return wrapper


def named_in_the_document():
    """Those of the API, which it reads all at once."""
    names = defaultdict(set)
    for _, path, operation in operations():
        plain = path.removeprefix("/")
        names[re.sub(r"\{(\w+)\}", "<>", plain)] |= {
            each["name"] for each in operation.get("parameters", []) if each["in"] == "query"
        }
    return names


ROUTES = sorted({route.pattern for route in walking.routes()})


def test_the_known_faults_are_among_what_is_tried():
    assert "memory/timeline/<str:month>/" in ROUTES
    assert "9999-12" in KNOWN
    assert "\0" in KNOWN
    assert [*shares(["a", "b", "a"])] == [0, 0, 1]
    for every in (5, 10, 20):
        assert {text for place in range(every) for text in share_of(KNOWN, every=every, place=place)} == {*KNOWN}


@pytest.fixture
def alice(alice_now):
    return alice_now


@pytest.fixture
def client_for(alice):
    """The client of whom a route is for: a person, or staff."""
    root = User.objects.create_superuser("root@example.com", house.PASSWORD)
    by_session, by_staff = (Client(raise_request_exception=False) for _ in range(2))
    by_session.force_login(alice.user)
    by_staff.force_login(root)
    return lambda route: by_staff if route.startswith("admin/") else by_session


def is_internal_error(client, address, method="GET"):
    """Whatever the request changes is taken back."""
    with transaction.atomic():
        response = client.generic(method, address)
        transaction.set_rollback(True)
    return response.status_code >= WORST


def address_of(pattern, values):
    """The pattern with these values in its places, whether Django's resolver takes them or not."""
    filled = iter(values)
    return "/" + re.sub(r"\\(.)", r"\1", PLACES.sub(lambda _: quote(next(filled), safe=""), pattern)).rstrip("$")


def draw(strategy, look):
    @settings(
        max_examples=EXAMPLES, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(st.data())
    def fuzz(data):
        look(strategy(data))

    fuzz()


def shares(keys):
    """For each key, how many came before that are equal."""
    seen = Counter()
    for key in keys:
        yield seen[key]
        seen[key] += 1


def share_of(texts, *, every, place):
    """Each so many of them, beginning at another one by the place."""
    return texts[place % every :: every]


def fuzz_address(client, route, *, before):
    """The method and address of each internal error. `before`: how many routes with the same places were tried."""
    places = len(PLACES.findall(route))
    methods = [method for method in ENDPOINTS[route].probes if method != "OPTIONS"]
    values = st.lists(TEXTS.filter(bool), min_size=places, max_size=places)
    wrong = []

    def look(asked):
        method, address = asked
        if is_internal_error(client, address, method):
            wrong.append((route, method, address[:200]))

    draw(lambda data: (data.draw(st.sampled_from(methods)), address_of(route, data.draw(values))), look)
    # Django's own pages of the admin have one way to read an id.
    every = 10 if route.startswith("admin/") else 1 if before < FULLY else 10
    for text in filter(None, share_of(KNOWN, every=every, place=0 if route.startswith("admin/") else before)):
        look((methods[0], address_of(route, [text] * places)))
    return wrong


def fuzz_query(client, route, *, path, probes, names, tried):
    """The address of each internal error. `names` grows while the view asks for more. `tried`: at how many routes each
    name was tried before.
    """
    wrong, good = [], {}

    def look(query):
        if is_internal_error(client, f"{path}?{query}"):
            wrong.append((route, query[:200]))

    def any_query(data):
        values = data.draw(st.fixed_dictionaries({name: st.none() | TEXTS for name in sorted(names)}))
        return urlencode({name: text for name, text in values.items() if text is not None})

    for query in probes:
        good |= query
        look(urlencode(query))
    names |= set(good)
    draw(any_query, look)
    # A fifth of them for each name, and a twentieth on the pages of Django's own admin, which have one way to read each.
    is_admins = route.startswith("admin/")
    for place, name in enumerate(sorted(names)):
        every = 5 if tried[name] < FULLY and not is_admins else 20
        known = share_of(ENCODED, every=every, place=place + tried[name])
        tried[name] += not is_admins
        for text in known:
            others = urlencode({other: value for other, value in good.items() if other != name})
            look(f"{others}&{quote(name)}={text}")
    return wrong


@pytest.mark.parametrize("group", GROUPS)
def test_no_text_in_an_address_is_an_internal_error(client_for, group):
    routes = [*filter(PLACES.search, ROUTES)]
    before = zip(routes, shares(str(PLACES.findall(route)) for route in routes), strict=True)
    fuzzed = [(route, count) for route, count in before if route in GROUPS[group]]
    wrong = [each for route, count in fuzzed for each in fuzz_address(client_for(route), route, before=count)]
    assert wrong == []


@pytest.mark.parametrize("group", GROUPS)
def test_no_text_in_a_query_is_an_internal_error(client_for, alice, asked, group):
    wrong, in_document, tried = [], named_in_the_document(), Counter()
    for route, endpoint in sorted(GROUPS[group].items()):
        probes = endpoint.probes.get("GET", [])
        # A stream goes on until its client leaves.
        if not probes or any(probe.is_streamed for probe in probes):
            continue
        asked.route = route
        names = asked.names[route]
        names |= in_document[PLACES.sub("<>", route)]
        wrong += fuzz_query(
            client_for(route),
            route,
            path="/" + alice.things.fill(endpoint.at),
            probes=[alice.things.fill(probe.query) for probe in probes],
            names=names,
            tried=tried,
        )
    named = {"pages": {"q", "turn", "before", "on"}, "memory": {"q", "project"}, "api": {"q", "before"}, "staff": {"q"}}
    assert named[group] <= set().union(*(asked.names[route] for route in GROUPS[group]))
    assert wrong == []
