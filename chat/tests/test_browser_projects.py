"""Projects in a real browser: made, filled by menu, by dragging and several at once, searched from inside and outside."""

from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Locator, Page, expect

from core.isolation.acting import acting_as
from intake.chats import changes
from intake.chats.tree import conversation_path
from intake.models import Conversation
from intake.tests.factories import a_turn, caller_for
from memory import index, projects, records
from testing.accessibility import bring_axe, look_at

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

PHONE = {"viewport": {"width": 320, "height": 700}, "has_touch": True}
# How far things moved after the first paint, as the browser itself counts it.
SHIFTS = """new Promise((resolve) => {
  let total = 0;
  new PerformanceObserver((list) => list.getEntries().forEach((entry) => (total += entry.value)))
    .observe({ type: "layout-shift", buffered: true });
  requestAnimationFrame(() => requestAnimationFrame(() => resolve(total)));
})"""


def chats(person, *titles: str, project: str = "") -> list[Conversation]:
    """The first one was active last."""
    now, made = timezone.now(), []
    for number, title in enumerate(titles):
        chat = a_turn(person, title, "An answer").conversation
        Conversation.objects.filter(pk=chat.pk).update(project=project, last_active_at=now - timedelta(minutes=number))
        made.append(chat)
    return made


def made(person, name: str, **about: object) -> None:
    with acting_as(person):
        projects.save_project(user=person, name=name, **about)


def group(page: Page, name: str) -> Locator:
    return page.locator(f'[data-project-group="{name}"]')


def unfold(page: Page, name: str) -> None:
    page.get_by_role("button", name=f"Chats of {name}").click()
    expect(group(page, name).locator(".project-chats")).to_be_visible()


def item(page: Page, title: str) -> Locator:
    return page.locator("[data-all-chats] [data-conversation-id]", has=page.get_by_role("link", name=title, exact=True))


def projects_of(*made_chats: Conversation) -> list[str]:
    names = dict(Conversation.objects.filter(pk__in=[chat.pk for chat in made_chats]).values_list("pk", "project"))
    return [names[chat.pk] for chat in made_chats]


def test_a_project_is_made_from_the_side_bar_and_a_chat_begun_in_it_belongs_to_it(open_page, person):
    page = open_page(user=person)
    page.locator("[data-projects]").get_by_role("link", name="Projects").click()
    page.get_by_role("textbox", name="Name", exact=True).fill("Kitchen / ground floor")
    page.get_by_role("button", name="Create project").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Kitchen / ground floor")
    page.get_by_role("link", name="New chat here").click()
    expect(page.locator("[data-chat-project]")).to_have_text("Kitchen / ground floor")
    page.get_by_label("Message", exact=True).fill("Which tiles?")
    page.keyboard.press("Enter")
    page.wait_for_url("**/c/*/")
    expect(group(page, "Kitchen / ground floor").get_by_role("link", name="Which tiles?")).to_be_visible()
    expect(page.locator("[data-day-chats]").get_by_role("link", name="Which tiles?")).to_have_count(0)
    assert Conversation.objects.get().project == "Kitchen / ground floor"


def test_a_chat_is_moved_by_its_menu_by_keys_and_comes_back_by_undo(open_page, person):
    made(person, "Garden")
    (pear,) = chats(person, "The pear tree")
    page = open_page(user=person)
    item(page, "The pear tree").get_by_role("link").focus()
    page.keyboard.press("ContextMenu")
    page.get_by_role("menuitem", name="Move to project").press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.type("gard")
    page.keyboard.press("Enter")
    expect(page.locator("[data-sidebar-status]")).to_contain_text("1 chat moved to Garden")
    expect(page.locator("[data-day-chats]").get_by_role("link", name="The pear tree")).to_have_count(0)
    expect(group(page, "Garden").locator(".project-count")).to_contain_text("1")
    assert projects_of(pear) == ["Garden"]
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("[data-day-chats]").get_by_role("link", name="The pear tree")).to_be_visible()
    assert projects_of(pear) == [""]


def test_a_name_that_is_typed_makes_a_new_project_for_the_open_chat(open_page, person):
    (pear,) = chats(person, "The pear tree")
    page = open_page(conversation_path(pear.pk), user=person)
    page.locator("[data-chat-menu]").click()
    page.get_by_role("menuitem", name="Move to project").click()
    page.get_by_label("Find a project").fill("Orchard")
    page.get_by_role("button", name="New project “Orchard”").click()
    expect(page.locator("[data-chat-project]")).to_have_text("Orchard")
    expect(group(page, "Orchard").get_by_role("link", name="The pear tree")).to_have_attribute("aria-current", "page")
    page.locator("[data-chat-project]").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Orchard")
    assert projects_of(pear) == ["Orchard"]


