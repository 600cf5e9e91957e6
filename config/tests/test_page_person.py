"""A page writes for the person whom it was made for, or not at all: at every endpoint, after log-outs and other log-ins."""

import re
from itertools import cycle

import pytest
from django.test import Client

from config.tests.endpoints.house import Things
from config.tests.endpoints.registered import ENDPOINTS
from intake.accounts.identity import PAGE_PERSON_FIELD, PAGE_PERSON_HEADER
from intake.models import Turn, User
from intake.tests.factories import a_person, a_visitor

pytestmark = pytest.mark.django_db
WRITES = ("POST", "PUT", "PATCH", "DELETE")
THINGS = Things(conversation="0190c0de-0000-7000-8000-000000000008")
LOGGED_OUT, ANOTHER = "You are logged out. Log in.", "This page was made for another account. Reload it."
# Every endpoint is registered (test_endpoints.py), so a new one is tried here too.
WRITING = [
    (f"{method} /{endpoint.route}", method, f"/{THINGS.fill(endpoint.at)}")
    for endpoint in ENDPOINTS.values()
    for method in WRITES
    if method in endpoint.probes
]


def browser_of(user: User | None) -> Client:
    browser = Client()
    if user is not None:
        browser.force_login(user)
    return browser


def page_person(browser: Client) -> str:
    return re.search(r'data-for="(\w+)"', browser.get("/").text)[1]


@pytest.mark.medium
def test_no_endpoint_takes_a_write_of_a_page_that_was_made_for_another():
    alice, bob = a_person("alice@example.com"), a_person("bob@example.com")
    visitors = [a_visitor(), a_visitor()]
    of = {user: page_person(browser_of(user)) for user in (alice, bob, *visitors, None)}
    cases = [
        (of[alice], browser_of(None), LOGGED_OUT),
        (of[alice], browser_of(visitors[0]), LOGGED_OUT),
        (of[alice], browser_of(bob), ANOTHER),
        (of[visitors[0]], browser_of(None), LOGGED_OUT),
        (of[visitors[0]], browser_of(visitors[1]), LOGGED_OUT),
        (of[visitors[0]], browser_of(alice), ANOTHER),
        (of[None], browser_of(alice), ANOTHER),
    ]
    # One middleware refuses before it knows the endpoint: each endpoint meets one case by a script and the next by a
    # form, and each case meets every seventh endpoint.
    following = cycle(cases)
    wrong = [
        f"{name}: {answer.status_code}"
        for name, method, path in WRITING
        for write in ([by_script, by_form] if method == "POST" else [by_script])
        for made_for, browser, sentence in [next(following)]
        for answer in [write(browser, method, path, made_for)]
        if not is_refused(answer, path, sentence)
    ]
    assert not wrong, "\n".join(wrong)
    assert not Turn.objects.exists()


def by_form(browser, _, path, made_for):
    return browser.post(path, {PAGE_PERSON_FIELD: made_for, "content": "what I typed"})


def by_script(browser, method, path, made_for):
    return browser.generic(method, path, "{}", "application/json", headers={PAGE_PERSON_HEADER: made_for})


def is_refused(answer, path, sentence):
    if path.startswith("/api/"):
        is_problem = answer["Content-Type"] == "application/problem+json"
        return is_problem and answer.status_code == 401 and answer.json()["code"] == "authentication_required"
    return answer.status_code == 401 and sentence in answer.text


@pytest.mark.parametrize("who", ["person", "visitor", "nobody"])
def test_a_page_writes_for_its_own_person(who):
    user = {"person": a_person, "visitor": a_visitor, "nobody": lambda: None}[who]()
    browser = browser_of(user)
    made_for = page_person(browser)
    answer = browser.post("/settings/account/titles/", {}, headers={PAGE_PERSON_HEADER: made_for})
    assert answer.status_code == 302
    assert LOGGED_OUT not in answer.text


def test_other_pages_of_nobody_write_as_the_visitor_of_the_first_message():
    browser = Client()
    made_for = page_person(browser)
    browser.force_login(a_visitor())
    answer = browser.post("/c/x/keep/", {PAGE_PERSON_FIELD: made_for})
    assert answer.status_code != 401


def test_a_form_gets_its_text_back_with_a_way_to_log_in_and_return():
    browser = browser_of(a_person())
    page = browser.get("/memory/edit/").text
    made_for = re.search(f'name="{PAGE_PERSON_FIELD}" value="(\\w+)"', page)[1]
    browser.logout()
    form = {
        PAGE_PERSON_FIELD: made_for,
        "content": "<b>a long thought</b>",
        "password": "a secret of mine",
        "state": "1-x",
    }
    back = {"referer": "http://testserver/memory/edit/?from=here"}
    answer = browser.post("/memory/edit/", form, headers=back)
    assert answer.status_code == 401
    assert "&lt;b&gt;a long thought&lt;/b&gt;" in answer.text
    assert "a secret of mine" not in answer.text and "1-x" not in answer.text
    assert 'href="/login/?next=%2Fmemory%2Fedit%2F%3Ffrom%3Dhere"' in answer.text


@pytest.mark.parametrize("referer", ["https://evil.example/x", "http://testserver//evil.example/", "", "javascript:x"])
def test_the_way_back_leads_to_no_other_site(referer):
    browser = browser_of(a_person())
    made_for = page_person(browser)
    browser.logout()
    answer = browser.post("/memory/edit/", {PAGE_PERSON_FIELD: made_for}, headers={"referer": referer})
    assert 'href="/login/?next=%2F"' in answer.text


def test_a_log_in_in_another_tab_is_told_before_its_new_csrf_token_is_missed():
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(a_person("alice@example.com"))
    page = browser.get("/settings/account/").text
    fields = dict(re.findall(r'name="(csrfmiddlewaretoken|page_for)" value="(\w+)"', page))
    assert set(fields) == {"csrfmiddlewaretoken", PAGE_PERSON_FIELD}
    browser.force_login(a_person("bob@example.com"))
    browser.cookies["csrftoken"] = "x" * 32
    answer = browser.post("/settings/account/titles/", fields)
    assert answer.status_code == 401
    assert ANOTHER in answer.text


def test_what_names_a_person_in_a_page_is_no_id_and_differs_by_key(settings):
    alice, bob = a_person("alice@example.com"), a_person("bob@example.com")
    first = page_person(browser_of(alice))
    assert first == page_person(browser_of(alice)) != page_person(browser_of(bob))
    assert str(alice.pk) not in re.findall(r"\d+", first)[:1]
    settings.SECRET_KEY = "another key"
    assert page_person(browser_of(alice)) != first


def test_a_token_says_nothing_of_a_page():
    from agent_tools.authentication import create_token

    made = create_token(user=a_person(), name="x")
    headers = {"authorization": f"Bearer {made.secret}"}
    answer = Client().post("/api/v1/memory/records/", {"content": "x"}, "application/json", headers=headers)
    assert answer.status_code == 201
