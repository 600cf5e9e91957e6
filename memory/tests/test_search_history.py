"""`search_history` over all its sources: every test point and edge case of FEAT-032, on a real database."""

from datetime import UTC, date, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from core.errors import Unavailable
from core.isolation.acting import Caller
from intake.chats import services
from intake.chats.deleting import delete_turn
from intake.models import Conversation, Turn
from intake.tests.factories import NOW, a_person
from memory import documents, records
from memory import index as indexing
from memory.backends.embedders import EmbedderError, get_embedder
from memory.search import sources
from memory.search.history import HistoryRequest, search_history
from memory.search.hybrid import MODEL_AWAY
from memory.search.sources import HistoryScope
from testing.emptying import delete_past_signals

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)
TODAY = NOW.date()


@pytest.fixture
def alice():
    return a_person()


def search(user, query, *, now=NOW, scope="all", max_results=10, **dates):
    request = HistoryRequest(query=query, scope=HistoryScope(scope), max_results=max_results, **dates)
    return search_history(request, user=user, now=now)


def found(user, query, **options):
    return [(result.reference.kind.value, result.excerpt.text) for result in search(user, query, **options).results]


def kinds(user, query, **options):
    return {kind for kind, _ in found(user, query, **options)}


def say(user, message, answer="Noted.", *, at=NOW, title=None, conversation=None, embed=True):
    conversation = conversation or Conversation.objects.create(
        user=user, title=services.title_from(message) if title is None else title, started_at=at, last_active_at=at
    )
    turn = services.save_exchange(conversation=conversation, user_message=message, assistant_message=answer, said_at=at)
    if embed:
        indexing.embed_pending()
    return turn


def log(user, text, *, day=TODAY):
    document = documents.append(user=user, day=day, text=text, now=NOW)
    indexing.embed_pending()
    return document


def note(user, content, *, at=NOW):
    record = records.create(user=user, content=content, now=at)
    indexing.embed_pending()
    return record


@pytest.fixture
def everywhere(alice):
    """A word that stands in each of the sources, and beside it texts in which it does not."""
    log(alice, "Discussed dinner plans. User wants to try the restaurant Sakura Sushi in Shibuya.")
    log(alice, "Bought a bicycle.", day=NOW.date() - DAY)
    documents.append(user=alice, day=None, text="Favourite restaurant in Rome: Da Enzo.", now=NOW)
    note(alice, "Never book a restaurant on a Monday.")
    say(alice, "Can you help me find a good restaurant near Shibuya station?", title="Dinner Planning")
    say(alice, "Looking for pasta places in Roppongi", "Try Aldente.", title="Restaurant Recommendations")
    say(alice, "The printer is out of paper", "Order some.", title="Office")
    return alice


# -- Test points ------------------------------------------------------------------------------------------------------


def test_a_simple_query_is_executed_and_returns_results(alice):
    say(alice, "I adopted a cat named Miso", title="Pets")
    assert ("message", "User: I adopted a cat named Miso") in found(alice, "Miso")


def test_scope_all_searches_all_three_data_sources_and_is_the_default(everywhere):
    assert HistoryRequest(query="x").scope is HistoryScope.ALL
    assert kinds(everywhere, "restaurant") == {"memory", "daily_log", "message", "session"}
    assert not [text for _, text in found(everywhere, "restaurant") if "printer" in text or "bicycle" in text]


def test_scope_memory_searches_the_memory_index_only(everywhere):
    assert kinds(everywhere, "restaurant", scope="memory") == {"memory", "daily_log"}
    assert len(found(everywhere, "restaurant", scope="memory")) == 3


def test_scope_daily_log_searches_daily_log_entries_only(everywhere):
    assert kinds(everywhere, "restaurant", scope="daily_log") == {"daily_log"}


def test_scope_sessions_searches_session_metadata_and_message_content(everywhere):
    assert kinds(everywhere, "restaurant", scope="sessions") == {"message", "session"}


