"""Proposals: what may be worth keeping waits here until the person keeps it, changes it, or says no.

A proposal is no record: no search, no context and no list of records has it. Accepting it saves a record in the usual
way. Two sources propose: chats that have ended (`memory.ended_chats`), and agents (`save_memory` with `propose`).
"""

import logging
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import numpy as np
from django.db import transaction
from pydantic import AwareDatetime, Field

from core.errors import Conflict, NotFound, QuotaExceeded
from core.ids import required
from core.isolation.acting import acting_as
from core.paging import ListPage, Position, page_of
from core.resilience import is_in_transaction
from core.text import gettext_noop as _
from core.validation import Shape, checked
from intake.chats.temporary import project_named
from intake.models import Turn, User
from memory import quotas, records
from memory.backends.embedders import UNCALIBRATED, EmbedderError, Vector, get_embedder
from memory.models import MemoryRecord, Proposal
from memory.models.documents import (
    ACCEPTED,
    MAX_LABEL_LENGTH,
    MAX_PROJECT_LENGTH,
    MAX_PROPOSAL_LENGTH,
    MAX_QUOTE_LENGTH,
    NEVER,
    REJECTED,
    WAITING,
)
from memory.search.fusion import Fingerprint
from memory.search.records import NEARLY, find_nearly_same

logger = logging.getLogger(__name__)

KINDS = ("fact", "preference", "decision", "lesson", "todo")
MOST_WAITING = 200
# The rejected ones that a new one is compared with, the newest first.
MOST_COMPARED = 1_000

REFUSED = _("The person was asked this before and does not want it kept. Do not propose it again.")
WAITS = _("The same already waits for the person to decide.")
KEPT = _("The same is kept already.")
TOO_MANY = _("%(count)s proposals wait for the person to decide. No more are taken until some are decided.")

Draft = Mapping[str, Any]
"""`content`, and any of `type`, `project_id`, `source_conversation`, `source_turn`, `quote` and `replaces`."""
FIELDS = ("content", "type", "project_id", "source_conversation", "source_turn", "quote", "replaces")


class ProposalOutput(Shape):
    """A sentence that may be worth keeping, and what was decided about it."""

    id: Annotated[UUID, Field(description="The proposal's id.")]
    state: Annotated[
        str,
        Field(
            description="`waiting`, `accepted`, `rejected` (the same is not proposed again) or `never` (nothing about "
            "this is proposed again)."
        ),
    ]
    content: Annotated[str, Field(description="The sentence.")]
    type: Annotated[str, Field(description="The type of the record that accepting saves.")]
    project_id: Annotated[str, Field(description="Its project; empty for none.")]
    source_conversation: Annotated[
        UUID | None, Field(serialization_alias="sourceConversation", description="The chat it comes from.")
    ] = None
    source_turn: Annotated[
        int | None, Field(serialization_alias="sourceTurn", description="The turn of that chat.")
    ] = None
    quote: Annotated[str, Field(description="The person's own words that say it; empty for an agent's.")] = ""
    replaces: Annotated[UUID | None, Field(description="The record that is no longer true.")] = None
    record: Annotated[UUID | None, Field(description="Of an accepted one: the record that was saved.")] = None
    created_at: AwareDatetime
    decided_at: Annotated[AwareDatetime | None, Field(serialization_alias="decidedAt")] = None


def propose(*, user: User, drafts: Sequence[Draft], now: datetime) -> list[ProposalOutput | str]:
    """For each draft the stored proposal, or the sentence why there is none.

    It acts as the user itself, because between its transactions it asks the embedding model. Without that model, or in
    a transaction of the caller, the words alone are compared. Raises `InvalidInput` and `QuotaExceeded`.
    """
    held = [_checked(draft) for draft in drafts]
    vectors = _vectors(user, [each["content"] for each in held])
    found: list[ProposalOutput | str] = []
    with acting_as(user):
        for each, vector in zip(held, vectors, strict=True):
            each["project_id"] = project_named(each["project_id"], user=user, field="project_id")
            refusal = _refusal(user, each, vector)
            found.append(refusal or _stored(user, each, vector, now=now))
    return found


