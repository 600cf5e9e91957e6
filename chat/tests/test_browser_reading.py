"""Finding one's way in a real browser: links to turns, long lists, small screens, the keyboard, hostile text."""

import re

import pytest
from playwright.sync_api import Page, expect

from intake.chats.tree import conversation_path
from intake.models import Turn
from intake.tests.factories import a_long_conversation, a_turn
from testing.model_server import Say

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

PHONE = {"viewport": {"width": 360, "height": 700}, "has_touch": True}
WIDE_TABLE = "\n".join(["| column " * 12 + "|", "|---" * 12 + "|", "| content " * 12 + "|"])
WIDE_ANSWER = f"```python\nx = {'long' * 90}\n```\n\n{WIDE_TABLE}\n\nhttps://example.com/{'path' * 90} `{'code' * 90}`"
HOSTILE = (
    "<script>alert(1)</script><img src=https://evil.example/a.png onerror=alert(2)> ![x](https://evil.example/b.png) "
    "[go](javascript:alert(3)) <a href='javascript:alert(4)'>x</a> [[x](javascript:alert(5))](//evil.example) "
    "<svg onload=alert(6)> <iframe src=https://evil.example/></iframe> <javascript:alert(7)> "
    "[x](https://evil.example/ \"onmouseover=alert(8)\") <style>@import 'https://evil.example/c.css'</style>"
)


def is_on_screen(page: Page, selector: str) -> bool:
    box = page.locator(selector).bounding_box()
    return box is not None and 0 <= box["y"] < page.viewport_size["height"]


def overflow(page: Page) -> int:
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


@pytest.mark.parametrize("form", ["?turn=3#turn-3", "#turn-3"])
def test_a_link_to_a_turn_goes_there_however_long_ago_it_was(open_page, person, form):
    conversation = a_long_conversation(person, 70)
    page = open_page(conversation_path(conversation.pk) + form, user=person)
    expect(page.locator("#turn-3")).to_have_class(re.compile("asked-for"))
    assert is_on_screen(page, "#turn-3")
    expect(page.locator("#turn-3")).to_be_focused()
    page.get_by_role("link", name="Go to the latest turns").click()
    expect(page.locator("#turn-70")).to_be_in_viewport()


def test_a_conversation_opens_at_its_latest_turn(open_page, person):
    page = open_page(conversation_path(a_long_conversation(person, 30).pk), user=person)
    expect(page.locator("#turn-30")).to_be_in_viewport()
    expect(page.get_by_label("Message")).to_be_focused()


def test_earlier_turns_come_above_without_moving_what_is_read(open_page, person):
    page = open_page(conversation_path(a_long_conversation(person, 45).pk), user=person)
    expect(page.locator("#turn-45")).to_be_in_viewport()
    # As the page is: the nearest earlier ones may have come already.
    for first in (16, 1):
        page.evaluate(
            """async () => {
              window.scrollTo(0, 350);
              window.watched = [...document.querySelectorAll(".turn")].find((turn) => turn.getBoundingClientRect().bottom > 300);
              window.before = watched.getBoundingClientRect().top;
            }"""
        )
        expect(page.locator(f"#turn-{first}")).to_be_attached()
        assert abs(page.evaluate("watched.getBoundingClientRect().top - before")) < 60
    expect(page.get_by_role("link", name="Earlier turns")).to_have_count(0)
    numbers = page.locator(".turn").evaluate_all("turns => turns.map(turn => Number(turn.dataset.number))")
    assert numbers == list(range(1, 46))


def test_a_link_within_the_conversation_loads_no_page(open_page, person):
    conversation = a_long_conversation(person, 7)
    link = conversation_path(conversation.pk, turn_number=2)
    a_turn(person, "Where was it?", f"See [there]({link}).", conversation=conversation)
    page = open_page(conversation_path(conversation.pk), user=person)
    page.evaluate("window.stillHere = true")
    page.get_by_role("link", name="there").click()
    expect(page.locator("#turn-2")).to_be_in_viewport()
    assert page.evaluate("window.stillHere") is True