def test_a_chat_is_dragged_onto_a_project_and_back_among_the_days(open_page, person):
    made(person, "Garden")
    pear, _ = chats(person, "The pear tree", "Another chat")
    page = open_page(user=person)
    item(page, "The pear tree").get_by_role("link").drag_to(group(page, "Garden").locator(".project-name"))
    expect(page.locator("[data-sidebar-status]")).to_contain_text("1 chat moved to Garden")
    assert projects_of(pear) == ["Garden"]
    unfold(page, "Garden")
    link = group(page, "Garden").get_by_role("link", name="The pear tree")
    link.drag_to(page.locator("[data-day-chats]").get_by_role("link", name="Another chat"))
    expect(page.locator("[data-day-chats]").get_by_role("link", name="The pear tree")).to_be_visible()
    assert projects_of(pear) == [""]


def test_a_list_that_comes_while_one_holds_a_chat_waits_until_it_is_let_go(open_page, person):
    made(person, "Garden")
    (pear,) = chats(person, "The pear tree", project="Garden")
    chats(person, "Another chat")
    page = open_page(user=person)
    unfold(page, "Garden")
    link = group(page, "Garden").get_by_role("link", name="The pear tree")
    link.hover()
    page.mouse.down()
    with page.expect_response(lambda answer: "only=" in answer.url):
        Conversation.objects.filter(pk=pear.pk).update(title="The plum tree")
        changes.tell_now(caller_for(person), pear.pk)
    # Time for what must not come yet.
    page.wait_for_timeout(500)
    expect(link).to_be_visible()
    page.locator("[data-day-chats]").get_by_role("link", name="Another chat").hover()
    page.mouse.up()
    expect(page.locator("[data-day-chats]").get_by_role("link", name="The plum tree")).to_be_visible()
    assert projects_of(pear) == [""]


def test_selected_chats_are_moved_together_by_the_bar(open_page, person):
    made(person, "Garden")
    some = chats(person, "One", "Two", "Three")
    page = open_page(user=person)
    item(page, "One").get_by_role("button", name="Options").click()
    page.get_by_role("menuitem", name="Select", exact=True).click()
    item(page, "Three").get_by_role("link").click()
    page.get_by_role("button", name="Move the selected chats to a project").click()
    page.get_by_role("dialog").get_by_role("button", name="Garden").click()
    expect(page.locator("[data-sidebar-status]")).to_contain_text("2 chats moved to Garden")
    expect(page.locator("[data-day-chats] [data-conversation-id]")).to_have_count(1)
    assert projects_of(*some) == ["Garden", "", "Garden"]


def test_a_group_that_was_unfolded_is_open_again_and_nothing_moves(open_page, person):
    made(person, "Garden")
    made(person, "House")
    chats(person, "The pear tree", project="Garden")
    chats(person, "The roof", project="House")
    chats(person, "Of no project")
    page = open_page(user=person)
    expect(group(page, "Garden").get_by_role("link", name="The pear tree")).to_have_count(0)
    unfold(page, "Garden")
    expect(group(page, "Garden").get_by_role("link", name="The pear tree")).to_be_visible()
    page.reload()
    expect(group(page, "Garden").get_by_role("link", name="The pear tree")).to_be_visible()
    expect(group(page, "House").locator(".project-chats")).to_be_hidden()
    assert page.evaluate(SHIFTS) < 0.02
    page.get_by_role("button", name="Chats of Garden").press("Enter")
    page.reload()
    expect(group(page, "Garden").locator(".project-chats")).to_be_hidden()


def test_the_arrows_go_through_open_groups_and_days_and_leave_out_folded_ones(open_page, person):
    chats(person, "The pear tree", project="Garden")
    chats(person, "The roof", project="House")
    chats(person, "Of no project")
    page = open_page(user=person)
    unfold(page, "Garden")
    group(page, "Garden").get_by_role("link", name="The pear tree").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("[data-day-chats]").get_by_role("link", name="Of no project")).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(group(page, "Garden").get_by_role("link", name="The pear tree")).to_be_focused()


