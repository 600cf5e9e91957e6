"""Where the admin's pages are, and what is on them."""

from django.contrib.auth.models import Permission
from django.urls import reverse

from intake.models import User
from memory.models import Embedding

LIST = "/admin/memory/embedding/"
HEALTH = "/admin/memory/embedding/health/"


def staff_with(*permissions: str) -> User:
    user = User.objects.create_user("staff@example.org", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return user


def row_url(row: Embedding) -> str:
    return reverse("admin:memory_embedding_change", args=[row.pk])


def listed(response) -> list[int]:
    return [row.pk for row in response.context["cl"].result_list]


def embed_again(client, *rows: Embedding, everything=False, query=""):
    fields = {"action": "embed_again", "_selected_action": [row.pk for row in rows], "select_across": int(everything)}
    return client.post(LIST + query, fields, follow=True)
