"""Files that a message names, read and indexed as the worker leaves them."""

from dataclasses import replace
from datetime import timedelta
from unittest.mock import patch

from django.utils import timezone

from core.isolation.acting import acting_as
from core.text import pg_text
from intake.attachments.reading.formats import read_file
from intake.attachments.reading.parts import Part
from intake.chats import services
from intake.models import Attachment, Turn
from intake.tests.attached import a_file
from intake.tests.factories import NOW, caller_for
from memory.index import attachments
from testing.examiner import as_a_worker


def attach(user, data, name="list.txt", *, message="Look at this", read=True, **choices):
    """The file, after the answer to its message."""
    attachment = a_file(user, data, name)
    say(user, attachment, message=message, **choices)
    if read:
        read_all()
    return Attachment.objects.get(pk=attachment.pk)


def say(user, *files, message="Look at this", **choices):
    with acting_as(user):
        turn = services.create_turn(
            services.TurnRequest(message=message, attachments=[each.pk for each in files], **choices),
            caller=caller_for(user),
            now=NOW,
        )
        return services.finish_turn(
            turn_id=turn.pk, answer=services.Answer(text="Noted.", status=Turn.Status.COMPLETE), attempt=turn.attempt
        )


def read_all():
    """What the worker's task does, but that files are read in this process: starting one takes longer than reading."""
    now = timezone.now()
    with as_a_worker(), patch.object(attachments, "read_safely", read_here):
        attachments.read_waiting(until=now + timedelta(minutes=1))
        attachments.index_read(since=now - attachments.RECENT)


def read_here(data, name, media_type):
    reading = read_file(data, name, media_type)
    return replace(reading, parts=[Part(pg_text(place), pg_text(text)) for place, text in reading.parts])
