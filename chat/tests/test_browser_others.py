"""The chat in Firefox and in WebKit, as Debian packages them: what one does on most days, and what only they do otherwise."""

import time

import pytest
from playwright.sync_api import expect

from intake.tests.factories import a_turn
from testing.browser import ARGUMENTS, NAMES, executable, session_cookie
from testing.model_server import Say
from testing.other_browsers import DRIVERS

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

PATIENCE_SECONDS = 30
RICH = """Both, side by side.

| dish | minutes |
|---|---|
| soup | 20 |

```python
print("a line of code that is wider than the column of text beside which it stands, and so is scrolled by itself")
```

$$\\frac{a}{b}$$
"""


def until(browser, function, *arguments):
    """What the function gives once it is something."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not (found := browser.run(function, *arguments)):
        assert time.monotonic() < end, f"{function}: {browser.run('() => document.body.innerText')[:800]}"
        time.sleep(0.1)
    return found


def log_in(browser, server, person):
    browser.go(f"{server}/login/")
    fill = """(email, password) => {
      const form = document.querySelector("main form:has([type=password])");
      form.querySelector("[type=email], [name=username]").value = email;
      form.querySelector("[type=password]").value = password;
      form.requestSubmit();
    }"""
    browser.run(fill, person.email, "password")
    until(
        browser,
        """() => location.pathname === "/" && document.querySelector("#message") && document.readyState === "complete" """,
    )
    listen(browser)


def listen(browser):
    """To what goes wrong in this page from here on."""
    browser.run("""() => {
      globalThis.wrong = [];
      addEventListener("error", ({ message }) => wrong.push(message));
      addEventListener("unhandledrejection", ({ reason }) => wrong.push(String(reason)));
      addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) => wrong.push(`${violatedDirective} ${blockedURI}`));
    }""")


def say(browser, words):
    browser.run(
        """(words) => {
      const field = document.querySelector("#message");
      field.value = words;
      field.dispatchEvent(new Event("input", { bubbles: true }));
      field.form.requestSubmit();
    }""",
        words,
    )


def press(browser, key, **held):
    browser.run(
        """(key, held) => {
      const event = new KeyboardEvent("keydown", { key, ...held, bubbles: true, cancelable: true });
      (document.activeElement ?? document.body).dispatchEvent(event);
    }""",
        key,
        held,
    )


def until_status(browser, status, number):
    until(
        browser,
        """(status, number) => {
      const turns = document.querySelectorAll(".turn");
      return turns.length === number && turns[number - 1].dataset.status === status;
    }""",
        status,
        number,
    )


@pytest.fixture(params=DRIVERS)
def other(request, tmp_path, server):
    with DRIVERS[request.param](tmp_path) as driver:
        yield driver


def test_a_day_with_the_chat_in_another_browser(other, server, person, language_model):
    """Logs in, sends, stops, reads tables, code and a formula, opens menus, filters, searches, logs out and goes back."""
    language_model(Say(tuple(f"word{n} " for n in range(2000)), seconds_apart=0.05), Say((RICH,)))
    a_turn(person, "Which oak for the worktop?", "The one from Pfister.")
    log_in(other, server, person)

    say(other, "What shall we cook?")
    until(other, """() => document.querySelector(".turn .prose")?.textContent.includes("word3")""")
    press(other, "Escape")
    until_status(other, "interrupted", 1)

    say(other, "And what takes how long?")
    until_status(other, "complete", 2)
    drawn = """() => [".prose table td", ".prose pre code", ".prose math mfrac"].every((each) => document.querySelector(each))"""
    assert other.run(drawn)

    opened = """() => {
      const button = [...document.querySelectorAll(".turn [popovertarget], .turn [aria-haspopup=menu]")].at(-1);
      button.click();
      return document.querySelector(":popover-open") !== null;
    }"""
    assert other.run(opened)
    press(other, "Escape")

    press(other, "k", ctrlKey=True)
    until(other, """() => document.querySelector("dialog[open]") !== null""")
    other.run("""() => {
      const field = document.querySelector("dialog[open] [role=combobox]");
      field.value = "oak";
      field.dispatchEvent(new Event("input", { bubbles: true }));
    }""")
    until(
        other,
        """() => {
      const found = [...document.querySelectorAll("dialog[open] [data-group=chats] [role=option]")];
      return found.length === 1 && found[0].textContent.includes("oak");
    }""",
    )
    other.run("""() => document.querySelector("dialog[open]").close()""")
    for letter in "CMA":
        press(other, letter, ctrlKey=True, shiftKey=True)
    assert other.run("() => wrong") == []

    # What lies far off in a long chat is laid out late, and must not be cut at both sides for it.
    cut = """() => {
      const thread = document.querySelector("[data-thread]");
      for (let count = 0; count < 60; count++) thread.prepend(thread.lastElementChild.cloneNode(true));
      return getComputedStyle(thread.firstElementChild).contentVisibility === "auto" && !CSS.supports("overflow-clip-margin: 7rem");
    }"""
    assert not other.run(cut)

    other.go(f"{server}/memory/records/")
    other.go(f"{server}/")
    until(other, "() => document.body.innerText.includes('oak')")
    other.run("() => document.querySelector('[data-logout]').requestSubmit()")
    until(other, "() => !document.querySelector('[data-logout]') && document.readyState === 'complete'")
    other.back()
    until(other, "() => document.readyState === 'complete' && !document.querySelector('[data-logout]')")
    assert "oak" not in other.run("() => document.body.innerText")


PAGE = "A page.\n\n```html\n<!doctype html><p style='height: 90px'>Oak, 40 mm.</p>\n```\n"


def test_nothing_scrolls_for_its_border_where_scroll_bars_take_room(browser, server, person):
    """Playwright hides scroll bars, so this Chromium is started without that."""
    turn = a_turn(person, "Show me.", PAGE)
    kind = browser.browser_type
    found = executable(kind, NAMES)
    with kind.launch(executable_path=found, args=ARGUMENTS, ignore_default_args=["--hide-scrollbars"]) as launched:
        context = launched.new_context(base_url=server, viewport={"width": 390, "height": 844})
        context.add_cookies([session_cookie(person, server)])
        page = context.new_page()
        page.goto(f"/c/{turn.conversation_id}/")
        page.get_by_role("button", name="Preview").click()
        inside = page.frame_locator(".preview iframe").locator("html")
        expect(inside).to_contain_text("Oak")
        expect(page.locator(".preview iframe")).not_to_have_css("height", "160px")
        assert inside.evaluate("(root) => root.scrollHeight <= innerHeight && innerWidth === root.clientWidth")
        page.locator('[data-action="rephrase"]').last.evaluate("(button) => button.click()")
        field = page.locator("[data-rephrase] textarea")
        assert field.evaluate("(field) => field.scrollHeight <= field.clientHeight")
        page.goto("/memory/")
        assert page.locator(".tabs").first.evaluate("(tabs) => tabs.offsetHeight - tabs.clientHeight") <= 1
