"""Ways of writing one thing meet in the index, and nothing that was found before is lost."""

# ruff: noqa: RUF001 - look-alikes are the subject

import unicodedata

import pytest

from core.isolation.acting import acting_as
from intake.tests.factories import a_person, a_turn
from memory import index
from memory.index.terms import indexed_form, without_accents
from memory.search import SearchMode, search_chat_history


@pytest.mark.parametrize(
    ("text", "indexed"),
    [
        ("plain ASCII text, 1.5 km", "plain ASCII text, 1.5 km"),
        ("Kraków", "Kraków Krakow"),
        (unicodedata.normalize("NFD", "Kraków"), "Kraków Krakow"),
        ("Søren isst Łosoś", "Søren Soren isst Łosoś Losos"),
        ("Straße", "Straße Strasse"),
        ("ёлка", "ёлка елка"),
        ("84,300", "84,300 84300"),
        ("84 300 and 84.300 and 84'300", "84 300 84300 and 84.300 84300 and 84'300 84300"),
        ("12\u202f450", "12 450 12450"),
        ("1.234.567", "1.234.567 1234567"),
        ("in 2024 300 people", "in 2024 300 people"),
        ("1,250.50 and 1.5", "1,250.50 and 1.5"),
        ("８４３００", "84300"),
        ("ﾃﾞｰﾀ", " デー ータ "),
        ("東京都", " 東京 京都 "),
        ("猫", " 猫 "),
        ("서울에서", " 서울 울에 에서 "),
        ("हिन्दी", "हिन्दी"),
        ("", ""),
    ],
)
def test_a_text_is_indexed_so(text, indexed):
    assert indexed_form(text) == indexed


def test_a_vowel_sign_of_a_script_without_accents_stays():
    assert without_accents("हिन्दी สวัสดี が") == "हिन्दी สวัสดี が"


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("We met in Kraków", "Krakow"),
        ("We met in Krakow", "Kraków"),
        ("The boat of Søren", "soren"),
        ("It cost 84,300 kroner", "84300"),
        ("It cost 84300 kroner", "84 300"),
        ("It cost 84.300 kroner", "84,300"),
        ("Ｔｉｃｋｅｔ　１２３４５", "12345"),
        (unicodedata.normalize("NFD", "Café Zoë"), unicodedata.normalize("NFC", "zoë")),
        ("来週は東京都美術館に行きます", "美術館"),
        ("ﾊﾟｽﾜｰﾄﾞを変えた", "パスワード"),
        ("서울에서 친구를 만났다", "서울"),
        ("ฉันชอบกินส้มตำ", "ส้มตำ"),
        ("我把钥匙放在抽屉里", "钥匙"),
    ],
)
@pytest.mark.django_db(transaction=True)
def test_what_is_written_one_way_is_found_the_other_way_a_moment_later(said, asked):
    user = a_person()
    a_turn(user, "Something else altogether")
    a_turn(user, said)
    with acting_as(user):
        found = search_chat_history(user=user, query=asked, limit=5, mode=SearchMode.LEXICAL)
        assert [match.snippet for match in found.matches] == [said[:200]]
        index.embed_pending()
        again = search_chat_history(user=user, query=asked, limit=5, mode=SearchMode.HYBRID)
        assert again.matches[0].snippet == said[:200]


@pytest.mark.django_db(transaction=True)
def test_the_exact_spelling_comes_first():
    user = a_person()
    for said in ("A letter from Muller came", "A letter from Müller came"):
        a_turn(user, said)
    with acting_as(user):
        for asked in ("Müller",):
            found = search_chat_history(user=user, query=asked, limit=5, mode=SearchMode.LEXICAL)
            assert [asked in match.snippet for match in found.matches] == [True, False]
