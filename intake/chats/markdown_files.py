"""Chats as Markdown for people. The JSON export beside it has every field, and an import takes only that one."""

from collections.abc import Iterator
from typing import Any

from core.zip_stream import ArchiveFile
from intake.chats.exporting import file_name, in_pages, in_pieces, of_project, turns_of
from intake.models import Conversation, User


def conversation_files(*, user: User, project: str | None = None) -> Iterator[ArchiveFile]:
    for conversation in in_pages(of_project(Conversation.objects.for_user(user).kept(), project)):
        yield ArchiveFile(
            name=f"conversations/{file_name(conversation)}.md",
            at=conversation.last_active_at,
            pieces=conversation_as_markdown(conversation=conversation, user=user),
            may_be_large=conversation.turn_count > 10_000,
        )


def conversation_as_markdown(*, conversation: Conversation, user: User) -> Iterator[bytes]:
    return in_pieces(_conversation(conversation, user))


def _conversation(conversation: Conversation, user: User) -> Iterator[str]:
    """The title, then each turn under its number; a version names the turn that it follows."""
    yield section(
        conversation.title or "Untitled",
        level=1,
        project=conversation.project,
        source=conversation.source if conversation.source != "chat" else "",
        model=conversation.model,
        instructions=conversation.instructions,
    )
    before = None
    for turn in turns_of(conversation, user):
        number, parent = turn["turn_number"], turn["parent_number"]
        version = "" if parent == before else f", following {parent or 'nothing'}"
        yield section(
            f"{number}. You, {turn['said_at']:%Y-%m-%d %H:%M} UTC{version}",
            turn["user_message"],
            status="" if turn["status"] == "complete" else turn["status"],
            files=[file["file"] for file in turn.get("attachments", [])],
        )
        if turn["assistant_message"]:
            yield section("Answer", turn["assistant_message"])
        before = number


def section(heading: str, text: str = "", *, level: int = 2, **facts: Any) -> str:
    """A heading of one line, a text, and a list of the facts that have a value."""
    lines = [
        f"- {name.replace('_', ' ')}: {' '.join(str(', '.join(fact) if isinstance(fact, list) else fact).split())}"
        for name, fact in facts.items()
        if fact not in (None, "", [])
    ]
    parts = [f"{'#' * level} {' '.join(heading.split())}", text.strip("\r\n"), "\n".join(lines)]
    return "".join(f"{part}\n\n" for part in parts if part)
