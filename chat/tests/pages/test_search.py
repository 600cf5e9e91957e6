"""`/search/` as the server makes it: what is found and where it leads, what was typed, and nobody else's words."""

import re
from datetime import UTC, date, datetime, timedelta
from html import unescape

import pytest
from django.db import OperationalError, connection
from django.http import QueryDict
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from chat.pages.narrowing import range_in_words
from chat.pages.searching import marked
from intake.chats.tree import conversation_path
from intake.models import Turn
from intake.tests.factories import NOW, a_person, a_turn
from memory import documents, index, records
from memory.backends.embedders import EmbedderError, get_embedder
from memory.search.deadline import OutOfTime
from memory.search.excerpts import Excerpt
from memory.search.sources import MESSAGES
from memory.tests.rows import add_records

pytestmark = pytest.mark.django_db

SEARCH = reverse("memory:search")
HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(1)>'


def page_of(client: Client, *, status: int = 200, **query) -> str:
    response = client.get(SEARCH, query)
    assert response.status_code == status
    return response.content.decode()


def results_on(page: str) -> list[str]:
    return re.findall(r"<article class=\"result\".*?</article>", page, re.DOTALL)


def links_on(page: str) -> list[str]:
    return [unescape(re.search(r'<h[23]><a href="([^"]*)"', result).group(1)) for result in results_on(page)]


def test_a_message_is_shown_with_its_matches_marked_its_chat_its_day_and_a_link_to_the_very_turn(client, alice):
    turn = a_turn(alice, "We eat risotto on Friday", "Risotto it is.")
    index.embed_pending()
    page = page_of(client, q="risotto", scope="sessions")
    result = next(each for each in results_on(page) if "Message" in each)
    path = conversation_path(turn.conversation_id, turn_number=1)
    assert f'<h2><a href="{path}">We eat <mark>risotto</mark> on Friday</a></h2>' in result
    assert '<span class="who">You</span> We eat <mark>risotto</mark> on Friday' in result
    assert '<span class="who">Recollect</span> <mark>Risotto</mark> it is.' in result
    assert '<time datetime="2026-03-01">1 March 2026</time>' in result


def test_the_last_texts_without_a_vector_are_found_by_meaning_in_a_moment(client, alice):
    a_turn(alice, "We eat risotto on Friday", "Risotto it is.")
    notice = "1 new text is found by its words only. Search by meaning follows in a moment."
    assert notice in page_of(client, q="risotto")
    index.embed_pending()
    assert notice not in page_of(client, q="risotto")


def test_an_earlier_value_leads_to_the_message_that_says_otherwise(client, alice):
    old = a_turn(alice, "My day rate is 240 with the van", said_at=NOW - timedelta(days=9))
    new = a_turn(alice, "My day rate is 265 with the van now", said_at=NOW)
    index.embed_pending()
    links = {
        str(turn.conversation_id): re.findall(r'<p class="result-later"><a href="([^"]*)">([^<]*)<', result)
        for result in results_on(page_of(client, q="day rate with the van", scope="sessions"))
        for turn in (old, new)
        if f'<h2><a href="{conversation_path(turn.conversation_id, turn_number=1)}"' in result
    }
    path = conversation_path(new.conversation_id, turn_number=1)
    sentence = "You said otherwise later, on 1 March 2026"
    assert links == {str(old.conversation_id): [(path, sentence)], str(new.conversation_id): []}


def test_a_message_that_matches_deep_in_a_long_answer_leads_to_the_words_there(client, alice):
    half = "Nothing is said here, nor there. " * 100
    deep = "The **oldest** cello of my grandmother stands in the attic; it isn't for sale."
    turn = a_turn(alice, "Tell me everything", f"{half}\n\n{deep}\n\n{half}")
    index.embed_pending()
    (link,) = [link for link in links_on(page_of(client, q="cello grandmother", scope="sessions")) if "turn=" in link]
    words = "cello of my grandmother stands in the attic"
    assert link == conversation_path(turn.conversation_id, turn_number=1, words=words)
    assert link.endswith("?turn=1&at=cello%20of%20my%20grandmother%20stands%20in%20the%20attic#turn-1")


