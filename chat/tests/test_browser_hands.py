"""The page does what the hand wants, in a real browser: following, queueing, failures, drafts, focus, keys, paper."""

import re
from datetime import timedelta

import pytest
from playwright.sync_api import Page, expect

from chat.tests.test_browser_chat import answered, last_turn, say
from core.isolation.acting import acting_as
from intake.chats.deleting import delete_turn
from intake.chats.tree import conversation_path
from intake.models import Conversation, Turn
from intake.tests.factories import NOW, a_long_conversation, a_turn, caller_for
from testing.model_server import BreakOff, Refuse, Say

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

PHONE = {"viewport": {"width": 360, "height": 640}, "has_touch": True, "is_mobile": True}
LONG = Say(tuple(f"Line {number} of it.\n\n" for number in range(400)), seconds_apart=0.04)
COMPOSING_ENTER = """(field) => field.dispatchEvent(
  new KeyboardEvent("keydown", { key: "Enter", keyCode: 229, isComposing: true, bubbles: true, cancelable: true }))"""
HEIGHT = "document.documentElement.scrollHeight"
BELOW = f"{HEIGHT} - innerHeight - scrollY"


def while_it_streams(page: Page, message: str = "Go on") -> None:
    """An answer that is longer than the page, and grows."""
    page.get_by_label("Message", exact=True).fill(message)
    page.get_by_role("button", name="Send").click()
    expect(last_turn(page).locator(".prose")).to_contain_text("Line 30 of it.")
    assert page.evaluate(BELOW) < 4


def until(page: Page, expression: str) -> None:
    """The page's own policy refuses what `wait_for_function` does."""
    for _ in range(200):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never: {expression}")


def top_at_rest(page: Page) -> float:
    """How far down the page is once it stands still: what a finger did arrives in pieces."""
    tops: list[float] = []
    while len(tops) < 100 and (len(tops) < 4 or len(set(tops[-4:])) > 1):
        page.wait_for_timeout(100)
        tops.append(page.evaluate("scrollY"))
    assert len(set(tops[-4:])) == 1, "the page never stands still"
    return tops[-1]


def upward_by(page: Page, how: str) -> None:
    if how == "wheel":
        page.mouse.move(600, 300)
        page.mouse.wheel(0, -20)
    elif how == "key":
        page.locator("[data-title]").evaluate("(title) => (title.tabIndex = -1, title.focus())")
        page.keyboard.press("ArrowUp")
    else:
        devtools = page.context.new_cdp_session(page)
        for kind, y in [("touchStart", 200), ("touchMove", 210), ("touchMove", 225), ("touchEnd", None)]:
            points = [] if y is None else [{"x": 150, "y": y}]
            devtools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})


@pytest.mark.parametrize("how", ["wheel", "key", "touch"])
def test_a_small_move_upward_ends_following_until_the_button(open_page, person, language_model, how):
    language_model(LONG)
    page = open_page(user=person, **(PHONE if how == "touch" else {}))
    while_it_streams(page)
    upward_by(page, how)
    top = top_at_rest(page)
    below = page.evaluate(BELOW)
    expect(page.locator("[data-jump]")).to_be_visible()
    until(page, f"{BELOW} > {below + 100}")
    assert page.evaluate("scrollY") == top
    page.locator("[data-jump]").click()
    until(page, f"{BELOW} < 4")
    height = page.evaluate(HEIGHT)
    until(page, f"{HEIGHT} > {height + 100}")
    assert page.evaluate(BELOW) < 4
    page.get_by_role("button", name="Stop").click()


def test_scrolling_down_near_the_bottom_does_not_follow_and_at_it_does(open_page, person, language_model):
    language_model(LONG)
    page = open_page(user=person)
    while_it_streams(page)
    page.mouse.move(600, 300)
    page.mouse.wheel(0, -400)
    page.wait_for_timeout(300)
    page.evaluate(f"scrollTo(0, scrollY + {BELOW} - 40)")
    until(page, f"{BELOW} > 140")
    for _ in range(10):
        # Words that come between the scroll and its event make the bottom another one, for a hand as well.
        page.evaluate(f"scrollTo(0, {HEIGHT})")
        height = page.evaluate(HEIGHT)
        until(page, f"{HEIGHT} > {height + 100}")
        if page.evaluate(BELOW) < 4:
            break
    else:
        raise AssertionError("does not follow at the bottom")
    page.get_by_role("button", name="Stop").click()