def list_proposals(
    *,
    user: User,
    states: Collection[str] = (WAITING,),
    conversation: UUID | None = None,
    project: str | None = None,
    by: str = "created_at",
    after: Position | None = None,
    limit: int = records.MAX_RECORDS,
) -> ListPage[ProposalOutput]:
    """The newest first; `by`: also `decided_at`, of decided ones.

    `conversation`: only those of this chat; `project`: of this project. Without either, none of a closed project.
    """
    found = Proposal.objects.for_user(user).filter(state__in=states).defer("vector")
    if conversation is not None:
        found = found.filter(source_conversation=conversation)
    else:
        found = found.of_project(user, project, field="project_id")
    page = page_of(found, by=by, after=after, size=limit)
    return ListPage([ProposalOutput.model_validate(row) for row in page.rows], page.more)


def count_waiting(user: User) -> int:
    """Without those of closed projects."""
    return Proposal.objects.for_user(user).filter(state=WAITING).of_project(user, None, field="project_id").count()


def decide(
    *,
    user: User,
    proposal_id: UUID,
    state: str,
    now: datetime,
    content: str | None = None,
    type: str | None = None,
    project_id: str | None = None,
) -> ProposalOutput:
    """Accept, reject, or never hear of it again. Accepting saves a record, with these fields where they are not None.

    Raises `NotFound`, `Conflict` if another decision was made, and like `records.create`.
    """
    with transaction.atomic():
        row = _locked(user, proposal_id)
        if row.state == state:
            return ProposalOutput.model_validate(row)
        if row.state != WAITING:
            raise Conflict
        if project_id not in (None, row.project_id):
            project_id = project_named(project_id, user=user, field="project_id")
        # What is wrong is refused also where no record is made.
        held = records.checked_fields(
            content=row.content if content is None else content,
            type=row.type if type is None else type,
            project_id=row.project_id if project_id is None else project_id,
        )
        if state == ACCEPTED:
            del held["tags"]
            row.record = _record_of(user, row, now=now, **held)
        row.state, row.decided_at = state, now
        row.save(update_fields=["state", "record", "decided_at"])
    return ProposalOutput.model_validate(row)


def undo(*, user: User, proposal_id: UUID) -> ProposalOutput:
    """It waits again; the record of an accepted one is deleted, and what that replaced holds again. Raises `NotFound`.

    A record that was deleted elsewhere counts as undone.
    """
    with transaction.atomic():
        row = _locked(user, proposal_id)
        if row.record is not None:
            with suppress(NotFound):
                records.delete(user=user, record_id=row.record)
        row.state, row.record, row.decided_at = WAITING, None, None
        row.save(update_fields=["state", "record", "decided_at"])
    return ProposalOutput.model_validate(row)


def withdraw(*, user: User, proposal_id: UUID) -> None:
    """Delete a proposal that its proposer takes back. Raises `NotFound`, and `Conflict` once it is decided."""
    with transaction.atomic():
        row = _locked(user, proposal_id)
        if row.state != WAITING:
            raise Conflict
        row.delete()


def _checked(draft: Draft) -> dict[str, Any]:
    """Raises `InvalidInput`."""
    held = {name: draft.get(name) for name in FIELDS}
    held["content"] = checked(draft["content"], field="content", max_length=MAX_PROPOSAL_LENGTH)
    held["type"] = checked(draft.get("type") or records.DEFAULT_TYPE, field="type", max_length=MAX_LABEL_LENGTH)
    project = draft.get("project_id") or ""
    held["project_id"] = checked(project, field="project_id", max_length=MAX_PROJECT_LENGTH, may_be_blank=True)
    held["quote"] = (draft.get("quote") or "")[:MAX_QUOTE_LENGTH]
    return held


def _stored(user: User, held: dict[str, Any], vector: Vector | None, *, now: datetime) -> ProposalOutput:
    """Raises `QuotaExceeded`, and `NotFound` for a record to replace that is missing or another user's."""
    if Proposal.objects.for_user(user).filter(state=WAITING).count() >= MOST_WAITING:
        raise QuotaExceeded(TOO_MANY, count=MOST_WAITING)
    if held["replaces"] is not None and not MemoryRecord.objects.for_user(user).filter(pk=held["replaces"]).exists():
        raise NotFound
    quotas.take(user.pk, size=len(held["content"].encode()))
    name = "" if vector is None else get_embedder().name
    row = Proposal.objects.create(user=user, vector=vector, vector_model=name, created_at=now, **held)
    return ProposalOutput.model_validate(row)


