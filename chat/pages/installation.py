"""What staff choose for the whole installation: its settings, and the search of the web.

A part of the settings is saved by itself: fields that are not sent stay as they are. What the environment sets is shown
as fixed. A search is tried before it is kept, and off until then.
"""

from typing import Any

from asgiref.sync import async_to_sync
from django import forms
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext_lazy as _
from django.views.decorators.debug import sensitive_post_parameters

from chat.agent.search_engines import BRAVE, SEARXNG, TAVILY, chosen_engine, search_web
from chat.pages.common import done
from chat.pages.staff import KEY_IS_KEPT, key_field, note_action, server_address, staff_form
from core.errors import Unavailable
from core.text import in_page_language, pg_text
from intake import passwords
from intake.accounts import registration
from intake.accounts.registration import Registration
from intake.llm.chat_options import MAX_INSTRUCTIONS
from intake.llm.language_models import sealed_key
from intake.models import User
from intake.models.installation import (
    INSTRUCTIONS,
    LANGUAGES,
    QUOTAS,
    REGISTRATION,
    RETENTION,
    SEARCH,
    VISITORS,
    default_instructions,
    keep_setting,
    kept_setting,
    languages_offered,
    may_visitors_chat,
    quota_of_everybody,
    retention_days,
)

MEGABYTE = 1024**2

# Each choice with its effect.
REGISTRATIONS = (
    (Registration.OPEN, _("Everybody"), _("All who can open this page can make an account.")),
    (
        Registration.INVITE,
        _("By invitation"),
        _("Only with a link that you make under People, for one person and seven days."),
    ),
    (Registration.CLOSED, _("Nobody"), _("No new accounts. Those that exist stay.")),
)
YES, NO = "yes", "no"
VISITOR_CHOICES = (
    (YES, _("Yes"), _("Their messages move to their account when they register.")),
    (NO, _("No"), _("Everybody logs in first.")),
)
# The variable of the environment by which each of these is fixed; languages and instructions are staff's alone.
VARIABLES = {
    "registration": "REGISTRATION",
    "visitors": "VISITORS",
    "retention_days": "RETENTION_DAYS",
    "turns": "QUOTA_TURNS",
    "text_megabytes": "QUOTA_BYTES",
    "file_megabytes": "QUOTA_FILE_BYTES",
}
# The fields of quotas, with the name of each quota and its unit.
QUOTA_FIELDS = {
    "turns": ("turns", 1),
    "text_megabytes": ("bytes", MEGABYTE),
    "file_megabytes": ("file_bytes", MEGABYTE),
}


def number_field(label: Any, help_text: Any = "", *, most: int = 10**9) -> forms.IntegerField:
    """Of turns, or of megabytes: a petabyte is no quota."""
    widget = forms.NumberInput(attrs={"inputmode": "numeric"})
    return forms.IntegerField(
        required=False, min_value=0, max_value=most, label=label, help_text=help_text, widget=widget
    )


