"""What a query says of time: which days it means, which words say so, and what is left to search for."""

from datetime import date, timedelta

import pytest
from babel.dates import get_month_names

from memory.index.trigrams import without_accents
from memory.search.time_windows import find_window, preferred_times
from memory.time_words import MONTHS

# A Monday.
TODAY = date(2026, 11, 23)
DAY = timedelta(days=1)


def days(query, today=TODAY):
    window = find_window(query, today=lambda: today)
    return window and (window.days.first.isoformat(), window.days.last.isoformat())


@pytest.mark.parametrize(
    ("query", "first", "last"),
    [
        # English
        ("what did we talk about yesterday", "2026-11-22", "2026-11-22"),
        ("the day before yesterday", "2026-11-21", "2026-11-21"),
        ("what did I say today", "2026-11-23", "2026-11-23"),
        ("last Tuesday", "2026-11-17", "2026-11-17"),
        ("what did I say on Monday", "2026-11-16", "2026-11-16"),
        ("last week", "2026-11-16", "2026-11-22"),
        ("last weekend", "2026-11-21", "2026-11-22"),
        ("what did we do at the weekend", "2026-11-21", "2026-11-22"),
        ("what did we do this weekend", "2026-11-21", "2026-11-22"),
        ("last month", "2026-10-01", "2026-10-31"),
        ("last year", "2025-01-01", "2025-12-31"),
        ("what did I write this month", "2026-11-01", "2026-11-23"),
        ("three days ago", "2026-11-20", "2026-11-20"),
        ("a couple of weeks ago", "2026-11-06", "2026-11-12"),
        ("a few days ago", "2026-11-16", "2026-11-21"),
        ("in the past 10 days", "2026-11-13", "2026-11-23"),
        ("since Thursday", "2026-11-19", "2026-11-23"),
        ("what did I write on 3 March 2025", "2025-03-03", "2025-03-03"),
        ("what did I write on March 3rd", "2026-03-03", "2026-03-03"),
        ("what did I write on the first of December", "2025-12-01", "2025-12-01"),
        ("on 2026-02-14", "2026-02-14", "2026-02-14"),
        ("what did I cook in March", "2026-03-01", "2026-03-31"),
        ("what did I cook in December", "2025-12-01", "2025-12-31"),
        ("what was in the second week of March", "2026-03-08", "2026-03-14"),
        ("what did I read between March and May", "2026-03-01", "2026-05-31"),
        ("what did I do in 2024", "2024-01-01", "2024-12-31"),
        ("last summer", "2026-06-01", "2026-08-31"),
        ("what happened over Christmas", "2025-12-24", "2025-12-26"),
        ("what did we discuss in the week before Easter", "2026-03-29", "2026-04-05"),
        # German
        ("Was habe ich gestern gesagt?", "2026-11-22", "2026-11-22"),
        ("vorgestern", "2026-11-21", "2026-11-21"),
        ("letzten Dienstag", "2026-11-17", "2026-11-17"),
        ("letzte Woche", "2026-11-16", "2026-11-22"),
        ("vor drei Wochen", "2026-10-30", "2026-11-05"),
        ("in den letzten zwei Monaten", "2026-09-24", "2026-11-23"),
        ("Was hatte ich am 3. Februar geschrieben?", "2026-02-03", "2026-02-03"),
        ("Was war im März?", "2026-03-01", "2026-03-31"),
        ("am 24.12.2025", "2025-12-24", "2025-12-24"),
        # Spanish
        ("¿Qué dije ayer?", "2026-11-22", "2026-11-22"),
        ("el martes pasado", "2026-11-17", "2026-11-17"),
        ("la semana pasada", "2026-11-16", "2026-11-22"),
        ("hace dos semanas", "2026-11-06", "2026-11-12"),
        ("¿De qué hablamos en mayo?", "2026-05-01", "2026-05-31"),
        # French
        ("Qu'est-ce que j'ai dit hier ?", "2026-11-22", "2026-11-22"),
        ("mardi dernier", "2026-11-17", "2026-11-17"),
        ("le mois dernier", "2026-10-01", "2026-10-31"),
        ("il y a trois jours", "2026-11-20", "2026-11-20"),
        ("Qu'avons-nous dit en août ?", "2026-08-01", "2026-08-31"),
    ],
)
def test_a_phrase_means_these_days(query, first, last):
    assert days(query) == (first, last)


