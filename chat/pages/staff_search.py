"""The search of the web that staff choose: `/staff/search/`. It is tried before it is kept, and off until then."""

from typing import Any
from urllib.parse import urlsplit

from asgiref.sync import async_to_sync
from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.debug import sensitive_post_parameters

from chat.agent.search_engines import BRAVE, SEARXNG, TAVILY, chosen_engine, search_web
from chat.pages.common import done
from chat.pages.staff import note_action, staff_form
from core.errors import Unavailable
from core.text import in_page_language
from intake import passwords
from intake.llm.language_models import sealed_key
from intake.models.installation import SEARCH, keep_setting

KINDS = (
    ("", gettext_lazy("None: the web is off")),
    (SEARXNG, gettext_lazy("SearXNG, of your own")),
    (BRAVE, gettext_lazy("Brave Search, with a key")),
    (TAVILY, gettext_lazy("Tavily, with a key")),
)


class SearchEngineForm(forms.Form):
    kind = forms.ChoiceField(required=False, choices=KINDS, label=gettext_lazy("Search"))
    address = forms.CharField(
        required=False,
        max_length=300,
        label=gettext_lazy("Address of SearXNG"),
        help_text=gettext_lazy("It may be in your own network, such as http://searxng:8080."),
    )
    api_key = forms.CharField(
        required=False,
        max_length=500,
        label=gettext_lazy("Key"),
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
    )

    def __init__(self, *args: Any, before: dict[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.before = before
        if before.get("sealed"):
            self.fields["api_key"].help_text = _("One is kept. Leave this empty to keep it; it is not shown again.")

    def clean_address(self) -> str:
        address: str = self.cleaned_data["address"].rstrip("/")
        if address and not (address.startswith(("http://", "https://")) and urlsplit(address).hostname):
            raise forms.ValidationError(_("It begins with http:// or https://."), code="no_address")
        return address

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
