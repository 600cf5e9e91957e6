"""The timeline: what was talked about when, for a history of five days and for one of ten years."""

import re
from datetime import UTC, date, datetime, timedelta

import pytest
from django.test import Client
from rest_framework.test import APIClient

from core.isolation.acting import acting_as
from intake.models import Conversation
from intake.tests.factories import a_person, a_turn
from memory import documents, records
from memory.projects import save_project
from memory.tests.overview.drawn import draw
from memory.tests.overview.histories import a_history
from testing.kept_rows import kept_rows

pytestmark = pytest.mark.django_db

MARCH = datetime(2026, 3, 10, 12, tzinfo=UTC)
MAY = datetime(2026, 5, 10, 12, tzinfo=UTC)


@pytest.fixture
def alice(request):
    """Somebody new, or whose texts of three projects the test asks for."""
    return request.getfixturevalue("of_three") if "of_three" in request.fixturenames else a_person()


@pytest.fixture
def client(alice):
    client = Client()
    client.force_login(alice)
    return client


@pytest.fixture
def api(alice):
    api = APIClient()
    api.force_authenticate(alice)
    return api


def test_a_months_words_tell_it_from_the_others(alice, api, client):
    for number in range(6):
        a_turn(alice, f"How are the tomatoes in bed {number}, and the weather?", said_at=MARCH)
        a_turn(alice, f"Is the cello tuned for concert {number}, and the weather?", said_at=MAY)
    assert api.get("/api/v1/memory/timeline/").json()["drawing"]
    draw(alice)
    told = api.get("/api/v1/memory/timeline/").json()
    assert [month["month"] for month in told["months"]] == ["2026-03", "2026-04", "2026-05"]
    assert [month["turns"] for month in told["months"]] == [6, 0, 6]
    march, april, may = ([word["word"] for word in month["words"]] for month in told["months"])
    assert march[:2] == ["bed", "tomatoes"] and set(may[:3]) == {"cello", "concert", "tuned"} and april == []
    assert not {"are", "the", "tomato"} & {*march, *may}
    assert (
        "/search/?q=tomatoes&amp;from=2026-03-01&amp;to=2026-03-31" in client.get("/memory/timeline/").content.decode()
    )


def words_of(api, alice, *texts):
    """The words of May, of which these were written, beside another month."""
    for number in range(4):
        a_turn(alice, f"The weather on day {number} is fine.", said_at=MARCH)
    for text in texts:
        a_turn(alice, text, said_at=MAY)
    draw(alice)
    months = api.get("/api/v1/memory/timeline/").json()["months"]
    return [word["word"] for word in months[-1]["words"]]


def test_verbs_numbers_and_measures_are_no_words_of_a_month(alice, api):
    found = words_of(
        api,
        alice,
        "She eats the oats. We would take another two kilos, for 12 km.",
        "He eats the oats in five minutes, and I take 3 km of the second path.",
        "It eats everything. They would take the path.",
    )
    assert {"oats", "path"} <= {*found}
    assert not {"eats", "take", "would", "another", "two", "five", "km", "minutes", "second", "everything"} & {*found}


def test_words_that_stand_together_are_one_phrase(alice, api):
    found = words_of(
        api,
        alice,
        "The peanut sauce is too thick.",
        "Can I freeze my peanut sauce?",
        "Peanut sauce for six, and a long table. Is the sauce vegan?",
    )
    assert "peanut sauce" in found
    assert not {"peanut", "sauce"} & {*found}


def test_german_nouns_are_found_by_their_capitals(alice, api):
    found = words_of(
        api,
        alice,
        "Ich will morgen Rosen schneiden, weil die Hecke stört.",
        "Wann soll man Rosen schneiden? Die Hecke wächst.",
        "Wir schneiden Rosen und die Hecke im Herbst.",
    )
    assert found[0] in ("Rosen", "Hecke") and {"Rosen", "Hecke"} <= {*found}


def test_words_without_spaces_are_whole_and_no_particles(alice, api):
    found = words_of(
        api, alice, "東京タワーの展望台に行きました", "東京タワーから展望台までです", "東京タワーと展望台を見ました"
    )
    assert {"東京", "タワー", "展望台"} <= {*found}
    assert not [word for word in found if all("\u3040" <= character <= "\u309f" for character in word)]


def test_a_month_is_that_of_the_persons_time_zone(alice, api):
    alice.time_zone = "America/New_York"
    alice.save()
    a_turn(alice, "Late in the evening", said_at=datetime(2026, 3, 1, 2, tzinfo=UTC))
    draw(alice)
    (month,) = api.get("/api/v1/memory/timeline/").json()["months"]
    assert (month["month"], month["turns"]) == ("2026-02", 1)
    assert month["words"]
    assert len(api.get("/api/v1/memory/timeline/2026-02/").json()["entries"]) == 1


def test_a_month_leads_to_its_chats_and_notes(alice, api, client):
    turn = a_turn(alice, "Plan the garden", said_at=MARCH)
    a_turn(alice, "And the shed", conversation=turn.conversation, said_at=MARCH + timedelta(days=2))
    a_turn(alice, "In May", conversation=turn.conversation, said_at=MAY)
    with acting_as(alice):
        documents.append(user=alice, day=MARCH.date(), text="Dug the beds", now=MARCH)
        record = records.create(user=alice, content="No more beans", now=MARCH + timedelta(days=1))
    entries = api.get("/api/v1/memory/timeline/2026-03/").json()["entries"]
    assert [(entry["source"], entry["turns"]) for entry in entries] == [("chat", 2), ("record", 0), ("daily_log", 0)]
    assert entries[0]["place"] == {
        "conversation_id": str(turn.conversation_id),
        "turn_number": 1,
        "document_id": None,
        "record_id": None,
    }
    page = client.get("/memory/timeline/2026-03/").content.decode()
    assert f"/c/{turn.conversation_id}/?turn=1#turn-1" in page
    assert "/memory/logs/2026-03-10/" in page and f"/memory/records/{record.id}/" in page
    assert 'href="/memory/timeline/2026-05/"' in page
    assert [len(api.get(f"/api/v1/memory/timeline/2026-03/?skip={skip}").json()["entries"]) for skip in (1, 3)] == [
        2,
        0,
    ]
    for month in ("2026-04", "2026-13", "march", "2026-3"):
        assert client.get(f"/memory/timeline/{month}/").status_code == 404
    assert api.get("/api/v1/memory/timeline/2026-03/?skip=-1").status_code == 400