def test_times_are_told_in_words(open_page, person):
    turn = a_turn(person, "Just now")
    Turn.objects.filter(pk=turn.pk).update(said_at=turn.created_at)
    page = open_page(conversation_path(turn.conversation_id), user=person)
    expect(page.locator("#turn-1 time")).to_have_text("just now")


def test_a_phone_needs_no_sideways_scrolling(open_page, person):
    turn = a_turn(person, "unbroken" * 80, WIDE_ANSWER)
    page = open_page(user=person, **PHONE)
    for path in ["/", conversation_path(turn.conversation_id), "/conversations/"]:
        page.goto(path)
        assert overflow(page) == 0, path
    page.context.clear_cookies()
    for path in ["/login/", "/register/", "/c/nothing/"]:
        page.goto(path)
        assert overflow(page) == 0, path


def test_tables_and_code_may_be_wider_than_the_text_which_keeps_its_measure(open_page, person):
    text = f"{WIDE_ANSWER}\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    turn = a_turn(person, "A table?", text)
    page = open_page(conversation_path(turn.conversation_id), user=person, viewport={"width": 1600, "height": 900})
    rem = page.evaluate("parseFloat(getComputedStyle(document.documentElement).fontSize)")
    width = {name: page.locator(name).first.bounding_box()["width"] / rem for name in (".prose > p", ".code-frame")}
    wide, small = (box["width"] / rem for box in map(box_of, page.locator(".table-scroll").all()))
    assert (width[".prose > p"], width[".code-frame"]) == (44, 56)
    assert (wide, small) == (56, 44)
    assert page.locator(".code-frame").bounding_box()["x"] == page.locator(".prose > p").first.bounding_box()["x"]
    page.set_viewport_size({"width": 1000, "height": 900})
    assert (
        page.locator(".code-frame").bounding_box()["width"] == page.locator(".prose > p").first.bounding_box()["width"]
    )
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_headings_of_answers_differ_in_size_and_not_in_family(open_page, person):
    turn = a_turn(person, "Headings?", "# One\n\n## Two\n\n### Three\n\n#### Four")
    page = open_page(conversation_path(turn.conversation_id), user=person)
    fonts = page.locator(".prose :is(h3, h4, h5, h6)").evaluate_all(
        "all => all.map(one => [getComputedStyle(one).fontFamily, parseFloat(getComputedStyle(one).fontSize)])"
    )
    assert len({family for family, _ in fonts}) == 1
    sizes = [size for _, size in fonts]
    assert sizes == sorted(set(sizes), reverse=True)


def test_a_picture_of_an_answer_is_not_loaded_and_opens_beside_the_chat(open_page, person):
    turn = a_turn(person, "A picture?", "Here: ![a chart](https://pictures.example/x.png)")
    page = open_page(conversation_path(turn.conversation_id), user=person, locale="de")
    expect(page.locator(".picture")).to_contain_text("Bild nicht geladen · pictures.example · a chart")
    link = page.get_by_role("link", name="a chart")
    expect(link).to_have_attribute("target", "_blank")
    expect(link).to_have_attribute("rel", re.compile("noreferrer"))
    assert page.locator(".prose img").count() == 0


def box_of(locator):
    return locator.bounding_box()


def test_on_a_phone_the_chats_are_a_drawer(open_page, person):
    turn = a_turn(person, "An older chat")
    page = open_page(user=person, **PHONE)
    chat = page.locator("#sidebar").get_by_role("link", name="An older chat")
    expect(chat).to_be_hidden()
    page.get_by_role("button", name="Your chats").click()
    expect(chat).to_be_in_viewport()
    expect(page.get_by_role("button", name="Close")).to_be_focused()
    page.keyboard.press("Escape")
    expect(chat).to_be_hidden()
    expect(page.get_by_role("button", name="Your chats")).to_be_focused()
    page.keyboard.press("Enter")
    chat.click()
    page.wait_for_url(f"**{conversation_path(turn.conversation_id)}")


