"""The suite `files`: fifty questions about ten documents, asked of `search_history`.

Each document is attached as a file of its kind, read and indexed as in production. For at least 45 of the questions the
passage with the answer must be among the first five results.
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO, StringIO
from pathlib import Path
from typing import NamedTuple

from django.utils import timezone

from core.isolation.acting import Caller, acting_as
from evals.datasets.loading import embed_all
from evals.scratch import as_worker
from evals.vec02 import Verdict
from intake.attachments import services as attachments
from intake.chats import services
from intake.models import Attachment, AttachmentText, User
from memory.index import attachments as reading
from memory.search.history import HistoryRequest, search_history
from testing import files

DOCUMENTS = Path(__file__).parent / "datasets" / "files"
FIRST = 5
AT_LEAST = 0.9
USER = "files@evals.invalid"

Section = tuple[str, str]


class Question(NamedTuple):
    file: str
    question: str
    answer: str


def run() -> list[Verdict]:
    """Fill an empty database with the documents and ask all questions."""
    user = User.objects.create_user(USER)
    for name, data in documents():
        attach(user, data, name)
    read_all()
    embed_all(report=lambda line: None)
    return [_judge(user, number, question) for number, question in enumerate(questions(), start=1)]


def _judge(user: User, number: int, question: Question) -> Verdict:
    claim = f"{question.question} ({question.file})"
    failure = None if is_found(user, question) else f"{claim}: not among the first {FIRST}"
    return Verdict(f"FILES-{number:02}", claim, failure)


def questions() -> list[Question]:
    return [Question(**json.loads(line)) for line in (DOCUMENTS / "questions.jsonl").read_text().splitlines()]


def documents() -> Iterator[tuple[str, bytes]]:
    """The name and the bytes of each, made from a text of its own."""
    for path in sorted(DOCUMENTS.glob("*.txt")):
        name = path.name.removesuffix(".txt")
        yield name, MAKERS[Path(name).suffix](path.read_text())


def _sections(text: str) -> list[Section]:
    every = (part.partition("\n") for part in text.removeprefix("# ").split("\n# "))
    return [(heading, body.strip()) for heading, _, body in every]


def _letter(text: str) -> bytes:
    subject, _, body = text.partition("\n")
    return files.eml(subject.removeprefix("Subject: "), body)


MAKERS: Mapping[str, Callable[[str], bytes]] = {
    ".pdf": lambda text: files.pdf(f"{heading}\n{body}" for heading, body in _sections(text)),
    ".docx": lambda text: files.docx_of(_sections(text)),
    ".pptx": lambda text: files.pptx([(heading, body, "") for heading, body in _sections(text)]),
    ".epub": lambda text: files.epub([f"<h1>{heading}</h1><p>{body}</p>" for heading, body in _sections(text)]),
    ".xlsx": lambda text: files.xlsx({"Sheet": csv.reader(StringIO(text))}),
    ".eml": _letter,
    ".csv": str.encode,
    ".md": str.encode,
}


def attach(user: User, data: bytes, name: str) -> Attachment:
    """A file of a message, as the chat saves it."""
    caller, now = Caller(user_id=user.pk), timezone.now()
    with acting_as(user):
        attachment = attachments.store(caller=caller, file=BytesIO(data), name=name, now=now)
        services.create_turn(
            services.TurnRequest(message="Here is a file.", attachments=(attachment.pk,)), caller=caller, now=now
        )
    return attachment


def read_all() -> None:
    """What the worker's task does, to the end."""
    with as_worker():
        while reading.read_waiting(until=timezone.now()):
            pass
        reading.index_read(since=timezone.now() - reading.RECENT)


def is_found(user: User, question: Question, *, first: int = FIRST) -> bool:
    """Whether one of the first results is a part of the file that has the answer."""
    request = HistoryRequest(query=question.question, max_results=first)
    for result in search_history(request, user=user, now=timezone.now()).results:
        reference = result.reference
        if reference.file == question.file:
            with acting_as(user):
                part = AttachmentText.objects.get(attachment=reference.attachment_id, number=reference.part or 0)
            if question.answer in " ".join(part.text.split()):
                return True
    return False
