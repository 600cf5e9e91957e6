"""Fixtures for every test, and the set-up that all of them need once."""

import os
import ssl
from collections import defaultdict
from collections.abc import Iterator
from functools import cache, wraps
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, connection, connections
from django.test import TransactionTestCase
from django.test.client import ClientHandler

from config.static import collect
from core.isolation.connecting import parameters
from testing.cluster import cluster_urls, make_database
from testing.emptying import empty, schema_digest, schema_lines
from testing.examiner import as_a_worker, as_the_application, let_the_examiner_look
from testing.kept_rows import keep_rows, release_rows, rows_read_by
from testing.plugin import BEGAN_MIGRATED, deal, processes_of_run
from testing.templates import drop_template, make_template

pytest_plugins = ["testing.fixtures", "testing.browser"]

# Some of their tests take half a minute each. The isolation matrix and its walks are no slow modules, and begin too.
LONGEST = (
    "test_kept_data.py",
    "test_backup.py",
    "test_stack_failures.py",
    "test_browser_every_page.py",
    "test_endpoints.py",
    "test_limits_of_endpoints.py",
    "test_page_person.py",
    "test_growth.py",
    "test_throwaway_servers.py",
    "test_fuzzed_addresses.py",
    "test_schemathesis.py",
    "test_benchmark_overload.py",
    "test_headers.py",
    "test_chaos.py",
    "test_benchmark_search.py",
    "test_benchmark.py",
    "test_soak.py",
    "test_preflight.py",
    "test_logs_of_every_process.py",
    "test_browser_killed.py",
    "test_browser_map.py",
    "test_up.py",
    "test_kept_models.py",
    "test_examples.py",
)


@pytest.fixture(scope="session", autouse=True)
def static_files() -> None:
    """Pages name their static files by the manifest that `collectstatic` writes, here as in production."""
    collect()


@pytest.fixture(scope="session", autouse=True)
def certificates_read_once() -> Iterator[None]:
    """Each HTTP client, and each single request, reads a hundred certificates before it asks a server on this machine
    that needs none: 20 ms of a processor, a few thousand times in the suite."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", cache(ssl.create_default_context))
        yield


# The schema once it is migrated: its digest, and what that is of.
MIGRATED: dict[str, set[str]] = {}


@pytest.fixture(scope="module", autouse=True)
def schema_left_as_it_was(django_db_blocker: Any) -> Iterator[None]:
    """Tests that run later in the same process need the tables, policies and rights that a module's tests found."""
    yield
    with django_db_blocker.unblock():
        if MIGRATED and not cluster_urls():
            release_rows()
            connection.close_if_unusable_or_obsolete()
            if schema_digest() not in MIGRATED:
                (before,), now = MIGRATED.values(), schema_lines()
                MIGRATED.clear()
                pytest.fail(
                    f"The tests of this module have left another schema: without {before - now}, with {now - before}"
                )


@pytest.fixture(scope="session")
def django_db_modify_db_settings() -> Iterator[None]:
    """The test database is made, migrated and dropped by the owner, as any other."""
    kept = connections[DEFAULT_DB_ALIAS]
    owner = parameters(settings.DATABASE_OWNER_URL, name=kept.settings_dict["NAME"])
    connections[DEFAULT_DB_ALIAS] = type(kept)(owner, DEFAULT_DB_ALIAS)
    if cluster_urls():
        make_database(cluster_urls(), owner["PASSWORD"])
    yield
    connections[DEFAULT_DB_ALIAS] = kept


def by_path(item: pytest.Item) -> Path:
    return item.path