def test_enter_while_an_answer_streams_queues_the_message(open_page, person, language_model):
    language_model(Say(("One ", "two ", "three."), seconds_apart=0.7), Say(("Four.",)), Say(("Six.",)))
    page = open_page(user=person)
    say(page, "First")
    expect(last_turn(page).locator(".prose")).to_contain_text("One")
    for message in ("Second", "Not this", "Third"):
        say(page, message)
    queued = page.locator("[data-queue] li")
    expect(queued).to_have_count(3)
    expect(queued.first).to_contain_text("Sends when the answer is done")
    queued.filter(has_text="Not this").get_by_role("button", name="Do not send this").click()
    expect(queued).to_have_count(2)
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    expect(page.locator(".turn")).to_have_count(3)
    answered(page)
    expect(page.locator("[data-queue]")).to_be_hidden()
    assert list(Turn.objects.order_by("turn_number").values_list("user_message", flat=True)) == [
        "First",
        "Second",
        "Third",
    ]


def test_what_is_queued_is_a_draft_until_it_is_sent(open_page, person, language_model):
    language_model(LONG)
    page = open_page(user=person)
    say(page, "First")
    expect(last_turn(page).locator(".prose")).to_contain_text("Line 1")
    say(page, "Second")
    page.get_by_label("Message", exact=True).fill("and a third")
    page.reload()
    expect(page.get_by_label("Message", exact=True)).to_have_value("Second\n\nand a third")
    page.get_by_role("button", name="Stop").click()


def test_after_a_failure_what_was_queued_comes_back(open_page, person, language_model):
    language_model(Say(("Half ", "of it, ")), BreakOff(("and ", "then")))
    page = open_page(user=person)
    held = []
    page.route("**/intake/chat", lambda route, _request: held.append(route), times=1)
    say(page, "First")
    say(page, "Second")
    expect(page.locator("[data-queue] li")).to_have_count(1)
    held[0].abort()
    expect(last_turn(page).locator(".trouble")).to_be_visible()
    expect(page.locator("[data-queue]")).to_be_hidden()
    expect(page.get_by_label("Message", exact=True)).to_have_value("Second")


def shown_buttons(page: Page) -> list[str]:
    """Those that are offered after a failure."""
    return page.locator(".trouble button:visible, .cut button:visible").all_inner_texts()


def test_a_failure_in_the_middle_has_one_line_and_continue(open_page, person, language_model):
    language_model(BreakOff(("Half of it, ",)), Say(("and the rest.",)))
    page = open_page(user=person)
    say(page, "Tell me all")
    expect(last_turn(page).locator(".trouble")).to_be_visible()
    assert shown_buttons(page) == ["Continue"]
    expect(last_turn(page).locator(".cut")).to_be_hidden()
    page.reload()
    assert shown_buttons(page) == ["Continue"]
    page.get_by_role("button", name="Continue").click()
    answered(page)
    expect(last_turn(page).locator(".prose")).to_contain_text("the rest.")


def test_a_failure_at_the_beginning_has_one_line_and_retry(open_page, person, language_model):
    language_model(*[Refuse(500)] * 4)
    page = open_page(user=person)
    say(page, "Hello?")
    expect(last_turn(page).locator(".trouble")).to_be_visible()
    assert shown_buttons(page) == ["Retry"]


def test_after_ones_own_stop_there_is_only_continue(open_page, person, language_model):
    language_model(LONG)
    page = open_page(user=person)
    say(page, "Tell me all")
    expect(last_turn(page).locator(".prose")).to_contain_text("Line 2")
    page.get_by_role("button", name="Stop").click()
    expect(last_turn(page).locator(".mark")).to_have_text("Stopped")
    assert shown_buttons(page) == ["Continue"]
    expect(last_turn(page).locator(".trouble")).to_be_hidden()