def test_every_kind_of_source_leads_to_where_it_is_read(client, alice):
    turn = a_turn(alice, "Is the cello tuned?")
    documents.append(user=alice, day=None, text="Plays the cello.", now=NOW)
    documents.append(user=alice, day=date(2026, 2, 3), text="Cello lesson moved.", now=NOW)
    record = records.create(user=alice, content="The cello was made in 1921.", now=NOW)
    index.embed_pending()
    links = links_on(page_of(client, q="cello"))
    assert set(links) == {
        conversation_path(turn.conversation_id, turn_number=1),
        reverse("memory:memory"),
        reverse("memory:log", args=["2026-02-03"]),
        reverse("memory:record", args=[record.id]),
    }
    for link in links:
        assert client.get(link).status_code == 200


def test_a_record_that_is_called_by_its_found_line_shows_it_once(client, alice):
    record = records.create(user=alice, content="The cello was made in 1921.", now=NOW)
    page = page_of(client, q="cello")
    path = reverse("memory:record", args=[record.id])
    assert f'<h2><a href="{path}" aria-label="Note: The cello was made in 1921.">Note</a></h2>' in page
    assert page.count("was made in 1921.") == 2


def test_the_title_of_a_chat_is_marked_in_its_heading(client, alice):
    turn = a_turn(alice, "Cello plans")
    page = page_of(client, q="cello", scope="sessions")
    path = conversation_path(turn.conversation_id, turn_number=1)
    assert f'<a href="{path}"><mark>Cello</mark> plans</a>' in page


def test_scope_and_dates_narrow_the_search_and_stay_in_the_form(client, alice):
    a_turn(alice, "The cello again")
    documents.append(user=alice, day=date(2026, 2, 3), text="Cello lesson moved.", now=NOW)
    documents.append(user=alice, day=date(2026, 2, 9), text="Cello lesson held.", now=NOW)
    page = page_of(client, q="cello", scope="daily_log", **{"from": "2026-02-05", "to": "2026-02-10"})
    assert links_on(page) == [reverse("memory:log", args=["2026-02-09"])]
    assert '<input type="hidden" name="scope" value="daily_log">' in page
    assert 'value="2026-02-05"' in page
    assert 'value="2026-02-10"' in page
    assert 'value="cello"' in page


def tabs_on(page: str) -> dict[str, str]:
    return dict(re.findall(r'data-tab="[^"]*"[^>]*>([^<]*) <span class="kind-count" data-count>([^<]*)</span>', page))


def test_each_kind_is_a_tab_with_the_number_of_its_results(client, alice):
    turn = a_turn(alice, "Is the cello tuned?")
    a_turn(alice, "Tune the cello again", conversation=turn.conversation)
    a_turn(alice, "Nothing of it")
    documents.append(user=alice, day=None, text="Plays the cello.", now=NOW)
    documents.append(user=alice, day=date(2026, 2, 3), text="Cello lesson moved.", now=NOW)
    records.create(user=alice, content="The cello was made in 1921.", now=NOW)
    page = page_of(client, q="cello")
    # Two messages of one chat are one card.
    assert tabs_on(page) == {"Everything": "4", "Chats": "1", "Notes": "2", "Daily logs": "1", "Files": "0"}
    assert re.search(r'href="\?q=cello&amp;scope=notes" data-tab="notes"', page)
    assert "4 results" in page


