"""The way into every page of memory: for people with an account, acting as them, in their time zone."""

from collections.abc import Callable
from functools import wraps
from http import HTTPStatus
from typing import Any, Concatenate, ParamSpec

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from intake.identity import is_registered, person_of
from intake.views.changing import personal_form
from intake.views.pages import sidebar_of
from intake.zones import zone_of

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponse]


def page_for_people(view: View[P]) -> View[P]:
    """For asking and for doing. A visitor is told what is here and how to have it; what they sent is given back."""

    @wraps(view)
    def wrapper(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        if not is_registered(request):
            return _tell_visitor(request)
        with timezone.override(zone_of(person_of(request))):
            return view(request, *args, **kwargs)

    return personal_form(wrapper)


def show(request: HttpRequest, template: str, *, status: int = HTTPStatus.OK, **context: Any) -> HttpResponse:
    return render(request, template, {**sidebar_of(request), **context}, status=status)


def _tell_visitor(request: HttpRequest) -> HttpResponse:
    """Somebody whose session ended while they were writing is a visitor, too."""
    is_sending = request.method == "POST"
    unsaved = request.POST.get("content") or request.POST.get("text") if is_sending else None
    # A page that only takes what is sent cannot be come back to with less than its address.
    back = request.get_full_path()
    status = HTTPStatus.UNAUTHORIZED if is_sending else HTTPStatus.OK
    return show(request, "memory/visitor.html", status=status, unsaved=unsaved, back=back, place=_place(request))


def _place(request: HttpRequest) -> str:
    return "search" if request.path.startswith("/search") else "memory"