def test_everything_can_be_done_with_the_keyboard(open_page, language_model):
    language_model(Say(("Hello.",)))
    page = open_page("/register/")
    expect(page.get_by_label("Email")).to_be_focused()
    page.keyboard.type("ana@example.com")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Show")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.type("correct horse battery")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Message")).to_be_focused()
    page.keyboard.type("One line")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("and another")
    page.keyboard.press("Enter")
    expect(page.locator(".turn").last).to_have_attribute("data-status", "complete")
    expect(page.locator(".said")).to_have_text("One line\nand another")
    page.keyboard.press("Shift+Tab")
    expect(page.get_by_role("button", name="Attach files")).to_be_focused()
    for name in ("More", "Answer again", "Copy this answer"):
        page.keyboard.press("Shift+Tab")
        expect(page.get_by_role("button", name=name)).to_be_focused()
    page.keyboard.press("Shift+Tab")
    expect(page.locator(".turn-link")).to_be_focused()
    for name in ("Edit what you said", "Copy what you said"):
        page.keyboard.press("Shift+Tab")
        expect(page.get_by_role("button", name=name)).to_be_focused()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_the_menu_of_a_turn_is_a_menu_for_the_keyboard_too(open_page, person):
    turn = a_turn(person, "A message", "An answer")
    Turn.objects.update(usage={"model": "some-model"})
    page = open_page(conversation_path(turn.conversation_id), user=person)
    button = page.get_by_role("button", name="More", exact=True)
    expect(button).to_have_attribute("aria-expanded", "false")
    button.focus()
    page.keyboard.press("ArrowDown")
    expect(button).to_have_attribute("aria-expanded", "true")
    rest = ("Go on from here in a new chat", "Delete this turn", re.compile("^About this answer some-model"))
    for name in ("Remember this answer", "Remember my message", *rest):
        expect(page.get_by_role("menuitem", name=name)).to_be_focused()
        page.keyboard.press("ArrowDown")
    expect(page.get_by_role("menuitem", name="Remember this answer")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("menu")).to_be_hidden()
    expect(button).to_be_focused()
    expect(button).to_have_attribute("aria-expanded", "false")
    page.keyboard.press("Enter")
    page.keyboard.press("End")
    page.keyboard.press("Tab")
    expect(page.get_by_role("menu")).to_be_hidden()
    expect(page.get_by_role("button", name="Attach files")).to_be_focused()


def test_actions_are_quiet_but_for_the_last_turn_and_come_with_pointer_and_focus(open_page, person):
    first = a_turn(person, "One", "First answer")
    a_turn(person, "Two", "Second answer", conversation=first.conversation)
    page = open_page(conversation_path(first.conversation_id), user=person)
    page.mouse.move(2, 2)
    earlier, last = page.locator(".turn").first, page.locator(".turn").last
    for actions in (".said-actions", ".turn-actions"):
        expect(last.locator(actions)).to_have_css("opacity", "1")
        expect(earlier.locator(actions)).to_have_css("opacity", "0")
    earlier.locator(".prose").hover()
    expect(earlier.locator(".turn-actions")).to_have_css("opacity", "1")
    page.mouse.move(2, 2)
    expect(earlier.locator(".turn-actions")).to_have_css("opacity", "0")
    earlier.get_by_role("button", name="Copy what you said").focus()
    expect(earlier.locator(".turn-actions")).to_have_css("opacity", "1")


def test_on_a_touch_screen_the_actions_of_every_turn_are_there(open_page, person):
    first = a_turn(person, "One", "First answer")
    a_turn(person, "Two", "Second answer", conversation=first.conversation)
    page = open_page(conversation_path(first.conversation_id), user=person, **PHONE)
    actions = page.locator(".turn").first.locator(".turn-actions")
    expect(actions).to_have_css("opacity", "1")
    assert actions.get_by_role("button", name="More").bounding_box()["height"] >= 44


def test_without_scripts_a_turns_menu_still_opens_and_leads_to_its_deletion(open_page, person):
    turn = a_turn(person, "One", "First answer")
    page = open_page(conversation_path(turn.conversation_id), user=person, java_script_enabled=False)
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Delete this turn").click()
    expect(page.get_by_role("heading", name="Delete this message?")).to_be_visible()


def test_the_skip_link_is_seen_when_it_is_reached_and_leads_to_the_message(open_page):
    page = open_page()
    skip = page.get_by_role("link", name="Skip to writing a message")
    expect(skip).not_to_be_in_viewport()
    skip.focus()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Message")).to_be_focused()


