"""Pages in the reader's language, and everything else in English."""

import re
from datetime import date

import pytest
from django.contrib.auth import get_user_model

from core import errors
from core.errors import Unavailable
from core.isolation.acting import acting_as
from core.text import Sentence, in_language, kept
from intake.chats.tree import conversation_path
from intake.models import Turn
from intake.tests.factories import a_turn


@pytest.fixture
def alice(db):
    return get_user_model().objects.create_user("alice@example.com", "password")


@pytest.mark.django_db
@pytest.mark.parametrize(("asked", "heading", "lang"), [("de-CH,de;q=0.9", "Anmelden", "de"), ("fr", "Log in", "en")])
def test_a_page_is_in_the_browsers_language_or_else_in_english(client, asked, heading, lang):
    response = client.get("/login/", headers={"accept-language": asked})
    assert f"<h1>{heading}</h1>" in response.text
    assert re.search(f'<html lang="{lang}"[^>]* dir="ltr"', response.text)
    assert "Accept-Language" in response["Vary"]


def test_a_page_that_reads_from_the_right_says_so(client, settings):
    settings.LANGUAGES = [*settings.LANGUAGES, ("ar", "العربية")]
    assert re.search('<html lang="ar"[^>]* dir="rtl"', client.get("/offline/", headers={"accept-language": "ar"}).text)


@pytest.mark.medium
@pytest.mark.django_db
def test_the_language_that_a_person_chose_wins_over_the_browsers(client, alice):
    client.force_login(alice)
    assert "Ajustes" not in client.get("/settings/account/").text
    client.post("/settings/account/language/", {"language": "es"})
    page = client.get("/settings/account/", headers={"accept-language": "de"}).text
    assert "<h1>Cuenta</h1>" in page
    assert "/language/es.js" in page
    # Only one that is there can be chosen, and it can be taken back.
    assert "No existe ese idioma" in client.post("/settings/account/language/", {"language": "xx"}).text
    client.post("/settings/account/language/", {"language": ""})
    assert "<h1>Konto</h1>" in client.get("/settings/account/", headers={"accept-language": "de"}).text


@pytest.mark.django_db
def test_the_api_speaks_english_to_everybody(client, alice):
    alice.language = "de"
    alice.save(update_fields=["language"])
    client.force_login(alice)
    german = {"accept-language": "de"}
    problem = client.get("/api/v1/intake/conversations/nothing/", headers=german).json()
    assert problem["detail"] == "Not found."
    # Django REST framework has German words for this.
    refused = client.post("/api/v1/memory/records/", {}, content_type="application/json", headers=german).json()
    assert "Field required" in str(refused) or "required" in str(refused)
    assert "Seite nicht gefunden" in client.get("/nothing/", headers=german).text


def test_the_scripts_of_a_page_find_its_texts(client):
    script = client.get("/language/de.js")
    assert (script.status_code, script["Cache-Control"]) == (200, "public, max-age=3600")
    assert '"Copied": "Kopiert"' in script.text
    assert client.get("/language/xx.js").status_code == 404


# What a program alone can have done.
FOR_PROGRAMS = {errors.PreconditionRequired, errors.IdempotencyKeyReused, errors.WrongOffset, errors.ContinuedSince}
SUMMARY = Sentence(
    "Found %(count)s results: %(places)s",
    count=1200,
    places=["[Bow, and cello](/c/1/)", Sentence("the log of %(date)s", date=date(2026, 11, 12))],
)


def test_each_failure_that_a_page_can_show_has_its_sentence():
    kinds = set(errors.RecollectError.__subclasses__())
    kinds |= {each for kind in kinds for each in kind.__subclasses__()}
    assert {
        kind.__name__ for kind in kinds - FOR_PROGRAMS if in_language(kind.default_detail, "de") == kind.default_detail
    } == set()


@pytest.mark.django_db
def test_the_api_says_an_error_in_the_language_of_the_page_whose_script_asks(client, alice):
    client.force_login(alice)
    page = {"X-Recollect-Language": "de"}
    assert client.get("/api/v1/conversations/nothing/", headers=page).json()["detail"] == "Nicht gefunden."
    body = {"content": "x" * 200_001}
    refused = client.post("/api/v1/memory/records/", body, content_type="application/json", headers=page).json()
    assert (refused["detail"], refused["code"]) == ("Die Eingabe ist nicht gültig.", "validation_error")
    assert re.fullmatch(r"Höchstens [\d.]+ Zeichen; das sind 200\.001\.", refused["errors"]["content"][0])
    unmatched = client.get("/api/v1/nothing/", headers=page).json()
    assert unmatched["detail"] == "Nicht gefunden."


@pytest.mark.django_db(transaction=True)
def test_a_page_and_its_scripts_say_in_its_language_what_the_server_says_in_english(open_page, alice):
    alice.language = "de"
    alice.save(update_fields=["language"])
    turn = a_turn(alice, "What about the bow?", "```python\n1\n```")
    call = {"id": "a", "name": "get_conversation", "input": {}, "summary": SUMMARY, **kept(SUMMARY)}
    earlier = {"id": "b", "name": "save_memory", "input": {}, "summary": "Saved a note"}
    with acting_as(alice):
        error = {"code": "unavailable", "detail": Unavailable.default_detail, "retryable": True}
        Turn.objects.filter(pk=turn.pk).update(status="failed", error=error, tool_calls=[call, earlier])
    page = open_page(conversation_path(turn.conversation_id), user=alice)
    page.locator(".step summary").first.click()
    shown = page.locator(".turn").inner_text()
    assert "Der Dienst ist gerade nicht verfügbar." in shown
    assert "Einen Chat gelesen" in shown
    assert "1.200 Treffer: Bow, and cello, das Tagebuch vom 12. November 2026" in shown
    # Of an earlier version, which kept no values.
    assert "Saved a note" in shown
    assert page.locator(".code-bar button").all_inner_texts() == ["Kopieren", "Herunterladen"]
    asked = """async (turn) => {
        const { follow } = await import("/static/intake/ask.js");
        const told = [];
        const events = follow({ turnId: turn, signal: new AbortController().signal });
        for await (const { data } of events) told.push(JSON.stringify(data));
        return told;
    }"""
    told = "\n".join(page.evaluate(asked, turn.pk))
    assert "1.200 Treffer" in told and "12. November 2026" in told
    assert "Der Dienst ist gerade nicht verfügbar. Versuch es gleich noch einmal." in told


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "title", "heading"),
    [("/import/", "Import", "Verlauf importieren"), ("/memory/", "Gedächtnis", "Behalte, was zählt")],
)
def test_a_page_that_needs_an_account_has_its_own_title_for_visitors(client, path, title, heading):
    page = client.get(path, headers={"accept-language": "de"}).text
    assert f"<title>{title} · Recollect</title>" in page
    assert f"<h1>{heading}</h1>" in page