def test_a_chosen_tab_knows_its_own_number_and_no_other(client, alice):
    records.create(user=alice, content="The cello was made in 1921.", now=NOW)
    documents.append(user=alice, day=date(2026, 2, 3), text="Cello lesson moved.", now=NOW)
    page = page_of(client, q="cello", scope="notes")
    assert tabs_on(page) == {"Everything": "", "Chats": "", "Notes": "1", "Daily logs": "", "Files": ""}
    assert re.search(r'data-tab="notes" aria-current="true"', page)
    assert 'href="?q=cello" data-tab=""' in page


def test_the_scope_of_earlier_addresses_still_has_notes_and_logs(client, alice):
    records.create(user=alice, content="The cello was made in 1921.", now=NOW)
    documents.append(user=alice, day=date(2026, 2, 3), text="Cello lesson moved.", now=NOW)
    page = page_of(client, q="cello", scope="memory")
    assert len(results_on(page)) == 2
    assert tabs_on(page)["Notes and daily logs"] == "2"
    assert (tabs_on(page)["Notes"], tabs_on(page)["Daily logs"]) == ("1", "1")
    assert "Notes and daily logs" not in page_of(client, q="cello")


def test_where_the_candidates_were_cut_the_number_says_that_there_may_be_more(client, alice):
    add_records(alice, (f"Cello string {number}" for number in range(100)))
    a_turn(alice, "The cello again")
    tabs = tabs_on(page_of(client, q="cello"))
    assert (tabs["Everything"], tabs["Notes"], tabs["Files"]) == ("50+", "50+", "0")
    assert tabs["Chats"] in ("", "1+")
    records.create(user=alice, content="A viola", now=NOW)
    assert tabs_on(page_of(client, q="viola"))["Notes"] == "1"


def test_a_repetition_of_a_better_result_is_not_counted(client, alice):
    for _ in range(2):
        records.create(user=alice, content="The cello was made in 1921 by her grandfather.", now=NOW)
    page = page_of(client, q="cello")
    assert len(results_on(page)) == 1
    assert tabs_on(page)["Notes"] == "1"


def test_the_nearest_texts_count_as_no_results(client, alice):
    documents.append(user=alice, day=None, text="Plays the cello.", now=NOW)
    page = page_of(client, q='"viola" cello')
    assert "These are the closest texts." in page
    assert tabs_on(page)["Everything"] == "0"
    assert "data-summary" not in page


def test_a_source_that_was_not_searched_completely_has_no_zero(client, alice, monkeypatch):
    records.create(user=alice, content="The cello was made in 1921.", now=NOW)

    def slow(asked):
        raise OutOfTime

    monkeypatch.setattr(MESSAGES, "find", slow)
    tabs = tabs_on(page_of(client, q="cello"))
    assert (tabs["Everything"], tabs["Chats"], tabs["Notes"]) == ("1+", "", "1+")


def test_counting_asks_the_database_nothing(client, alice, monkeypatch):
    records.create(user=alice, content="The cello was made in 1921.", now=NOW)
    with CaptureQueriesContext(connection) as counted:
        page_of(client, q="cello")
    monkeypatch.setattr("memory.search.history._counts", lambda scope, *_: {scope: (1, False)})
    with CaptureQueriesContext(connection) as uncounted:
        page_of(client, q="cello")
    assert len(counted) == len(uncounted)


def test_the_script_gets_only_the_part_that_a_search_changes(client, alice):
    records.create(user=alice, content="The cello was made in 1921.", now=NOW)
    page = client.get(SEARCH, {"q": "cello"}, headers={"X-Recollect-Part": "results"}).content.decode()
    assert "<title>cello · Search · Recollect</title>" in page
    assert "data-narrowing" in page and "data-search-found" in page
    assert len(results_on(page)) == 1
    assert "data-sidebar" not in page and "<script" not in page
    assert "data-sidebar" in page_of(client, q="cello")


