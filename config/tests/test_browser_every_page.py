"""Every page there is, full of data, in both colours on a desktop and a phone: axe finds nothing, nothing scrolls
sideways, and a finger hits each control."""

from datetime import date

import pytest
from playwright.sync_api import Error

from config.tests.endpoints import house
from config.tests.endpoints.registered import ENDPOINTS, GROUPS
from core.isolation.acting import acting_as
from intake.models import User
from intake.tests.factories import NOW, a_turn
from memory import documents, records
from testing.accessibility import bring_axe, look_at

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

ADMIN = "/admin/"
LONG = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft " * 3
RICH = f"""A formula, $e^{{i\\pi}} + 1 = 0$, a list, a table and code.

- [x] done
- [ ] to do

| city | {"month | " * 9}
|---|{"---|" * 9}
| Lisbon | {"May | " * 9}

```python
def answer() -> int:  # a comment
    return 6 * 7 if "{"x" * 150}" else None
```

> quoted, with `code` and a [link](https://example.com/{"path/" * 30}).[^1]

[^1]: A footnote.
"""


FIVE = ["", "c/<str:conversation_id>/", "search/", "memory/records/", "settings/account/"]
# Each is looked at by a test of its own, so that several processes share the whole.
PARTS = {"five": [ENDPOINTS[route] for route in FIVE]} | {
    group: [endpoint for route, endpoint in GROUPS[group].items() if route not in FIVE]
    for group in ("pages", "memory", "staff")
}
EMPTY = {"pages": ["/c/nothing/"], "memory": [f"/memory/logs/{date(2026, 1, 1)}/"]}
# Of a page that is new: how much of it has moved since it was first painted, as `benchmark pages` counts it.
WATCH_SHIFTS = """window.shifted = 0;
  const add = (list) => list.getEntries().forEach(({ value }) => (window.shifted += value));
  new PerformanceObserver(add).observe({ type: "layout-shift", buffered: true });"""
MOST_SHIFTED = 0.05


@pytest.fixture
def alice():
    alice = house.move_in("alice", "rumpelstiltskin", day=date(2026, 2, 3))
    a_rich_chat(alice.user)
    with acting_as(alice.user):
        documents.append(user=alice.user, day=None, text=RICH, now=NOW)
        records.create(user=alice.user, content=LONG, project_id=LONG[:180], tags=[LONG[:90], "x"], now=NOW)
    return alice


def a_rich_chat(user):
    conversation = a_turn(user, LONG, RICH).conversation
    a_turn(user, "And in code?\n" * 20, "`6 * 7`", conversation=conversation)
    return conversation


def pages(resident, endpoints):
    """The address of each page, as it is asked for first."""
    for endpoint in endpoints:
        for probe in endpoint.probes.get("GET", [])[:1]:
            query = "&".join(f"{name}={resident.things.fill(value)}" for name, value in probe.query.items())
            yield f"/{resident.things.fill(endpoint.at)}?{query}".removesuffix("?")


def opens(page, path):
    """Whether there is a page, and no file or plain text. It opens at a desk."""
    page.set_viewport_size({"width": 1280, "height": 900})
    try:
        response = page.goto(path)
    except Error as error:
        if "Download is starting" in error.message:
            return False
        raise
    is_page = response.headers.get("content-type", "").startswith("text/html") and "<html" in response.text()
    if is_page:
        # The API's page is drawn by a script.
        page.locator("main").first.wait_for(state="attached")
    return is_page


# Each control that cannot be hit within 22 pixels of its middle, or of its label's. Links in a sentence are as high as its
# lines (WCAG 2.5.5), and an answer's links are its text.
TOO_SMALL = """() => {
  const LEAST = 44;
  const CONTROLS = "a[href], button, input:not([type=hidden]), select, textarea, summary, [role=button], [role^=menuitem]";
  const isInSentence = (element) => {
    const around = element.closest("p, li, dd, td, blockquote, h1, h2, h3, label, figcaption") ?? element.parentElement;
    const length = (each) => each.textContent.trim().length;
    return getComputedStyle(element).display === "inline" && length(around) > length(element);
  };
  const small = [];
  for (const element of document.querySelectorAll(CONTROLS)) {
    const isShown = element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
    if (!isShown || element.matches(".prose a, .swagger-ui *, [inert] *") || isInSentence(element)) continue;
    const target = element.matches("[type=checkbox], [type=radio]") ? (element.labels[0] ?? element) : element;
    target.scrollIntoView({ block: "center", inline: "center" });
    const box = target.getBoundingClientRect();
    const hits = (across, down) => {
      const [x, y] = [box.left + box.width / 2 + across, box.top + box.height / 2 + down];
      const isOutside = x < 0 || y < 0 || x >= innerWidth || y >= innerHeight;
      return isOutside || target.contains(document.elementFromPoint(x, y));
    };
    // What is covered, as by a bar at the page's end, is not to be hit, and what is clipped is for readers aloud.
    if (box.width <= 1 || box.height <= 1 || !hits(0, 0)) continue;
    const reach = LEAST / 2 - 1;
    const isHigh = box.height >= LEAST - 1 || (hits(0, -reach) && hits(0, reach));
    const isWide = box.width >= LEAST - 1 || (hits(-reach, 0) && hits(reach, 0));
    if (!isHigh || !isWide) small.push(`${element.outerHTML.slice(0, 120)} ${Math.round(box.width)}x${Math.round(box.height)}`);
  }
  return small;
}"""


