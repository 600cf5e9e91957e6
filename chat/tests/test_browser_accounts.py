"""Getting in, in a real browser: by invitation, a confirmed email, a passkey and a forgotten password; ending a session elsewhere."""

import re
from collections.abc import Callable

import pytest
from django.core import mail
from playwright.sync_api import Page, expect

from intake.models import Invitation, Session, User

pytestmark = [pytest.mark.extended, pytest.mark.medium, pytest.mark.django_db(transaction=True)]

EMAIL, PASSWORD, NEW = "alice@example.com", "correct horse battery", "a staple and a stapler"


def newest_link(part: str) -> str:
    """The path that the newest email of this kind leads to."""
    found = [path for message in mail.outbox for path in re.findall(r"http://[^/\s]+(/\S+)", message.body)]
    return [path for path in found if part in path][-1]


def with_authenticator(page: Page) -> None:
    """A device that holds passkeys and always knows its owner, as Chromium's DevTools make one."""
    devtools = page.context.new_cdp_session(page)
    devtools.send("WebAuthn.enable")
    options = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True}
    devtools.send(
        "WebAuthn.addVirtualAuthenticator",
        {"options": {**options, "isUserVerified": True, "automaticPresenceSimulation": True}},
    )


@pytest.fixture
def open_at_localhost(open_page: Callable[..., Page], server: str) -> Callable[..., Page]:
    """Passkeys belong to names, and an IP address is none."""

    def open_at_localhost(path: str, **options) -> Page:
        return open_page(path, base_url=server.replace("127.0.0.1", "localhost"), **options)

    return open_at_localhost


def register(page: Page, invitation: str) -> User:
    page.goto(f"/register/?invitation={invitation}")
    page.get_by_label("Email").fill(EMAIL)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Register", exact=True).click()
    expect(page.get_by_label("Message", exact=True)).to_be_visible()
    return User.objects.get(email=EMAIL)


def add_a_passkey(page: Page) -> None:
    """Which is refused before the address is confirmed."""
    page.goto("/settings/account/factors/passkeys/add/")
    expect(page.get_by_text("Confirm your email address first")).to_be_visible()
    page.goto(newest_link("/email/"))
    page.get_by_role("button", name="Yes, confirm it").click()
    page.goto("/settings/account/factors/")
    page.get_by_role("link", name="Add a passkey").click()
    page.get_by_label("Name", exact=True).fill("My laptop")
    page.get_by_role("button", name="Add the passkey").click()
    expect(page.get_by_role("heading", name="Recovery codes")).to_be_visible()
    page.goto("/settings/account/factors/")
    expect(page.get_by_text("My laptop")).to_be_visible()


def log_in_by_passkey(page: Page, *, then: str) -> None:
    page.goto("/")
    page.locator(".person-button").click()
    page.get_by_role("menuitem", name="Log out").click()
    page.goto(f"/login/?next={then}")
    page.get_by_role("button", name="Use a passkey").click()
    page.wait_for_url(f"**{then}")


def log_in_by_password(page: Page, *, code: str, then: str) -> None:
    """Which asks for a second factor."""
    page.goto(f"/login/?next={then}")
    page.get_by_label("Email").fill(EMAIL)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in", exact=True).click()
    expect(page.get_by_role("heading", name="Second factor")).to_be_visible()
    page.get_by_label("Code").fill(code)
    page.get_by_role("button", name="Log in", exact=True).click()
    page.wait_for_url(f"**{then}")


def choose_a_new_password(page: Page) -> None:
    page.get_by_role("link", name="Forgotten your password?").click()
    page.get_by_label("Email").fill(EMAIL)
    page.get_by_role("button", name="Send the email").click()
    expect(page.get_by_role("heading", name="Check your email")).to_be_visible()
    page.goto(newest_link("/login/password/"))
    page.get_by_label("New password").fill(NEW)
    page.get_by_role("button", name="Save the password").click()
    expect(page.get_by_role("heading", name="Your password is changed")).to_be_visible()