@pytest.fixture
def a_week(alice):
    """A turn and a log of every day from the 20th to the 26th of February."""
    for number in range(20, 27):
        say(
            alice,
            f"Visited gallery {number}",
            at=datetime(2026, 2, number, 12, tzinfo=UTC),
            title=f"Trip {number}",
            embed=False,
        )
        log(alice, f"Gallery of day {number}", day=date(2026, 2, number))
    return alice


def days_found(user, **dates):
    results = search(user, "gallery", max_results=50, **dates).results
    assert {result.reference.kind.value for result in results} <= {"message", "daily_log"}
    return sorted({result.reference.day.day for result in results})


def test_date_from_filters_out_results_before_the_specified_date(a_week):
    assert days_found(a_week, date_from=date(2026, 2, 24)) == [24, 25, 26]


def test_date_to_filters_out_results_after_the_specified_date(a_week):
    assert days_found(a_week, date_to=date(2026, 2, 22)) == [20, 21, 22]


def test_date_from_and_date_to_together_form_a_valid_date_range(a_week):
    assert days_found(a_week, date_from=date(2026, 2, 22), date_to=date(2026, 2, 24)) == [22, 23, 24]
    assert days_found(a_week, date_from=date(2026, 2, 23), date_to=date(2026, 2, 23)) == [23]


def test_without_dates_everything_is_searched(a_week):
    assert days_found(a_week) == list(range(20, 27))


def test_a_session_is_of_the_day_it_was_last_active(alice):
    turn = say(alice, "hello", title="Galleries", at=NOW - 5 * DAY)
    say(alice, "hello again", conversation=turn.conversation, at=NOW - 2 * DAY)
    day = (NOW - 2 * DAY).date()
    (result,) = search(alice, "gallery", date_from=day, date_to=day).results
    assert (result.reference.kind, result.reference.day) == ("session", day)
    assert search(alice, "gallery", date_to=day - DAY).results == []


def test_max_results_limits_the_number_of_returned_results(alice):
    for number in range(12):
        say(alice, f"Gallery {number}", title="", embed=False)
    indexing.embed_pending()
    assert len(found(alice, "gallery")) == 10
    assert len(found(alice, "gallery", max_results=3)) == 3
    assert len(found(alice, "gallery", max_results=50)) == 12


def test_results_are_sorted_by_score_descending(everywhere):
    scores = [result.score for result in search(everywhere, "restaurant").results]
    assert len(scores) == 5
    assert scores == sorted(scores, reverse=True)


def test_source_weights_are_applied_memory_1_messages_0_6_sessions_0_5(everywhere):
    best = {}
    for result in search(everywhere, "restaurant").results:
        kind = "memory" if result.reference.kind == "daily_log" else result.reference.kind.value
        best.setdefault(kind, result.score)
    # The daily log is dated noon of NOW's day, which is NOW.
    assert best == {"memory": pytest.approx(1.0), "message": pytest.approx(0.6), "session": pytest.approx(0.5)}


def test_source_weights_are_settings(everywhere, settings):
    settings.HISTORY_WEIGHTS = {"memory": 0.1, "messages": 0.2, "sessions": 0.9}
    assert search(everywhere, "restaurant").results[0].reference.kind == "session"


def test_scores_decay_with_age_at_a_rate_that_is_a_setting(alice, settings):
    say(alice, "Visited the gallery", at=NOW - 100 * DAY, title="")
    assert search(alice, "gallery").results[0].score == pytest.approx(0.6 * 0.3679, rel=1e-3)
    settings.HISTORY_DECAY_RATE = 0
    assert search(alice, "gallery").results[0].score == pytest.approx(0.6)


def test_no_results_is_an_empty_list(everywhere):
    assert search(everywhere, "quantum physics").results == []


# -- Edge cases -------------------------------------------------------------------------------------------------------


