"""The map: what is on it, how its groups are named, how it grows, and that it shows nobody what is another's or gone."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from core.isolation.acting import acting_as
from intake.chats.deleting import delete_turn
from intake.models import Conversation, Turn
from intake.tests.factories import NOW, a_person, a_turn, caller_for
from memory import documents, index, records
from memory.models import MapPoint, MemoryMap, TellingWord
from memory.overview import atlas, drawing
from memory.projects import save_project
from memory.tests.overview.drawn import draw, draw_due, look
from testing.examiner import as_a_worker
from testing.kept_rows import kept_rows

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice():
    return a_person()


def talk(user, count=12):
    """About two things, so many times."""
    for number in range(count):
        a_turn(user, f"How do I water the tomatoes in bed {number} of the garden?", "Water the soil.")
        a_turn(user, f"Play suite {number} for the cello by Bach", "The strings need tuning before a concert.")


@kept_rows
def talker():
    """Somebody who has talked about both, embedded and not yet drawn."""
    user = a_person()
    talk(user)
    index.embed_pending()
    return user


def client_of(user):
    client = Client()
    client.force_login(user)
    return client


def api_of(user):
    api = APIClient()
    api.force_authenticate(user)
    return api


def places_of(user):
    return {point.pk: (point.x, point.y) for point in MapPoint.objects.filter(user=user)}


def test_a_group_is_named_by_words_as_people_write_them_without_stop_words(talker):
    found = draw(talker)
    assert (found.state, found.placed, found.texts) == ("ready", 24, 24)
    words = {word for cluster in found.clusters for word in cluster.words}
    assert {"tomatoes", "garden", "cello", "Bach", "strings"} <= words
    assert not {"the", "how", "tomato", "cellos", "string"} & words
    for cluster in found.clusters:
        about = {"garden" in text.snippet for text in cluster.newest}
        assert len(about) == 1, "a group is of one topic"
    names = [cluster.name for cluster in found.clusters]
    assert len(set(names)) == len(names)


@pytest.mark.medium
def test_what_comes_later_is_placed_and_nothing_else_moves_until_a_fifth_has_come(talker):
    draw(talker)
    before = places_of(talker)
    for number in range(4):
        a_turn(talker, f"Are the tomatoes ripe in week {number}?")
    found = draw(talker)
    assert found.placed == 28
    assert before.items() <= places_of(talker).items()
    assert MemoryMap.objects.get(user=talker).laid_out == 24
    for number in range(4):
        a_turn(talker, f"Which telescope shows the rings of Saturn, number {number}?")
    draw(talker)
    assert MemoryMap.objects.get(user=talker).laid_out == 32


def test_drawing_again_without_anything_new_does_nothing(alice):
    talk(alice, 3)
    draw(alice)
    assert draw_due() == 0


def test_a_deleted_text_is_gone_from_the_map_at_once_with_the_words_that_rest_on_it(alice):
    talk(alice, 3)
    turn = a_turn(alice, "My kwyjibo is sick, the kwyjibo needs a doctor")
    draw(alice)
    assert TellingWord.objects.filter(word="kwyjibo").exists()
    delete_turn(caller=caller_for(alice), conversation_id=turn.conversation_id, turn_number=1)
    assert MapPoint.objects.filter(user=alice).count() == 6
    assert not TellingWord.objects.filter(word="kwyjibo").exists()
    assert draw_due() == 1, "and the rest is laid out without it"
    assert MemoryMap.objects.get(user=alice).laid_out == 6
    assert draw_due() == 0


def test_nobody_sees_a_point_of_another(alice):
    bob = a_person("bob@example.com")
    for user in (alice, bob):
        talk(user, 2)
        draw(user)
    mine = MapPoint.objects.filter(user=alice).first().pk
    told = api_of(bob).get("/api/v1/memory/map/points/").json()
    assert set(told["id"]) == set(MapPoint.objects.filter(user=bob).values_list("pk", flat=True))
    assert api_of(alice).get(f"/api/v1/memory/map/points/{mine}/").status_code == 200
    for path in (f"/api/v1/memory/map/points/{mine}/", f"/api/v1/memory/map/points/{10**30}/"):
        assert api_of(bob).get(path).status_code == 404
    assert client_of(bob).get(f"/memory/map/texts/{mine}/").status_code == 404
    found = client_of(bob).get("/memory/map/found/", {"q": "tomatoes"}).json()["ids"]
    assert found and set(found) <= set(MapPoint.objects.filter(user=bob).values_list("pk", flat=True))
    assert "tomatoes" in client_of(alice).get(f"/memory/map/texts/{mine}/").content.decode()


def test_points_and_groups_say_where_from_and_when(alice):
    a_turn(alice, "The cello is in the attic", said_at=NOW)
    with acting_as(alice):
        record = records.create(user=alice, content="We keep the cello", now=NOW + timedelta(days=3))
    draw(alice)
    told = api_of(alice).get("/api/v1/memory/map/points/").json()
    assert [told["sources"][place] for place in told["source"]] == ["chat", "record"]
    assert told["day"][1] - told["day"][0] == 3
    newest = api_of(alice).get("/api/v1/memory/map/").json()["clusters"][0]["newest"][0]
    assert newest["snippet"] == "We keep the cello"
    assert newest["place"]["record_id"] == str(record.id)


def test_a_search_names_the_points_of_what_it_finds_the_best_first(alice):
    turn = a_turn(alice, "The cello is in the attic", said_at=NOW)
    a_turn(alice, "The bread needs an hour", said_at=NOW)
    with acting_as(alice):
        records.create(user=alice, content="We keep the cello for the children", now=NOW)
        documents.append(user=alice, day=None, text="- The cello was made in 1910", now=NOW)
    draw(alice)
    found = client_of(alice).get("/memory/map/found/", {"q": "cello"}).json()["ids"]
    texts = [text.corpus for text in atlas.texts_of(alice, found)]
    assert sorted(texts[:3]) == ["chat", "memory", "record"]
    points = api_of(alice).get("/api/v1/memory/map/points/").json()
    titles = [points["titles"][place] if place >= 0 else "" for place in points["title"]]
    assert titles[points["id"].index(next(id_ for id_ in found if id_ in points["id"]))] in (
        turn.conversation.title,
        "",
    )
    assert client_of(alice).get("/memory/map/found/", {"q": " "}).json() == {"ids": []}


@pytest.mark.parametrize(("language", "words"), [("en", "At most 200 characters; this has 201."), ("de", "Höchstens")])
def test_a_query_that_is_too_long_for_the_map_is_refused_and_not_cut(alice, language, words):
    client = client_of(alice)
    asked = {"q": "c" * 201}
    refused = client.get("/memory/map/found/", asked, headers={"X-Recollect-Language": language})
    assert (refused.status_code, refused["Content-Type"]) == (400, "application/problem+json")
    assert words in refused.json()["errors"]["q"][0]
    assert client.get("/search/live/", asked).status_code == 400
    assert client.get("/memory/map/found/", {"q": "c" * 200}).json() == {"ids": []}


def test_the_page_says_that_there_is_nothing_then_that_it_is_being_drawn_then_lists_the_groups(alice):
    page = client_of(alice)
    assert "A map of what you think about" in page.get("/memory/map/").content.decode()
    assert draw_due() == 1
    talk(alice, 2)
    assert "Your map is being drawn" in page.get("/memory/map/").content.decode()
    draw(alice)
    shown = page.get("/memory/map/").content.decode()
    assert "How do I water the tomatoes in bed 1" in shown
    assert "data-stage" in shown


def test_a_map_that_nobody_has_looked_at_for_a_month_is_dropped_and_drawn_at_the_next_look(alice):
    talk(alice, 2)
    draw(alice)
    with as_a_worker():
        drawing.drop_unasked(now=timezone.now() + timedelta(days=29))
    assert MapPoint.objects.exists()
    with as_a_worker():
        drawing.drop_unasked(now=timezone.now() + timedelta(days=31))
    assert not (MapPoint.objects.exists() or TellingWord.objects.exists() or MemoryMap.objects.exists())
    assert look(alice).state == atlas.MapState.DRAWING
    assert draw(alice).placed == 4


def test_a_map_is_drawn_by_one_worker_at_a_time(alice):
    talk(alice, 2)
    look(alice)
    with as_a_worker():
        assert drawing.claim(now=timezone.now()) == alice.pk
        assert drawing.claim(now=timezone.now()) is None
        assert drawing.claim(now=timezone.now() + drawing.LEASE * 2) == alice.pk


def test_a_map_by_a_layout_that_is_no_longer_made_is_drawn_anew(talker):
    draw(talker)
    MemoryMap.objects.update(method="tsne", laid_out=1)
    a_turn(talker, "How do I water the tomatoes in bed 99 of the garden?")
    draw(talker)
    drawn = MemoryMap.objects.get(user=talker)
    assert (drawn.method, drawn.laid_out) == (MemoryMap.SVD, 25)


# --- Names by a language model ---


def test_the_map_narrows_to_a_project_and_a_closed_one_is_on_no_other(talker):
    # Every other chat is about music.
    for turn in Turn.objects.for_user(talker).filter(user_message__contains="cello"):
        Conversation.objects.filter(pk=turn.conversation_id).update(project="music", title="A chat about music")
    with acting_as(talker):
        save_project(user=talker, name="music", is_closed=True)
    draw(talker)
    api = api_of(talker)

    def shown(project):
        told = api.get("/api/v1/memory/map/", {"project": project}).json()
        points = api.get("/api/v1/memory/map/points/", {"project": project}).json()
        newest = "".join(text["snippet"] for cluster in told["clusters"] for text in cluster["newest"])
        assert told["texts"] == told["placed"] == len(points["id"]) == sum(each["texts"] for each in told["clusters"])
        return len(points["id"]), "cello" in newest, "tomatoes" in newest, points["titles"] == ["A chat about music"]

    assert shown("music") == (12, True, False, True)
    assert shown("") == shown("-music") == (12, False, True, False)
    assert shown("gone") == (0, False, False, False)
    page = client_of(talker).get("/memory/map/", {"project": "music"}).content.decode().split("<main")[1]
    assert "Only music" in page and "cello" in page and "tomatoes" not in page
    assert "Nothing here yet." in client_of(talker).get("/memory/map/", {"project": "gone"}).content.decode()
