"""The list narrowed: by state, model, time, person and source."""

from datetime import timedelta

import pytest

from memory import admin_lists
from memory.admin_lists import CreatedFilter
from memory.tests.admin.pages import LIST, listed
from memory.tests.rows import NOW, add_failed, add_quarantined, add_row, model_named

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "lookup", ["last_error__icontains=x", "user__password__startswith=m", "content_hash=1", "user__email__contains=a"]
)
def test_a_lookup_that_the_sidebar_does_not_offer_is_refused(viewer, alice, lookup):
    add_row(alice)
    assert viewer.get(f"{LIST}?{lookup}").status_code == 400


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("state=embedded", {"embedded"}),
        ("state=waiting", {"waiting", "failed"}),
        ("state=failed", {"failed"}),
        ("state=quarantined", {"quarantined"}),
        ("attempts=1", {"embedded", "failed", "quarantined"}),
        ("attempts=2", {"failed", "quarantined"}),
        ("corpus__exact=chat", {"embedded", "waiting", "failed", "quarantined"}),
        ("created=2026", {"embedded", "waiting", "failed", "quarantined"}),
        ("created=2025-03", set()),
        ("created=2026-11-21&state=failed", {"failed"}),
    ],
)
def test_the_sidebar_narrows_the_list(viewer, alice, query, expected):
    rows = {
        "embedded": add_row(alice, vector=[1, 0, 0]),
        "waiting": add_row(alice),
        "failed": add_failed(alice),
        "quarantined": add_quarantined(alice),
    }

    found = listed(viewer.get(f"{LIST}?{query}"))

    assert {name for name, row in rows.items() if row.pk in found} == expected
    assert len(found) == len(expected)


def test_the_list_is_narrowed_by_model(viewer, alice):
    add_row(alice, model=model_named("old"))
    new = add_row(alice, model=model_named("new"))

    assert listed(viewer.get(f"{LIST}?model__id__exact={new.model_id}")) == [new.pk]


def test_the_time_of_creation_is_chosen_by_year_then_month_then_day(viewer, alice):
    add_row(alice, created_at=NOW - timedelta(days=365))
    add_row(alice)

    assert choices(viewer.get(LIST)) == ["Any time", "2026", "2025"]
    assert choices(viewer.get(LIST + "?created=2026"))[:3] == ["Any time", "2026", "November 2026"]
    days = choices(viewer.get(LIST + "?created=2026-11"))
    assert days[1:5] == ["2026", "November 2026", "21 November 2026", "20 November 2026"]
    assert len(days) == 3 + 21
    assert choices(viewer.get(LIST + "?created=2026-11-21"))[1:] == ["2026", "November 2026", "21 November 2026"]


def choices(response) -> list[str]:
    (created,) = (spec for spec in response.context["cl"].filter_specs if isinstance(spec, CreatedFilter))
    return [str(choice["display"]) for choice in created.choices(response.context["cl"])]


@pytest.mark.parametrize("value", ["2026-13", "2026-02-30", "yesterday", "2026-1-1-1", "0", "9999"])
def test_a_date_that_does_not_exist_leads_back_to_the_whole_list(viewer, alice, value):
    add_row(alice)
    assert viewer.get(f"{LIST}?created={value}").headers["Location"].endswith("?e=1")


@pytest.mark.parametrize(
    ("period", "end"), [((2026,), (2027, 1, 1)), ((2026, 12), (2027, 1, 1)), ((2026, 2, 28), (2026, 3, 1))]
)
def test_a_period_ends_where_the_next_begins(period, end):
    assert admin_lists._end(period).timetuple()[:3] == end


def test_a_person_is_found_by_their_whole_address_in_any_case(viewer, alice, bob):
    row = add_row(alice)
    add_row(bob)

    assert listed(viewer.get(LIST, {"q": " Alice@Example.org "})) == [row.pk]
    assert listed(viewer.get(LIST, {"q": "alice"})) == []


def test_a_source_is_found_by_its_id(viewer, alice):
    row = add_row(alice)
    add_row(alice)

    assert listed(viewer.get(LIST, {"q": str(row.source_id)})) == [row.pk]