def test_a_query_that_matches_in_only_one_data_source(everywhere):
    assert kinds(everywhere, "Rome") == {"memory"}
    assert kinds(everywhere, "station") == {"message"}
    assert kinds(everywhere, "recommendation") == {"session"}


@pytest.mark.parametrize(
    "query",
    [
        "100%",
        "a_b",
        "it's",
        '"quoted"',
        "\\",
        "\\\\server\\share",
        "'; drop table users; --",
        "' OR 1=1 --",
        "🐈",
        "寿司",
        "(unbalanced",
        "%s/%d",
        "$1",
    ],
)
def test_a_query_with_special_characters_is_plain_and_found_where_it_stands(alice, query):
    say(alice, f"Before {query} after", title="One")
    say(alice, "Nothing of the kind, 100 axb its quoted", title="Two")
    literal = [text for kind, text in found(alice, query) if query in text]
    assert literal == [f"User: Before {query} after"]
    assert found(alice, query)[0] == ("message", literal[0])


@pytest.mark.parametrize("title", ["100% sure", "a_b", "it's", '"quoted"', "C:\\temp", "寿司屋さん"])
def test_special_characters_in_a_session_title_are_plain(alice, title):
    say(alice, "hello there", title=title)
    say(alice, "hello you", title="100 sure axb its C:temp")
    assert next(text.split('" (')[0] for kind, text in found(alice, title, scope="sessions") if kind == "session") == (
        f'Session: "{title}'
    )


@pytest.mark.parametrize("query", ["x" * 1001, "word " * 2_000 + "gallery", "寿司" * 5_000, "gallery\n" * 1_300])
def test_a_very_long_query_string_is_searched(everywhere, query):
    search(everywhere, query)


def test_a_long_question_finds_what_it_is_about(everywhere):
    assert kinds(everywhere, "restaurant " + "and so on " * 200) >= {"memory", "message"}


def test_a_date_range_in_the_future_is_empty(everywhere):
    assert search(everywhere, "restaurant", date_from=date(2027, 1, 1)).results == []
    assert search(everywhere, "restaurant", date_from=date(9999, 12, 31), date_to=date(9999, 12, 31)).results == []


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_the_first_and_the_last_day_there_is_bound_nothing(everywhere, zone):
    everywhere.time_zone = zone
    assert len(found(everywhere, "restaurant", date_from=date.min, date_to=date.max)) == 5


@pytest.mark.parametrize("scope", HistoryScope)
def test_an_empty_memory_index_and_an_empty_message_database_give_nothing(alice, scope):
    assert search(alice, "restaurant", scope=scope).results == []


def test_an_empty_memory_index_leaves_the_messages(alice):
    say(alice, "A restaurant", title="")
    assert kinds(alice, "restaurant") == {"message"}


def test_an_empty_message_database_leaves_the_memory_index(alice):
    log(alice, "A restaurant")
    assert kinds(alice, "restaurant") == {"daily_log"}


def test_message_content_with_tool_call_json_is_searchable(alice):
    call = '{"name": "book_table", "arguments": {"restaurant": "Sakura", "seats": 4}}'
    say(alice, "Book it", f"Calling:\n```json\n{call}\n```", title="")
    for query in ("book_table", '"seats": 4', '{"restaurant": "Sakura"', "sakura"):
        texts = [text for kind, text in found(alice, query, scope="sessions") if kind == "message"]
        assert len(texts) == 1 and "book_table" in texts[0], query


def test_duplicate_results_across_data_sources_are_given_once_with_the_highest_score(alice):
    text = "We had dinner at Sakura Sushi in Shibuya and it was wonderful"
    log(alice, text)
    say(alice, text + "!", title="Sakura")
    say(alice, "Is Sakura Sushi open on Mondays?", title="Opening hours")
    shown = found(alice, "Sakura Sushi")
    assert shown[0][0] == "daily_log"
    assert [text for kind, text in shown if "wonderful" in text] == [shown[0][1]]
    assert ("message", "User: Is Sakura Sushi open on Mondays?") in shown