def test_the_passage_comes_first_and_its_title_its_day_and_its_kind_below(client, alice):
    a_turn(alice, "Plan a week", "Take the cello along")
    index.embed_pending()
    (result,) = results_on(page_of(client, q="cello along", scope="sessions"))
    places = [result.index(each) for each in ("</mark>", "<h2>", "<time", ">Message<")]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("first", "last", "words"),
    [
        (None, None, ""),
        (date(2026, 3, 4), date(2026, 3, 4), "Today"),
        (date(2026, 3, 2), date(2026, 3, 8), "This week"),
        (date(2026, 3, 1), date(2026, 3, 31), "This month"),
        (date(2026, 1, 1), date(2026, 12, 31), "This year"),
        (date(2025, 1, 1), date(2025, 12, 31), "Last year"),
        (date(2024, 1, 1), date(2024, 12, 31), "2024"),
        (date(2024, 2, 1), date(2024, 2, 29), "February 2024"),
        (date(2026, 2, 5), date(2026, 2, 5), "5 February 2026"),
        (date(2026, 2, 5), date(2026, 3, 1), "5 Feb 2026 to 1 Mar 2026"),
        (date(2026, 2, 5), None, "from 5 February 2026 on"),
        (None, date(2026, 2, 5), "until 5 February 2026"),
    ],
)
def test_a_range_of_dates_has_a_short_name(first, last, words):
    assert range_in_words(first, last, date(2026, 3, 4)) == words


def test_each_range_is_a_link_and_the_chosen_one_can_be_removed(client, alice):
    today = alice.local_time(timezone.now()).date()
    page = page_of(client, q="cello", scope="notes", **{"from": today.isoformat(), "to": today.isoformat()})
    day = f"from={today}&amp;to={today}"
    assert f'<a href="?q=cello&amp;scope=notes&amp;{day}" aria-current="true">Today</a>' in page
    assert f'href="?q=cello&amp;scope=notes&amp;from={today.year - 1}-01-01&amp;to={today.year - 1}-12-31">Last' in page
    assert '<a class="when-remove" href="?q=cello&amp;scope=notes"' in page
    page = page_of(client, q="cello")
    assert "Any time" in page and "when-remove" not in page


def test_a_line_of_a_long_note_is_shown_below_its_headings(client, alice):
    others = "".join(f"- The {word} stands in the shed beside the tools\n" for word in "abcdefghijklmnopqrst")
    keys = "- the winter tyres are at the garage in the village\n" * 8 + "- spare: in the tobacco tin\n"
    documents.create(user=alice, day=None, content=f"# **Me**\n\n## Van <b>\n{keys}{others}", now=NOW)
    index.embed_pending()
    result = results_on(page_of(client, q="van spare", scope="memory"))[0]
    assert '<span class="who">Me \u203a Van &lt;b&gt;</span> …' in result
    assert "<mark>spare</mark>: in the tobacco tin\nThe a stands" in result


def test_results_can_be_put_in_the_order_of_their_days(client, alice):
    for day in (3, 9, 5):
        documents.append(user=alice, day=date(2026, 2, day), text=f"Cello lesson number {day}.", now=NOW)
    page = page_of(client, q="cello", order="day")
    assert [link[-3:-1] for link in links_on(page)] == ["09", "05", "03"]
    assert "Monday, 9 February 2026</time></h2>" in page


def test_the_day_is_the_persons_own(client, alice):
    alice.time_zone = "Pacific/Auckland"
    alice.save()
    turn = a_turn(alice, "The cello is late")
    Turn.objects.filter(pk=turn.pk).update(said_at=datetime(2026, 3, 1, 22, 0, tzinfo=UTC))
    index.embed_pending()
    assert "2 March 2026" in page_of(client, q="cello", scope="sessions")


def test_more_results_are_a_link_away(client, alice):
    letters = "abcdefghijklmnopqrstuvwxyz"
    add_records(alice, (f"Cello string number {number} {letters[number] * 9}" for number in range(1, 24)))
    page = page_of(client, q="cello")
    assert len(results_on(page)) == 20
    assert 'href="?q=cello&amp;more=1"' in page
    page = page_of(client, q="cello", more="1")
    assert len(results_on(page)) == 23
    assert "Show more" not in page