@pytest.mark.medium
def test_ten_years_have_a_column_for_each_month_and_years_to_jump_to(alice, client):
    a_history(alice, 450)
    draw(alice)
    page = client.get("/memory/timeline/").content.decode()
    assert len(re.findall(r'<li class="month[ "]', page)) > 100
    assert [f'href="#year-{year}"' in page for year in range(2017, 2027)] == [True] * 10
    assert page.count('class="month-words"') > 100


def test_a_log_of_long_ago_brings_no_empty_years_along(alice, client):
    with acting_as(alice):
        documents.append(user=alice, day=date(1950, 6, 1), text="Born", now=MARCH)
    a_turn(alice, "Now", said_at=MARCH)
    page = client.get("/memory/timeline/").content.decode()
    assert len(re.findall(r'id="year-\d+"', page)) == 2


def test_without_anything_the_page_says_what_will_be_there(client, api):
    assert "Your timeline starts here" in client.get("/memory/timeline/").content.decode()
    assert api.get("/api/v1/memory/timeline/").json() == {"months": [], "drawing": False}


# -- Of a project --------------------------------------------------------------------------------------------------------


@kept_rows
def of_three():
    """Somebody with a chat, a record and a log of an open project, of a closed one, and of none; each is in a month of its own."""
    alice = a_person()
    with acting_as(alice):
        for label, month in (("garden", 3), ("choir", 4), ("", 5)):
            at = MARCH.replace(month=month)
            for number in range(6):
                turn = a_turn(alice, f"{label or 'plain'} talk {number} of wood", said_at=at)
                Conversation.objects.filter(pk=turn.conversation_id).update(project=label, title=f"{label} chat")
            records.create(user=alice, content=f"{label} record", project_id=label, now=at)
            documents.append(user=alice, day=at.date(), project=label, text=f"{label} log", now=at)
        save_project(user=alice, name="garden")
        save_project(user=alice, name="choir", is_closed=True)
    draw(alice)
    return alice


def months_of(api, **query):
    told = api.get("/api/v1/memory/timeline/", query).json()["months"]
    return {
        each["month"]: (each["turns"], each["daily_logs"], each["records"])
        for each in told
        if each["turns"] + each["daily_logs"] + each["records"]
    }


def test_the_timeline_narrows_to_a_project_or_to_everything_but_it(api, of_three):
    whole = (6, 1, 1)
    assert months_of(api) == {"2026-03": whole, "2026-05": whole}
    assert months_of(api, project="garden") == {"2026-03": whole}
    assert months_of(api, project="-garden") == {"2026-05": whole}
    assert months_of(api, project="choir") == {"2026-04": whole}
    assert months_of(api, project="-choir") == {"2026-03": whole, "2026-05": whole}
    assert months_of(api, project="gone") == {}


def test_the_words_of_a_narrowed_timeline_are_of_its_texts(api, of_three):
    def words(project):
        told = api.get("/api/v1/memory/timeline/", {"project": project}).json()["months"]
        return {word["word"] for month in told for word in month["words"]}

    assert "garden" in words("garden") and not {"choir", "plain"} & words("garden")
    assert "plain" in words("-garden") and not {"garden", "choir"} & words("-garden")
    assert "choir" in words("choir") and "choir" not in words("")


def test_a_month_narrows_to_a_project_too(api, of_three):
    def titles(month, **query):
        return {each["title"] for each in api.get(f"/api/v1/memory/timeline/{month}/", query).json()["entries"]}

    assert titles("2026-03", project="garden") == {"garden chat", "garden record", "2026-03-10"}
    assert titles("2026-03", project="-garden") == titles("2026-03", project="choir") == set()
    assert "choir chat" in titles("2026-04", project="choir")
    assert titles("2026-04") == set()


def test_a_wrong_project_is_refused_with_its_name(api, of_three):
    for month in ("", "2026-03/"):
        for query in ("project=a&project=b", f"project={'x' * 202}", "project=%00"):
            refused = api.get(f"/api/v1/memory/timeline/{month}?{query}")
            assert (refused.status_code, [*refused.json()["errors"]]) == (400, ["project"]), query


def test_the_pages_keep_to_the_project_from_click_to_click(client, of_three):
    page = client.get("/memory/timeline/", {"project": "choir"}).content.decode()
    assert "/memory/timeline/2026-04/?project=choir" in page and "2026-03" not in page
    assert "Only choir" in page and 'href="?project=-choir"' in page
    assert "/search/?q=choir&amp;from=2026-04-01&amp;to=2026-04-30&amp;project=choir" in page
    month = client.get("/memory/timeline/2026-04/", {"project": "choir"}).content.decode()
    assert "choir chat" in month and "/memory/timeline/?project=choir#year-2026" in month
    for path in ("/memory/timeline/", "/memory/timeline/2026-03/"):
        assert "Nothing here yet." in client.get(path, {"project": "gone"}).content.decode()
    assert client.get("/memory/timeline/2026-04/").status_code == 404