def test_a_session_is_no_duplicate_of_its_own_message(alice):
    say(alice, "Which restaurant was it, the one in Shibuya?", "")
    assert kinds(alice, "restaurant") == {"message", "session"}


# -- What is found, and how it is shown -------------------------------------------------------------------------------


def test_nobody_elses_rows_are_found(everywhere):
    bob = a_person("bob@example.com")
    assert search(bob, "restaurant").results == []
    say(bob, "My own restaurant", title="")
    assert found(bob, "restaurant") == [("message", "User: My own restaurant")]


def test_a_turn_with_the_query_s_very_letters_stands_above_those_that_are_merely_alike(alice):
    for number in range(30):
        say(alice, f"parse the file {number} and check err", title="", embed=False)
    say(alice, "It printed xERR_4711-Bz", title="")
    _kind, text = found(alice, "err_4711-b")[0]
    assert "xERR_4711-Bz" in text


@pytest.mark.parametrize("piece", ["estau", "RESTAURANT ne", "uya st", "?"])
def test_half_a_word_and_any_piece_of_a_message_is_found(everywhere, piece):
    assert "message" in kinds(everywhere, piece, scope="sessions")


@pytest.mark.parametrize("write", [log, note])
def test_half_a_word_of_a_note_is_found_too(alice, write):
    write(alice, "The wheelbarrow is at Duarte's")
    for number in range(5):
        write(alice, f"Something else {number}")
    assert "wheelbarrow" in found(alice, "elbarr", scope="memory")[0][1]


def test_a_turn_is_found_by_its_words_and_letters_before_it_has_a_vector_and_what_waits_is_counted(alice):
    say(alice, "I adopted a cat named Miso", title="", embed=False)
    history = search(alice, "miso")
    assert [result.excerpt.text for result in history.results] == ["User: I adopted a cat named Miso"]
    assert history.pending == 1
    assert search(alice, "miso", scope="daily_log").pending == 0


def test_memory_is_found_by_meaning_without_a_common_word(alice):
    log(alice, "the one about that")
    assert kinds(alice, "that is about the") == {"daily_log"}


def test_a_message_hit_names_its_conversation_and_turn(alice):
    turn = say(alice, "I adopted a cat", title="Dinner\nPlanning")
    (message,) = search(alice, "adopted", scope="sessions").results
    reference = message.reference
    assert (reference.conversation_id, reference.turn_number) == (turn.conversation_id, 1)
    assert reference.session == "Dinner Planning"


def test_only_the_side_that_matches_is_shown(alice):
    say(alice, "Any news?", "Sakura has reopened.", title="")
    say(alice, "Sakura again", "Sakura it is.", title="")
    texts = {text for kind, text in found(alice, "sakura") if kind == "message"}
    assert texts == {"Assistant: Sakura has reopened.", "User: Sakura again\nAssistant: Sakura it is."}


def test_memory_hits_name_their_document_or_record(alice):
    logged, noted = log(alice, "A restaurant"), note(alice, "Another restaurant")
    memory = documents.append(user=alice, day=None, text="A third restaurant", now=NOW)
    by_text = {result.excerpt.text: result.reference for result in search(alice, "restaurant").results}
    assert by_text["A restaurant"].document_id == logged.id
    assert by_text["A third restaurant"].document_id == memory.id
    reference = by_text["Another restaurant"]
    assert (reference.kind, reference.record_id, reference.document_id) == ("memory", noted.id, None)


def test_an_excerpt_of_a_long_log_is_of_the_chunk_that_matches(alice):
    lines = [f"- {number}: walked along the river and read a book about birds" for number in range(200)]
    lines[150] = "- 150: dinner at Sakura"
    log(alice, "\n".join(lines))
    (result,) = search(alice, "sakura").results
    assert "dinner at Sakura" in result.excerpt.text
    assert len(result.excerpt.text) <= 500