def test_without_words_there_is_no_search_and_the_field_has_the_focus(client, alice):
    a_turn(alice, "Anything")
    for query in ({}, {"q": ""}, {"q": "   ", "scope": "memory"}):
        page = page_of(client, **query)
        assert results_on(page) == []
        assert "Find what you said" in page
        assert "autofocus" in page


def test_results_that_have_none_of_the_words_are_called_the_nearest_in_meaning(client, alice):
    # To the tests' embedding model these are near each other; stop words are no terms.
    a_turn(alice, "What is it that you have with you, and for whom?")
    index.embed_pending()
    notice = "No text has these words. These are the closest in meaning."
    page = page_of(client, q="whom is it with, and what have you for that")
    assert results_on(page)
    assert notice in page
    a_turn(alice, "Whom do I ask about the cello?")
    assert notice not in page_of(client, q="cello with whom, and what have you for that")


def test_nothing_found_says_so_and_offers_to_widen(client, alice):
    page = page_of(client, q="xylophone")
    assert "Nothing found" in page
    assert "search everything" not in page
    page = page_of(client, q="xylophone", scope="memory", **{"from": "2026-01-01"})
    assert '<a href="?q=xylophone">search everything, of all time</a>' in page


# Both fields are read by one rule.
@pytest.mark.parametrize(
    ("name", "typed"),
    [
        ("from", "31.02.2026"),
        ("from", "20260301"),
        ("from", "yesterday"),
        ("from", HOSTILE),
        ("to", "2026-02-30"),
        ("to", "2026-W09-7"),
    ],
)
def test_what_is_no_day_is_said_and_stays_as_it_was_typed(client, name, typed):
    page = page_of(client, status=400, q="cello", **{name: typed})
    assert "A date is written YYYY-MM-DD." in page
    field = re.search(rf'<input type="text" name="{name}"[^>]*>', page).group()
    assert f'value="{typed}"' in unescape(field) or typed == HOSTILE
    assert HOSTILE not in page
    assert 'value="cello"' in page


def test_a_last_day_before_the_first_is_said(client):
    page = page_of(client, status=400, q="cello", **{"from": "2026-02-10", "to": "2026-02-05"})
    assert "The last day is before the first one." in page
    assert 'value="2026-02-10"' in page


@pytest.mark.parametrize(
    ("query", "sentence"), [({"scope": "nowhere"}, "no such place"), ({"q": "a\0b"}, "Null characters")]
)
def test_what_cannot_be_searched_is_said(client, query, sentence):
    assert sentence in page_of(client, status=400, **{"q": "cello", **query})


def test_the_strangest_query_is_only_a_query(client):
    for query in ["%", "_", "' OR 1=1 --", "\\", "(" * 500, "🦊" * 300, "word " * 390]:
        page_of(client, q=query)
    assert client.get(f"{SEARCH}?q=%ff%fe").status_code == 200


def test_words_are_escaped_in_the_query_the_title_and_the_excerpt(client, alice):
    a_turn(alice, HOSTILE, HOSTILE)
    records.create(user=alice, content=HOSTILE, now=NOW)
    for query in (HOSTILE, "alert", "script"):
        page = page_of(client, q=query)
        assert results_on(page)
        assert "<script>" not in page
        assert "<img src=x" not in page


def test_marks_stand_where_the_places_say_whatever_the_characters():
    excerpt = Excerpt("<b>&🦊é</b>", [(0, 1), (3, 5)])
    assert marked(excerpt) == "<mark>&lt;</mark>b&gt;<mark>&amp;🦊</mark>é&lt;/b&gt;"
    assert marked(Excerpt("", [])) == ""


