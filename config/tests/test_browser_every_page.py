"""Every page there is, full of data, in both colours on a desktop and a phone: axe finds nothing, nothing scrolls sideways."""

from datetime import date

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Error

from config.tests.endpoints import house
from config.tests.endpoints.registered import ENDPOINTS
from core.isolation.acting import acting_as
from intake.models import User
from intake.tests.factories import NOW, a_turn
from memory import documents, records

pytestmark = pytest.mark.django_db(transaction=True)

# Width, colours, and whether anything but colours differs from the look before.
LOOKS = [(1280, "light", True), (1280, "dark", False), (390, "dark", True), (390, "light", False)]
ADMIN = "/admin/"
# WCAG 2.2 AA and axe's own good practice. Without `preload` axe adds no style, which the Content-Security-Policy refuses.
EVERYTHING = {"resultTypes": ["violations"], "preload": False, "rules": {"target-size": {"enabled": True}}}
WCAG = {**EVERYTHING, "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}
# What a colour may change, once the rest is known.
OF_COLOURS = {**EVERYTHING, "runOnly": ["color-contrast", "target-size", "link-in-text-block"]}
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

# What is needed on each page: axe, and a style without which colours are still on their way from one look to the other.
AXE = f"""{Axe().axe_script};
  const still = new CSSStyleSheet();
  still.replaceSync("* {{ transition: none !important }}");
  document.adoptedStyleSheets = [still];"""
# The widgets of others: Swagger UI, and the question marks in Django's lists of permissions.
FOUND = """async ([options, isForPhones]) => {
  const found = await axe.run({ exclude: [".swagger-ui", ".help-tooltip"] }, options);
  const sideways = isForPhones && document.documentElement.scrollWidth > innerWidth ? ["scrolls sideways"] : [];
  return sideways.concat(found.violations.flatMap(({ id, nodes }) =>
    nodes.map((node) => `${id}: ${node.target} ${(node.any[0] ?? node.all[0] ?? node.none[0])?.message ?? ""}`)));
}"""


@pytest.fixture
def alice():
    alice = house.move_in("alice", "rumpelstiltskin", day=date(2026, 2, 3))
    conversation = a_turn(alice.user, LONG, RICH).conversation
    a_turn(alice.user, "And in code?\n" * 20, RICH, conversation=conversation)
    with acting_as(alice.user):
        documents.append(user=alice.user, day=None, text=RICH, now=NOW)
        records.create(user=alice.user, content=LONG, project_id=LONG[:180], tags=[LONG[:90], "x"], now=NOW)
    return alice


def pages(resident, *, staff):
    """The address of each page and of each way in which it is asked for."""
    for endpoint in ENDPOINTS.values():
        if endpoint.route.startswith("api/v1/") or endpoint.is_staffs != staff:
            continue
        for probe in endpoint.probes.get("GET", [])[:1]:
            query = "&".join(f"{name}={resident.things.fill(value)}" for name, value in probe.query.items())
            yield f"/{resident.things.fill(endpoint.at)}?{query}".removesuffix("?")


def opens(page, path):
    """Whether there is a page, and no file or plain text."""
    try:
        response = page.goto(path)
    except Error as error:
        if "Download is starting" in error.message:
            return False
        raise
    return response.headers.get("content-type", "").startswith("text/html") and "<html" in response.text()


def look_at(page, path):
    """What is wrong with it, each with the look in which it was seen first.

    Django's admin is looked at as it is used, at a desk, for what WCAG asks.
    """
    page.evaluate(AXE)
    is_admins = path.startswith(ADMIN)
    wrong = {}
    for width, colours, is_new in LOOKS[:2] if is_admins else LOOKS:
        page.emulate_media(color_scheme=colours)
        page.set_viewport_size({"width": width, "height": 900})
        options = OF_COLOURS if not is_new else WCAG if is_admins else EVERYTHING
        for each in page.evaluate(FOUND, [options, not is_admins]):
            wrong.setdefault(each, f"{width} {colours}")
    return wrong


def test_every_page_is_accessible_in_both_colours_on_a_desktop_and_on_a_phone(open_page, alice):
    root = User.objects.create_superuser("root@example.com", house.PASSWORD)
    looked_at = {}
    for user, paths in (
        (alice.user, [*pages(alice, staff=False), "/c/nothing/", f"/memory/logs/{date(2026, 1, 1)}/"]),
        (root, pages(alice, staff=True)),
        (None, ["/", "/login/", "/register/", "/memory/", "/search/"]),
    ):
        page = open_page(user=user)
        for path in paths:
            # Some lead to another page, which is looked at once.
            if opens(page, path) and (user, page.url) not in looked_at:
                looked_at[user, page.url] = look_at(page, path)
    assert len(looked_at) > 50
    complaints = [f"{path} ({look}): {what}" for (_, path), wrong in looked_at.items() for what, look in wrong.items()]
    assert not complaints, "\n".join(complaints)