def test_inflected_words_are_marked(alice):
    say(alice, "We migrated two databases; the migration of a database is no migraine", title="")
    (result,) = search(alice, "migrating databases").results
    marked = {result.excerpt.text[start:end] for start, end in result.excerpt.highlights}
    assert marked == {"migrated", "databases", "migration", "database"}


def test_a_match_far_into_a_long_message_is_in_its_excerpt(alice):
    say(alice, "Summarise", "word " * 20_000 + "Sakura " + "word " * 20_000, title="", embed=False)
    (result,) = search(alice, "sakura").results
    start, end = result.excerpt.highlights[0]
    assert result.excerpt.text[start:end] == "Sakura"
    assert len(result.excerpt.text) <= 500


def test_a_session_shows_its_title_how_many_messages_it_has_and_the_beginning_of_the_last(alice):
    turn = say(alice, "Hi", title="Restaurant Recommendations")
    say(alice, "Looking for pasta\nin Roppongi", "", conversation=turn.conversation)
    (result,) = [each for each in search(alice, "recommendations").results if each.reference.kind == "session"]
    assert result.excerpt.text == (
        'Session: "Restaurant Recommendations" (3 messages, last active: 2026-03-01)\nPreview: Looking for pasta in Roppongi'
    )
    assert [result.excerpt.text[start:end] for start, end in result.excerpt.highlights] == ["Recommendations"]
    assert result.reference.session == "Restaurant Recommendations"


def test_the_preview_of_a_session_ends_with_a_whole_word(alice):
    say(alice, "Hi", "restaurant " * 30)
    (text,) = [text for kind, text in found(alice, "restaurant") if kind == "session"]
    assert text.endswith("restaurant…")


def test_a_session_that_has_one_of_many_words_stands_below_a_message_with_more_of_them(alice):
    say(alice, "The balcony", "The snails climb the wall", title="Balcony")
    for other in ("Tea for two", "A walk by the river", "The fridge hums"):
        say(alice, other)
    say(alice, "I am learning the piano on the third floor", title="Music")
    texts = [
        text for _, text in found(alice, "should I buy a piano for the third floor with a thin wall", scope="sessions")
    ]
    (balcony,) = [place for place, text in enumerate(texts) if text.startswith('Session: "Balcony"')]
    assert min(place for place, text in enumerate(texts) if "piano" in text) < balcony


def test_a_session_is_found_by_the_beginning_of_its_last_message_and_by_no_other(alice):
    turn = say(alice, "Tell me about octopuses", "They have three hearts.", title="Sea")
    say(alice, "Thanks", "You are welcome, marvellous person.", conversation=turn.conversation)
    assert "session" in kinds(alice, "marvellous")
    assert "session" not in kinds(alice, "octopuses")


@pytest.mark.parametrize("last_is", ["deleted", "streaming"])
def test_where_the_last_turn_is_gone_or_still_streaming_a_session_is_found_by_the_one_before(alice, last_is):
    turn = say(alice, "Tell me", "They have three marvellous hearts.", title="Sea")
    last = say(alice, "Thanks", "You are welcome.", conversation=turn.conversation)
    if last_is == "deleted":
        delete_turn(caller=Caller(user_id=alice.pk), conversation_id=last.conversation_id, turn_number=last.turn_number)
    else:
        Turn.objects.filter(pk=last.pk).update(status=Turn.Status.STREAMING)
    assert "session" in kinds(alice, "marvellous")


def test_a_session_is_found_by_inflected_words_of_its_title(alice):
    say(alice, "hello", title="Parsing JSON in cities")
    assert kinds(alice, "how was the city json parsed") >= {"session"}