def _record_of(user: User, row: Proposal, *, content: str, type: str, project_id: str, now: datetime) -> UUID | None:
    """The record that accepting makes; None if the same is kept already, which undoing must not delete."""
    same = records.find_same(user=user, content=content, project_id=project_id)
    if same is not None and row.replaces in (None, same.replaces):
        return None
    facts: dict[str, Any] = {}
    if row.replaces is not None and can_replace(user, row.replaces):
        facts["replaces"] = row.replaces
    source = [] if row.source_conversation is None else [(row.source_conversation, row.source_turn or 0)]
    if Turn.objects.for_user(user).with_keys(source).exists():
        facts |= {"source_conversation": row.source_conversation, "source_turn": row.source_turn}
    made = records.create(user=user, content=content, type=type, project_id=project_id, facts=facts, now=now)
    return made.id


def can_replace(user: User, record_id: UUID) -> bool:
    """Whether it is still there and no other record replaces it."""
    is_there = MemoryRecord.objects.for_user(user).filter(pk=record_id).exists()
    return is_there and records.can_replace(user, record_id, by=UUID(int=0))


def _locked(user: User, proposal_id: UUID) -> Proposal:
    mine = Proposal.objects.for_user(user).select_for_update().defer("vector")
    return required(mine.filter(pk=proposal_id).first())


def _refusal(user: User, held: dict[str, Any], vector: Vector | None) -> str | None:
    """A sentence if the same was rejected, waits, or is kept."""
    own = Fingerprint.of(held["content"])
    undecided: list[str] = []
    compared = Proposal.objects.for_user(user).filter(state__in=(WAITING, REJECTED, NEVER))
    for row in compared.order_by("-created_at", "-id")[:MOST_COMPARED]:
        if row.state == WAITING:
            undecided.append(row.content)
        elif _is_same(own, row.content) or _is_near(row, vector):
            return REFUSED
    if any(_is_same(own, content) for content in undecided):
        return WAITS
    same = records.find_same(user=user, content=held["content"], project_id=held["project_id"])
    alike = find_nearly_same(user=user, content=held["content"], project_id=held["project_id"])
    return KEPT if same is not None or [pk for pk in alike if pk != held["replaces"]] else None


def _is_same(own: Fingerprint, content: str) -> bool:
    other = Fingerprint.of(content)
    return min(own.share_in(other), other.share_in(own)) > NEARLY


def _is_near(row: Proposal, vector: Vector | None) -> bool:
    """By the calibration of the model that made both vectors; "never about this" reaches further."""
    embedder = get_embedder()
    if vector is None or row.vector is None or row.vector_model != embedder.name:
        return False
    calibration = embedder.calibration or UNCALIBRATED
    other = row.vector.to_numpy() if hasattr(row.vector, "to_numpy") else row.vector
    distance = 1.0 - float(np.dot(np.asarray(other, dtype=np.float32), vector))
    return distance <= (calibration.topic if row.state == NEVER else calibration.same)


def _vectors(user: User, texts: Sequence[str]) -> list[Vector | None]:
    """Asks the embedding model, also for decided ones whose vectors another model made; never in a transaction."""
    if is_in_transaction():
        return [None] * len(texts)
    try:
        embedder = get_embedder()
        with acting_as(user):
            of_others = Proposal.objects.for_user(user).filter(state__in=(REJECTED, NEVER))
            of_others = of_others.exclude(vector_model=embedder.name).order_by("-created_at")
            stale = dict(of_others.values_list("pk", "content")[:MOST_COMPARED])
        if stale:
            vectors = embedder.embed_documents(list(stale.values()))
            with acting_as(user):
                for pk, vector in zip(stale, vectors, strict=True):
                    mine = Proposal.objects.for_user(user).filter(pk=pk)
                    mine.update(vector=vector, vector_model=embedder.name)
        return list(embedder.embed_documents(list(texts))) if texts else []
    except EmbedderError as error:
        logger.warning("Proposals are compared by their words alone (%s)", type(error).__name__)
        return [None] * len(texts)