def test_a_busy_model_is_asked_again_by_the_page_itself(open_page, person, language_model):
    language_model(Refuse(429), Refuse(429), Say(("Here I am.",)))
    page = open_page("/", user=person, is_alone=True)
    page.clock.install()
    page.goto("/")
    say(page, "Hello?")
    detail = last_turn(page).locator("[data-part=detail]")
    for _ in range(40):
        page.clock.run_for(100)
        if detail.is_visible():
            break
        page.wait_for_timeout(200)
    expect(detail).to_have_text(re.compile(r"^The model is busy; trying again in \d+ s$"))
    assert shown_buttons(page) == ["Retry"]
    for _ in range(60):
        page.clock.run_for(1000)
        if last_turn(page).get_attribute("data-status") == "complete":
            break
        page.wait_for_timeout(100)
    expect(last_turn(page).locator(".prose")).to_have_text("Here I am.")
    assert Turn.objects.count() == 1


def test_a_draft_stays_in_its_own_chat(open_page, person, language_model):
    language_model(Say(("Yes.",)))
    other = a_turn(person, "Another chat")
    page = open_page(user=person)

    def late(route):
        page.get_by_label("Message", exact=True).fill("A draft in the first chat")
        route.continue_()

    page.route("**/intake/chat", late, times=1)
    say(page, "First")
    answered(page)
    first = page.url
    page.goto("/")
    expect(page.get_by_label("Message", exact=True)).to_have_value("")
    page.goto("/?temporary=1")
    page.get_by_label("Message", exact=True).fill("Between us")
    page.goto("/")
    expect(page.get_by_label("Message", exact=True)).to_have_value("")
    page.goto(conversation_path(other.conversation_id))
    expect(page.get_by_label("Message", exact=True)).to_have_value("")
    page.goto(first)
    expect(page.get_by_label("Message", exact=True)).to_have_value("A draft in the first chat")


def test_the_list_of_chats_keeps_its_place_over_page_loads(open_page, person):
    Conversation.objects.bulk_create(
        Conversation(user=person, title=f"Chat number {number}", last_active_at=NOW + timedelta(minutes=number))
        for number in range(130)
    )
    page = open_page(user=person)
    scroller = page.locator("[data-sidebar-list]")
    chats = page.locator("[data-all-chats] [data-conversation-id]")
    for _ in range(200):
        scroller.evaluate("(list) => (list.scrollTop = list.scrollHeight)")
        if chats.count() == 130:
            break
        page.wait_for_timeout(50)
    top = scroller.evaluate("(list) => (list.scrollTop = list.scrollHeight - list.clientHeight - 300, list.scrollTop)")
    assert top > 1500
    page.locator("[data-all-chats] [data-conversation-id] a").filter(has_text="Chat number 12").last.evaluate(
        "(link) => link.click()"
    )
    page.wait_for_url("**/c/**")
    until(page, f"Math.abs(document.querySelector('[data-sidebar-list]').scrollTop - {top}) < 60")


def test_a_field_keeps_the_focus_when_an_answer_ends(open_page, person, language_model):
    language_model(Say(("One ", "two."), seconds_apart=1.0))
    a_turn(person, "Another chat")
    page = open_page(user=person)
    say(page, "First")
    expect(last_turn(page).locator(".prose")).to_contain_text("One")
    page.get_by_role("link", name="Memory").focus()
    focused = page.evaluate_handle("document.activeElement")
    answered(page)
    page.wait_for_timeout(300)
    assert page.evaluate("(field) => field === document.activeElement", focused)


def test_a_field_that_one_is_in_keeps_the_focus_as_the_page_loads(open_page, person):
    turn = a_turn(person, "A chat")
    page = open_page("/offline/", user=person)
    page.add_init_script(
        "document.addEventListener('readystatechange', () => { const field = document.querySelector('.person-button');"
        " field?.focus(); })"
    )
    page.goto(conversation_path(turn.conversation_id))
    page.wait_for_timeout(500)
    expect(page.locator(".person-button")).to_be_focused()