def test_an_answer_that_quotes_the_history_is_not_searched(alice):
    turn = services.create_turn(services.TurnRequest(message="What did I say?"), caller=caller(alice), now=NOW)
    answer = services.Answer(text="You said: octopus.", status=Turn.Status.COMPLETE, is_recall=True)
    services.finish_turn(turn_id=turn.pk, answer=answer)
    indexing.embed_pending()
    assert search(alice, "octopus").results == []
    messages = [text for kind, text in found(alice, "what did I say") if kind == "message"]
    assert messages == ["User: What did I say?"]


def test_what_is_being_asked_right_now_is_no_result(alice):
    services.create_turn(services.TurnRequest(message="Where is the restaurant?"), caller=caller(alice), now=NOW)
    assert search(alice, "restaurant").results == []


def caller(user):
    from core.isolation.acting import Caller

    return Caller(user_id=user.pk)


def test_results_are_grouped_by_date_newest_first(a_week):
    history = search(a_week, "gallery", max_results=50)
    days = history.by_day()
    assert [day.day for day, _ in days] == [26, 25, 24, 23, 22, 21, 20]
    assert sorted(index for _, indexes in days for index in indexes) == list(range(len(history.results)))
    assert all(history.results[index].reference.day == day for day, indexes in days for index in indexes)


def test_days_are_the_persons_own(alice):
    alice.time_zone = "Asia/Tokyo"
    alice.save()
    say(alice, "Visited the gallery", at=datetime(2026, 2, 25, 15, 30, tzinfo=UTC), title="")
    (result,) = search(alice, "gallery", date_from=date(2026, 2, 26), date_to=date(2026, 2, 26)).results
    assert result.reference.day == date(2026, 2, 26)
    assert search(alice, "gallery", date_to=date(2026, 2, 25)).results == []


def test_a_daily_log_is_of_its_day_wherever_the_person_is(alice):
    alice.time_zone = "Pacific/Kiritimati"
    alice.save()
    log(alice, "A gallery", day=date(2026, 2, 25))
    (result,) = search(alice, "gallery", date_from=date(2026, 2, 25), date_to=date(2026, 2, 25)).results
    assert result.reference.day == date(2026, 2, 25)


def test_a_time_zone_that_does_not_exist_is_utc(alice):
    alice.time_zone = "Moon/Tycho"
    say(alice, "Visited the gallery", title="")
    assert search(alice, "gallery").results[0].reference.day == NOW.date()


def test_a_turn_deleted_past_every_signal_is_no_result(alice):
    turn = say(alice, "I adopted a cat", title="")
    delete_past_signals(Turn.objects.filter(pk=turn.pk))
    assert search(alice, "cat").results == []


def test_an_embedding_model_that_is_away_is_said_so(alice, monkeypatch):
    def away(_):
        raise EmbedderError("The endpoint answered 503.")

    monkeypatch.setattr(get_embedder(), "embed_query", away)
    with pytest.raises(Unavailable, match=MODEL_AWAY):
        search(alice, "cat")


def test_only_the_texts_of_results_that_can_still_win_are_read(alice):
    for number in range(60):
        say(alice, f"Gallery {number}", title=f"Gallery number {number}", embed=False)
    indexing.embed_pending()
    with CaptureQueriesContext(connection) as queries:
        search(alice, "gallery", max_results=5)
    assert len([query for query in queries.captured_queries if "FROM" in query["sql"]]) <= 30
    read = [query["sql"] for query in queries.captured_queries if "user_message" in query["sql"]]
    # Twice for the turns; for sessions; for questions that were asked before; for previews and versions.
    assert len(read) <= 6, read


@pytest.mark.parametrize(
    "request_", [{"query": " "}, {"query": "\0"}, {"query": "x", "max_results": 0}, {"query": "x", "max_results": 51}]
)
def test_a_request_that_makes_no_sense_cannot_be_made(request_):
    with pytest.raises(ValueError):
        HistoryRequest(**request_)


def test_the_statement_timeout_is_as_before(alice):
    with connection.cursor() as cursor:
        cursor.execute("SHOW statement_timeout")
        before = cursor.fetchone()
        search(alice, "cat")
        cursor.execute("SHOW statement_timeout")
        assert cursor.fetchone() == before