def test_a_password_can_be_shown_while_it_is_written(open_page):
    page = open_page("/register/")
    password = page.get_by_label("Password", exact=True)
    password.fill("correct horse")
    page.get_by_role("button", name="Show").click()
    expect(password).to_have_attribute("type", "text")
    page.get_by_role("button", name="Hide").click()
    expect(password).to_have_attribute("type", "password")


def test_registering_tells_the_time_zone(open_page):
    page = open_page("/register/", timezone_id="Asia/Tokyo")
    assert page.locator('[name="time_zone"]').input_value() == "Asia/Tokyo"


def test_hostile_text_runs_and_loads_nothing_streamed_or_stored(open_page, person, language_model):
    """What is requested, run or asked is watched by `open_page`; here the page is also searched for what could."""
    language_model(Say(tuple(HOSTILE[at : at + 11] for at in range(0, len(HOSTILE), 11))))
    page = open_page(user=person)
    page.get_by_label("Message").fill(HOSTILE)
    page.keyboard.press("Enter")
    expect(page.locator(".turn")).to_have_attribute("data-status", "complete")
    assert dangers(page) == []
    page.reload()
    assert dangers(page) == []
    expect(page.locator(".said")).to_have_text(HOSTILE)


def dangers(page: Page) -> list[str]:
    return page.locator(":is(.turn, .sidebar-list, .topbar)").evaluate_all(
        """parts => parts.flatMap(part => [...part.querySelectorAll("*")]).filter(element =>
            ["script", "img", "iframe", "style", "form", "object", "embed"].includes(element.localName)
            || [...element.attributes].some(({name}) => name.startsWith("on") || name === "style")
            || /^(javascript|data|vbscript):/i.test(element.getAttribute("href") ?? "")
        ).map(element => element.outerHTML)"""
    )


def test_a_streamed_answer_is_as_safe_as_the_stored_one(open_page, person, language_model):
    """The same answer, stopped before the server's own rendering could replace what the page made of it."""
    language_model(Say((HOSTILE, *["."] * 200), seconds_apart=0.2))
    page = open_page(user=person)
    page.get_by_label("Message").fill("Be hostile")
    page.keyboard.press("Enter")
    expect(page.locator(".prose")).to_contain_text("c.css")
    assert dangers(page) == []
    page.keyboard.press("Escape")
    expect(page.locator(".mark")).to_have_text("Stopped")


PAIRS = [
    ("ink", "paper"), ("ink", "surface"), ("ink", "sunken"), ("ink", "said"), ("ink", "highlight"),
    ("ink-soft", "paper"), ("ink-soft", "surface"), ("ink-soft", "sunken"),
    ("accent", "paper"), ("accent", "surface"), ("accent-ink", "accent"),
    ("danger", "danger-wash"), ("danger-wash", "danger"), ("danger", "surface"), ("warm", "paper"), ("warm", "surface"),
]  # fmt: skip


def test_words_stand_out_in_both_lights(open_page):
    """WCAG 2.2, success criterion 1.4.3: a contrast of 4.5 to 1."""
    page = open_page()
    names = sorted({name for pair in PAIRS for name in pair})
    for light in ("light", "dark"):
        page.emulate_media(color_scheme=light)
        values = page.evaluate(
            """names => names.map((name) => {
                document.body.style.color = `var(--${name})`;
                return getComputedStyle(document.body).color.match(/\\d+/g).map(Number);
            })""",
            names,
        )
        luminance = {name: relative_luminance(value) for name, value in zip(names, values, strict=True)}
        for pair in PAIRS:
            dark, bright = sorted(luminance[name] for name in pair)
            assert (bright + 0.05) / (dark + 0.05) >= 4.5, (light, pair)
        assert (luminance["paper"] > 0.5) == (light == "light")


def relative_luminance(colour: list[int]) -> float:
    channels = [channel / 255 for channel in colour]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_nothing_moves_for_those_who_want_nothing_to_move(open_page, person):
    turn = a_turn(person, "Hello")
    path = conversation_path(turn.conversation_id, turn_number=1)
    page = open_page(path, user=person, reduced_motion="reduce")
    assert page.locator("#turn-1").evaluate("turn => getComputedStyle(turn).animationDuration") == "0.001s"
