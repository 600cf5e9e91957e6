"""What the pages share: access, days in addresses, links to results, and the forms."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from functools import wraps
from http import HTTPStatus
from typing import Any, Concatenate, ParamSpec, Self
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import ValidationError
from django.core.validators import ProhibitNullCharactersValidator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.text import format_lazy
from django.utils.translation import gettext, gettext_noop
from django.utils.translation import gettext_lazy as _
from django.views.decorators.http import require_http_methods

from core import rate_limits
from core.errors import InvalidInput, NotFound, TooLarge
from core.isolation.acting import acting_as
from core.text import in_page_language
from core.validation import NO_DAY, parse_day
from intake.accounts.identity import caller_of, is_registered, person_of
from intake.llm.language_models import ask_servers
from memory.documents import YEARS
from memory.models.documents import (
    MAX_DOCUMENT_LENGTH,
    MAX_LABEL_LENGTH,
    MAX_PROJECT_LENGTH,
    MAX_RECORD_LENGTH,
    MAX_TAGS,
)
from memory.records import DEFAULT_TYPE, RecordOutput
from memory.search.sources import HistoryScope

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]
page_with_form = require_http_methods(["GET", "HEAD", "POST"])


def personal_form(view: View[P]) -> View[P]:
    """Also for visitors."""

    @wraps(view)
    def wrapper(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        ask_servers()
        with acting_as(caller_of(request)):
            return view(request, *args, **kwargs)

    return login_not_required(page_with_form(wrapper))


def page_for_registered(view: View[P]) -> View[P]:
    """For registered users, acting as them.

    A visitor sees what the page offers and how to register, and gets back the text they sent.
    """

    @wraps(view)
    def wrapper(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        if not is_registered(request):
            return _tell_visitor(request)
        return view(request, *args, **kwargs)

    return personal_form(wrapper)


def page_that_searches(view: View[P]) -> View[P]:
    """As `page_for_registered`, but the view acts as the user itself: a search asks the models' endpoints in between,
    and no transaction may be open then.
    """

    @wraps(view)
    def wrapper(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        if not is_registered(request):
            with acting_as(caller_of(request)):
                return _tell_visitor(request)
        with timezone.override(person_of(request).zone):
            return view(request, *args, **kwargs)

    return login_not_required(page_with_form(wrapper))


def show(request: HttpRequest, template: str, *, status: int | None = None, **context: Any) -> HttpResponse:
    """With the status of its form, unless another is named."""
    form = context.get("form")
    return render(request, template, context, status=status or getattr(form, "status", None))


def done(request: HttpRequest, sentence: Any, to: str, *names: Any) -> HttpResponse:
    """The sentence is shown on the page to which this redirects."""
    messages.success(request, sentence)
    return redirect(to, *names)


def count_search(request: HttpRequest) -> None:
    """Raises `RateLimited`."""
    rate_limits.take_for("api", user_id=person_of(request).pk, address=rate_limits.client_address(request))


def _tell_visitor(request: HttpRequest) -> HttpResponse:
    """A user whose session ended while they were writing is a visitor, too."""
    is_sending = request.method == "POST"
    unsaved = request.POST.get("content") or request.POST.get("text") if is_sending else None
    # A page that only accepts POST cannot be reopened by its address alone.
    back = request.get_full_path()
    status = HTTPStatus.UNAUTHORIZED if is_sending else HTTPStatus.OK
    place = request.path_info.split("/")[1]
    tab = place if place in ("search", "import") else "memory"
    return show(request, "memory/visitor.html", status=status, unsaved=unsaved, back=back, tab=tab)


def day_of(text: str) -> date:
    """Raises `NotFound` for an invalid day, and for one that can have no log."""
    try:
        day = parse_day(text)
    except ValueError:
        raise NotFound from None
    if day.year not in YEARS:
        raise NotFound
    return day


def project_of(request: HttpRequest) -> str:
    """The project whose document the address names; empty for the general one.

    Raises `NotFound` for what can be no name.
    """
    project = request.GET.get("project", "").strip()
    if len(project) > MAX_PROJECT_LENGTH or "\0" in project:
        raise NotFound
    return project


_PAGE = re.compile(r"page (\d{1,6})")
_PLACE = re.compile(r"(page|slide|chapter|line|row) (\d{1,9})|(lines|rows) (\d{1,9})-(\d{1,9})")
_PLACES = {
    "page": gettext_noop("page %(number)s"),
    "slide": gettext_noop("slide %(number)s"),
    "chapter": gettext_noop("chapter %(number)s"),
    "line": gettext_noop("line %(number)s"),
    "row": gettext_noop("row %(number)s"),
    "lines": gettext_noop("lines %(first)s to %(last)s"),
    "rows": gettext_noop("rows %(first)s to %(last)s"),
}


def file_path(attachment_id: UUID, place: str | None) -> str:
    """The address of a file itself; a browser opens a PDF at the page."""
    page = _PAGE.fullmatch(place or "")
    return reverse("read_attachment_content", args=[attachment_id]) + (f"#page={page[1]}" if page else "")


def place_in_words(place: str) -> str:
    """In the page's language, as far as it is not the file's own words."""
    found = _PLACE.fullmatch(place)
    if found is None:
        return place
    if found[1]:
        return gettext(_PLACES[found[1]]) % {"number": found[2]}
    return gettext(_PLACES[found[3]]) % {"first": found[4], "last": found[5]}


LONGEST_QUERY = 10_000
SCOPES = [
    (HistoryScope.ALL.value, _("Everything")),
    (HistoryScope.SESSIONS.value, _("Chats")),
    (HistoryScope.NOTES.value, _("Notes")),
    (HistoryScope.DAILY_LOG.value, _("Daily logs")),
    (HistoryScope.FILES.value, _("Files")),
    # Of earlier addresses: a tab only while it is chosen.
    (HistoryScope.MEMORY.value, _("Notes and daily logs")),
]


class ServiceForm(forms.Form):
    """Puts the services' errors beside their fields. `span`: its fields of a first and of a last day."""

    span: tuple[str, ...] = ()
    refused: HTTPStatus | None = None

    @property
    def status(self) -> HTTPStatus | None:
        """Of a page that shows the form."""
        return self.refused or (HTTPStatus.BAD_REQUEST if self.errors else None)

    @contextmanager
    def complaining(self, field: str = "") -> Iterator[None]:
        """An error of the service ends what is within, and stands on the form. `field`: of one that names none."""
        try:
            yield
        except (InvalidInput, TooLarge) as error:
            self.refused = error.status
            for name, sentences in (error.errors or {field: [error.detail]}).items():
                for sentence in sentences:
                    self.add_error(name if name in self.fields else None, in_page_language(sentence))

    def clean(self) -> None:
        days: list[Any] = [self.cleaned_data.get(name) for name in self.span]
        if all(days) and days != sorted(days):
            self.add_error(self.span[-1], _("The last day is before the first one."))


