"""Pages in the reader's language, everything else in English, and translations that are whole."""

import re
from datetime import date
from io import BytesIO
from pathlib import Path

import pytest
from babel.messages.extract import extract
from babel.messages.mofile import read_mo
from babel.messages.pofile import read_po
from django.conf import settings
from django.contrib.auth import get_user_model
from django.utils.translation.template import templatize

from core import errors
from core.errors import Unavailable
from core.isolation.acting import acting_as
from core.text import Sentence, in_language, kept
from intake.chats.tree import conversation_path
from intake.models import Turn
from intake.tests.factories import a_turn

ROOT = Path(settings.BASE_DIR)
APPS = ("agent_tools", "config", "core", "imports", "intake", "memory")
LANGUAGES = ["de", "es"]
KEYWORDS = {"gettext": None, "gettext_lazy": None, "gettext_noop": None, "_": None, "ngettext": (1, 2)}
PLACEHOLDER = re.compile(r"%\(\w+\)[sd]|%d|\{\w+\}|<[^>]+>")

# Names, and what programs read, are the same in every language.
NAMES = re.compile(r"Recollect|MEMORY\.md|JSON|YAML|Ctrl K|[\W\d_]+")
# What a template shows besides its text: what it draws in words is in these attributes.
SHOWN = re.compile(r'\b(?:title|aria-label|placeholder|alt)="([^"]*)"')
TAG = re.compile(r"<(?:[^<>\"]|\"[^\"]*\")*>", re.DOTALL)
MARKED = re.compile(r"{% blocktranslate.*?{% endblocktranslate %}|{% comment %}.*?{% endcomment %}", re.DOTALL)
UNTRANSLATED = re.compile(r"<(code|kbd|svg)\b.*?</\1>", re.DOTALL)
TEMPLATE_TAG = re.compile(r"{%.*?%}|{{.*?}}|{#.*?#}")
TEMPLATES = sorted(
    path
    for app in APPS
    for path in (ROOT / app).glob("templates/**/*.*")
    if "admin" not in path.parts and path.suffix in {".html", ".txt"}
)


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


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_text_of_a_template_is_marked_for_translation(path):
    text = UNTRANSLATED.sub("", MARKED.sub("", path.read_text()))
    text = TEMPLATE_TAG.sub("\n", text)
    shown = [
        *TAG.sub("\n", text).splitlines(),
        *(found[1] for tag in TAG.findall(text) for found in SHOWN.finditer(tag)),
    ]
    assert [
        line.strip() for line in shown if not NAMES.fullmatch(re.sub(r"&#?\w+;", "", NAMES.sub("", line)) or "-")
    ] == []


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


@pytest.fixture(scope="module")
def sources():
    """The texts of templates and Python, and those of JavaScript."""
    python = [
        path for app in APPS for path in (ROOT / app).rglob("*.py") if not {"tests", "migrations"} & set(path.parts)
    ]
    texts = {"django": set(), "djangojs": set()}
    for path in python:
        if "gettext" in (content := path.read_text()):
            texts["django"] |= _texts("python", content)
    for path in TEMPLATES:
        lines = templatize(path.read_text()).splitlines()
        texts["django"] |= _texts("python", "\n".join(line.strip() for line in lines))
    for path in (path for app in APPS for path in (ROOT / app).glob("static/**/*.js")):
        if "gettext" in (content := path.read_text()):
            texts["djangojs"] |= _texts("javascript", content)
    return texts


def _texts(method, content):
    found = extract(method, BytesIO(content.encode()), KEYWORDS, options={"parse_template_string": True})
    return {text if isinstance(text, str) else text[0] for _, text, _, _ in found}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("domain", ["django", "djangojs"])
def test_a_translation_is_whole_and_compiled(sources, language, domain):
    path = ROOT / "locale" / language / "LC_MESSAGES" / f"{domain}.po"
    with path.open("rb") as file:
        catalog = read_po(file, locale=language)
    written = _written(catalog)
    assert {ids[0] for ids in written} == sources[domain]
    for ids, strings in written.items():
        assert all(strings) and len(ids) == len(strings), ids
        for text, string in zip(ids, strings, strict=True):
            assert sorted(PLACEHOLDER.findall(text)) == sorted(PLACEHOLDER.findall(string))
    assert not [message.id for message in catalog if message.id and message.fuzzy]
    with path.with_suffix(".mo").open("rb") as file:
        assert _written(read_mo(file)) == written, "Run `manage.py compilemessages`."


def _written(catalog):
    """The forms of a text (one, and more where it counts) with those of its translation."""
    forms = [[[each] if isinstance(each, str) else each for each in (one.id, one.string)] for one in catalog if one.id]
    return {tuple(ids): tuple(strings) for ids, strings in forms}


LONGEST_SENTENCE = 20
# What stands for a name or number counts as one word, and marks of HTML as none.
VALUE, MARK = re.compile(r"%\(\w+\)[sd]|\{\w*\}"), re.compile(r"<[^>]*>")
SENTENCE_END, WORD = re.compile(r"""[.!?…]["”»)]*\s+|\n"""), re.compile(r"[^\W_]+(?:['.-][^\W_]+)*")


def too_long(text):
    for sentence in SENTENCE_END.split(MARK.sub("", VALUE.sub("x", text))):
        if len(WORD.findall(sentence)) > LONGEST_SENTENCE:
            yield sentence


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("domain", ["django", "djangojs"])
def test_no_sentence_of_a_page_has_more_than_twenty_words(language, domain):
    """In English and in the translation."""
    with (ROOT / "locale" / language / "LC_MESSAGES" / f"{domain}.po").open("rb") as file:
        texts = [text for forms in _written(read_po(file, locale=language)).items() for each in forms for text in each]
    assert len(texts) > 100
    assert [sentence for text in texts for sentence in too_long(text)] == []
    assert list(too_long("It is. " + "word " * 20)) == [] != list(too_long("word " * 21))


# What the command line alone can meet, and not an upload.
FOR_FOLDERS = {"There is no such file or folder.", "This is neither a file nor a folder."}


def test_every_reason_why_a_part_of_an_import_is_left_out_is_marked_for_translation():
    """As the readers say it: as a constant, by an exception, or as what a function returns for a line or an entry."""
    unmarked, marked = set(), 0
    for path in (ROOT / "imports/reading").rglob("*.py"):
        ways = ["reason=", r"_Unusable\(", r"UnreadableExport\(", r"BrokenJSON\(", "NO_MESSAGES = ", "NO_WORDS = "]
        ways += ["return "] * (path.name in ("json_streams.py", "files.py"))
        unmarked.update(re.findall(rf'(?:{"|".join(ways)})f?"([^"]+ [^"]+)"', path.read_text()))
        marked += path.read_text().count('_("')
    assert {each for each in unmarked - FOR_FOLDERS if "{" not in each} == set()
    assert marked > 40


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "title", "heading"),
    [("/import/", "Import", "Verlauf importieren"), ("/memory/", "Gedächtnis", "Behalte, was zählt")],
)
def test_a_page_that_needs_an_account_has_its_own_title_for_visitors(client, path, title, heading):
    page = client.get(path, headers={"accept-language": "de"}).text
    assert f"<title>{title} · Recollect</title>" in page
    assert f"<h1>{heading}</h1>" in page
