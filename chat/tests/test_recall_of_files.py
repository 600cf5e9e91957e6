"""Recall mode, without a language model, searches files and quotes them with their page."""

import pytest

from intake.models import Turn
from memory import index
from memory.tests.attached import attach
from testing import files

pytestmark = pytest.mark.django_db(transaction=True)

LEASE = ["The lease begins in June.", "The deposit of 1,800 is paid back within six weeks."]


def answer_to(client, question):
    client.events(question)
    return Turn.objects.latest("pk")


def test_a_passage_of_a_file_is_quoted_with_its_page(person, log_in):
    attachment = attach(person, files.pdf(LEASE), "lease [new].pdf", message="Please read this")
    index.embed_pending()
    turn = answer_to(log_in(person), "When is the deposit paid back?")
    link = f"[lease (new).pdf, page 2](/c/{attachment.conversation_id}/?turn=1"
    assert link in turn.assistant_message
    assert "> The deposit of 1,800 is paid back within six weeks." in turn.assistant_message
    assert [call["name"] for call in turn.tool_calls].count("search_history") == 2


def test_without_files_nothing_more_is_searched(person, log_in):
    turn = answer_to(log_in(person), "When is the deposit paid back?")
    assert [call["name"] for call in turn.tool_calls] == ["search_chat_history", "search_history"]
