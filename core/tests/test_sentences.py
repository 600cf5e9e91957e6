"""Sentences with values: English for programs, and formatted once more in the language of a page."""

import copy
import json
from datetime import date

import pytest
from django.utils import translation

from core.errors import InvalidInput, RateLimited
from core.text import Sentence, in_language, in_page_language, kept, page_language, restored, sentence_of

LOG = Sentence("the log of %(date)s", date=date(2026, 11, 12))
PLACES = Sentence(
    "%(place)s and %(more)s more", place=["[Bow, and cello](/c/1/)", LOG, Sentence("a saved memory")], more=4
)
SUMMARY = Sentence("Found %(count)s results: %(places)s", count=1200, places=PLACES)
ENGLISH = "Found 1,200 results: [Bow, and cello](/c/1/), the log of 2026-11-12, a saved memory and 4 more"
GERMAN = "1.200 Treffer: [Bow, and cello](/c/1/), das Tagebuch vom 12. November 2026, ein Eintrag und 4 weitere"


def test_a_sentence_is_its_english_text_for_programs():
    assert SUMMARY == ENGLISH
    assert json.dumps(SUMMARY) == json.dumps(ENGLISH)
    assert in_page_language(SUMMARY) == ENGLISH
    assert copy.deepcopy(SUMMARY) == ENGLISH


def test_a_page_says_it_in_its_language_with_its_numbers_dates_and_inner_sentences():
    assert in_language(SUMMARY, "de") == GERMAN
    with translation.override("de"):
        assert in_page_language(SUMMARY) == GERMAN


def test_what_looks_like_a_message_within_a_value_stays_as_the_user_wrote_it():
    summary = Sentence("Read 1 turn of %(title)s", title="[Search failed. %(count)s](/c/1/)")
    assert summary == "Read 1 turn of [Search failed. %(count)s](/c/1/)"
    assert in_language(summary, "de") == "1 Beitrag aus [Search failed. %(count)s](/c/1/) gelesen"


@pytest.mark.parametrize("text", ["", "What nobody translated stays.", "50 % of it"])
def test_a_text_without_a_translation_stays(text):
    assert in_language(text, "de") == text
    assert in_language(Sentence(text), "de") == text


def test_a_text_without_values_is_its_own_message():
    assert in_language("Not found.", "de") == "Nicht gefunden."


def test_an_error_has_named_fields_and_its_detail_is_the_english_sentence():
    error = InvalidInput("At most %(count)s characters; this has %(length)s.", count=4000, length=5000)
    assert error.detail == "At most 4,000 characters; this has 5,000."
    assert in_language(error.detail, "de") == "Höchstens 4.000 Zeichen; das sind 5.000."
    assert sentence_of(error) is error.detail
    busy = RateLimited("%(count)s of your calls are running. Wait for one to end.", count=8, retry_after=1)
    assert (busy.detail, busy.retry_after) == ("8 of your calls are running. Wait for one to end.", 1)


def test_a_kept_sentence_comes_back_with_its_values():
    row = json.loads(json.dumps({"summary": SUMMARY, **kept(SUMMARY)}))
    assert row["summary"] == ENGLISH
    assert in_language(restored(row, "summary"), "de") == GERMAN


def test_a_text_without_values_is_kept_alone():
    assert kept("Not found.") == kept(Sentence("Not found.")) == {}


@pytest.mark.parametrize(
    "beside",
    [
        {},
        {"sentence": {"message": "Found %(count)s", "values": {"count": 2}}},
        {"sentence": {"message": "Found %(count)s", "values": {}}},
        {"sentence": {"message": "%(", "values": {"count": 3}}},
        {"sentence": {"message": "Found %(count)s", "values": {"count": {"date": "soon"}}}},
        {"sentence": "Found 3"},
        {"sentence": None},
    ],
    ids=["of an earlier version", "of another text", "without values", "broken", "no day", "a text", "none"],
)
def test_a_row_whose_values_do_not_make_its_text_is_shown_in_english(beside):
    assert restored({"summary": "Found 3"} | beside, "summary") == "Found 3"
    assert in_language(restored({"summary": "Found 3"} | beside, "summary"), "de") == "Found 3"


@pytest.mark.parametrize(("sent", "language"), [("de", "de"), ("", "en"), ("xx", "en"), ("de-CH", "en")])
def test_only_a_page_of_a_language_that_is_there_gets_another_one_than_english(sent, language):
    assert page_language({"X-Recollect-Language": sent} if sent else {}) == language