@pytest.mark.parametrize(
    "query",
    [
        "May I ask something?",
        "my plan for March",
        "the march of the penguins",
        "see you on Tuesday",
        "on Mondays I run",
        "Where did I want to go in spring?",
        "What had I planned for us at Christmas?",
        "tomorrow",
        "next week",
        "today",
        "How long ago was my last haircut?",
        "the last time we spoke about kites",
        "1000 years ago",
        "3/4/2026",
        "on 2026-13-45",
        "Hier ist der Code",
        "order 2024-11-AB",
        "the Christmas market stall plan",
        "in 2031 what was that",
        "",
    ],
)
def test_what_does_not_plainly_mean_a_time_in_the_past_is_no_window(query):
    assert days(query) is None


@pytest.mark.parametrize(
    ("query", "words", "topic"),
    [
        ("the roof, three weeks ago", "three weeks ago", "the roof"),
        ("What did I say last Tuesday about the bike?", "last Tuesday", "What did I say about the bike?"),
        ("yesterday's meeting", "yesterday's", "meeting"),
        ("What did we talk about yesterday?", "yesterday", ""),
        ("Worüber haben wir letzte Woche gesprochen?", "letzte Woche", ""),
        ("¿Qué hicimos el martes pasado?", "el martes pasado", ""),
        ("¿Qué dije de la boda hace dos semanas?", "hace dos semanas", "¿Qué dije de la boda ?"),
    ],
)
def test_the_words_of_time_are_told_from_the_topic(query, words, topic):
    window = find_window(query, today=lambda: TODAY)
    assert (window.words, window.topic) == (words, topic)


@pytest.mark.medium
def test_no_window_begins_after_today_or_ends_after_it_on_any_day_of_four_years():
    queries = ["this week", "what was at Christmas", "last winter", "in May what did I say", "on 29 February what was"]
    for number in range(4 * 366):
        today = date(2024, 1, 1) + number * DAY
        for query in queries:
            window = find_window(f"what did we say {query}", today=lambda day=today: day)
            assert window is None or window.days.first <= window.days.last <= today


@pytest.mark.parametrize(
    ("query", "months", "days"),
    [
        ("What did she cook in May 2023?", [(2023, 5)], []),
        ("What happened during August", [(None, 8)], []),
        ("between March and May 2024", [(2024, 5), (None, 3)], []),
        ("dinner on 5 July, 2023", [(2023, 7)], [(2023, 7, 5)]),
        ("the party of July 12th", [(None, 7)], [(None, 7, 12)]),
        ("2026-02-14 dinner", [(2026, 2)], [(2026, 2, 14)]),
        ("Was habe ich am 3. Februar geschrieben?", [(None, 2)], [(None, 2, 3)]),
        ("Rechnung vom 24.12.2025", [(2025, 12)], [(2025, 12, 24)]),
        ("¿Qué hice en marzo de 2024?", [(2024, 3)], []),
        ("Qu'ai-je fait en août ?", [(None, 8)], []),
        ("May I ask about the march?", [], []),
        ("April said that June is her sister", [], []),
        ("order 2026-13-45", [], []),
        ("the year 2024", [], []),
    ],
)
def test_months_and_days_of_the_calendar_are_read_without_today(query, months, days):
    times = preferred_times(query)
    assert (list(times.months), list(times.days)) == (months, days)


DATED = {
    "en": ["on May 2nd we met", "2-May-2026", "the 2nd of May", "the second of May, 2026", "2026/05/02"],
    "de": ["am 2. Mai", "2.Mai 2026", "Was war am 02.05.2026?", "der 2. Mai und die Torte", "seit dem 2. Mai"],
    "es": ["el 2 de mayo", "2 de mayo de 2026", "2 mayo", "¿Qué pasó el 2 de mayo?", "la cena del 2 de mayo"],
    "fr": ["le 2 mai", "2 mai 2026", "la réunion du 2 mai", "depuis le 2 mai", "Qu'ai-je dit le 2 mai ?"],
    "it": ["il 2 maggio", "2 maggio 2026", "il 2 di maggio", "Che cosa ho detto il 2º maggio?", "la cena del 2 maggio"],
    "nl": ["op 2 mei", "2 mei 2026", "Wat heb ik op 2 mei gezegd?", "sinds 2 mei", "het feest van 2 mei"],
    "pt": ["em 2 de maio", "2 de maio de 2026", "no dia 2 de maio", "Que falamos em 2 de maio?", "até 2 de maio"],
    "zh": ["5月2号", "2026年5月2日的会议", "五月二日我们聊了什么", "我5月2号说过什么", "从5月2日起"],
    "ja": ["5月2日", "2026年5月2日", "5月2日に何を話しましたか", "先月の5月2日の会議", "五月二日から"],
    "ko": ["5월 2일", "2026년 5월 2일", "5월2일에 무슨 이야기를 했지", "지난 5월 2일 회의", "5월 2일부터"],
}


