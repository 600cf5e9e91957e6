"""Language models that staff keep in the browser: found, added, tested, ordered, with keys that nobody sees again."""

import json
import logging
from functools import partial

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse

from chat.pages import staff_models as staff_pages
from config.ops import comparison, doctor
from config.tests.endpoints.walking import routes
from core.isolation.acting import Caller
from intake.llm import language_models, model_servers, windows
from intake.llm.language_models import LanguageModel, is_recall_mode, offered
from intake.models import InstallationSetting, User, installation
from intake.tests.factories import NOW, a_person
from testing.examiner import as_the_application
from testing.model_server import CallTool, Hang, Refuse, Say, ScriptedModel
from testing.serving import serving

pytestmark = pytest.mark.django_db(transaction=True)

MODELS = reverse("intake:staff_models")
NEW = reverse("intake:staff_model", args=["new"])
SECRET = "sk-rumpelstiltskin-0123456789"
SOMEBODY = Caller(user_id=1)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    """What a process remembers of another test's settings."""
    installation.forget_kept_settings()
    monkeypatch.setattr(language_models, "_lists", {})
    monkeypatch.setattr(windows, "_windows", {})
    monkeypatch.setattr(staff_pages, "find_servers", lambda **_: [])
    yield
    installation.forget_kept_settings()


@pytest.fixture
def staff(db):
    browser = Client()
    browser.force_login(User.objects.create_user("alice@example.com", "password", is_staff=True))
    return browser


@pytest.fixture
def house():
    """A server of models on this machine."""
    model = ScriptedModel(names=["llama", "qwen"], row={"max_model_len": 32_768})
    with serving(model.application) as address:
        model.address = f"{address}/v1"
        yield model


def add(staff, **fields):
    answer = staff.post(NEW, {"name": "fast", "id": "gpt-fast", "base_url": "", "anyway": "1", **fields})
    assert answer.status_code == 302, answer.content.decode()
    return InstallationSetting.objects.get(name="models").value[-1]["key"]


def act(staff, action, key, **fields):
    return staff.post(MODELS, {"do": action, "key": key, **fields}, follow=True).content.decode()


def names():
    return [model.name for model in offered(SOMEBODY)]


def test_a_model_is_offered_as_soon_as_it_is_added(staff):
    assert is_recall_mode()
    add(staff, api_key=SECRET, thinking="low", vision="on", context_tokens="64000")
    (model,) = offered(SOMEBODY)
    assert model == LanguageModel("fast", "gpt-fast", "", SECRET, "low", 64_000, "on")
    assert not is_recall_mode()
    page = staff.get(MODELS).content.decode()
    assert "fast" in page and "gpt-fast · api.openai.com" in page


def test_a_key_is_in_no_page_row_log_or_api(staff, caplog):
    caplog.set_level(logging.DEBUG)
    key = add(staff, api_key=SECRET)
    edit = reverse("intake:staff_model", args=[key])
    wrong = staff.post(edit, {"name": "", "api_key": SECRET}).content.decode()
    pages = [staff.get(path).content.decode() for path in (MODELS, edit, "/settings/account/", "/api/v1/models/")]
    with connection.cursor() as cursor:
        cursor.execute("SELECT string_agg(t::text, '') FROM installation_settings t")
        (rows,) = cursor.fetchone()
    assert "gpt-fast" in rows
    (model,) = offered(SOMEBODY)
    assert model.api_key == SECRET
    for text in (*pages, wrong, rows, repr(model), caplog.text):
        assert SECRET not in text and "rumpelstiltskin" not in text


def test_an_empty_key_keeps_the_one_that_there_is(staff):
    edit = reverse("intake:staff_model", args=[add(staff, api_key=SECRET)])
    assert "One is kept." in staff.get(edit).content.decode()
    staff.post(edit, {"name": "faster", "id": "gpt-faster", "base_url": "", "api_key": ""})
    (model,) = offered(SOMEBODY)
    assert (model.name, model.id, model.api_key) == ("faster", "gpt-faster", SECRET)


