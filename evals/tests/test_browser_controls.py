"""How many controls a person sees at once on the demo's pages: figures that may only fall."""

import pytest
from django.utils import timezone

from core.isolation.acting import acting_as
from evals import demo
from intake.chats.tree import conversation_path
from intake.models import Conversation

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

# Without the rows of lists, and without the buttons of a turn that appear when it is pointed at.
MOST = {"/": 15, "chat": 22, "/memory/records/": 21, "/settings/agents/": 18, "/projects/house/": 14}
IN_VIEW = """() => [...document.querySelectorAll("a[href], button, input, select, textarea, summary")].filter((each) => {
  const { width, top, bottom, left, right } = each.getBoundingClientRect();
  const isInView = width && top < innerHeight && bottom > 0 && left < innerWidth && right > 0;
  return isInView && each.checkVisibility({ opacityProperty: true, visibilityProperty: true })
    && !each.closest("[data-conversations], main li");
}).map((each) => each.ariaLabel || each.innerText || each.placeholder)"""


def test_no_page_shows_more_controls_than_it_did(open_page):
    user, _ = demo.ensure_person()
    with acting_as(user):
        demo.load_demo(user, now=timezone.now())
        demo.load_notes(user, now=timezone.now())
        chat = conversation_path(Conversation.objects.for_user(user).latest("last_active_at").pk)
    page = open_page("/offline/", user=user, viewport={"width": 1280, "height": 800})
    seen = {}
    for name in MOST:
        page.goto(chat if name == "chat" else name)
        page.wait_for_load_state("networkidle")
        seen[name] = page.evaluate(IN_VIEW)
    # A figure that fell is written above anew.
    assert {name: len(controls) for name, controls in seen.items()} == MOST, str(seen)
