"""`/c/…/turns/…/prompt/`: what an answer was given of the memory, and its prompt, part by part."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from agent_tools.tools.context import ContextLine, lines_of, without_left_out
from chat.pages.chats import PART, personal_page
from core.ids import parse_id
from core.isolation.acting import Caller
from intake.accounts.identity import caller_of, is_registered, person_of
from intake.chats.prompts import OF_MEMORY, Prompt, digest_of
from intake.chats.reading import as_turn_number, get_turn
from intake.chats.tree import conversation_path
from intake.chats.usage import Usage
from intake.models import Turn
from memory import documents
from memory.left_out import digests_left_out
from memory.models.documents import ABOUT_ME
from memory.sources_of_answers import AnswerSource, chats_with_turns, sources_of

PARTS = {
    "introduction": _("What Recollect says itself"),
    "rules": _("Instructions of this installation"),
    "tools": _("The tools"),
    "now": _("Time, and how data is marked"),
    "project": _("Name of the project"),
    "without-tools": _("That there are no tools"),
    "left-out": _("What is left out"),
    "beginning": _("How the chat began"),
    "earlier": _("Earlier messages"),
    "message": _("Your message"),
    "result": _("What a tool found"),
    "about": _("About me"),
    "notes": _("Notes"),
    "instructions": _("Instructions"),
    "turn": _("Chat"),
    "record": _("Saved"),
    "file": _("File"),
    "page": _("Page"),
}


@personal_page
def prompt(request: HttpRequest, conversation_id: str, turn_number: str) -> HttpResponse:
    """The sources of an answer, which its fold in the chat takes from here, and its prompt as it was sent."""
    caller, number = caller_of(request), as_turn_number(turn_number) or 0
    turn = get_turn(caller=caller, conversation_id=parse_id(conversation_id), turn_number=number)
    found = sorted(sources_of([turn], caller).get(turn.pk, ()), key=lambda each: OF_MEMORY.index(each.part.kind))
    numbers = {each.part.source: each.part.number for each in found}
    chats = chats_with_turns(each.part for each in found)
    sources = [_as_shown(each, request, turn, numbers) for each in found if each.part.source not in chats]
    made = Prompt.of(turn.prompt)
    parts = _parts(turn, made, caller) if made.parts and PART not in request.headers else []
    context = {
        "turn": turn,
        "conversation": turn.conversation,
        "used": [each for each in sources if each["part"].used],
        "unused": [each for each in sources if not each["part"].used],
        "can_change": is_registered(request),
        "address": request.path,
        "back": conversation_path(turn.conversation_id, turn_number=turn.turn_number),
        "parts": [part for part in parts if part["used"]],
        "unsent": [part for part in parts if not part["used"]],
        "not_sent": Usage.of(turn.usage).not_sent,
    }
    return render(request, "intake/prompt.html", context)


def _as_shown(source: AnswerSource, request: HttpRequest, turn: Turn, numbers: dict[str, int]) -> dict[str, Any]:
    """With its lines, if it is a note that is given whole, the page where it is corrected, and the `numbers` that cite
    it: that of its whole chat too.
    """
    part, lines = source.part, dict[ContextLine, None]()
    if part.kind in ("about", "notes") and part.source in ("", "all", "project") and is_registered(request):
        user, day = person_of(request), ABOUT_ME if part.kind == "about" else None
        text = documents.beginning(user=user, day=day, project=source.project, length=8_000)
        left_out = {*digests_left_out(user), *turn.conversation.left_out}
        lines = dict.fromkeys(
            line for line, *_ in lines_of(without_left_out(text, source.place, left_out), source.place)
        )
    correct = source.correct
    if source.digest and not correct:
        correct = reverse("memory:correct", args=[turn.conversation_id, turn.turn_number, source.digest])
    shown = {name: getattr(source, name) for name in ("part", "title", "place", "project", "state", "digest")}
    cited = sorted({part.number, numbers.get(part.source.partition("/")[0], 0)} - {0})
    return {**shown, "kind": PARTS[part.kind], "lines": lines, "correct": correct, "numbers": cited}


def _parts(turn: Turn, made: Prompt, caller: Caller) -> list[dict[str, Any]]:
    """Each part with its text, and a note where that is no longer the text that was sent."""
    # Imported here because no other page should wait for the agent loop at start-up.
    from chat.agent.prompt import made_again

    again = {(part.kind, part.id): part for part in made_again(turn, made, caller).parts}
    results = {call["id"][-12:]: call.get("found") or "" for call in turn.tool_calls if call.get("id")}
    shown = []
    for part in made.parts:
        if not part.digest:
            continue
        now = again.get((part.kind, part.id))
        text = results.get(part.id, "") if part.kind == "result" else now.text if now is not None else ""
        note = "" if digest_of(text) == part.digest else _("Changed since.") if text else _("Gone since.")
        if note and part.kind == "result":
            note = _("Not kept as a whole.")
        shown.append({"label": PARTS[part.kind], "tokens": part.tokens, "text": text, "note": note, "used": part.used})
    return shown