def small_for_a_finger(page, finger):
    """On the phone that was looked at last, which has glass from now on. The next page has a mouse again."""
    finger.send("Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 1})
    small = page.evaluate(TOO_SMALL)
    finger.send("Emulation.setTouchEmulationEnabled", {"enabled": False})
    return small


@pytest.mark.parametrize("part", [pytest.param(part, marks=[pytest.mark.medium] * (part == "five")) for part in PARTS])
def test_every_page_is_accessible_and_stands_still_and_a_finger_hits_its_controls(open_page, alice, part):
    user = User.objects.create_superuser("root@example.com", house.PASSWORD) if part == "staff" else alice.user
    paths_of = {user: [*pages(alice, PARTS[part]), *EMPTY.get(part, [])]}
    if part == "pages":
        paths_of[None] = ["/", "/login/", "/register/", "/memory/", "/search/"]
    looked_at, small = {}, {}
    for who, paths in paths_of.items():
        page = open_page(user=who)
        finger = page.context.new_cdp_session(page)
        bring_axe(page)
        page.add_init_script(WATCH_SHIFTS)
        for path in paths:
            is_admins = path.startswith(ADMIN)
            # Some lead to another page, which is looked at once.
            if not opens(page, path) or (who, page.url) in looked_at:
                continue
            shifted = page.evaluate("shifted")
            looked_at[who, page.url] = look_at(page, is_admins=is_admins)
            if is_admins:
                continue
            if shifted >= MOST_SHIFTED:
                looked_at[who, page.url][f"moves by {shifted}"] = "as it opens"
            for control in small_for_a_finger(page, finger):
                small.setdefault(control, path)
    assert len(looked_at) >= {"five": 5, "pages": 40, "memory": 15, "staff": 20}[part]
    complaints = [f"{path} ({look}): {what}" for (_, path), wrong in looked_at.items() for what, look in wrong.items()]
    assert not complaints, "\n".join(complaints)
    assert not small, "\n".join(f"{path}: {control}" for control, path in small.items())


def test_the_menus_and_the_dialog_of_a_chat_are_accessible_in_both_colours(open_page, person):
    page = open_page(user=person)
    bring_axe(page)
    page.goto(f"/c/{a_rich_chat(person).pk}/")
    wrong = {}
    for opener in (page.locator(".turn").last.get_by_role("button", name="More"), page.locator(".person-button")):
        page.set_viewport_size({"width": 1280, "height": 900})
        opener.click()
        page.get_by_role("menu").wait_for()
        wrong |= look_at(page)
        page.keyboard.press("Escape")
    page.locator(".turn").last.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Delete this turn").click()
    page.get_by_role("dialog").wait_for()
    wrong |= look_at(page)
    assert wrong == {}


# The background of the chosen one of some elements, and of the others.
CHOSEN = """([all, chosen]) => {
  const backgrounds = (elements) => [...elements].map((element) => getComputedStyle(element).backgroundColor);
  const found = [...document.querySelectorAll(all)];
  return [found.filter((each) => each.matches(chosen)), found.filter((each) => !each.matches(chosen))].map(backgrounds);
}"""


def test_the_chosen_one_is_seen_where_the_system_forces_its_colours(open_page, person):
    page = open_page("/search/?q=dinner", user=person)
    page.emulate_media(forced_colors="active")
    page.keyboard.press("Control+k")
    page.locator(".palette-option").nth(1).wait_for()
    for all_of_them, chosen in (
        (".palette-option", "[aria-selected=true]"),
        (".tabs.kinds a", "[aria-current]"),
        (".places a", "[aria-current]"),
    ):
        ours, others = page.evaluate(CHOSEN, [all_of_them, chosen])
        assert len(ours) == 1 and others, all_of_them
        assert ours[0] not in others, all_of_them