# Text of others gets into a message as code, quotations, forwarded mail, tables and tagged blocks, and after "this:" or
# a line of dashes. In doubt it is left out: a missing proposal costs less than a false one.

SHORTEST_QUOTE = 4

_FENCES = ("```", "~~~")
_OPENED = re.compile(r"<([a-z][a-z0-9_-]{0,40})\b", re.IGNORECASE)
_DASHES = re.compile(r"[-=_*]{3,200}")
_OF_A_MAIL = re.compile(r"(?:from|von|de|subject|betreff|asunto|sent|gesendet|enviado)\s{0,5}:|-{5}", re.IGNORECASE)
_THIS = re.compile(
    r"\b(?:this|these|following|below|here|texts?|e-?mails?|messages?|letters?|articles?|logs?|errors?|output|quote"
    r"|summari[sz]e|translate|explain|rewrite|proofread|review|fix|folgende[mnrs]?|dies\w?|hier|nachricht\w?|brief"
    r"|artikel|fehler|zitat|zusammen\w{0,7}|übersetze?|erkläre?|korrigiere?|siguientes?|est[aeo]s?|textos?|correos?"
    r"|mensajes?|cartas?|artículos?|cita|resume|traduce|explica|corrige)\b",
    re.IGNORECASE,
)
_SAYS = re.compile(
    r"\b(?:says?|said|writes?|wrote|reads|schreibt|schrieb|sagte?|steht|dice|dijo|escribe|escribió)\b[^:\n]{0,40}:",
    re.IGNORECASE,
)
_QUOTED = re.compile(
    "\u201c[^\u201c\u201d\n]{20,}\u201d|\u201e[^\u201c\u201d\u201e\n]{20,}[\u201c\u201d]"
    "|\u00ab[^\u00ab\u00bb\n]{20,}\u00bb|\u00bb[^\u00ab\u00bb\n]{20,}\u00ab"
    '|"[^"\n]{20,}"'
)
_ENDS = re.compile(r"(?<=[.!?\u3002\uff01\uff1f])\s+")
_AGREED = re.compile(
    r"\W{0,5}(?:yes|yeah|yep|right|correct|exactly|indeed|agreed|that(?:'s| is) (?:right|it|true|correct)|ja|genau"
    r"|stimmt|richtig|korrekt|einverstanden|so ist es|s\u00ed|claro|exacto|correcto|cierto|de acuerdo)\b",
    re.IGNORECASE,
)
_BUT = re.compile(
    r"\b(?:no|not|never|but|except|\w{2,6}n't|nein|nicht|nie|aber|sondern|kein\w{0,2}|pero|sino|nunca)\b", re.IGNORECASE
)
_WORD = re.compile(r"\w+")
_UNSPACED = "\u3040"
_SOON = re.compile(
    r"\b(?:to(?:day|morrow|night)|yesterday|next|last|this|week|month|year|ago|\w{3,6}day|heute|morgen|gestern|n\u00e4chst\w{1,2}"
    r"|letzt\w{1,2}|woche|monat|jahr|\w{3,7}tag|mittwoch|hoy|ma\u00f1ana|ayer|pr\u00f3xim\w|semana|mes|a\u00f1o|lunes|martes"
    r"|mi\u00e9rcoles|jueves|viernes|s\u00e1bado|domingo)\b"
)
_COMMON = frozenset(
    _WORD.findall(
        "that this with have been from will would want they them their there than then when what which about into also "
        "because person prefer prefers likes decided decision remember always never dass dies diese dieser eine einen "
        "einem einer nicht oder aber habe haben wird werde werden mein meine meinen meiner weil wenn sich auch noch "
        "para pero este esta estos estas porque cuando como tengo hemos está estoy"
    )
)


