import pytest
from django.utils import timezone

from core.isolation.acting import acting_as
from intake.models import ChatPreferences, Conversation
from intake.tests.factories import NOW, a_turn
from memory import ended_chats, proposals, records

pytestmark = [pytest.mark.django_db(transaction=True)]
LONG = (
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft is where I decided in the spring to take the oak worktop from the sawmill in Baarn, forty millimetres thick, oiled twice a year, because the walnut one was too soft for bread and wine. "
    * 2
)


def test_look(open_page, person, settings):
    settings.LLM_MODEL = "scripted"
    settings.LLM_CONTEXT_TOKENS = 32000
    settings.LLM_BASE_URL = "http://127.0.0.1:9/v1"
    settings.CHAT_TITLES = True

    def shot(page, name):
        page.screenshot(path=f"/tmp/wt-R/{name}.png", full_page=True)

    page = open_page("/memory/proposals/", user=person)
    shot(page, "empty_off")
    page.goto(page.url.split("/memory")[0] + "/settings/account/")
    page.locator("#answers").screenshot(path="/tmp/wt-R/account.png")
    person.proposes_since = timezone.now()
    person.save()
    turn = a_turn(person, "We take the oak worktop. My sister lives in Rome now.", "Good choice. Oak lasts.")
    b = a_turn(person, "Ich trinke keinen Kaffee.")
    Conversation.objects.filter(pk=turn.conversation_id).update(
        title="The kitchen and the worktop",
        readings={"times": 1, "input": 2180, "output": 154, "left_out": 2, "proposed": 3},
    )
    Conversation.objects.filter(pk=b.conversation_id).update(
        title=LONG[:80], readings={"times": 1, "input": 1180, "output": 54, "left_out": 0, "proposed": 1}
    )
    with acting_as(person):
        old = records.create(user=person, content="The worktop is walnut.", now=NOW)
        ChatPreferences.objects.create(
            user=person,
            reading_tokens={ended_chats._day(person, timezone.now()): {"chats": 2, "input": 3360, "output": 208}},
        )
    s = {"source_conversation": turn.conversation_id, "source_turn": 1}
    proposals.propose(
        user=person,
        now=NOW,
        drafts=[
            s
            | {
                "content": "We take the oak worktop.",
                "type": "decision",
                "project_id": "kitchen",
                "quote": "We take the oak worktop",
                "replaces": old.id,
            },
            s | {"content": "My sister lives in Rome.", "type": "fact", "quote": "My sister lives in Rome now"},
            {
                "source_conversation": b.conversation_id,
                "source_turn": 1,
                "content": "Ich trinke keinen Kaffee.",
                "type": "preference",
                "quote": "Ich trinke keinen Kaffee",
            },
            {"content": LONG, "type": "lesson", "project_id": LONG[:180]},
            {"content": "Bikes rust in rain.", "type": "fact"},
            {"content": "The plumber comes on Monday.", "type": "todo"},
        ],
    )
    with acting_as(person):
        rows = proposals.list_proposals(user=person).rows
        by = {r.content: r for r in rows}
        proposals.decide(user=person, proposal_id=by["Bikes rust in rain."].id, state="never", now=NOW)
        proposals.decide(user=person, proposal_id=by["The plumber comes on Monday."].id, state="accepted", now=NOW)
    page = open_page("/memory/proposals/", user=person)
    shot(page, "desktop")
    page.get_by_role("button", name="Edit").first.click()
    shot(page, "edit")
    page = open_page(
        "/memory/proposals/", user=person, color_scheme="dark", viewport={"width": 360, "height": 740}, has_touch=True
    )
    shot(page, "phone_dark")
    page.get_by_role("button", name="Edit").first.click()
    shot(page, "phone_edit")
    page = open_page("/memory/proposals/", user=person, locale="de-DE", extra_http_headers={"Accept-Language": "de"})
    shot(page, "german")
    page = open_page(f"/c/{turn.conversation_id}/", user=person)
    page.get_by_role("link", name="things to remember").wait_for()
    shot(page, "chat")
    page.get_by_role("button", name="This chat").last.click()
    page.wait_for_timeout(300)
    shot(page, "sheet")
    page = open_page(
        f"/c/{turn.conversation_id}/", user=person, color_scheme="dark", viewport={"width": 360, "height": 740}
    )
    page.get_by_role("link", name="things to remember").wait_for()
    shot(page, "chat_phone")
    page = open_page("/memory/records/", user=person)
    shot(page, "records")
