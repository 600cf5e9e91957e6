"""Every text that people read is marked for translation, each translation is whole, and no sentence is long."""

import ast
import re
from io import BytesIO
from pathlib import Path

import pytest
from babel.messages.extract import extract
from babel.messages.mofile import read_mo
from babel.messages.pofile import read_po
from django.conf import settings
from django.utils.translation.template import templatize

import core.errors

ROOT = Path(settings.BASE_DIR)
APPS = ("agent_tools", "chat", "config", "core", "imports", "intake", "memory")
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


# What these raise, programs read alone: fields of the API, headers, tools.
OF_PROGRAMS = re.compile(
    r"(agent_tools/(mcp/|tools/|registry|rest|token_rest)|chat/(agent|endpoint)/|chat/rest/(attach|conv|down|rec)|config/"
    r"|core/(responses|validation)|imports/rest|intake/chats/idempotency|memory/(backends|search)/)"
)


def unmarked_sentences(source):
    """The sentences of errors (`core.errors`) that are raised or are their default, and are not marked."""
    kinds = {name for name, each in vars(core.errors).items() if isinstance(each, type)} - {"Sentence"}
    for node in ast.walk(ast.parse(source)):
        given = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kinds:
            errors = [value for keyword in node.keywords for value in getattr(keyword.value, "values", ())]
            given = [*node.args, *(each for value in errors for each in getattr(value, "elts", ()))]
        elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "default_detail":
            given = [node.value]
        yield from (ast.unparse(each) for each in given if isinstance(each, ast.Constant | ast.JoinedStr))


def test_each_sentence_of_an_error_that_a_page_may_show_is_marked():
    found = {
        name: sentences
        for app in APPS
        for path in (ROOT / app).rglob("*.py")
        if not {"tests", "migrations"} & set(path.parts)
        and not OF_PROGRAMS.match(name := path.relative_to(ROOT).as_posix())
        and (sentences := list(unmarked_sentences(path.read_text())))
    }
    assert found == {}


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
        ways += ["return "] * (path.name in ("json_lines.py", "files.py"))
        unmarked.update(re.findall(rf'(?:{"|".join(ways)})f?"([^"]+ [^"]+)"', path.read_text()))
        marked += path.read_text().count('_("')
    assert {each for each in unmarked - FOR_FOLDERS if "{" not in each} == set()
    assert marked > 40