@pytest.mark.parametrize(
    ("excerpt", "html"),
    [
        (Excerpt("**Noted.** It is `here`", []), "Noted. It is here"),
        (Excerpt("**Noted**", [(2, 7)]), "<mark>Noted</mark>"),
        (Excerpt("**Noted**", [(0, 9)]), "<mark>Noted</mark>"),
        (Excerpt("see [the **plan**](/c/1) now", [(4, 23)]), "see <mark>the **plan**</mark> now"),
        (Excerpt("# Title\n- one\n> two", []), "Title\none\ntwo"),
        (Excerpt("One\n\n \n- two", [(9, 12)]), "One\n<mark>two</mark>"),
        (Excerpt("*and* the _very_ same, ***all***", [(1, 4)]), "<mark>and</mark> the very same, all"),
        (Excerpt("*.py and *.txt, snake_case_name, 2*3*4", []), "*.py and *.txt, snake_case_name, 2*3*4"),
        (Excerpt("2 * 3 ** 4, __init__, a - b", []), "2 * 3  4, __init__, a - b"),
        (Excerpt("![<b>](x)", []), "&lt;b&gt;"),
        (Excerpt("**", [(0, 2)]), ""),
        (Excerpt("| Who | No |\n|:--|---:|\n| Vera | 12 |", [(26, 30)]), "Who | No \n<mark>Vera</mark> | 12 "),
        (Excerpt("Run:\n```sh\nls -l | wc\n```\nand `go`", []), "Run:\nls -l | wc\nand go"),
    ],
)
def test_an_excerpt_is_shown_without_the_marks_of_markdown(excerpt, html):
    assert marked(excerpt) == html


def test_a_title_is_shown_without_the_marks_of_markdown_too(client, alice):
    turn = a_turn(alice, "The **basil** wilts, see [<b>](x)")
    index.embed_pending()
    path = conversation_path(turn.conversation_id, turn_number=1)
    assert f'<h2><a href="{path}">The <mark>basil</mark> wilts, see &lt;b&gt;</a></h2>' in page_of(
        client, q="basil", scope="sessions"
    )


def test_a_conversation_has_one_card_and_its_other_messages_are_folded_in_it(client, alice):
    turn = a_turn(alice, "Basil number 1 wilts")
    for number in range(2, 6):
        a_turn(alice, f"Basil number {number} wilts in pot {number * 7}", conversation=turn.conversation)
    a_turn(alice, "Basil elsewhere wilts")
    index.embed_pending()
    page = page_of(client, q="basil wilts", scope="sessions")
    folded = re.search(r'<details class="more-from">.*?</details>', page, re.DOTALL).group()
    count = len(results_on(folded))
    assert f"{count} more messages here" in folded
    own = f"/c/{turn.conversation_id}/"
    assert sum(own in link for link in links_on(page.replace(folded, ""))) == 1
    assert all(own in link for link in links_on(folded))


def test_a_title_that_matches_stands_on_the_card_of_the_message_that_was_found(client, alice):
    turn = a_turn(alice, "The pot of basil wilts")
    index.embed_pending()

    page = page_of(client, q="basil", scope="sessions")

    assert len(results_on(page)) == 1
    assert links_on(page) == [conversation_path(turn.conversation_id, turn_number=1)]
    assert '<p class="result-line"><span class="who">You</span> The pot of <mark>basil</mark> wilts</p>' in page


def test_a_card_shows_eight_lines_of_a_list_around_the_match(client, alice):
    a_turn(alice, "\n".join(f"herb {number}" + " basil" * (number == 14) for number in range(20)))
    index.embed_pending()
    (line,) = re.findall(r'<p class="result-line">.*?</p>', page_of(client, q="basil"), re.DOTALL)
    herbs = [f"herb {number}" + " <mark>basil</mark>" * (number == 14) for number in range(10, 18)]
    assert line == '<p class="result-line"><span class="who">You</span> …' + "\n".join(herbs) + "…</p>"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("| herb | water |\n|---|---:|\n| basil | daily |", "herb | water \n<mark>basil</mark> | daily"),
        ("| | water |\n|---|---:|\n| basil | daily |", "water \n<mark>basil</mark> | daily"),
        ("```python\nbasil = 1\n```\nDone", "<mark>basil</mark> = 1\nDone"),
        ("a | basil | c", "a | <mark>basil</mark> | c"),
    ],
)
def test_tables_and_code_are_shown_as_text(text, shown):
    place = text.index("basil")
    assert marked(Excerpt(text, [(place, place + 5)])).strip() == shown