def test_the_only_literal_hit_comes_first_however_old_it_is_and_whatever_is_newer(alice):
    say(alice, "The heat pump is a Kalo 47-RD-82, bought in spring", at=NOW - timedelta(days=700))
    for number in range(12):
        say(alice, f"Where is the manual of the heat pump? Number {number}", at=NOW - timedelta(days=number))
    documents.create(user=alice, day=None, content="The heat pump needs a service each year.", now=NOW)
    indexing.embed_pending()
    for query in ("47-RD-82", "which heat pump is 47-RD-82?", 'heat pump "kalo"'):
        assert "47-RD-82" in search(alice, query).results[0].excerpt.text


def test_a_note_that_has_nothing_to_do_with_it_does_not_stand_above_the_message_that_answers(alice):
    say(alice, "My sister Clara moved to Ghent in May", at=NOW - timedelta(days=20))
    documents.create(user=alice, day=None, content="Buy lamps. The bicycle is at the shop in May.", now=NOW)
    indexing.embed_pending()
    assert "Ghent" in search(alice, "where did my sister Clara move").results[0].excerpt.text


# -- What the query itself says of time (NOW is a Sunday) ---------------------------------------------------------------


@pytest.fixture
def a_roof(alice):
    """The same subject on several days."""
    for days_ago, text in (
        (30, "The roof leaks"),
        (12, "The roofer comes for the roof"),
        (1, "The roof is tight again"),
    ):
        say(alice, text, title="House", at=NOW - timedelta(days=days_ago))
    say(alice, "Bought bread", title="Shopping", at=NOW - timedelta(days=1, hours=1))
    return alice


def test_a_query_that_says_when_gets_those_days_first(a_roof):
    history = search(a_roof, "the roof, yesterday", scope="sessions")
    shown = [each.excerpt.text for each in history.results if each.reference.kind == "message"]
    assert shown[0] == "User: The roof is tight again"
    assert "User: The roof leaks" in shown
    assert (history.window.days, history.window.words) == ((TODAY - DAY, TODAY - DAY), "yesterday")


def test_a_query_that_says_when_and_nothing_else_gets_what_was_said_then_in_order(a_roof):
    texts = [each.excerpt.text for each in search(a_roof, "What did we talk about yesterday?").results]
    assert [text.split("\n")[0] for text in texts if text.startswith("User: ")] == [
        "User: Bought bread",
        "User: The roof is tight again",
    ]


def test_days_on_which_nothing_was_said_are_not_preferred(a_roof):
    history = search(a_roof, "the roof, two days ago", scope="sessions")
    assert history.window is None
    assert len(history.results) >= 3


def test_days_that_are_asked_for_expressly_count_more_than_those_in_the_query(a_roof):
    history = search(a_roof, "the roof, yesterday", date_from=TODAY - 20 * DAY, date_to=TODAY - 5 * DAY)
    assert history.window is None
    assert "User: The roofer comes for the roof" in [each.excerpt.text for each in history.results]


def test_a_query_can_be_searched_in_all_of_time_whatever_it_says_of_time(a_roof):
    assert len(search(a_roof, "the roof, yesterday", reads_time=False, scope="sessions").results) >= 3


def test_yesterday_is_the_persons_own(a_roof):
    a_roof.time_zone = "Pacific/Kiritimati"
    a_roof.save()
    # Noon of a day in UTC is two o'clock of the next morning there.
    assert search(a_roof, "the roof, yesterday").window.days == (TODAY, TODAY)


def test_a_likely_text_without_any_of_the_words_is_a_result_however_far(alice, monkeypatch):
    say(alice, "The roof is tight again")
    indexing.embed_pending()
    assert search(alice, "violin", scope="sessions").results == []

    monkeypatch.setattr(sources, "LIKELY", 0.0)

    assert len(search(alice, "violin", scope="sessions").results) == 1
