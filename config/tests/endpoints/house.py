"""Who lives here: each has one of everything, with words in it that nobody else has, so that a leak is seen anywhere."""

from dataclasses import dataclass
from datetime import date, timedelta

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.mfa.utils import encrypt
from django.contrib.auth.models import Group
from django.contrib.contenttypes.models import ContentType
from django.test import Client
from oauth2_provider.models import AccessToken as OAuthAccessToken
from oauth2_provider.models import Application, Grant, RefreshToken

from agent_tools.authentication import create_token
from agent_tools.models import ALL_SCOPES, AccessToken, AgentConnection
from core.isolation.acting import Caller, acting_as
from imports.tests.factories import an_import
from intake.accounts.sessions import NAME_LENGTH
from intake.chats import services
from intake.chats.deleting import delete_account
from intake.chats.idempotency import once
from intake.chats.prompts import Prompt, PromptPart
from intake.models import Attachment, AttachmentText, ChatPreferences, Conversation, Invitation, Project, Turn, User
from intake.models.sessions import SessionDigest
from intake.tests.attached import a_file, a_picture
from intake.tests.factories import NOW, a_passkey, a_person, a_temporary_turn, a_turn, a_visitor, caller_for
from memory import documents, index, proposals, records
from memory.index import attachments
from memory.left_out import digest_of
from memory.models import Embedding, MapPoint
from memory.models.documents import ABOUT_ME
from memory.tests.attached import read_all, read_here
from memory.tests.overview.drawn import draw
from testing.examiner import as_a_worker

# What everybody talks about, and so what anybody may search for.
TOPIC = "lighthouse"
SAVED = {"content": f"A {TOPIC} to remember"}
A_LINE = "A line like any other"
CALL_ID = "call-1"
PASSWORD = "password"
CALLBACK = "https://agent.example/callback"


@dataclass(frozen=True)
class Things:
    """What leads to one person's things, as somebody else would have to know it."""

    conversation: str
    # One that is not kept.
    temporary: str = "0190c0de-0000-7000-8000-000000000007"
    turn: str = "1"
    # One that is not on the chosen path.
    version: str = "2"
    turn_id: str = "987654321"
    day: str = "2026-02-01"
    month: str = "2026-03"
    # On the map.
    text: str = "987654321"
    record: str = "0190c0de-0000-7000-8000-000000000001"
    record_state: str = "of-nobody"
    todo: str = "0190c0de-0000-7000-8000-000000000001"
    replaced: str = "0190c0de-0000-7000-8000-000000000001"
    # Waiting, and decided.
    proposal: str = "0190c0de-0000-7000-8000-00000000000b"
    refused: str = "0190c0de-0000-7000-8000-00000000000b"
    token: str = "0190c0de-0000-7000-8000-000000000002"
    project: str = "of nobody"
    # The row of the project.
    described: str = "0190c0de-0000-7000-8000-00000000000b"
    memory_state: str = "1-nobody"
    about_state: str = "1-nobody"
    note: str = "0190c0de-0000-7000-8000-000000000006"
    # Of a message; and a picture; and one that no message names yet.
    file: str = "0190c0de-0000-7000-8000-000000000008"
    picture: str = "0190c0de-0000-7000-8000-000000000009"
    unsent: str = "0190c0de-0000-7000-8000-00000000000a"
    page: str = "0190c0de-0000-7000-8000-00000000000f"
    log_state: str = "1-nobody"
    # A source of an answer, by which it is left out.
    passage: str = "0123456789abcdef"
    key: str = "of-nobody"
    passkey: str = "987654321"
    session: str = "0123456789abcdef"
    # Ready to be started; being uploaded; and over.
    import_: str = "0190c0de-0000-7000-8000-000000000003"
    upload: str = "0190c0de-0000-7000-8000-000000000004"
    imported: str = "0190c0de-0000-7000-8000-000000000005"
    client: str = "nobody"
    connection: str = "987654321"
    embedding: str = "987654321"
    person: str = "987654321"
    email: str = "nobody@example.com"
    content_type: str = "0"
    group: str = "0"
    invitation: str = "0"
    model: str = "0"

    def fill(self, template: object) -> object:
        """The template with these in the places that name them."""
        match template:
            case str():
                return template.format(**vars(self))
            case dict():
                return {name: self.fill(value) for name, value in template.items()}
            case list():
                return [self.fill(value) for value in template]
        return template


@dataclass(frozen=True)
class Resident:
    """`words`: in all they said and named; `email_word`: in their address, which staff may read. A visitor has none."""

    words: tuple[str, ...]
    email_word: str
    things: Things
    user: User
    secret: str = ""

    @property
    def caller(self) -> Caller:
        return caller_for(self.user)


