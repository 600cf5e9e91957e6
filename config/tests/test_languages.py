"""Pages in the reader's language, everything else in English, and translations that are whole."""

import re
from io import BytesIO
from pathlib import Path

import pytest
from babel.messages.extract import extract
from babel.messages.mofile import read_mo
from babel.messages.pofile import read_po
from django.conf import settings
from django.contrib.auth import get_user_model
from django.utils.translation.template import templatize

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
    assert f'<html lang="{lang}" dir="ltr"' in response.text
    assert "Accept-Language" in response["Vary"]


def test_a_page_that_reads_from_the_right_says_so(client, settings):
    settings.LANGUAGES = [*settings.LANGUAGES, ("ar", "العربية")]
    assert '<html lang="ar" dir="rtl"' in client.get("/offline/", headers={"accept-language": "ar"}).text


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
    assert "Hier ist nichts" in client.get("/nothing/", headers=german).text


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
        for text, translation in zip(ids, strings, strict=True):
            assert sorted(PLACEHOLDER.findall(text)) == sorted(PLACEHOLDER.findall(translation))
    assert not [message.id for message in catalog if message.id and message.fuzzy]
    with path.with_suffix(".mo").open("rb") as file:
        assert _written(read_mo(file)) == written, "Run `manage.py compilemessages`."


def _written(catalog):
    """The forms of a text (one, and more where it counts) with those of its translation."""
    forms = [[[each] if isinstance(each, str) else each for each in (one.id, one.string)] for one in catalog if one.id]
    return {tuple(ids): tuple(strings) for ids, strings in forms}