def test_a_search_begins_inside_and_goes_to_everything_but_it_in_one_click(open_page, person):
    chats(person, "The lantern in the garden", project="Garden")
    chats(person, "The lantern in the hall")
    index.embed_pending()
    page = open_page("/projects/Garden/", user=person)
    page.get_by_role("searchbox", name="Search in this project").fill("lantern")
    page.keyboard.press("Enter")
    results = page.locator("[data-results]")
    expect(results).to_contain_text("in the garden")
    expect(results).not_to_contain_text("in the hall")
    page.get_by_role("link", name="Everything but it").click()
    expect(results).to_contain_text("in the hall")
    expect(results).not_to_contain_text("in the garden")
    assert "project=-Garden" in page.url
    page.get_by_role("link", name="Search all projects").click()
    expect(results).to_contain_text("in the garden")
    expect(results).to_contain_text("in the hall")


def test_the_palette_searches_the_project_of_the_open_chat_until_its_box_is_cleared(open_page, person):
    (chat,) = chats(person, "The lantern in the garden", project="Garden")
    chats(person, "The lantern in the hall")
    index.embed_pending()
    page = open_page(conversation_path(chat.pk), user=person)
    page.get_by_role("link", name="Search").first.click()
    page.get_by_role("combobox").fill("lantern")
    texts = page.locator("[data-group=found]")
    expect(texts).to_contain_text("in the garden")
    expect(texts).not_to_contain_text("in the hall")
    page.get_by_label("Only this project").uncheck()
    expect(texts).to_contain_text("in the hall")


def test_a_closed_project_is_not_found_from_outside_and_its_page_says_so(open_page, person):
    chats(person, "The lantern in the garden", project="Garden")
    with acting_as(person):
        records.create(
            user=person, content="The lantern is from 1911", project_id="Garden", tags=(), now=timezone.now()
        )
    index.embed_pending()
    page = open_page("/projects/Garden/", user=person)
    page.get_by_role("link", name="Edit", exact=True).click()
    page.get_by_label("Only found from inside").check()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Only found from inside:")).to_be_visible()
    page.goto("/search/?q=lantern")
    expect(page.locator("[data-search-found]")).not_to_contain_text("in the garden")
    expect(page.locator("[data-search-found]")).not_to_contain_text("1911")
    page.goto("/search/?q=lantern&project=Garden")
    expect(page.locator("[data-results]")).to_contain_text("in the garden")
    expect(page.locator("[data-results]")).to_contain_text("1911")
    page.goto("/projects/Garden/")
    page.get_by_role("link", name="Edit", exact=True).click()
    page.get_by_label("Only found from inside").uncheck()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    page.goto("/search/?q=lantern")
    expect(page.locator("[data-results]")).to_contain_text("in the garden")


def test_the_list_with_groups_and_the_move_dialog_are_accessible_also_at_320_pixels(open_page, person):
    made(person, "Garden", colour="green", is_closed=True)
    made(person, "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbau " * 3, colour="yellow")
    chats(person, "The pear tree", project="Garden")
    page = open_page(user=person)
    bring_axe(page)
    page.goto("/")
    unfold(page, "Garden")
    wrong = look_at(page)
    page.set_viewport_size({"width": 1280, "height": 900})
    item(page, "The pear tree").hover()
    item(page, "The pear tree").get_by_role("button", name="Options").click()
    page.get_by_role("menuitem", name="Move to project").click()
    page.locator("[data-move-list] button").first.wait_for()
    wrong |= look_at(page)
    assert wrong == {}
    phone = open_page("/projects/Garden/", user=person, **PHONE)
    for path in (
        "/projects/Garden/",
        "/projects/",
        "/projects/Garden/edit/",
        "/projects/Garden/delete/",
        "/year/",
        "/search/?q=x&project=Garden",
    ):
        phone.goto(path)
        assert phone.evaluate("document.documentElement.scrollWidth") <= 320, path


def test_the_groups_stand_at_the_right_side_from_right_to_left(open_page, person):
    chats(person, "شجرة", project="حديقة")
    page = open_page(user=person)
    page.evaluate("document.documentElement.dir = 'rtl'")
    unfold(page, "حديقة")
    fold = page.get_by_role("button", name="Chats of حديقة").bounding_box()
    name = group(page, "حديقة").locator(".project-name").bounding_box()
    assert fold["x"] > name["x"]
    assert fold["x"] >= name["x"] + name["width"] - 1