def test_texts_that_wait_for_their_vectors_are_counted(client, alice):
    a_turn(alice, "The cello is here")
    assert "1 new text is found by its words only." in page_of(client, q="cello")
    index.embed_pending()
    assert "so new" not in page_of(client, q="cello")


def test_a_source_that_takes_too_long_is_named_and_the_rest_is_shown(client, alice, monkeypatch):
    records.create(user=alice, content="The cello was made in 1921.", now=NOW)

    def slow(asked):
        raise OutOfTime

    monkeypatch.setattr(MESSAGES, "find", slow)
    page = page_of(client, q="cello")
    assert "Not searched completely: messages." in page
    assert len(results_on(page)) == 1


def test_an_embedding_model_that_is_away_is_said_and_can_be_tried_again(client, monkeypatch):
    def away(text):
        raise EmbedderError

    monkeypatch.setattr(get_embedder(), "embed_query", away)
    response = client.get(SEARCH, {"q": "cello", "scope": "memory"})
    page = response.content.decode()
    assert response.status_code == 503
    assert response["Retry-After"]
    assert "Search by meaning is not available right now." in page
    assert '<a href="/search/?q=cello&amp;scope=memory">Try again</a>' in page
    assert 'value="cello"' in page


def test_a_search_that_breaks_is_said_with_the_question_kept(client, monkeypatch):
    def broken(asked):
        raise KeyError("secret")

    monkeypatch.setattr(MESSAGES, "find", broken)
    page = page_of(client, status=500, q="cello")
    assert "Search failed: messages could not be searched." in page
    assert "secret" not in page
    assert 'value="cello"' in page
    german = client.get(SEARCH, {"q": "cello"}, headers={"accept-language": "de"})
    assert "Die Suche ist fehlgeschlagen. Nicht durchsuchbar: Nachrichten." in german.text


def test_a_database_that_is_away_is_a_page_too(client, monkeypatch):
    def away(asked):
        raise OperationalError("connection lost")

    monkeypatch.setattr(MESSAGES, "find", away)
    assert "not available right now" in page_of(client, status=503, q="cello")


def test_searches_are_limited(client, limited):
    limited(api="1/hour")
    assert page_of(client, q="cello")
    assert "Too many requests" in page_of(client, status=429, q="cello")
    assert page_of(client)


def test_nobody_elses_words_are_found(client):
    other = a_person("other@example.com")
    a_turn(other, "Our cello is a secret")
    documents.append(user=other, day=None, text="The cello is ours.", now=NOW)
    records.create(user=other, content="Our cello", now=NOW)
    index.embed_pending()
    page = page_of(client, q="cello")
    assert results_on(page) == []
    assert "secret" not in page


def test_a_visitor_is_told_how_to_have_a_memory_and_comes_back_to_the_search():
    page = page_of(Client(), q="cello", scope="memory")
    assert "With an account you can search all your chats" in page
    back = "%2Fsearch%2F%3Fq%3Dcello%26scope%3Dmemory"
    assert f"{reverse('intake:register')}?next={back}" in page
    assert f"{reverse('intake:login')}?next={back}" in page


def test_a_search_is_kept_by_no_cache_and_only_read(client):
    response = client.get(SEARCH, {"q": "cello"})
    assert "no-store" in response["Cache-Control"]
    assert client.put(SEARCH).status_code == 405


