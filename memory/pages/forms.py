"""The forms for notes and records; an invalid form keeps its input, with the errors beside it."""

from datetime import date
from typing import Any, Self

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import ProhibitNullCharactersValidator
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from core.errors import InvalidInput
from core.validation import parse_day
from intake.sentences import in_page_language
from memory.models.documents import (
    MAX_DOCUMENT_LENGTH,
    MAX_LABEL_LENGTH,
    MAX_PROJECT_LENGTH,
    MAX_RECORD_LENGTH,
    MAX_TAGS,
)
from memory.records import DEFAULT_TYPE, Record
from memory.rest.queries import NO_DAY
from memory.search.sources import HistoryScope

LONGEST_QUERY = 10_000
# With a comma and a blank after each.
LONGEST_TAGS = MAX_TAGS * (MAX_LABEL_LENGTH + 2)
SCOPES = [
    (HistoryScope.ALL.value, _("Everything")),
    (HistoryScope.SESSIONS.value, _("Chats")),
    (HistoryScope.MEMORY.value, _("Memory")),
    (HistoryScope.DAILY_LOG.value, _("Daily logs")),
]


class ServiceForm(forms.Form):
    """Puts the services' errors beside their fields."""

    def complain(self, error: InvalidInput) -> None:
        for field, sentences in (error.errors or {"": [error.detail]}).items():
            for sentence in sentences:
                self.add_error(field if field in self.fields else None, in_page_language(sentence))


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
    q = forms.CharField(required=False, max_length=LONGEST_QUERY, label=_("Search"))
    scope = forms.ChoiceField(
        choices=SCOPES,
        required=False,
        widget=forms.RadioSelect,
        label=_("Where"),
        error_messages={"invalid_choice": _("There is no such place to search: choose one of these.")},
    )

    def __init__(self, data: Any = None) -> None:
        super().__init__(data, initial={"scope": HistoryScope.ALL.value})
        # `from` is a keyword in Python.
        self.fields["from"] = DayField(required=False, label=_("From"))
        self.fields["to"] = DayField(required=False, label=_("To"))
        if self.is_bound:
            self._show_what_is_no_day_as_it_is()

    @property
    def chosen_scope(self) -> str:
        return str(self["scope"].value() or HistoryScope.ALL.value)

    def clean(self) -> None:
        first, last = self.cleaned_data.get("from"), self.cleaned_data.get("to")
        if first and last and first > last:
            self.add_error("to", _("The last day is before the first one."))

    def _show_what_is_no_day_as_it_is(self) -> None:
        """A browser's date field cannot show any other text, and would be empty."""
        for name in ("from", "to"):
            if self.has_error(name, "no_day"):
                self.fields[name].widget = forms.TextInput(attrs={"placeholder": "YYYY-MM-DD"})


class DocumentForm(ServiceForm):
    content = TextField(longest=MAX_DOCUMENT_LENGTH, required=False, label=_("Content"))
    # The state of the document that was read; empty without a document.
    state = forms.CharField(required=False, max_length=100, widget=forms.HiddenInput)


class AppendForm(ServiceForm):
    text = TextField(longest=MAX_DOCUMENT_LENGTH, label=_("Write"), error_messages={"required": _("Write something.")})


class DayForm(ServiceForm):
    date = DayField(label=_("Day"), error_messages={"required": _("Choose a day.")})


class RecordForm(ServiceForm):
    content = TextField(longest=MAX_RECORD_LENGTH, label=_("Note"), error_messages={"required": _("Write something.")})
    type = forms.CharField(max_length=MAX_LABEL_LENGTH, initial=DEFAULT_TYPE, label=_("Type"))
    project_id = forms.CharField(max_length=MAX_PROJECT_LENGTH, required=False, label=_("Project"))
    tags = forms.CharField(
        required=False,
        max_length=LONGEST_TAGS,
        label=_("Tags"),
        help_text=format_lazy(_("With commas between them; at most {most}."), most=MAX_TAGS),
    )

    def clean_tags(self) -> list[str]:
        return [tag for part in self.cleaned_data["tags"].split(",") if (tag := part.strip())]


class RewriteForm(RecordForm):
    """An existing record, with the state that was read."""

    state = forms.CharField(required=False, max_length=100, widget=forms.HiddenInput)

    @classmethod
    def of(cls, record: Record, **written: str) -> Self:
        held = {
            "content": record.content,
            "type": record.type,
            "project_id": record.project_id,
            "tags": ", ".join(record.tags),
            "state": record.state,
        }
        return cls(initial={**held, **written})


class RecordFilter(ServiceForm):
    type = forms.CharField(required=False, max_length=MAX_LABEL_LENGTH, label=_("Type"))
    project = forms.CharField(required=False, max_length=MAX_PROJECT_LENGTH, label=_("Project"))
    tag = forms.CharField(required=False, max_length=MAX_LABEL_LENGTH, label=_("Tag"))