def move_in(name: str, word: str, *, day: date) -> Resident:
    """A row of this person in every table that names a person, most of them with the word."""
    email_word = f"{word[::-1]}mail"
    user = a_person(f"{email_word}@example.com")
    turn = a_turn(user, f"The {TOPIC} is called {word}", f"Then {word} it is.")
    a_turn(user, f"And the ship is {word} too", conversation=turn.conversation)
    version = a_turn(user, f"And the ship is {word} as well", conversation=turn.conversation, parent=1)
    with acting_as(user):
        documents.append(user=user, day=None, text=f"The {TOPIC} is {word}", now=NOW)
        documents.append(user=user, day=ABOUT_ME, text=f"The {TOPIC} is {word}", now=NOW)
        documents.append(user=user, day=day, text=f"The {TOPIC} is {word}", now=NOW)
        note = documents.create_note(user=user, title=f"About {word}", content=f"The {TOPIC} is {word}", at=NOW)
        documents.append(user=user, day=day, text=A_LINE, now=NOW)
        project = f"project-of-{name}"
        text = f"Their {TOPIC} is {word}"
        record = records.create(user=user, content=text, project_id=project, tags=[project, word], now=NOW)
        todo = records.create(user=user, content=f"{text}, to do", type="todo", now=NOW)
        replaced = records.create(user=user, content=f"{text}, once", now=NOW)
        records.create(user=user, content=f"{text}, now", now=NOW, facts={"replaces": replaced.id})
        written = f"The {TOPIC} is {word}, a tower"
        documents.replace(user=user, day=None, content=written, expected=None, now=NOW)
        memory, about, log = (documents.read(user=user, day=written) for written in (None, ABOUT_ME, day))
        temporary = a_temporary_turn(user, f"The {TOPIC} is {word}, between us")
        ChatPreferences.objects.create(user=user, how_to_answer=f"Call me {word}")
        once(
            caller=Caller(user_id=user.pk),
            key=name,
            operation="save_memory",
            data=SAVED,
            run=lambda: {"text": f"Saved {word}"},
            now=NOW,
        )
    Conversation.objects.filter(pk=turn.conversation_id).update(project=project)
    source = {"source_conversation": turn.conversation_id, "source_turn": 1}
    drafts = [source | {"content": f"The keeper of the {TOPIC} is {word}"}, {"content": f"Not about {word} at all"}]
    waiting, refused = proposals.propose(user=user, drafts=drafts, now=NOW)
    with acting_as(user):
        proposals.decide(user=user, proposal_id=refused.id, state="rejected", now=NOW)
    described = Project.objects.create(user=user, name=project, instructions=f"Call it {word}", labels=[f"me/{word}"])
    files = files_of(user, word)
    imports = {
        state: an_import(user, state=state, word=word, conversation_id=turn.conversation_id)
        for state in ("ready", "uploading", "done")
    }
    made = create_token(user=user, name=f"Token for {word}", scopes=ALL_SCOPES)
    AccessToken.objects.filter(user=user).update(last_used_at=NOW)
    client = let_in(user, name)
    EmailAddress.objects.create(user=user, email=user.email, verified=True, primary=True)
    passkey = a_passkey(user, name=f"Key of {word}")
    Authenticator.objects.create(user=user, type="totp", data={"secret": encrypt("JBSWY3DPEHPK3PXP")})
    Authenticator.objects.create(user=user, type="recovery_codes", data={"seed": encrypt("00" * 20), "used_mask": 0})
    browser = Client()
    browser.force_login(user)
    index_all()
    draw(user)
    embedding = Embedding.objects.filter(user=user, corpus="chat").order_by("pk")[0]
    group, _ = Group.objects.get_or_create(name="Keepers")
    things = Things(
        conversation=str(turn.conversation_id),
        temporary=str(temporary.conversation_id),
        turn_id=str(turn.pk),
        day=str(day),
        text=str(
            MapPoint.objects.filter(user=user, text__user=user, text__source_id=turn.conversation_id)
            .order_by("pk")[0]
            .pk
        ),
        record=str(record.id),
        record_state=record.state,
        todo=str(todo.id),
        replaced=str(replaced.id),
        proposal=str(waiting.id),
        refused=str(refused.id),
        token=str(made.id),
        client=client.client_id,
        connection=str(client.pk),
        import_=imports["ready"],
        upload=imports["uploading"],
        imported=imports["done"],
        passage=digest_of(f"{turn.conversation_id}/2"),
        project=project,
        described=str(described.pk),
        memory_state=memory.state,
        about_state=about.state,
        note=str(note.pk),
        **files,
        log_state=log.state,
        key=name,
        passkey=str(passkey.pk),
        session=SessionDigest.of(browser.session.session_key)[:NAME_LENGTH],
        embedding=str(embedding.pk),
        person=str(user.pk),
        email=user.email,
        content_type=str(ContentType.objects.get_for_model(User).pk),
        group=str(group.pk),
        invitation=str(Invitation.objects.get_or_create(note="Keepers", defaults={"expires_at": NOW})[0].pk),
        model=str(embedding.model_id),
    )
    # It broke off, and can be continued.
    Turn.objects.filter(pk=version.pk).update(status=Turn.Status.INTERRUPTED)
    # What the chat's model stored for them, and can be taken back.
    Turn.objects.filter(pk=turn.pk).update(
        tool_calls=[
            {
                "id": CALL_ID,
                "name": "save_memory",
                "input": SAVED,
                "summary": word,
                "place": {"recordId": things.record},
            }
        ],
        prompt=Prompt(
            parts=(
                PromptPart("about"),
                PromptPart("notes", "all"),
                PromptPart("record", things.record, number=1),
                PromptPart("turn", f"{turn.conversation_id}/2", used=False),
            )
        ).as_row(),
    )
    return Resident(words=(word,), email_word=email_word, things=things, user=user, secret=made.secret)