def test_enter_of_an_input_method_opens_and_sends_nothing(open_page, person):
    a_turn(person, "A chat about ships")
    page = open_page(user=person)
    address = page.url
    message = page.get_by_label("Message", exact=True)
    message.fill("ni")
    message.evaluate(COMPOSING_ENTER)
    expect(page.locator(".turn")).to_have_count(0)
    page.keyboard.press("Control+k")
    palette = page.get_by_role("combobox")
    palette.fill("ships")
    expect(page.locator(".palette [role=option]").first).to_be_visible()
    palette.evaluate(COMPOSING_ENTER)
    page.wait_for_timeout(300)
    expect(palette).to_be_visible()
    # Safari reports the Enter that ends a composition as no longer composing.
    palette.evaluate(COMPOSING_ENTER.replace("isComposing: true", "isComposing: false"))
    page.wait_for_timeout(300)
    assert page.url == address
    expect(palette).to_be_visible()


def test_what_is_selected_has_a_tick_and_a_disabled_button_looks_it(open_page, person):
    a_turn(person, "A chat about ships")
    page = open_page(user=person)
    page.locator("[data-all-chats] [data-item-button]").first.click()
    page.locator("[data-item-do=select]").click()
    page.locator("[data-all-chats] [data-conversation-id] a").first.click()
    delete = page.locator('[data-do="delete"]')
    expect(delete).to_be_disabled()
    look = "(button) => [getComputedStyle(button).opacity, getComputedStyle(button).cursor]"
    opacity, cursor = delete.evaluate(look)
    assert (float(opacity) < 0.6, cursor) == (True, "not-allowed")
    page.locator("[data-all-chats] [data-conversation-id] a").first.click()
    tick = page.locator("[data-all-chats] [data-conversation-id] a").first.evaluate(
        "(link) => getComputedStyle(link, '::before').content"
    )
    assert tick == '"✓"'
    assert float(delete.evaluate(look)[0]) == 1
    button = page.evaluate(
        "() => { const made = document.createElement('button'); made.className = 'button'; made.disabled = true;"
        " document.body.append(made); return Number(getComputedStyle(made).opacity); }"
    )
    assert button < 0.6


@pytest.mark.parametrize("form", ["?turn=2#turn-2", "#turn-2"])
def test_a_link_to_a_deleted_turn_says_so(open_page, person, form):
    conversation = a_long_conversation(person, 3)
    with acting_as(person):
        delete_turn(caller=caller_for(person), conversation_id=conversation.pk, turn_number=2)
    page = open_page(conversation_path(conversation.pk) + form, user=person)
    expect(page.locator("[data-deleted-turn]")).to_have_text("The turn that this link leads to has been deleted.")
    page.goto(conversation_path(conversation.pk) + "?turn=3#turn-3")
    expect(page.locator("#turn-3")).to_be_visible()
    expect(page.locator("[data-deleted-turn]")).to_have_count(0)


def test_code_is_copied_without_its_last_line_break(open_page, person):
    turn = a_turn(person, "Code", "```sh\nls -l\n```")
    page = open_page(
        conversation_path(turn.conversation_id), user=person, permissions=["clipboard-read", "clipboard-write"]
    )
    page.locator('[data-action="copy-code"]').click()
    expect(page.locator('[data-action="copy-code"]')).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "ls -l"


def test_the_whole_chat_is_printed_and_nothing_else(open_page, person):
    conversation = a_long_conversation(person, 70)
    page = open_page(conversation_path(conversation.pk), user=person)
    page.evaluate("window.print = () => (window.printed = document.querySelectorAll('.turn[id]').length)")
    page.locator("[data-chat-menu]").click()
    page.get_by_role("menuitem", name="Print").click()
    until(page, "window.printed === 70")
    page.emulate_media(media="print")
    for part in (".sidebar", ".dock", ".turn-actions"):
        expect(page.locator(part).first).to_be_hidden()
    expect(page.locator("#turn-1 .said")).to_be_visible()
    expect(page.locator("[data-title]")).to_be_visible()
    visible = page.locator("#turn-1").evaluate("(turn) => getComputedStyle(turn).contentVisibility")
    assert visible == "visible"


def test_what_is_wider_than_the_paper_is_printed_whole(open_page, person):
    table = "\n".join(f"|{cell * 6}" for cell in ("one column |", "---|", "some words of a cell |"))
    turn = a_turn(
        person, "Wide", f"```python\nprint({', '.join(map(str, range(200)))})\n```\n\n{table}\n\n$${'x+' * 40}x$$"
    )
    page = open_page(conversation_path(turn.conversation_id), user=person)
    page.set_viewport_size({"width": 720, "height": 1000})
    page.emulate_media(media="print")
    for part in ("pre", "pre code", ".table-scroll"):
        cut = page.locator(f".turn .prose {part}").evaluate(
            "(part) => Math.max(part.scrollWidth - part.clientWidth, part.getBoundingClientRect().right - innerWidth)"
        )
        assert cut <= 0, part
    assert page.locator(".turn .formula").evaluate("(formula) => getComputedStyle(formula).overflowX") == "visible"


