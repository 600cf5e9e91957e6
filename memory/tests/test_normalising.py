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
        ("84 300 and 84.300 and 84'300", "84 300 and 84.300 and 84'300 84300"),
        ("12\u202f450", "12 450 12450"),
        ("1.234.567", "1.234.567 1234567"),
        ("in 2024 300 people", "in 2024 300 people"),
        ("1,250.50 and 1.250,5 and 1.5", "1,250.50 and 1.250,5 and 1.5 1250.5"),
        ("８４３００", "84300"),
        ("ﾃﾞｰﾀ", " デー ータ "),
        ("東京都", " 東京 京都 "),
        ("猫", " 猫 "),
        ("서울에서", " 서울 울에 에서 "),
        ("हिन्दी", "हिन्दी"),
        ("", ""),
        ("ORDER-4711 at -5", "ORDER 4711 at  5 ORDER4711"),
        ("me@mail.example.org", "me@mail.example.org me mail example org"),
        ("https://a-b.org/x/y.html?q=zoo", "https://a-b.org/x/y.html?q=zoo org html zoo"),
        ("INV/2026/0042", "INV/2026/0042 INV 2026 0042"),
        ("AbstractHTTPGateway, iPhone15", "AbstractHTTPGateway, iPhone15 Abstract HTTP Gateway Phone 15"),
        ("drain_queue", "drain_queue drainqueue"),
        ("McDonald's APIs, don't", "McDonald's APIs, don't Mc Donald"),
        ("C++, C# (.NET) --dry-run", "C++, C# (.NET) --dry-run Cplusplus Csharp NET dotNET dashdashdryrun"),
        ("and... so on.Then 1.5", "and... so on.Then 1.5 on Then"),
        ("v1.2.3 10.0.0.5", "v1.2.3 10.0.0.5 v1 1.2.3 10 10.0"),
        ("€987,50 and 987.5", "€987,50 and 987.5 987 987.5 u20ac"),
        ("+49 170 1234567", " 49 170 1234567 49170 491701234567"),
        ("(030) 123-4567", "(030) 123 4567 0301234567"),
        ("2026-03-01", "2026 03 01 20260301"),
        ("1. März 2026", "1. März Marz 2026 20260301"),
        ("March 1st, 2026 at 31 June 2026", "March 1st, 2026 at 31 June 2026 20260301"),
        ("3/4/2026", "3/4/2026 2026 20260403 20260304"),
        ("2026年3月1日", "2026 年 3 月 1 日  20260301"),
        ("\u0664\u0667\u0661\u0661", "4711"),
        ("Kap\u0131c\u0131", "Kap\u0131c\u0131 Kapici"),
        ("my \U0001f408\U0001f408 \u2192", "my \U0001f408\U0001f408 \u2192 u1f408"),
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
        ("Der WasserZähler steht im keller_vorraum", "zähler vorraum"),
        ("Die Rechnung an kontakt@stadtwerke-lindau.de", "stadtwerke lindau"),
        ("Der Termin ist am 3. April 2026", "2026-04-03"),
        ("La factura fue de 1.234,50 euros", "1234.5"),
        ("El vuelo sale el 3 de abril de 2026", "03.04.2026"),
        ("Mi n\u00famero es +34 612 345 678", "+34612345678"),
        ("Она купила МойДомик за 12,50", "домик"),
        ("Скрипт лежит в /home/katya/запуск.sh", "запуск"),
        ("請求書は2026年3月1日です", "2026/03/01"),
        ("ร้านขายข้าวซอยอยู่ในเชียงใหม่", "เชียงใหม่"),
        ("ខ្ញុំចូលចិត្តបាយសាច់ជ្រូក", "សាច់ជ្រូក"),
        ("रोज़ सुबह chai_masala पीता हूँ", "masala"),
        ("العنوان هو shop.nakheel.example", "nakheel"),
        ("Μου άρεσε το KafeNeo", "neo"),
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


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Die Wasserleitungsr\u00f6hre ist dicht", "leitungsr\u00f6"),
        ("La contrase\u00f1a es chirimoyas", "rimoya"),
        ("Она любит черешню", "ерешн"),
        ("猫は庭で寝ている", "庭"),
        ("แมวชอบปลา", "ล"),
        ("It takes 5 \u20aa", "\u20aa"),
        ("What ???", "???"),
        ("Miso is a \U0001f408", "\U0001f408"),
        ("Siobh\u00e1n N\u00ed Dhomhnaill", "siobhan ni dho"),
        ("The o\ufb03ce of H\u2082O", "\u2082"),
    ],
)
@pytest.mark.django_db(transaction=True)
def test_a_part_of_a_word_or_a_sign_is_found_as_it_stands(said, asked):
    user = a_person()
    for number in range(30):
        a_turn(user, f"Something else altogether, 2 times {number}", "Of course")
    a_turn(user, said)
    a_turn(user, "And another thing")
    index.embed_pending()
    with acting_as(user):
        found = search_chat_history(user=user, query=asked, limit=5, mode=SearchMode.HYBRID)
    assert (found.matches[0].snippet, found.has_nothing_relevant) == (said, False)


@pytest.mark.django_db(transaction=True)
def test_the_exact_spelling_comes_first():
    user = a_person()
    for said in ("A letter from Muller came", "A letter from Müller came"):
        a_turn(user, said)
    with acting_as(user):
        for asked in ("Müller",):
            found = search_chat_history(user=user, query=asked, limit=5, mode=SearchMode.LEXICAL)
            assert [asked in match.snippet for match in found.matches] == [True, False]
