"""Says in each page for whom it was made: on the root element for scripts, and beside the CSRF token for forms.

Built in (`TEMPLATES`), so that no form can forget it: those of the admin and of django-allauth included.
"""

from typing import Any

from django import template
from django.http import HttpRequest
from django.template.defaulttags import CsrfTokenNode
from django.utils.html import format_html
from django.utils.safestring import SafeString

from intake.identity import PAGE_PERSON_FIELD, page_person_of

register = template.Library()


@register.simple_tag(takes_context=True)
def page_person(context: template.Context) -> str:
    """Empty for a page that is the same for everybody, which is rendered without its request."""
    request: HttpRequest | None = context.get("request")
    return page_person_of(request) if request is not None and hasattr(request, "user") else ""


@register.simple_tag(takes_context=True)
def csrf_token(context: template.Context) -> SafeString:
    token: Any = CsrfTokenNode().render(context)
    made_for = page_person(context)
    if not made_for:
        return format_html("{}", token)
    return format_html('{}<input type="hidden" name="{}" value="{}">', token, PAGE_PERSON_FIELD, made_for)