def own_words(text: str) -> str:
    """What the person wrote themselves in a message, as far as its form shows."""
    kept: list[str] = []
    until = ""
    for line in text.splitlines():
        bare = line.strip()
        if until:
            until = "" if until in bare.lower() else until
        elif end := _end_of_block(bare):
            until = end
        elif _OF_A_MAIL.match(bare):
            break
        # People seldom write so long a paragraph themselves.
        elif not (bare.startswith((">", "|", "<")) or line.startswith(("    ", "\t")) or len(bare) > 1_500):
            says = _SAYS.search(bare)
            kept.append(bare[: says.end()] if says else bare)
            if says or (bare.endswith(":") and _THIS.search(bare)):
                break
    return _QUOTED.sub(" ", "\n".join(kept)).strip()


def _end_of_block(line: str) -> str:
    """What ends the block of another's text that begins with this line; empty if none begins."""
    if line.startswith(_FENCES) or _DASHES.fullmatch(line):
        return line[:3]
    opened = _OPENED.match(line)
    end = f"</{opened[1].lower()}" if opened else ""
    return "" if end in line.lower() else end


def not_copied(own: str, foreign: str) -> str:
    """Without the sentences that stand in this plain text of others: earlier answers, and attached files."""
    # A longer sentence that also stands in a file or an earlier answer was copied from there.
    lines = [
        [each for each in _ENDS.split(line) if len(plain(each)) < 40 or plain(each) not in foreign]
        for line in own.splitlines()
    ]
    return "\n".join(" ".join(line) for line in lines if line)


def plain(text: str) -> str:
    """For comparisons: in lower case, with single blanks and plain apostrophes."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")
    return " ".join(folded.split()).strip(" \"'")


def closing(answer: str) -> tuple[str, ...]:
    """The last sentence of an answer, and the one before if the last only asks whether it is right."""
    paragraphs = own_words(answer[-MAX_QUOTE_LENGTH:]).splitlines()
    sentences = [each for each in _ENDS.split(paragraphs[-1]) if each.strip()] if paragraphs else []
    # A question of four words after a statement only asks for agreement.
    is_tag = bool(sentences) and sentences[-1].endswith("?") and len(sentences[-1].split()) <= 4
    asks_for_agreement = is_tag and _AGREED.match(sentences[-1].split(maxsplit=2)[-1]) is not None
    return tuple(sentences[-2:] if asks_for_agreement else sentences[-1:])


def is_confirmation(own: str) -> bool:
    """Whether a message begins with a plain yes, without a but in its first sentence."""
    first = _ENDS.split(own.strip(), maxsplit=1)[0]
    return _AGREED.match(first) is not None and not _BUT.search(first)


def is_question(own: str, quote: str) -> bool:
    """Whether the sentence in which the quotation ends is a question."""
    after = own[own.index(quote) + len(quote.rstrip(".!?\u3002")) :]
    end = re.search(r"[.!?\u3002\uff1f]", after)
    return end is not None and end[0] in "?\uff1f"


def is_supported(sentence: str, evidence: str) -> bool:
    """Whether most of its words are in the evidence; words are compared by their beginnings, as endings change."""
    needed = _pieces(sentence)
    # So many of the words of a sentence, of four letters or more, are the person's.
    return bool(needed) and len(needed & _pieces(evidence)) >= 0.7 * len(needed)


def has_numbers_of(sentence: str, said: str) -> bool:
    """Whether the person said its numbers. Those of a date may stand for "tomorrow"."""
    missing = {word for word in _WORD.findall(sentence) if word.isdecimal()} - set(_WORD.findall(said))
    if not _SOON.search(said):
        return not missing
    return all(int(each[:9]) <= 31 or 1900 <= int(each[:9]) <= 2100 for each in missing)


def _pieces(text: str) -> frozenset[str]:
    """The beginnings of words of four letters or more; pairs of signs where words have no blanks."""
    found: set[str] = set()
    for word in _WORD.findall(plain(text)):
        if word[0] >= _UNSPACED:
            found |= {word[start : start + 2] for start in range(max(1, len(word) - 1))}
        elif len(word) >= SHORTEST_QUOTE and not word.isdecimal() and word not in _COMMON:
            found.add(word[:5])
    return frozenset(found)
