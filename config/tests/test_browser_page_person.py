"""In a browser: what somebody typed in a page that outlived their session is kept, and is nobody else's."""

import re

import pytest

from intake.models import Session, Turn, User
from intake.tests.factories import a_person

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]
TEXT = "I moved to Lisbon"


def send(page, text=TEXT):
    page.get_by_role("textbox", name="Message").fill(text)
    page.get_by_role("button", name="Send").click()


def log_in(page, user):
    page.goto("/login/")
    page.get_by_label("Email").fill(user.email)
    page.get_by_label("Password", exact=True).fill("password")
    page.get_by_role("main").get_by_role("button", name="Log in", exact=True).click()
    page.wait_for_url(re.compile(r"/$"))


def test_a_page_whose_session_has_ended_keeps_the_text_and_leads_back_to_it(open_page):
    from playwright.sync_api import expect

    person = a_person()
    page = open_page("/", user=person)
    Session.objects.all().delete()
    send(page)
    expect(page.get_by_role("alert").filter(has_text="You are logged out")).to_be_visible()
    expect(page.get_by_role("textbox", name="Message")).to_have_value(TEXT)
    assert not Turn.objects.exists() and not User.objects.filter(is_visitor=True).exists()
    page.locator("[data-logged-out] a").click()
    page.get_by_label("Email").fill(person.email)
    page.get_by_label("Password", exact=True).fill("password")
    page.get_by_role("main").get_by_role("button", name="Log in", exact=True).click()
    expect(page.get_by_role("textbox", name="Message")).to_have_value(TEXT)


def test_another_log_in_in_a_second_tab_gets_nothing_of_the_first(open_page):
    from playwright.sync_api import expect

    alice, bob = a_person("alice@example.com"), a_person("bob@example.com")
    page = open_page("/", user=alice)
    other = page.context.new_page()
    page.context.clear_cookies()
    log_in(other, bob)
    send(page)
    expect(page.get_by_role("textbox", name="Message")).to_have_value(TEXT)
    assert not Turn.objects.exists()
    # The next person in this tab finds no draft of the one before.
    page.goto("/")
    expect(page.get_by_role("textbox", name="Message")).to_have_value("")


def test_a_visitor_goes_on_in_the_page_of_the_first_message_and_takes_it_along(open_page):
    from playwright.sync_api import expect

    page = open_page("/")
    send(page, "First")
    expect(page.locator(".turn")).to_have_count(1)
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    send(page, "Second")
    expect(page.locator(".turn")).to_have_count(2)
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    assert Turn.objects.count() == 2
    assert Turn.objects.values("user").distinct().count() == 1


def test_a_page_that_one_comes_back_to_after_a_log_out_writes_nothing(open_page):
    """By the back button, with the service worker in control, out of the browser's own store or anew."""
    from playwright.sync_api import expect

    page = open_page("/memory/edit/", user=a_person())
    page.wait_for_function("!navigator.serviceWorker || navigator.serviceWorker.ready")
    page.goto("/offline/")
    page.context.clear_cookies()
    page.go_back()
    box = page.get_by_role("textbox").first
    if page.url.endswith("/memory/edit/") and box.is_visible():
        box.fill(TEXT)
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("You are logged out")).to_be_visible()
    else:
        # Asked for anew, and so made for nobody.
        expect(page.locator("html")).to_have_attribute("data-for", re.compile("^n"))
    assert not User.objects.filter(is_visitor=True).exists()


def test_a_form_of_a_page_that_outlived_its_session_shows_the_text_again(open_page):
    from playwright.sync_api import expect

    page = open_page("/memory/edit/", user=a_person())
    page.context.clear_cookies()
    page.locator("textarea").first.fill(TEXT)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="You are logged out")).to_be_visible()
    expect(page.locator("textarea.typed")).to_have_value(TEXT)