def index_all() -> None:
    read_all()
    with as_a_worker():
        index.embed_pending()


def files_of(user: User, word: str) -> dict[str, str]:
    """A text and a picture of a message, with what was read of the text; a page that its answer read; and a text that no
    message names yet.
    """
    named = [a_file(user, f"The {TOPIC} is {word}".encode(), f"{word}.txt"), a_file(user, a_picture(), f"{word}.png")]
    with as_a_worker():
        attachments.store(named[1], read_here(a_picture(), "", "image/png"), now=NOW)
    page = a_file(user, f"# {word}".encode(), f"{word}.md", kind=Attachment.Kind.PAGE)
    unsent = a_file(user, f"Not sent: {word}".encode(), f"unsent {word}.txt")
    with acting_as(user):
        turn = services.create_turn(
            services.TurnRequest(message=f"Look at the {word}", attachments=[each.pk for each in named]),
            caller=caller_for(user),
            now=NOW,
        )
        services.finish_turn(turn_id=turn.pk, answer=services.Answer(text=f"I see {word}", status=Turn.Status.COMPLETE))
        where = {"conversation_id": turn.conversation_id, "turn_number": 1, "address": f"https://{word}.example/"}
        Attachment.objects.filter(pk=page.pk).update(**where)
        AttachmentText.objects.create(user=user, attachment=named[0], number=0, place=word, text=f"It is {word}")
    return {"file": str(named[0].pk), "picture": str(named[1].pk), "unsent": str(unsent.pk), "page": str(page.pk)}


def let_in(user: User, name: str) -> Application:
    """An agent that they have connected, with all that it holds. Its name belongs to nobody."""
    client = Application.objects.create(
        name="An agent",
        redirect_uris=CALLBACK,
        client_type=Application.CLIENT_PUBLIC,
        authorization_grant_type=Application.GRANT_AUTHORIZATION_CODE,
        registration_source=Application.RegistrationSource.DCR,
    )
    theirs = {"user": user, "application": client}
    expires = NOW + timedelta(days=1)
    access = OAuthAccessToken.objects.create(
        **theirs, token=f"access {name}", expires=expires, scope="search", resource=["http://testserver/mcp"]
    )
    RefreshToken.objects.create(**theirs, token=f"refresh {name}", access_token=access)
    Grant.objects.create(**theirs, code=f"code {name}", expires=expires, redirect_uri=CALLBACK, scope="search")
    AgentConnection.objects.create(**theirs, scopes=["search"], created_at=NOW)
    return client


def drop_in(word: str) -> Resident:
    """A visitor who said something and has not registered."""
    visitor = a_visitor()
    caller = caller_for(visitor)
    with acting_as(caller):
        turn = services.create_turn(services.TurnRequest(message=f"My {TOPIC} is {word}"), caller=caller, now=NOW)
        Turn.objects.filter(pk=turn.pk).update(assistant_message=f"Indeed, {word}", updated_at=NOW)
        temporary = a_temporary_turn(visitor, f"My {TOPIC} is {word}, between us")
    things = Things(
        conversation=str(turn.conversation_id), temporary=str(temporary.conversation_id), turn_id=str(turn.pk)
    )
    return Resident(words=(word,), email_word="no address", things=things, user=visitor)


def move_out(resident: Resident) -> None:
    """As if they had never been here."""
    delete_account(user=resident.user)