class SettingsForm(forms.Form):
    """What is not sent stays as it is; `part` says which of the page's forms was sent."""

    part = forms.CharField(required=False, max_length=20, widget=forms.HiddenInput)
    registration = forms.ChoiceField(required=False, choices=[(each.value, each.value) for each in Registration])
    visitors = forms.ChoiceField(required=False, choices=[(YES, YES), (NO, NO)])
    languages = forms.MultipleChoiceField(
        required=False,
        choices=settings.LANGUAGES,
        widget=forms.CheckboxSelectMultiple,
        label=_("Languages of the pages"),
        help_text=_("People choose among these. For any other language of a browser, pages are in English."),
    )
    retention_days = number_field(
        _("Days that messages are kept"),
        _(
            "Older messages of everybody are deleted, with their answers and files. 0 keeps them until their owner "
            "deletes them."
        ),
        most=36_500,
    )
    is_sure = forms.BooleanField(
        required=False, label=_("Delete what is older than that now, for everybody. It cannot be undone.")
    )
    turns = number_field(
        _("Messages with their answers, each person"),
        _("Beyond it no message is saved until some are deleted. 0 is no limit."),
    )
    text_megabytes = number_field(
        _("Megabytes of text, each person"),
        _("Chats, notes and records together. 0 is no limit."),
    )
    file_megabytes = number_field(
        _("Megabytes of files, each person"),
        _("Beyond it no file can be attached. 0 is no limit."),
    )
    instructions = forms.CharField(
        required=False,
        max_length=MAX_INSTRUCTIONS,
        label=_("Instructions for every chat"),
        help_text=_("Every model reads them before what a person asks of it. People do not see them."),
        widget=forms.Textarea(attrs={"rows": 5}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in VARIABLES:
            if is_fixed(name):
                self.fields[name].disabled = True
                self.fields[name].help_text = _("Set in the environment.")

    def clean_instructions(self) -> str:
        return pg_text(self.cleaned_data["instructions"]).strip()

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if data.get("part") == "languages" and not data.get("languages") and "languages" not in self.errors:
            self.add_error("languages", _("Choose at least one language."))
        days, now = data.get("retention_days"), retention_days()
        if data.get("part") == "retention" and days and (not now or days < now) and not data.get("is_sure"):
            self.add_error("is_sure", _("Confirm that older messages are deleted."))
        return data

    def sent(self) -> dict[str, Any]:
        """The valid values of this form's own part, without what the environment fixes."""
        names = {*VARIABLES, "instructions"} & {*self.data} | {"languages"} & {*self.data, self.data.get("part")}
        return {name: self.cleaned_data[name] for name in names if not is_fixed(name)}


def is_fixed(name: str) -> bool:
    value = getattr(settings, VARIABLES[name]) if name in VARIABLES else None
    return bool(value) if name == "registration" else value is not None


@staff_form
def staff_settings(request: HttpRequest) -> HttpResponse:
    form = SettingsForm(request.POST or None, initial=_present())
    if not form.is_valid():
        return _settings_page(request, form)
    _keep(form.sent())
    note_action(request, "settings")
    to = "intake:home" if "from_home" in request.POST else "intake:staff_settings"
    return done(request, _("Saved. It applies everywhere within seconds."), to)


def _keep(values: dict[str, Any]) -> None:
    if values.get("registration"):
        keep_setting(REGISTRATION, lambda _before: values["registration"])
    if values.get("visitors"):
        keep_setting(VISITORS, lambda _before: values["visitors"] == YES)
    if "languages" in values:
        keep_setting(LANGUAGES, lambda _before: values["languages"])
    if "retention_days" in values:
        keep_setting(RETENTION, lambda _before: values["retention_days"] or 0)
    if "instructions" in values:
        keep_setting(INSTRUCTIONS, lambda _before: values["instructions"])
    changed = {quota: (values[field] or 0) * unit for field, (quota, unit) in QUOTA_FIELDS.items() if field in values}
    if changed:
        keep_setting(QUOTAS, lambda before: {**(before or {}), **changed})


def _present() -> dict[str, Any]:
    return {
        "languages": [code for code, _name in languages_offered()],
        "retention_days": retention_days(),
        "instructions": default_instructions(),
        # Rounded up: 0 would be no quota.
        **{field: -(-quota_of_everybody(quota) // unit) for field, (quota, unit) in QUOTA_FIELDS.items()},
    }


def _settings_page(request: HttpRequest, form: SettingsForm) -> HttpResponse:
    fixed = {name: is_fixed(name) for name in VARIABLES}
    context = {
        "form": form,
        "registrations": REGISTRATIONS,
        "policy": registration.policy(),
        "fixed": fixed,
        "visitor_choices": VISITOR_CHOICES,
        "visitors": YES if may_visitors_chat() else NO,
        "are_quotas_fixed": all(fixed[name] for name in QUOTA_FIELDS),
        "tab": "settings",
    }
    return render(request, "intake/staff/settings.html", context)


def is_to_choose_who_registers(request: HttpRequest) -> bool:
    """Whether the start page asks: of staff, until somebody has chosen."""
    is_staff = isinstance(request.user, User) and request.user.is_staff
    return is_staff and not settings.REGISTRATION and kept_setting(REGISTRATION) is None


KINDS = (
    ("", _("None: the web is off")),
    (SEARXNG, _("SearXNG, of your own")),
    (BRAVE, _("Brave Search, with a key")),
    (TAVILY, _("Tavily, with a key")),
)


class SearchEngineForm(forms.Form):
    kind = forms.ChoiceField(required=False, choices=KINDS, label=_("Search"))
    address = forms.CharField(
        required=False,
        max_length=300,
        label=_("Address of SearXNG"),
        help_text=_("It may be in your own network, such as http://searxng:8080."),
    )
    api_key = key_field()

    def __init__(self, *args: Any, before: dict[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.before = before
        if before.get("sealed"):
            self.fields["api_key"].help_text = KEY_IS_KEPT

    def clean_address(self) -> str:
        return server_address(self.cleaned_data["address"])

    def clean(self) -> dict[str, Any]:
        """A kept key goes to no other service than the one that it was entered for."""
        data = super().clean() or {}
        kind, key = data.get("kind", ""), data.get("api_key", "")
        data["sealed"] = ""
        if kind == SEARXNG and not data.get("address"):
            self.add_error("address", _("Enter the address."))
        elif kind in (BRAVE, TAVILY):
            data["address"] = ""
            data["sealed"] = sealed_key(key) if key else self.before.get("sealed", "") * (kind == self.before["kind"])
            if not data["sealed"]:
                self.add_error("api_key", _("Enter the key."))
        return data

    def is_tried(self) -> bool:
        """Search for a word, and say beside the field what is wrong."""
        passwords.give_connections_back()
        try:
            if self.cleaned_data["kind"]:
                async_to_sync(search_web)("recollect", engine=self.cleaned_data)
        except Unavailable as error:
            is_own = self.cleaned_data["kind"] == SEARXNG
            self.add_error("address" if is_own else "api_key", in_page_language(error.detail))
            return False
        return True


@sensitive_post_parameters("api_key")
@staff_form
def show_search(request: HttpRequest) -> HttpResponse:
    before = chosen_engine() or {"kind": "", "address": "", "sealed": ""}
    initial = {"kind": before["kind"], "address": before["address"]}
    form = SearchEngineForm(request.POST or None, before=before, initial=initial)
    if form.is_valid() and form.is_tried():
        kept = {name: form.cleaned_data[name] for name in ("kind", "address", "sealed")}
        keep_setting(SEARCH, lambda _before: kept)
        note_action(request, "settings")
        return done(request, _("Saved. It applies everywhere within seconds."), "intake:staff_search")
    return render(request, "intake/staff/search.html", {"form": form, "tab": "search"})