def test_the_sidebar_leads_to_search_and_to_memory(client):
    page = client.get(reverse("intake:home")).content.decode()
    assert f'href="{SEARCH}"' in page
    assert f'href="{reverse("memory:memory")}"' in page
    assert (
        f'href="{SEARCH}" data-search-link data-palette-opener aria-keyshortcuts="Control+K Meta+K" aria-current="page"'
        in page_of(client)
    )


def test_the_future_of_a_log_is_no_hindrance(client, alice):
    documents.append(user=alice, day=timezone.localdate() + timedelta(days=40), text="Cello concert.", now=NOW)
    assert len(results_on(page_of(client, q="concert"))) == 1


def test_the_days_that_the_query_named_are_shown_and_can_be_taken_away(client, alice, monkeypatch):
    monkeypatch.setattr("chat.pages.searching.timezone.now", lambda: NOW + timedelta(days=1))
    a_turn(alice, "We eat risotto on Friday")
    index.embed_pending()
    query = {"q": "risotto, yesterday", "scope": "sessions"}
    page = page_of(client, **query)
    assert re.search(r'<a class="chip" href="[^"]*anytime=1[^"]*">Prefers Sunday 1 March 2026 ', page)
    assert results_on(page)
    assert "Best first" in page
    everything = page_of(client, q="what did we talk about yesterday", scope="sessions")
    assert "Oldest first" in everything and "Best first" not in everything
    assert "We eat risotto" in everything and "<mark>" not in everything
    assert re.search(r'<a class="chip" href="[^"]*anytime=1[^"]*">Sunday 1 March 2026 ', everything)
    calendar = page_of(client, q="risotto next march 2026", scope="sessions")
    assert re.search(r'<a class="chip" href="[^"]*anytime=1[^"]*">Prefers “march 2026” ', calendar)
    without = page_of(client, **query, anytime="1")
    assert 'class="chip"' not in without
    assert results_on(without)


def test_each_operator_is_a_chip_that_leads_to_the_query_without_it(client, alice):
    a_turn(alice, "We eat risotto on Friday", "With `code`")
    a_turn(alice, "Risotto with <i>peas</i>")
    index.embed_pending()
    typed = 'risotto "on friday" -peas -"<i>" in:friday from:me before:2026-03-02 after:2026-03-01'
    page = page_of(client, q=typed, scope="sessions")
    chips = dict(re.findall(r'<a class="chip" href="\?([^"]*)">(.*?) <span aria', page))
    assert [unescape(each) for each in chips.values()] == [
        "exactly “on friday”",
        "without “peas”",
        "without “<i>”",
        "in chats named “friday”",
        "said by you",
        "before 2 March 2026",
        "from 1 March 2026 on",
    ]
    (rest,) = [QueryDict(unescape(path)) for path, label in chips.items() if label == "without “peas”"]
    assert (rest["q"], rest["scope"]) == (typed.replace(" -peas", ""), "sessions")
    assert len([result for result in results_on(page) if "Message" in result]) == 1
    assert "risotto" in page and "peas</mark>" not in page


def test_what_is_no_operator_and_what_no_text_or_title_has_is_said(client, alice):
    a_turn(alice, "We eat risotto on Friday")
    index.embed_pending()
    page = page_of(client, q='risotto "on monday" before:soon')
    assert "No text contains exactly “on monday”. These are the closest texts." in page
    assert "Read as plain words, because they are no operators: before:soon." in page
    assert results_on(page)
    assert "No chat has this in its title: Nowhere." in page_of(client, q="risotto in:Nowhere")
    assert "Newest first" in page_of(client, q="in:risotto")


def test_a_page_without_results_says_to_take_a_condition_away(client, alice):
    a_turn(alice, "Basil wilts")
    index.embed_pending()

    page = page_of(client, q='"basil wilts" -basil')

    assert "Remove one of them." in page