def test_a_kept_key_goes_to_no_other_server(staff):
    edit = reverse("intake:staff_model", args=[add(staff, api_key=SECRET, base_url="https://models.example/v1")])
    form = {"name": "fast", "id": "gpt-fast", "base_url": "https://evil.example/v1", "api_key": "", "anyway": "1"}
    assert "enter the key for it" in staff.post(edit, form).content.decode()
    assert offered(SOMEBODY)[0].base_url == "https://models.example/v1"
    staff.post(edit, {**form, "base_url": "https://models.example/v2"})
    assert (offered(SOMEBODY)[0].base_url, offered(SOMEBODY)[0].api_key) == ("https://models.example/v2", SECRET)
    staff.post(edit, {**form, "api_key": "sk-another"})
    assert (offered(SOMEBODY)[0].base_url, offered(SOMEBODY)[0].api_key) == ("https://evil.example/v1", "sk-another")


@pytest.mark.medium
def test_with_another_secret_key_the_page_says_what_to_enter_again(staff, settings):
    key = add(staff, api_key=SECRET)
    former, person = settings.SECRET_KEY, User.objects.get()
    settings.SECRET_KEY = "another one"
    staff.force_login(person)
    assert "own key has changed" in staff.get(MODELS).content.decode()
    assert offered(SOMEBODY)[0].api_key == ""
    with as_the_application():
        problems = [what for what, _ in doctor.examine(now=NOW).problems]
    assert "SECRET_KEY does not open 1 of the keys of language models that staff have entered." in problems
    settings.SECRET_KEY_FALLBACKS = [former]
    assert "own key has changed" not in staff.get(MODELS).content.decode()
    assert offered(SOMEBODY)[0].api_key == SECRET
    settings.SECRET_KEY_FALLBACKS = []
    staff.post(reverse("intake:staff_model", args=[key]), {"name": "fast", "id": "gpt-fast", "api_key": "sk-new"})
    assert offered(SOMEBODY)[0].api_key == "sk-new"


def test_models_are_ordered_and_removed(staff):
    first, second, third = (add(staff, name=name) for name in ("one", "two", "three"))
    act(staff, "up", third)
    assert names() == ["one", "three", "two"]
    act(staff, "down", first)
    assert names() == ["three", "one", "two"]
    act(staff, "up", third)
    act(staff, "down", second)
    assert names() == ["three", "one", "two"]
    assert "one is removed." in act(staff, "remove", first)
    assert names() == ["three", "two"]
    assert staff.post(MODELS, {"do": "remove", "key": first}).status_code == 404
    assert staff.get(reverse("intake:staff_model", args=[first])).status_code == 404


def test_models_of_the_environment_come_first_and_cannot_be_changed(staff, settings):
    add(staff, name="fast")
    settings.LLM_MODEL, settings.LLM_API_KEY = "fixed", SECRET
    page = staff.get(MODELS).content.decode()
    assert page.index("<strong>fixed</strong>") < page.index("<strong>fast</strong>")
    assert "Set in the environment." in page and SECRET not in page
    assert names() == ["fixed", "fast"]
    assert "of this name already" in staff.post(NEW, {"name": "fixed", "id": "gpt"}).content.decode()
    settings.LLM_MODEL = "fast"
    assert [(model.name, model.api_key) for model in offered(SOMEBODY)] == [("fast", SECRET)]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"name": "a b"}, "field-error"),
        ({"name": "x" * 200}, "field-error"),
        ({"base_url": "ftp://models.example"}, "It begins with http:// or https://."),
        ({"base_url": "https://"}, "It begins with http:// or https://."),
        ({"id": ""}, "it needs the name of a model"),
        ({"id": "anthropic:"}, "it needs the name of a model"),
        ({"context_tokens": "many"}, "field-error"),
        ({"thinking": "deeply"}, "field-error"),
    ],
)
def test_what_is_no_model_is_refused_beside_its_field(staff, fields, sentence):
    answer = staff.post(NEW, {"name": "fast", "id": "gpt-fast", **fields})
    assert answer.status_code == 200
    assert sentence in answer.content.decode()
    assert not InstallationSetting.objects.exists()