def test_from_an_invitation_to_a_passkey_a_new_password_and_another_browser_that_is_logged_out(
    open_at_localhost, settings
):
    settings.REGISTRATION = "invite"
    page, elsewhere = open_at_localhost("/login/"), open_at_localhost("/login/")
    with_authenticator(page)
    user = register(page, Invitation.objects.issue(note="For Alice")[1])
    add_a_passkey(page)
    page.goto("/settings/account/factors/codes/")
    code = page.locator(".codes code").first.inner_text()
    log_in_by_passkey(page, then="/settings/account/sessions/")
    log_in_by_password(elsewhere, code=code, then="/settings/account/")

    # The other browser is in the list, and is logged out from here.
    page.goto("/settings/account/sessions/")
    expect(page.locator(".rows li")).to_have_count(2)
    page.get_by_role("button", name=re.compile("^End the session")).click()
    expect(page.locator(".rows li")).to_have_count(1)
    elsewhere.reload()
    expect(elsewhere.get_by_role("heading", name="Log in")).to_be_visible()

    # A new password ends every session, this one too.
    choose_a_new_password(elsewhere)
    assert not Session.objects.filter(user=user).exists()
    user.refresh_from_db()
    assert user.check_password(NEW)
    page.reload()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()


def test_opening_the_account_saves_nothing(open_page, person):
    page = open_page("/", user=person)
    posted = []
    page.on("request", lambda request: posted.append(request.url) if request.method == "POST" else None)
    page.goto("/settings/account/")
    # The scripts have run: a form that saves its choices has no button of its own any more.
    expect(page.locator("form[data-saves] button:not([type])")).to_have_count(0)
    page.wait_for_load_state("networkidle")
    assert posted == []
    expect(page.get_by_text("Saved.")).to_have_count(0)


def test_choices_of_an_account_are_saved_as_they_change(open_page, person):
    page = open_page("/settings/account/", user=person)
    page.get_by_role("button", name="Use").click()
    language = page.locator("#language")
    expect(language.get_by_text("Saved.")).to_be_visible()
    person.refresh_from_db()
    assert person.time_zone == page.evaluate("Intl.DateTimeFormat().resolvedOptions().timeZone")
    page.get_by_label("Language", exact=True).select_option("de")
    expect(page.get_by_role("heading", name="Konto", exact=True)).to_be_visible()
    page.route("**/settings/account/language/", lambda route: route.abort())
    page.get_by_label("Sprache", exact=True).select_option("es")
    expect(page.get_by_text("Nicht gespeichert")).to_be_visible()
    person.refresh_from_db()
    assert person.language == "de"


def test_what_is_chosen_before_the_scripts_run_is_saved_too(open_page, person):
    page = open_page("/settings/account/", user=person)
    held = []
    page.route(re.compile(r"/accounts\.\w+\.js"), lambda route, request: held.append(route))
    page.reload(wait_until="commit")
    page.get_by_label("Language", exact=True).select_option("de")
    assert held
    for route in held:
        route.continue_()
    expect(page.get_by_role("heading", name="Konto", exact=True)).to_be_visible()


def test_nothing_is_saved_for_an_account_whose_time_zone_is_not_in_the_list(open_page, person):
    type(person).objects.update(time_zone="Atlantis")
    page = open_page("/settings/account/", user=person)
    sent = []
    page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
    page.reload()
    # The script has run: it put these in place of the buttons.
    expect(page.locator("#language [role=status]")).to_have_count(2)
    page.wait_for_timeout(300)
    assert sent == []
    person.refresh_from_db()
    assert person.time_zone == "Atlantis"


def test_the_size_of_text_and_the_width_stay_in_this_browser(open_page, person):
    page = open_page("/settings/account/", user=person)
    size = "parseFloat(getComputedStyle(document.documentElement).fontSize)"
    before = page.evaluate(size)
    page.get_by_role("radio", name="Large").check()
    page.get_by_role("radio", name="Wide").check()
    page.get_by_role("radio", name="Dark").check()
    assert page.evaluate(size) > before
    page.goto("/")
    assert page.evaluate(size) > before
    looks = page.evaluate("({...document.documentElement.dataset})")
    assert (looks["text"], looks["width"], looks["theme"]) == ("large", "wide", "dark")
    page.goto("/settings/account/")
    expect(page.get_by_role("radio", name="Wide")).to_be_checked()
    page.get_by_role("group", name="Text size").get_by_role("radio", name="Normal").check()
    page.reload()
    assert page.evaluate(size) == before
