"""The admin of embeddings: the origin and state of each row, and statistics of its vector.

Staff can look, and can return rows to the queue. Only the configuration changes the models.
"""

from datetime import datetime
from typing import Any, cast

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.views.main import ChangeList
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.text import Truncator
from pgvector import HalfVector

from intake.accounts import activity
from intake.models import User
from memory.admin_lists import (
    AttemptsFilter,
    BoundedPaginator,
    CreatedFilter,
    EmbeddingChangeList,
    StateFilter,
    as_source_id,
    measured,
    nearest_neighbours,
)
from memory.index import writer
from memory.index.health import CAP, index_health
from memory.models import Embedding, EmbeddingModel, EmbeddingQuerySet

# Of half the picture, in the units of its view box.
HEIGHT = 100


def draw(values: list[float]) -> dict[str, Any]:
    """`path`: an SVG path in a box of `width` (one unit a value) by 200, zero at its middle. And the extremes."""
    scale = max(map(abs, values)) or 1.0
    heights = [round(-value / scale * HEIGHT) for value in values]
    strokes = [f"M{place}.5 {HEIGHT}v{height}" for place, height in enumerate(heights) if height]
    return {
        "path": "".join(strokes),
        "width": len(values),
        "least": min(values),
        "greatest": max(values),
        "zeros": values.count(0),
    }


LIMIT = 10_000
BATCH = 1_000


def requeue(embeddings: EmbeddingQuerySet, *, now: datetime) -> int:
    """Make up to `LIMIT` of these rows wait like new ones; returns their number.

    Their vectors are deleted at once: a row either waits or has one. Rows that wait without an attempt are skipped, so
    that repeating this covers any number. Workers skip rows that are locked meanwhile.
    """
    untried = {"vector": None, "quarantined_at": None, "attempts": 0}
    ids = list(embeddings.exclude(**untried).values_list("pk", flat=True)[:LIMIT])
    waiting = {**untried, "bits": None, "embedded_at": None, "last_error": "", "next_attempt_at": now}
    requeued = 0
    for start in range(0, len(ids), BATCH):
        rows = Embedding.objects.filter(pk__in=ids[start : start + BATCH])
        requeued += rows.update(**waiting)
    if requeued:
        transaction.on_commit(writer.wake_worker, robust=True)
    return requeued


class ReadOnlyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # generic for the type checker, not when it runs
    """Staff with the view permission can look; no one can write, not even superusers."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(EmbeddingModel)
class EmbeddingModelAdmin(ReadOnlyAdmin):
    list_display = ("name", "dimensions", "created_at", "activated_at")
    fields = ("name", "dimensions", "created_at", "activated_at")
    ordering = ("-id",)


@admin.register(Embedding)
class EmbeddingAdmin(ReadOnlyAdmin):
    list_display = (
        "id",
        "corpus",
        "source",
        "chunk_index",
        "part",
        "person",
        "dimensions",
        "norm",
        "model",
        "state",
        "attempts",
        "error",
        "said_at",
        "created_at",
        "embedded_at",
        "next_attempt_at",
    )
    list_filter = (StateFilter, "corpus", "model", AttemptsFilter, CreatedFilter)
    list_per_page = list_max_show_all = 50
    list_select_related = ()
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    # Only indexed orders; see EmbeddingChangeList.
    sortable_by = ()
    paginator = BoundedPaginator
    search_fields = ("user__email", "source_id")
    search_help_text = "A person's whole email address, or a whole source id."
    actions = ("embed_again",)
    fieldsets = (
        ("Where it came from", {"fields": ("person", "corpus", "source_id", "chunk_index", "part", "visibility")}),
        (
            "The text, from outside",
            {"fields": ("side", "start", "length", "is_further", "cutting_rules", "said_at", "created_at")},
        ),
        ("The vector", {"fields": ("model", "dimensions", "norm", "embedded_at")}),
        ("Getting there", {"fields": ("state", "attempts", "last_error", "next_attempt_at", "quarantined_at")}),
    )

    @admin.display(description="person")
    def person(self, embedding: Embedding) -> str:
        url = reverse("admin:memory_embedding_changelist", query={"q": embedding.user.email})
        return format_html('<a href="{}">{}</a>', url, embedding.user.email)

    @admin.display(description="source id")
    def source(self, embedding: Embedding) -> str:
        return format_html('<span class="nowrap">{}</span>', embedding.source_id)

    @admin.display(description="dimensions", empty_value="-")
    def dimensions(self, embedding: Any) -> int | None:
        return cast(int | None, embedding.dimensions)

    @admin.display(description="norm", empty_value="-")
    def norm(self, embedding: Any) -> str | None:
        """A model's vectors are normalised: a norm other than 1, except for half precision, indicates a fault."""
        return None if embedding.norm is None else f"{embedding.norm:.4f}"

    @admin.display(description="state")
    def state(self, embedding: Embedding) -> str:
        has_failed = embedding.state == "waiting" and embedding.last_error
        return "waiting, failed before" if has_failed else embedding.state

    @admin.display(description="last error")
    def error(self, embedding: Embedding) -> str:
        return Truncator(embedding.last_error).chars(60)

    def get_queryset(self, request: HttpRequest) -> EmbeddingQuerySet:
        return Embedding.objects.defer("vector", "content_hash")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return EmbeddingChangeList

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Embedding | None:
        found = super().get_object(request, object_id, from_field)
        return found and next(iter(measured([found.pk])), None)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Only the lookups of the sidebar: any other may read the whole table."""
        return lookup in ("corpus__exact", "model__id__exact", "state", "attempts", "created")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Embedding], search_term: str
    ) -> tuple[QuerySet[Embedding], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        if source_id := as_source_id(term):
            return queryset.filter(source_id=source_id), False
        person = User.objects.filter(email=User.objects.normalize_email(term)).only("pk").first()
        return (queryset.filter(user=person) if person else queryset.none()), False

    def has_embed_again_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("memory.change_embedding")

    @admin.action(permissions=["embed_again"], description="Embed again (searches miss them until that is done)")
    def embed_again(self, request: HttpRequest, queryset: EmbeddingQuerySet) -> None:
        """Up to 10,000 rows at a time; repeat it for the rows that do not wait yet."""
        count = requeue(queryset, now=timezone.now())
        LogEntry.objects.create(
            user_id=cast(User, request.user).pk,
            content_type=ContentType.objects.get_for_model(Embedding),
            object_repr=f"{count:,} embeddings",
            action_flag=CHANGE,
            change_message="Embedded again.",
        )
        more = " Run it again for the rest." if count == LIMIT else ""
        self.message_user(request, f"{count:,} embeddings wait for new vectors.{more}", messages.SUCCESS)

    def get_urls(self) -> list[URLPattern]:
        health = path("health/", self.admin_site.admin_view(self.health_view), name="memory_embedding_health")
        return [health, *super().get_urls()]

    def health_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        now = timezone.now()
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": "Health of the index",
            "health": index_health(now=now),
            "now": now,
            "cap": f"{CAP:,}",
        }
        return TemplateResponse(request, "admin/memory/embedding/health.html", context)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        response = super().changelist_view(request, {**(extra_context or {}), "title": "Embeddings"})
        if shown := getattr(response, "context_data", {}).get("cl"):
            self._note_look(request, *shown.result_list)
        return response

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        embedding = context["original"]
        self._note_look(request, embedding)
        vector = Embedding.objects.filter(pk=embedding.pk).values_list("vector", flat=True).first()
        context["neighbours"] = nearest_neighbours(embedding)
        # None while there is no vector. Nobody can read text from the picture.
        context["picture"] = vector and draw(vector.to_list() if isinstance(vector, HalfVector) else list(vector))
        return super().render_change_form(request, context, *args, **kwargs)

    def _note_look(self, request: HttpRequest, *shown: Embedding) -> None:
        owners = {embedding.user_id for embedding in shown}
        activity.note_look_by_staff(cast(User, request.user), owners, now=timezone.now())


admin.site.site_header = admin.site.site_title = "Recollect"
admin.site.index_title = "For staff"
# Django's own index, with a link to the index's health.
admin.site.index_template = "admin/memory/index.html"
