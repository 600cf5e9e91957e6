"""The first page's cards, done as they say: the answer to each second one holds what the one before it said."""

import json

import pytest
from django.utils.translation import override
from playwright.sync_api import Page, expect
from starlette.responses import StreamingResponse

from chat.pages.chats import EXAMPLES, EXAMPLES_WITHOUT_MODEL
from intake.models import Turn
from memory import index
from testing.model_server import CallTool, Say, ScriptedModel

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]

LANGUAGES = ["en", "de", "es"]


class Forgetful(ScriptedModel):
    """Knows only what its request holds: repeats `said` if that is there, else searches once, if it may."""

    def __init__(self, said: str) -> None:
        super().__init__()
        self.said = said

    async def _complete(self, request):
        asked = await request.json()
        self.requests.append(asked)
        *before, last = asked["messages"]
        is_question = last["role"] == "user" and self.said not in last["content"]
        if self.said in json.dumps(before if is_question else asked["messages"], ensure_ascii=False):
            step = Say((self.said,))
        elif is_question and "call no tool" not in before[0]["content"]:
            step = CallTool("search_chat_history", {"query": last["content"], "mode": "hybrid"})
        else:
            step = Say(("I do not know.",))
        return StreamingResponse(self._stream(step), media_type="text/event-stream")


def do(page: Page, card: str) -> None:
    """Says what a card says: by a press on it, or in its words where a chat has begun and the cards are gone."""
    button = page.get_by_role("button", name=card, exact=True)
    if button.count():
        button.click()
    else:
        page.get_by_role("textbox").last.fill(card)
    page.keyboard.press("Enter")
    expect(page.locator(".turn .said").last).to_have_text(card)
    expect(page.locator(".turn").last).to_have_attribute("data-status", "complete")


def in_language(language: str, cards: list[str]) -> list[tuple[str, str]]:
    """Each card that tells something, with the one that asks for it."""
    with override(language):
        texts = [str(card) for card in cards]
    return list(zip(texts[::2], texts[1::2], strict=True))


@pytest.mark.parametrize(
    "language", [pytest.param(each, marks=[pytest.mark.medium] * (each == "en")) for each in LANGUAGES]
)
@pytest.mark.parametrize("is_new_chat", [False, True], ids=["one chat", "a new chat"])
@pytest.mark.parametrize("who", ["stranger", "person"])
def test_without_a_model_each_question_is_answered_by_the_card_before_it(open_page, person, who, is_new_chat, language):
    page = open_page(user=person if who == "person" else None, locale=language)
    for told, asked in in_language(language, EXAMPLES_WITHOUT_MODEL):
        do(page, told)
        if is_new_chat:
            index.embed_pending()
            page.goto("/")
        do(page, asked)
        answer = page.locator(".turn").last.locator(".prose")
        expect(answer.locator("blockquote").first).to_have_text(told)
        # One line tells of the searches, and for a stranger there are none.
        assert page.locator(".turn").last.locator(".steps > :visible").count() == (who == "person")
        page.goto("/")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("is_new_chat", [False, True], ids=["one chat", "a new chat"])
@pytest.mark.parametrize("who", ["stranger", "person"])
def test_a_model_is_given_what_the_card_before_its_question_said(
    open_page, person, settings, serve_model, who, is_new_chat, language
):
    settings.CHAT_TITLES = False
    settings.LLM_MODEL = "scripted"
    for told, asked in in_language(language, EXAMPLES):
        settings.LLM_BASE_URL = serve_model(Forgetful(told)) + "/v1"
        page = open_page(user=person if who == "person" else None, locale=language)
        do(page, told)
        if is_new_chat:
            index.embed_pending()
            page.goto("/")
        do(page, asked)
        expect(page.locator(".turn").last.locator(".prose")).to_have_text(told)
        assert not any(call["name"] == "search_chat_history" for turn in Turn.objects.all() for call in turn.tool_calls
                       if turn.user.is_visitor)  # fmt: skip


def test_several_searches_are_one_line_that_unfolds_them(open_page, person):
    page = open_page(user=person)
    do(page, "The spare key is with our neighbour on the second floor.")
    do(page, "Where is the spare key?")
    steps = page.locator(".turn").last.locator(".steps")
    line = steps.get_by_text("Searched your chats and notes")
    expect(steps.locator(".step").first).to_be_hidden()
    line.click()
    # A short question is also searched with what was said before it, in chats and in notes.
    expect(steps.locator(".step:visible")).to_have_count(4)
    page.reload()
    expect(line).to_be_visible()
    expect(steps.locator(".step").first).to_be_hidden()