def needs_browser(items: list[pytest.Item]) -> bool:
    return any("chromium_closed_at_the_end" in getattr(item, "fixturenames", ()) for item in items)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow modules first, the longest of them before the others, and dealt to the processes of the run.

    On a cluster every test commits: a role has connections of its own to the nodes, and sees nothing on them that
    another role has not committed, in the same transaction of the coordinator though it be."""
    paths = {item.path for item in items if item.path.name in LONGEST or item.get_closest_marker("extended")}
    with_browser = {item.path for item in items if needs_browser([item])}
    slow: dict[Path, list[pytest.Item]] = defaultdict(list)
    others: list[pytest.Item] = []
    for item in items:
        # Between tests with a browser, one without it would close it: two seconds of a processor to open it again.
        is_between = item.path in with_browser and not needs_browser([item])
        (slow[item.path] if item.path in paths and not is_between else others).append(item)
    # Those with a browser beside each other: Chromium stays open only as long as each next test needs it.
    longest_first = sorted(slow, key=lambda path: (needs_browser(slow[path]), *(name != path.name for name in LONGEST)))
    # Within its module a test comes beside those that read the same rows (testing/kept_rows.py).
    sorted_others = (sorted(tests, key=rows_read_by) for _, tests in groupby(others, by_path))
    hands = [sorted(slow[path], key=rows_read_by) for path in longest_first]
    items[:] = deal(hands, [*chain.from_iterable(sorted_others)], processes=processes_of_run())
    for item in items if cluster_urls() else ():
        if item.get_closest_marker("django_db") or "db" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.django_db(transaction=True), append=False)


@pytest.fixture(scope="session")
def django_db_keepdb(django_db_keepdb: bool) -> bool:
    """The servers of a run begin with a migrated database and end with the run. On a cluster it is made on every node
    before Django looks, and dropped by the next run.
    """
    return django_db_keepdb or bool(cluster_urls()) or BEGAN_MIGRATED in os.environ


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Tests look on as the examiner; threads of their own, and so the served application, log in as the web role."""
    owners = connections[DEFAULT_DB_ALIAS]
    with django_db_blocker.unblock():
        if cluster_urls():
            call_command("distribute", verbosity=0)
        else:
            make_template(owners)
    connections[DEFAULT_DB_ALIAS] = type(owners)(connections.settings[DEFAULT_DB_ALIAS], DEFAULT_DB_ALIAS)
    with django_db_blocker.unblock():
        let_the_examiner_look()
        MIGRATED[schema_digest()] = schema_lines()
        yield
        release_rows()
        _end_sessions_left_in_threads()
        connection.close()
    connections[DEFAULT_DB_ALIAS] = type(owners)(connections.settings[DEFAULT_DB_ALIAS], DEFAULT_DB_ALIAS)
    connections[DEFAULT_DB_ALIAS].close_pool()  # type: ignore[attr-defined]
    connections[DEFAULT_DB_ALIAS] = owners
    if cluster_urls():
        # Nobody drops the database, and so nobody closes what would have.
        owners.close()
    else:
        drop_template(owners)


def _end_sessions_left_in_threads() -> None:
    """A thread that outlives its test may keep one, and a database in use cannot be dropped."""
    with as_the_application(), connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
             WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
            """
        )


@pytest.fixture(scope="session", autouse=True)
def emptied_quickly() -> None:
    """After every test that commits; Django offers no other place to say how."""
    TransactionTestCase._fixture_teardown = lambda self: empty(DEFAULT_DB_ALIAS)  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def roles_of_production(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request begins as the web role that acts as nobody; what a worker's tasks call runs as the worker role."""
    if not (request.node.get_closest_marker("django_db") or {"db", "transactional_db"} & set(request.fixturenames)):
        return
    from intake.models.installation import forget_kept_settings
    from memory import index

    # Its process knows nothing of the settings that another test's staff kept.
    forget_kept_settings()
    monkeypatch.setattr(ClientHandler, "get_response", _in(as_the_application, ClientHandler.get_response))
    for name in ("embed_pending", "has_pending", "claim", "fill", "quarantine_exhausted"):
        monkeypatch.setattr(index, name, _in(as_a_worker, getattr(index, name)))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    release_rows(item)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Iterator[None]:
    """The database is set up, and the test's transaction has not begun."""
    if fixturedef.argname == "_django_db_helper" and not cluster_urls():
        from intake.models.installation import forget_kept_settings

        forget_kept_settings()
        with request.getfixturevalue("django_db_blocker").unblock():
            keep_rows(request.node)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Marks the transaction around a test that does not commit (`core.resilience`): it is none of the product's."""
    database = connections[DEFAULT_DB_ALIAS]
    database.is_in_transaction_of_test = database.in_atomic_block  # type: ignore[attr-defined]
    try:
        return (yield)
    finally:
        database.is_in_transaction_of_test = False  # type: ignore[attr-defined]


def _in(role: Any, function: Any) -> Any:
    @wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with role():
            return function(*args, **kwargs)

    return wrapper