@pytest.mark.parametrize("query", [query for queries in DATED.values() for query in queries])
def test_a_day_of_the_calendar_is_read_in_the_languages_people_write(query):
    times = preferred_times(query)
    assert [day[1:] for day in times.days] == [(5, 2)]
    assert times.match(date(2026, 5, 2)) == (1, 1)


@pytest.mark.parametrize(
    ("query", "month"),
    [
        ("Ik ging in mei naar zee", 5),
        ("a marzo ero malato", 3),
        ("em março fui ao médico", 3),
        ("二月我去了哪里", 2),
        ("12月の予定", 12),
        ("3월에 뭐 했지", 3),
        ("im Jänner waren wir krank", 1),
    ],
)
def test_a_month_alone_is_read_beside_a_preposition_of_its_language(query, month):
    assert preferred_times(query).months == ((None, month),)


@pytest.mark.parametrize(
    "query",
    [
        "Is there life on Mars?",
        "May I bring the dog?",
        "and may we come too",
        "I want to march with them",
        "by may chance",
        "Only 2 may be left",
        "Mei called about the keys",
        "from Mei and Juli",
        "Augusto e la cena",
        "April said no",
        "June and Julio",
        "the march of the penguins",
        "3个月的孩子",
        "两个月以前",
        "3개월 동안",
        "月曜日の会議",
        "version 2.5.2026x",
        "version 2.5.2026.1",
        "a 2 by 4 beam",
        "em junta",
    ],
)
def test_what_only_looks_like_a_day_or_a_month_is_none(query):
    assert not preferred_times(query)


@pytest.mark.parametrize("language", ["en", "de", "de_AT", "es", "fr", "it", "nl", "pt"])
def test_the_names_of_months_are_those_of_unicode(language):
    names = get_month_names("wide", locale=language)
    assert [MONTHS.get(without_accents(name).lower()) for name in names.values()] == list(range(1, 13))


@pytest.mark.parametrize(
    "query",
    ["5月2号我们聊了什么", "5月2日に何を話しましたか", "5월 2일에 무슨 이야기를 했지", "Wat heb ik op 2 mei gezegd?"],
)
def test_a_day_without_a_subject_asks_for_all_of_that_day(query):
    window = find_window(query, today=lambda: TODAY)
    assert (window.days, window.topic) == ((date(2026, 5, 2), date(2026, 5, 2)), "")


@pytest.mark.parametrize(
    ("query", "day", "match"),
    [
        ("in May 2023", date(2023, 5, 31), (1, 0)),
        ("in May 2023", date(2024, 5, 1), (0, 0)),
        ("in May", date(2024, 5, 1), (1, 0)),
        ("on 31 May 2023", date(2023, 5, 31), (1, 1)),
        ("on 31 May 2023", date(2023, 6, 1), (0, 1)),
        ("on 31 May 2023", date(2023, 6, 2), (0, 0)),
        ("on January 1", date(2022, 12, 31), (0, 1)),
    ],
)
def test_a_text_is_of_a_named_month_and_within_a_day_of_a_named_day(query, day, match):
    assert preferred_times(query).match(day) == match


@pytest.mark.parametrize(
    ("query", "offset", "match"),
    [
        ("the roof yesterday", 1, (2, 2)),
        ("the roof yesterday", 2, (0, 1)),
        ("the roof yesterday", 3, (0, 0)),
        ("the roof last month", 25, (2, 2)),
        ("the roof last month", 2, (0, 0)),
    ],
)
def test_days_relative_to_today_are_preferred_twice_as_much(query, offset, match):
    window = find_window(query, today=lambda: TODAY)
    assert preferred_times(query, window).match(TODAY - offset * DAY) == match