def test_a_formula_has_a_font_of_mathematics(open_page, person):
    turn = a_turn(person, "Maths", "$$\\sqrt{\\sum_{i=1}^n x_i^2}$$")
    page = open_page(conversation_path(turn.conversation_id), user=person)
    until(page, "document.fonts.ready.then(() => document.fonts.check('16px \"STIX Two Math\"'))")
    families = page.evaluate(
        "[...document.fonts].filter((face) => face.status === 'loaded').map((face) => face.family)"
    )
    assert [family.strip('"') for family in families] == ["STIX Two Math"]


def test_tables_keep_short_cells_whole_and_show_where_they_go_on(open_page, person):
    wide = f"| when | {'what | ' * 9}\n|---|{'---|' * 9}\n| 3 May 2026 | {'some words | ' * 9}"
    right = "| الاسم | العدد |\n|---|---|\n| تفاح | 12 |"
    turn = a_turn(person, "Tables", f"{wide}\n\n{right}")
    page = open_page(conversation_path(turn.conversation_id), user=person, viewport={"width": 700, "height": 700})
    first, second = page.locator(".table-scroll").nth(0), page.locator(".table-scroll").nth(1)
    lines = "(cell) => Math.round(cell.getClientRects()[0].height / parseFloat(getComputedStyle(cell).lineHeight))"
    assert first.locator("td").first.evaluate(lines) <= 2
    assert first.evaluate("(box) => box.scrollWidth > box.clientWidth")
    assert "linear-gradient" in first.evaluate("(box) => getComputedStyle(box).backgroundImage")
    box, table = second.bounding_box(), second.locator("table").bounding_box()
    assert abs(box["x"] + box["width"] - table["x"] - table["width"]) < 2
    # The first column is the rightmost, and a number stands at its beginning.
    cells = second.locator("td").all()
    assert cells[0].bounding_box()["x"] > cells[1].bounding_box()["x"]


def test_reasoning_is_drawn_when_it_is_done_and_after_a_reload(open_page, person, language_model):
    language_model(Say(("Done.",), thoughts=("It is **bold**\n\n", "- and a list")))
    page = open_page(user=person)
    say(page, "Think")
    answered(page)
    for _ in range(2):
        page.locator(".reasoning summary").click()
        expect(page.locator(".reasoning-text strong")).to_have_text("bold")
        expect(page.locator(".reasoning-text li")).to_have_text("and a list")
        page.reload()


def test_elements_of_an_answer_are_drawn_on_a_phone_too(open_page, person):
    answer = "<think>\nwell\n</think>\n\nPress <kbd>Ctrl</kbd>\n\n> [!TIP]\n> Save ==often==\n\n<details>\n<summary>More</summary>\n\nInside\n</details>"
    turn = a_turn(person, "Elements", answer)
    page = open_page(conversation_path(turn.conversation_id), user=person, **PHONE)
    for part in (".prose kbd", ".prose mark", ".callout-title", ".thought > summary"):
        expect(page.locator(part)).to_be_visible()
    expect(page.get_by_text("Inside")).to_be_hidden()
    page.get_by_text("More", exact=True).click()
    expect(page.get_by_text("Inside")).to_be_visible()


def test_a_chat_of_an_ended_session_offers_to_log_in_and_leads_back(open_page, person):
    turn = a_turn(person, "A chat about ships")
    path = conversation_path(turn.conversation_id)
    page = open_page(path, user=person)
    page.context.clear_cookies()
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("Log in to see this chat")
    page.get_by_role("link", name="Log in").click()
    page.get_by_label("Email").fill("person@example.com")
    page.get_by_label("Password", exact=True).fill("password")
    page.get_by_role("button", name="Log in", exact=True).click()
    page.wait_for_url(f"**{path}")
    expect(page.locator(".said")).to_have_text("A chat about ships")