def test_another_process_offers_a_model_after_a_moment(staff, settings, monkeypatch):
    add(staff)
    # As a process that has read nothing since.
    installation.forget_kept_settings()
    assert names() == []
    settings.KEPT_SETTINGS_SECONDS = 0
    assert names() == ["fast"]


def test_a_server_on_this_machine_is_found_and_added_by_one_click(staff, house, monkeypatch):
    port = int(house.address.split(":")[2].split("/")[0])
    ports = {port: "Ollama", 1: "vLLM"}
    monkeypatch.setattr(staff_pages, "find_servers", partial(model_servers.find_servers, ports=ports))
    address = f"http://127.0.0.1:{port}/v1"
    page = staff.get(MODELS).content.decode()
    assert address in page and "2 models: llama, qwen" in page and "vLLM</strong>" not in page
    answer = act(staff, "adopt", "", address=address)
    assert "Everybody can choose its models now." in answer
    assert names() == ["ollama/llama", "ollama/qwen"]
    assert 'value="adopt"' not in staff.get(MODELS).content.decode()
    assert "No server answers there" in act(staff, "adopt", "", address="http://10.0.0.1/v1")
    assert names() == ["ollama/llama", "ollama/qwen"]


GIGABYTE = 10**9
OLLAMA = {
    "all-minilm:latest": (["embedding"], GIGABYTE // 20),
    "bge-m3:latest": ([], GIGABYTE),
    "gpt-oss:20b": (["completion", "tools"], 2 * GIGABYTE),
    "huge:405b": (["completion"], 10**15),
    "qwen3:4b-instruct": (["completion"], GIGABYTE),
}


@pytest.fixture
def ollama():
    """Five models: one says that it embeds, one has a name that says so, and one is larger than any memory."""
    running = {"models": []}
    others = {
        "/api/tags": {"models": [{"name": name, "size": size} for name, (_, size) in OLLAMA.items()]},
        "/api/show": lambda sent: {"capabilities": OLLAMA[sent["model"]][0]},
        "/api/ps": running,
    }
    model = ScriptedModel(names=list(OLLAMA), others=others)
    with serving(model.application) as address:
        model.address, model.running = f"{address}/v1", running["models"]
        yield model


def adopted(staff, server, monkeypatch):
    port = int(server.address.split(":")[2].split("/")[0])
    monkeypatch.setattr(staff_pages, "find_servers", partial(model_servers.find_servers, ports={port: "Ollama"}))
    return act(staff, "adopt", "", address=f"http://127.0.0.1:{port}/v1")


def test_one_click_on_ollama_offers_what_can_chat_the_largest_that_fits_first(staff, ollama, monkeypatch):
    adopted(staff, ollama, monkeypatch)
    models = offered(SOMEBODY)
    assert [model.title for model in models] == ["gpt-oss 20B", "huge 405B", "qwen3 4B-instruct"]
    assert models[0].name == "ollama/gpt-oss:20b"
    page = staff.get("/").content.decode()
    assert '<option value="ollama/gpt-oss:20b"' in page and ">gpt-oss 20B</option>" in page


def test_the_model_that_is_loaded_comes_first(staff, ollama, monkeypatch):
    ollama.running.append({"name": "qwen3:4b-instruct"})
    adopted(staff, ollama, monkeypatch)
    assert names()[0] == "ollama/qwen3:4b-instruct"


def test_staff_choose_a_servers_default_and_hide_its_others(staff, ollama, monkeypatch):
    adopted(staff, ollama, monkeypatch)
    key = InstallationSetting.objects.get(name="models").value[0]["key"]
    act(staff, "hide", key, model="huge:405b")
    act(staff, "default", key, model="qwen3:4b-instruct")
    assert names() == ["ollama/qwen3:4b-instruct", "ollama/gpt-oss:20b"]
    page = staff.get(MODELS).content.decode()
    assert "Make gpt-oss 20B the default" in page and "Show huge 405B" in page and "Hide gpt-oss 20B" in page
    act(staff, "show", key, model="huge:405b")
    assert "ollama/huge:405b" in names()
    # Its other fields are changed, and these stay.
    edit = reverse("intake:staff_model", args=[key])
    staff.post(edit, {"name": "home", "base_url": ollama.address, "anyway": "1"})
    assert names()[0] == "home/qwen3:4b-instruct"


def test_a_new_server_is_tried_before_it_is_kept(staff, ollama):
    def post(**fields):
        return staff.post(f"{NEW}?of=other", fields, follow=True).content.decode()

    assert "No server answers at this address (URLError)." in post(base_url="http://127.0.0.1:1/v1")
    root = ollama.address.removesuffix("/v1")
    wrong = post(base_url=f"{root}/api/v1")
    assert "The server answered 404. Does the address end in /v1?" in wrong and "Save anyway" in wrong
    assert names() == []
    assert "Saved." in post(base_url=root)
    assert offered(SOMEBODY)[0].base_url == ollama.address and names()[0] == "127.0.0.1/gpt-oss:20b"


def test_a_vendors_model_is_chosen_from_its_list_and_the_key_is_typed_once(staff, house, monkeypatch):
    monkeypatch.setitem(staff_pages.VENDORS, "anthropic", house.address)
    monkeypatch.setattr(model_servers, "ANTHROPICS", house.address)
    add_page = f"{NEW}?of=anthropic"
    form = staff.post(add_page, {"api_key": SECRET}).content.decode()
    assert '<option value="qwen">qwen</option>' in form and "All of them" not in form and SECRET not in form
    sealed = form.split('name="sealed" value="')[1].split('"')[0]
    staff.post(add_page, {"api_key": "", "sealed": sealed, "id": "qwen"})
    (model,) = offered(SOMEBODY)
    assert (model.name, model.id, model.base_url, model.api_key) == ("qwen", "anthropic:qwen", "", SECRET)
    assert set(house.keys) == {None}, "Anthropic takes a key in its own way"


def test_this_server_is_not_taken_for_one_of_models(house):
    port = int(house.address.split(":")[2].split("/")[0])
    ports = {port: "vLLM"}
    assert [found[2] for found in model_servers.find_servers(ports=ports)] == [["llama", "qwen"]]
    assert model_servers.find_servers(own_port=port, ports=ports) == []


def test_saying_hello_tells_what_a_model_can(staff, house):
    house.follow(CallTool("weekday", {}), Say(("Hello, ", "it is Monday.")))
    key = add(staff, base_url=house.address, id="llama", api_key=SECRET, vision="on")
    page = act(staff, "test", key)
    assert "It answers: “Hello, it is Monday.”" in page
    assert "It reads 32,768 tokens at once." in page
    assert "It uses tools." in page and "It is sent pictures." in page
    assert f"Bearer {SECRET}" in house.keys


def test_saying_hello_to_a_server_asks_its_first_model(staff, house):
    house.follow(Say(("Hello.",)))
    page = act(staff, "test", add(staff, base_url=house.address, id=""))
    assert "It answers: “Hello.”" in page and "It did not call a tool when asked" in page
    assert house.requests[0]["model"] == "llama"


def test_a_model_that_refuses_tools_is_asked_without(staff, house):
    house.follow(Refuse(400, message="does not support tools"), Say(("Hello.",)))
    page = act(staff, "test", add(staff, base_url=house.address, id="llama"))
    assert "It answers: “Hello.”" in page and "It did not call a tool" in page
    assert ["tools" in request for request in house.requests] == [True, False]


def test_what_fails_is_said_without_the_key(staff, house, caplog):
    caplog.set_level(logging.DEBUG)
    house.follow(Refuse(401, message=f"Incorrect API key {SECRET}"))
    key = add(staff, base_url=house.address, id="llama", api_key=SECRET)
    page = act(staff, "test", key)
    assert "API key for this model is not accepted" in page and "Incorrect API key …" in page
    assert SECRET not in page and SECRET not in caplog.text


def test_a_model_that_is_away_or_too_slow_is_said_to_be(staff, house, monkeypatch):
    away = act(staff, "test", add(staff, base_url="http://127.0.0.1:1/v1", id="llama"))
    assert "cannot be reached" in away
    listing = act(staff, "test", add(staff, name="all", base_url="http://127.0.0.1:1/v1", id=""))
    assert "Its server cannot be reached" in listing
    monkeypatch.setattr(staff_pages, "HELLO_SECONDS", 0.3)
    house.follow(Hang())
    slow = act(staff, "test", add(staff, name="slow", base_url=house.address, id="llama"))
    assert "It may still be loading" in slow


def test_a_chat_is_answered_by_a_model_that_was_added(log_in, house):
    person = User.objects.create_user("person@example.com", "password", is_staff=True)
    browser = log_in(person)
    answer = browser.submit(NEW + "?of=other", name="house", base_url=house.address, id="llama", api_key=SECRET)
    assert answer.status_code == 200, answer.text
    house.follow(Say(("From 2011.",)))
    assert browser.events("How old is the boiler?")[-1].data["html"] == '<p dir="auto">From 2011.</p>'
    listed = browser.get("/api/v1/models/").text
    assert json.loads(listed)["models"][0]["name"] == "house"
    assert SECRET not in listed and "127.0.0.1" not in listed


@pytest.mark.extended
def test_no_key_is_in_an_endpoint_a_log_a_row_the_doctor_or_a_backup(log_in, house, settings, logged, monkeypatch):
    """Three keys are planted. Every address that needs no argument is asked as staff, and the chat fails by its key."""
    planted = {name: f"sk-rumpelstiltskin-{name}" for name in ("kept", "environment", "secret")}
    settings.LLM_API_KEY, settings.SECRET_KEY = planted["environment"], planted["secret"]
    settings.LLM_MODEL, settings.LLM_BASE_URL = "fixed", house.address
    for name in ("LLM_API_KEY", "SECRET_KEY"):
        monkeypatch.setenv(name, getattr(settings, name))
    person = User.objects.create_user("staff@example.com", "password", is_staff=True, is_superuser=True)
    browser = log_in(person)
    browser.submit(NEW + "?of=other", name="kept", base_url=house.address, id="llama", api_key=planted["kept"])
    house.follow(*(Refuse(401, message=f"Incorrect API key {' '.join(planted.values())}") for _ in range(4)))
    seen = {"chat": json.dumps([event.data for event in browser.events("How old is the boiler?")])}
    assert '"code": "' in seen["chat"]
    staff = Client(raise_request_exception=False)
    staff.force_login(person)
    plain = {route.pattern for route in routes() if not set(route.pattern) & set("<>(")}
    for path in (f"/{pattern.removesuffix('$')}" for pattern in sorted(plain)):
        for method in ("get", "put", "post") if path.startswith("/api/") else ("get",):
            answer = (
                getattr(staff, method)(path, "{", content_type="application/json")
                if method != "get"
                else staff.get(path)
            )
            if not answer.streaming:
                seen[f"{method} {path}"] = f"{answer.headers}{answer.content.decode(errors='replace')}"
    assert (
        len(seen) > 60
        and {"get /metrics", "get /healthz", f"get {MODELS}", "post /api/v1/conversations/"} <= seen.keys()
    )
    with as_the_application():
        seen["doctor"] = doctor.examine(now=NOW).as_text()
    with connection.cursor() as cursor:
        # A backup has these rows, the names of some settings, and a digest of SECRET_KEY.
        cursor.execute("SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace")
        for (table,) in cursor.fetchall():
            cursor.execute(f'SELECT string_agg(t::text, chr(10)) FROM "{table}" t')
            seen[table] = cursor.fetchone()[0] or ""
    assert "staff@example.com" in seen["users"] and house.address in seen["installation_settings"]
    seen["manifest"] = f"{comparison.kept_settings()} {comparison.fingerprint(settings.SECRET_KEY)}"
    seen["log"] = "".join(logged.lines)
    assert [place for place, text in seen.items() if "rumpelstiltskin" in text] == []


def test_people_who_are_not_staff_add_no_model():
    browser = Client()
    browser.force_login(a_person())
    assert browser.post(NEW, {"name": "fast", "id": "gpt-fast"}).status_code == 404
    assert browser.post(MODELS, {"do": "adopt", "address": "http://127.0.0.1:11434/v1"}).status_code == 404
    assert not InstallationSetting.objects.exists()
