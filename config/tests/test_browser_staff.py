"""The pages of staff in a real browser, from the menu of a chat to a link in the clipboard, on a phone."""

import pytest
from playwright.sync_api import expect

from intake.models import User, installation

pytestmark = [pytest.mark.extended, pytest.mark.medium, pytest.mark.django_db(transaction=True)]

PHONE = {"width": 360, "height": 740}


@pytest.fixture
def root():
    installation.forget_kept_settings()
    yield User.objects.create_superuser("root@example.com", "password")
    installation.forget_kept_settings()


def test_staff_invite_from_the_menu_and_copy_the_link(open_page, root):
    page = open_page(user=root, viewport=PHONE, permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Your chats").click()
    page.locator(".person-button").click()
    page.get_by_role("menuitem", name="Administration").click()
    page.get_by_role("navigation", name="Administration").get_by_role("link", name="People").click()
    page.get_by_role("button", name="Make a link").click()
    link = page.get_by_label("Invitation").input_value()
    assert "/register/?invitation=" in link
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == link
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


def test_a_language_that_is_not_offered_is_not_shown(open_page, root):
    page = open_page("/staff/settings/", user=root)
    for language in ("Deutsch", "English"):
        page.get_by_label(language).uncheck()
    page.locator("#languages").get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", name="Ajustes")).to_be_visible()
    assert installation.InstallationSetting.objects.get(name="languages").value == ["es"]