class DayField(forms.Field):
    """A day in its only form: YYYY-MM-DD."""

    widget = forms.DateInput(attrs={"type": "date", "min": "1900-01-01", "max": "2999-12-31"})

    def to_python(self, value: Any) -> date | None:
        if value in self.empty_values:
            return None
        try:
            return parse_day(str(value).strip())
        except ValueError:
            raise ValidationError(NO_DAY, code="no_day") from None


class TextField(forms.CharField):
    """The text as typed, blanks included; a browser's CRLF becomes LF."""

    widget = forms.Textarea

    def __init__(self, *, longest: int, **kwargs: Any) -> None:
        super().__init__(strip=False, **kwargs)
        self.longest = longest
        # The browser's own limit would cut pasted text silently.
        self.validators = [ProhibitNullCharactersValidator(_("A text cannot have a NUL character (U+0000)."))]

    def to_python(self, value: Any) -> str:
        return (super().to_python(value) or "").replace("\r\n", "\n").replace("\r", "\n")

    def validate(self, value: str) -> None:
        super().validate(value)
        if len(value) > self.longest:
            raise ValidationError(
                _("At most %(longest)s characters; this has %(length)s.")
                % {"longest": f"{self.longest:,}", "length": f"{len(value):,}"},
                code="too_long",
            )


class SearchForm(ServiceForm):
    span = ("from", "to")
    q = forms.CharField(required=False, max_length=LONGEST_QUERY, label=_("Search"))
    scope = forms.ChoiceField(
        choices=SCOPES,
        required=False,
        label=_("Where"),
        error_messages={"invalid_choice": _("There is no such place to search: choose one of these.")},
    )
    # With a hyphen before the name: everything but it.
    project = forms.CharField(required=False, max_length=MAX_PROJECT_LENGTH + 1, label=_("Project"))

    def __init__(self, data: Any = None) -> None:
        super().__init__(data, initial={"scope": HistoryScope.ALL.value})
        # `from` is a keyword in Python.
        self.fields["from"] = DayField(required=False, label=_("From"))
        self.fields["to"] = DayField(required=False, label=_("To"))
        for name in ("from", "to"):
            # A browser's date field cannot show any other text, and would be empty.
            if self.is_bound and self.has_error(name, "no_day"):
                self.fields[name].widget = forms.TextInput(attrs={"placeholder": "YYYY-MM-DD"})

    @property
    def chosen_scope(self) -> str:
        return str(self["scope"].value() or HistoryScope.ALL.value)


