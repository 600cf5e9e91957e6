"""Pages of projects: all of them, and each with its instructions, MEMORY.md, labels, chats and what is kept in it.

A project is named by its label in the address; after another name, the old address leads to the new one.
"""

from typing import Any

from django import forms
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from chat.pages.common import ServiceForm, TextField, done, page_for_registered, show, type_in_words
from core.errors import NotFound
from core.text import LONGEST_PROJECT, first_line
from intake.accounts.identity import caller_of, person_of
from intake.chats import lists
from intake.models import Project, User
from intake.models.conversations import MAX_PROJECT_INSTRUCTIONS, PROJECT_COLOURS, label_of
from memory import documents, projects, records
from memory.addresses import document_path, project_key, project_named

BEGINNING = 1_200

COLOUR_NAMES = {
    "blue": _("Blue"),
    "teal": _("Teal"),
    "green": _("Green"),
    "yellow": _("Yellow"),
    "orange": _("Orange"),
    "red": _("Red"),
    "pink": _("Pink"),
    "purple": _("Purple"),
}


class NewProjectForm(ServiceForm):
    name = forms.CharField(
        max_length=LONGEST_PROJECT,
        label=_("Name"),
        error_messages={"required": _("Enter a name.")},
    )


class ProjectForm(NewProjectForm):
    colour = forms.ChoiceField(
        choices=[(colour, COLOUR_NAMES[colour]) for colour in PROJECT_COLOURS],
        initial=PROJECT_COLOURS[0],
        label=_("Colour"),
        widget=forms.RadioSelect,
    )
    instructions = TextField(
        longest=MAX_PROJECT_INSTRUCTIONS,
        required=False,
        label=_("Instructions"),
        widget=forms.Textarea(attrs={"rows": 5, "dir": "auto"}),
        help_text=_("The model reads them in every chat of this project."),
    )
    labels = TextField(
        # With a line break after each.
        longest=projects.MOST_LABELS * (LONGEST_PROJECT + 2),
        required=False,
        label=_("Folders and repositories"),
        widget=forms.Textarea(attrs={"rows": 3, "dir": "auto"}),
        help_text=format_lazy(
            _("One a line, such as {example}. What agents and imports bring from there belongs to it."),
            example="me/app",
        ),
    )
    is_closed = forms.BooleanField(required=False, label=_("Only found from inside"))

    def change(self, user: User, present: Project) -> Project:
        """All of it, or nothing."""
        about = dict(self.cleaned_data)
        labels = [line for line in about.pop("labels").split("\n") if line.strip()]
        with transaction.atomic():
            name = projects.rename_project(user=user, name=present.name, new_name=about.pop("name")).name
            # Agents still find the project by its old name.
            labels += [present.name] * (present.name != name)
            return projects.save_project(user=user, name=name, labels=labels, **about)


@page_for_registered
def list_all(request: HttpRequest) -> HttpResponse:
    user, form = person_of(request), NewProjectForm(request.POST or None)
    if form.is_valid():
        with form.complaining():
            made = projects.save_project(user=user, is_new=True, **form.cleaned_data)
            return redirect(path_of(made.name))
    return show(request, "memory/projects.html", projects=projects.list_projects(user=user), form=form)


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
    held = {name: getattr(found, name) for name in ("name", "colour", "instructions", "is_closed")}
    form = ProjectForm(request.POST or None, initial={**held, "labels": "\n".join(found.labels)})
    if form.is_valid():
        with form.complaining():
            return done(request, _("Saved."), path_of(form.change(person_of(request), found).name))
    return _page(request, "memory/edit_project.html", found, form=form)


@page_for_registered
def delete_project(request: HttpRequest, key: str) -> HttpResponse:
    """With what is in it, if `contents` says so; else its chats and records stay, of no project."""
    found = _find(request, key, doing="delete")
    if isinstance(found, HttpResponse):
        return found
    if request.method != "POST":
        return _page(request, "memory/delete_project.html", found)
    with_contents = request.POST.get("contents") == "1"
    projects.delete_project(user=person_of(request), name=found.name, with_contents=with_contents)
    gone, kept = (
        _("The project is deleted, with all that was in it."),
        _("The project is deleted. What was in it stays."),
    )
    return done(request, gone if with_contents else kept, "memory:projects")


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
        return redirect(path_of(present, f"{doing}_project" if doing else "project"))


def _page(request: HttpRequest, template: str, found: Project, **context: Any) -> HttpResponse:
    return show(request, template, project=found, of_project=found.name, **context)
