"""Pages of projects: all of them, and each with its instructions, MEMORY.md, labels, chats and what is kept in it.

A project is named by its label in the address; after another name, the old address leads to the new one.
"""

from http import HTTPStatus
from typing import Any

from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.text import format_lazy
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from chat.pages.common import ServiceForm, TextField, page_for_registered, show, type_in_words
from core.errors import InvalidInput, NotFound
from core.text import LONGEST_PROJECT, first_line
from intake.accounts.identity import caller_of, person_of
from intake.chats import lists
from intake.models import Project, User
from intake.models.conversations import MAX_PROJECT_INSTRUCTIONS, PROJECT_COLOURS, label_of
from memory import documents, projects, records
from memory.addresses import document_path, project_key, project_named

BEGINNING = 1_200
YES = "1"

COLOUR_NAMES = {
    "blue": gettext_lazy("Blue"),
    "teal": gettext_lazy("Teal"),
    "green": gettext_lazy("Green"),
    "yellow": gettext_lazy("Yellow"),
    "orange": gettext_lazy("Orange"),
    "red": gettext_lazy("Red"),
    "pink": gettext_lazy("Pink"),
    "purple": gettext_lazy("Purple"),
}


class NewProjectForm(ServiceForm):
    name = forms.CharField(
        max_length=LONGEST_PROJECT,
        label=gettext_lazy("Name"),
        error_messages={"required": gettext_lazy("Enter a name.")},
    )

    def save(self, user: User) -> Project | None:
        """None, with the errors on the form, if the service refuses the name."""
        try:
            return projects.save_project(user=user, name=self.cleaned_data["name"], is_new=True)
        except InvalidInput as error:
            self.complain(error)
            return None


class ProjectForm(NewProjectForm):
    colour = forms.ChoiceField(
        choices=[(colour, COLOUR_NAMES[colour]) for colour in PROJECT_COLOURS],
        initial=PROJECT_COLOURS[0],
        label=gettext_lazy("Colour"),
        widget=forms.RadioSelect,
    )
    instructions = TextField(
        longest=MAX_PROJECT_INSTRUCTIONS,
        required=False,
        label=gettext_lazy("Instructions"),
        widget=forms.Textarea(attrs={"rows": 5, "dir": "auto"}),
        help_text=gettext_lazy("The model reads them in every chat of this project."),
    )
    labels = TextField(
        # With a line break after each.
        longest=projects.MOST_LABELS * (LONGEST_PROJECT + 2),
        required=False,
        label=gettext_lazy("Folders and repositories"),
        widget=forms.Textarea(attrs={"rows": 3, "dir": "auto"}),
        help_text=format_lazy(
            gettext_lazy("One a line, such as {example}. What agents and imports bring from there belongs to it."),
            example="me/app",
        ),
    )
    is_closed = forms.BooleanField(required=False, label=gettext_lazy("Only found from inside"))

    def change(self, user: User, present: Project) -> Project | None:
        """None, with the errors on the form, if the services refuse it. Then nothing is changed."""
        held = self.cleaned_data
        about = {name: held[name] for name in ("colour", "instructions", "is_closed")}
        labels = [line for line in held["labels"].split("\n") if line.strip()]
        try:
            with transaction.atomic():
                name = projects.rename_project(user=user, name=present.name, new_name=held["name"]).name
                # Agents still find the project by its old name.
                labels += [present.name] * (present.name != name)
                return projects.save_project(user=user, name=name, labels=labels, **about)
        except InvalidInput as error:
            self.complain(error)
            return None


@page_for_registered
def list_all(request: HttpRequest) -> HttpResponse:
    form = NewProjectForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        made = form.save(person_of(request))
        if made is not None:
            return HttpResponseRedirect(path_of(made.name))
    found = projects.list_projects(user=person_of(request))
    status = HTTPStatus.BAD_REQUEST if form.is_bound else HTTPStatus.OK
    return show(request, "memory/projects.html", status=status, projects=found, form=form)


@page_for_registered
def project(request: HttpRequest, key: str) -> HttpResponse:
    user, found = person_of(request), _find(request, key)
    if isinstance(found, HttpResponse):
        return found
    kept = records.list_records(user=user, project_id=found.name, limit=5).rows
    memory = documents.beginning(user=user, day=None, project=found.name, length=BEGINNING + 1)
    context: dict[str, Any] = {
        "chats": lists.list_conversations(caller=caller_of(request), project=found.name).all[:10],
        "kept": [(record, first_line(record.content), type_in_words(record.type)) for record in kept],
        "memory": f"{memory[:BEGINNING]}…" if len(memory) > BEGINNING else memory,
        "memory_path": document_path(None, project=found.name),
        "logs": documents.list_daily_logs(user=user, project=found.name, limit=1).logs,
    }
    return _page(request, "memory/project.html", found, **context)


@page_for_registered
def edit_project(request: HttpRequest, key: str) -> HttpResponse:
    found = _find(request, key, doing="edit")
    if isinstance(found, HttpResponse):
        return found
    if request.method != "POST":
        held = {name: getattr(found, name) for name in ("name", "colour", "instructions", "is_closed")}
        form = ProjectForm(initial={**held, "labels": "\n".join(found.labels)})
        return _page(request, "memory/edit_project.html", found, form=form)
    form = ProjectForm(request.POST)
    saved = form.change(person_of(request), found) if form.is_valid() else None
    if saved is None:
        return _page(request, "memory/edit_project.html", found, form=form, status=HTTPStatus.BAD_REQUEST)
    messages.success(request, _("Saved."))
    return HttpResponseRedirect(path_of(saved.name))


@page_for_registered
def delete_project(request: HttpRequest, key: str) -> HttpResponse:
    """With what is in it, if `contents` says so; else its chats and records stay, of no project."""
    found = _find(request, key, doing="delete")
    if isinstance(found, HttpResponse):
        return found
    if request.method != "POST":
        return _page(request, "memory/delete_project.html", found)
    with_contents = request.POST.get("contents") == YES
    projects.delete_project(user=person_of(request), name=found.name, with_contents=with_contents)
    messages.success(
        request,
        _("The project is deleted, with all that was in it.")
        if with_contents
        else _("The project is deleted. What was in it stays."),
    )
    return redirect("memory:projects")


def path_of(name: str, doing: str = "project") -> str:
    return reverse(f"memory:{doing}", args=[project_key(name)])


def _find(request: HttpRequest, key: str, *, doing: str = "") -> Project | HttpResponse:
    """The project; of a name that it had before, the way to the present one. Raises `NotFound`."""
    user, name = person_of(request), project_named(key)
    if "\0" in name or len(name) > LONGEST_PROJECT:
        raise NotFound
    try:
        return projects.read_project(user=user, name=name)
    except NotFound:
        present = label_of(user=user, label=name)
        if present == name or request.method == "POST":
            raise
        return HttpResponseRedirect(path_of(present, f"{doing}_project" if doing else "project"))


def _page(
    request: HttpRequest, template: str, found: Project, *, status: int = HTTPStatus.OK, **context: Any
) -> HttpResponse:
    context |= {"project": found, "of_project": found.name}
    return show(request, template, status=status, **context)