class DocumentForm(ServiceForm):
    content = TextField(longest=MAX_DOCUMENT_LENGTH, required=False, label=_("Content"))
    # The state of the document that was read; empty without a document.
    state = forms.CharField(required=False, max_length=100, widget=forms.HiddenInput)


class AppendForm(ServiceForm):
    text = TextField(longest=MAX_DOCUMENT_LENGTH, label=_("Write"), error_messages={"required": _("Enter some text.")})


class DayForm(ServiceForm):
    date = DayField(label=_("Day"), error_messages={"required": _("Choose a day.")})


TODO, NOTE = "todo", "note"
# One of each, on a record. A type that an agent or a person made up is shown as it is, but not in capitals.
TYPES = {
    TODO: _("To-do"),
    "fact": _("Fact"),
    "preference": _("Preference"),
    "decision": _("Decision"),
    "lesson": _("Lesson"),
    NOTE: _("Note"),
}


def type_in_words(type: str) -> str:
    return str(TYPES.get(type.lower(), type.replace("_", " ").capitalize() if type.isupper() else type))


class TypeSelect(forms.Select):
    """The type that a record has, as it is written, before the others of the six."""

    def optgroups(self, name: str, value: list[str], attrs: dict[str, Any] | None = None) -> Any:
        own = value[0]
        others = [(type, words) for type, words in TYPES.items() if type != own.lower()]
        self.choices = [(own, type_in_words(own)), *others]
        return super().optgroups(name, value, attrs)


class RecordForm(ServiceForm):
    # Facts, which only some records have.
    span = ("valid_from", "valid_until")
    content = TextField(longest=MAX_RECORD_LENGTH, label=_("Note"), error_messages={"required": _("Enter some text.")})
    type = forms.CharField(
        max_length=MAX_LABEL_LENGTH,
        initial=DEFAULT_TYPE,
        label=_("Type"),
        widget=TypeSelect,
    )
    project_id = forms.CharField(max_length=MAX_PROJECT_LENGTH, required=False, label=_("Project"))
    tags = forms.CharField(
        required=False,
        # With a comma and a blank after each.
        max_length=MAX_TAGS * (MAX_LABEL_LENGTH + 2),
        label=_("Tags"),
        help_text=format_lazy(_("With commas between them; at most {most}."), most=MAX_TAGS),
    )
    valid_from = DayField(required=False, label=_("True from"))
    valid_until = DayField(required=False, label=_("True until"))
    # The state of the record that was read; empty for a new one.
    state = forms.CharField(required=False, max_length=100, widget=forms.HiddenInput)

    def clean_tags(self) -> list[str]:
        return [tag for part in self.cleaned_data["tags"].split(",") if (tag := part.strip())]

    @property
    def held(self) -> dict[str, Any]:
        """The fields of a valid form that each record holds."""
        return {name: self.cleaned_data[name] for name in ("content", "type", "project_id", "tags")}

    @property
    def facts(self) -> dict[str, Any]:
        return {name: self.cleaned_data[name] for name in self.span}

    @property
    def fields_of_facts(self) -> list[forms.BoundField]:
        return [self[name] for name in self.span]

    @classmethod
    def of(cls, record: RecordOutput, **written: str) -> Self:
        held = {name: getattr(record, name) for name in ("content", "type", "project_id", "state", *cls.span)}
        return cls(initial={**held, "tags": ", ".join(record.tags), **written})


class RecordFilter(ServiceForm):
    # Each of its words is looked for in each text.
    q = forms.CharField(required=False, max_length=200, label=_("Search"))
    type = forms.CharField(required=False, max_length=MAX_LABEL_LENGTH, label=_("Type"))
    project = forms.CharField(required=False, max_length=MAX_PROJECT_LENGTH + 1, label=_("Project"))
    tag = forms.CharField(required=False, max_length=MAX_LABEL_LENGTH, label=_("Tag"))
    replaced = forms.BooleanField(required=False, label=_("Show replaced ones"))
