import re
from datetime import timedelta
from html import unescape
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import pytest
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from intake.models import Conversation, Turn, User
from intake.tests.factories import a_turn
from memory import indexing
from memory.admin import change_list
from memory.admin import requeue as requeueing
from memory.admin.filters import CreatedFilter
from memory.admin.neighbours import nearest_neighbours
from memory.admin.periods import Period
from memory.admin.requeue import requeue
from memory.embedders import get_embedder
from memory.models import Embedding
from memory.tests.rows import NOW, add_failed, add_quarantined, add_row, model_named

pytestmark = pytest.mark.django_db

LIST = "/admin/memory/embedding/"
HEALTH = "/admin/memory/embedding/health/"


@pytest.fixture
def alice():
    return User.objects.create_user("alice@example.org")


@pytest.fixture
def bob():
    return User.objects.create_user("bob@example.org")


@pytest.fixture
def superuser():
    return User.objects.create_superuser("root@example.org")


def staff_with(*permissions: str) -> User:
    user = User.objects.create_user("staff@example.org", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return user


@pytest.fixture
def viewer(client):
    """Staff who may look."""
    client.force_login(staff_with("view_embedding"))
    return client


@pytest.fixture
def editor(client):
    """Staff who may look and have rows embedded again."""
    client.force_login(staff_with("view_embedding", "change_embedding"))
    return client


def row_url(row: Embedding) -> str:
    return reverse("admin:memory_embedding_change", args=[row.pk])


def listed(response) -> list[int]:
    return [row.pk for row in response.context["cl"].result_list]


def embed_again(client, *rows: Embedding, everything=False, query=""):
    fields = {"action": "embed_again", "_selected_action": [row.pk for row in rows], "select_across": int(everything)}
    return client.post(LIST + query, fields, follow=True)


# -- Who may see what -------------------------------------------------------------------------------------------------


def pages_of(row: Embedding) -> list[str]:
    models = "/admin/memory/embeddingmodel/"
    return [LIST, HEALTH, row_url(row), row_url(row).replace("change", "history"), models]


def test_visitors_are_asked_to_log_in(client, alice):
    for url in pages_of(add_row(alice)):
        assert client.get(url).headers["Location"].startswith("/admin/login/"), url


def test_ordinary_people_are_asked_to_log_in_as_somebody_else(client, alice):
    client.force_login(alice)
    for url in pages_of(add_row(alice)):
        assert client.get(url).headers["Location"].startswith("/admin/login/"), url


def test_staff_without_the_permission_see_nothing(client, alice):
    client.force_login(staff_with())
    for url in pages_of(add_row(alice)):
        assert client.get(url).status_code == 403, url
    assert "Health of the index" not in client.get("/admin/").text


def test_staff_with_the_view_permission_see_the_index(viewer, alice):
    row = add_row(alice, vector=[3, 4, 0])
    for url in (LIST, HEALTH, row_url(row)):
        assert viewer.get(url).status_code == 200, url
    assert HEALTH in viewer.get("/admin/").text
    assert HEALTH in viewer.get(LIST).text


@pytest.mark.parametrize("model", ["embedding", "embeddingmodel"])
def test_nobody_adds_changes_or_deletes_through_a_form(client, alice, superuser, model):
    row = add_row(alice, vector=[1, 0, 0])
    pk = {"embedding": row.pk, "embeddingmodel": row.model_id}[model]
    client.force_login(superuser)

    assert client.get(f"/admin/memory/{model}/add/").status_code == 403
    assert client.post(f"/admin/memory/{model}/{pk}/change/", {"corpus": "x", "name": "x"}).status_code == 403
    assert client.post(f"/admin/memory/{model}/{pk}/delete/", {"post": "yes"}).status_code == 403
    assert client.post(
        f"/admin/memory/{model}/", {"action": "delete_selected", "_selected_action": [pk]}
    ).status_code in (200, 302)
    row.refresh_from_db()
    assert row.embedded_at
    assert row.model.name == "tiny"


def test_conversations_and_turns_are_unknown_to_the_admin(client, superuser):
    client.force_login(superuser)
    for name in ("conversation", "turn", "sessionlink"):
        assert client.get(f"/admin/intake/{name}/").status_code == 404


# -- The list ---------------------------------------------------------------------------------------------------------


def test_the_list_tells_dimensions_and_norm_and_leaves_the_vectors_in_the_database(viewer, alice):
    add_row(alice, vector=[3, 4, 0])

    with CaptureQueriesContext(
        connection,
    ) as queries:
        page = viewer.get(LIST).text

    assert 'field-dimensions">3<' in page
    assert 'field-norm">5.0000<' in page
    statements = [query["sql"] for query in queries if '"embeddings"' in query["sql"]]
    assert statements
    for sql in statements:
        assert '"vector"' not in sql.replace('vector_dims("embeddings"."vector")', "").replace(
            'l2_norm("embeddings"."vector")', ""
        )
        assert "content_hash" not in sql
        assert "LIMIT" in sql or "IN (" in sql or "MIN(" in sql, f"reads without a bound: {sql}"


def test_the_list_takes_the_same_queries_for_one_row_as_for_many(viewer, alice):
    add_row(alice, vector=[1, 0, 0])
    with CaptureQueriesContext(connection) as for_one:
        viewer.get(LIST)
    for _ in range(20):
        add_row(alice, vector=[1, 0, 0])
    with CaptureQueriesContext(connection) as for_many:
        viewer.get(LIST)

    assert len(for_many) == len(for_one)


def test_counting_stops_at_the_cap_and_paging_with_it(viewer, alice, monkeypatch):
    monkeypatch.setattr(change_list, "count_up_to_cap", lambda rows: change_list.Quantity(60, "at least"))
    for _ in range(3):
        add_row(alice)

    response = viewer.get(LIST)

    assert response.context["cl"].paginator.num_pages == 2
    assert "of about" in response.text


def test_the_newest_row_comes_first(viewer, alice):
    old = add_row(alice, created_at=NOW - timedelta(days=1))
    new = add_row(alice)

    assert listed(viewer.get(LIST)) == [new.pk, old.pk]


def test_an_order_that_no_index_serves_cannot_be_asked_for(viewer, alice):
    low, high = add_row(alice, part=0), add_row(alice, part=1)

    assert listed(viewer.get(LIST + "?o=5")) == [high.pk, low.pk]


@pytest.mark.parametrize(
    ("query", "index"),
    [
        ("", "idx_embeddings_listed"),
        ("created=2026-11", "idx_embeddings_listed"),
        ("state=waiting", "idx_embeddings_waiting"),
        ("state=failed", "idx_embeddings_failed"),
        ("state=quarantined", "idx_embeddings_quarantined"),
        ("q=alice@example.org", "embeddings_part_once"),
    ],
)
def test_each_way_of_narrowing_the_list_has_an_order_that_its_index_serves(viewer, alice, query, index):
    add_failed(alice)
    add_quarantined(alice)
    with CaptureQueriesContext(connection) as queries:
        viewer.get(f"{LIST}?{query}")
    (page_of_ids,) = (q["sql"] for q in queries if q["sql"].startswith('SELECT "embeddings"."id" AS "pk"'))

    with connection.cursor() as cursor:
        # The table is far too small for the planner to want an index: leave it no other way, if there is this one.
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off")
        cursor.execute(f"EXPLAIN {page_of_ids}")
        plan = "\n".join(line for (line,) in cursor.fetchall())

    assert index in plan
    assert "Sort" not in plan


@pytest.mark.parametrize(
    "lookup", ["last_error__icontains=x", "user__password__startswith=m", "content_hash=1", "user__email__contains=a"]
)
def test_a_lookup_that_the_sidebar_does_not_offer_is_refused(viewer, alice, lookup):
    add_row(alice)
    assert viewer.get(f"{LIST}?{lookup}").status_code == 400


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("state=embedded", {"embedded"}),
        ("state=waiting", {"waiting", "failed"}),
        ("state=failed", {"failed"}),
        ("state=quarantined", {"quarantined"}),
        ("attempts=1", {"embedded", "failed", "quarantined"}),
        ("attempts=2", {"failed", "quarantined"}),
        ("corpus__exact=chat", {"embedded", "waiting", "failed", "quarantined"}),
        ("created=2026", {"embedded", "waiting", "failed", "quarantined"}),
        ("created=2025-03", set()),
        ("created=2026-11-20&state=failed", {"failed"}),
    ],
)
def test_the_sidebar_narrows_the_list(viewer, alice, query, expected):
    rows = {
        "embedded": add_row(alice, vector=[1, 0, 0]),
        "waiting": add_row(alice),
        "failed": add_failed(alice),
        "quarantined": add_quarantined(alice),
    }

    found = listed(viewer.get(f"{LIST}?{query}"))

    assert {name for name, row in rows.items() if row.pk in found} == expected
    assert len(found) == len(expected)


def test_the_list_is_narrowed_by_model(viewer, alice):
    add_row(alice, model=model_named("old"))
    new = add_row(alice, model=model_named("new"))

    assert listed(viewer.get(f"{LIST}?model__id__exact={new.model_id}")) == [new.pk]


def test_the_time_of_creation_is_chosen_by_year_then_month_then_day(viewer, alice):
    add_row(alice, created_at=NOW - timedelta(days=365))
    add_row(alice)

    assert choices(viewer.get(LIST)) == ["Any time", "2026", "2025"]
    assert choices(viewer.get(LIST + "?created=2026"))[:3] == ["Any time", "2026", "November 2026"]
    days = choices(viewer.get(LIST + "?created=2026-11"))
    assert days[1:5] == ["2026", "November 2026", "Nov. 20, 2026", "Nov. 19, 2026"]
    assert len(days) == 3 + 20
    assert choices(viewer.get(LIST + "?created=2026-11-20"))[1:] == ["2026", "November 2026", "Nov. 20, 2026"]


def choices(response) -> list[str]:
    (created,) = (spec for spec in response.context["cl"].filter_specs if isinstance(spec, CreatedFilter))
    return [str(choice["display"]) for choice in created.choices(response.context["cl"])]


@pytest.mark.parametrize("value", ["2026-13", "2026-02-30", "yesterday", "2026-1-1-1", "0", "9999"])
def test_a_date_that_does_not_exist_leads_back_to_the_whole_list(viewer, alice, value):
    add_row(alice)
    assert viewer.get(f"{LIST}?created={value}").headers["Location"].endswith("?e=1")


@pytest.mark.parametrize(
    ("text", "end"), [("2026", (2027, 1, 1)), ("2026-12", (2027, 1, 1)), ("2026-02-28", (2026, 3, 1))]
)
def test_a_period_ends_where_the_next_begins(text, end):
    period = Period.parse(text)
    assert (period.end.year, period.end.month, period.end.day) == end
    assert str(period) == text


def test_a_person_is_found_by_their_whole_address_in_any_case(viewer, alice, bob):
    row = add_row(alice)
    add_row(bob)

    assert listed(viewer.get(LIST, {"q": " Alice@Example.org "})) == [row.pk]
    assert listed(viewer.get(LIST, {"q": "alice"})) == []


def test_a_source_is_found_by_its_id(viewer, alice):
    row = add_row(alice)
    add_row(alice)

    assert listed(viewer.get(LIST, {"q": str(row.source_id)})) == [row.pk]


# -- A row ------------------------------------------------------------------------------------------------------------


def test_a_row_is_shown_with_its_neighbours_nearest_first(viewer, alice):
    row = add_row(alice, vector=[1, 0, 0])
    far = add_row(alice, vector=[0, 1, 0])
    near = add_row(alice, vector=[1, 1, 0])

    response = viewer.get(row_url(row))

    found = [(neighbour.pk, round(neighbour.distance, 3)) for neighbour in response.context["neighbours"]]
    assert found == [(near.pk, 0.293), (far.pk, 1.0)]
    assert row_url(near) in response.text


def test_neighbours_are_of_the_same_person_and_model_and_of_other_sources(alice, bob):
    row = add_row(alice, vector=[1, 0, 0])
    add_row(alice, vector=[1, 0, 0], source_id=row.source_id, part=1)
    add_row(alice, vector=[1, 0, 0], model=model_named("other"))
    add_row(bob, vector=[1, 0, 0])
    add_row(alice)
    mine = add_row(alice, vector=[0, 1, 0])

    assert [neighbour.pk for neighbour in nearest_neighbours(row)] == [mine.pk]


def test_at_most_ten_neighbours_are_shown(alice):
    row = add_row(alice, vector=[1, 0, 0])
    for _ in range(12):
        add_row(alice, vector=[1, 1, 0])

    assert len(nearest_neighbours(row)) == 10


def test_a_row_that_waits_is_shown_without_neighbours(viewer, alice):
    add_row(alice, vector=[1, 0, 0])
    assert "There is no vector yet" in viewer.get(row_url(add_row(alice))).text


def test_no_vector_leaves_the_database_for_a_row(viewer, alice):
    row = add_row(alice, vector=[1, 0, 0])
    add_row(alice, vector=[0, 1, 0])

    with CaptureQueriesContext(connection) as queries:
        viewer.get(row_url(row))

    selected = [re.split(r"\bFROM\b", query["sql"], maxsplit=1)[0] for query in queries if "embeddings" in query["sql"]]
    for columns in selected:
        bare = re.sub(r'(vector_dims|l2_norm)\("embeddings"\."vector"\)', "", columns)
        assert "content_hash" not in bare
        assert '"vector"' not in bare or "<=>" in bare


def test_a_row_that_does_not_exist_leads_back_to_the_index(viewer):
    assert viewer.get("/admin/memory/embedding/123456/change/").status_code == 302
    assert viewer.get("/admin/memory/embedding/nonsense/change/").status_code == 302


# -- Embedding again --------------------------------------------------------------------------------------------------


def test_embedding_again_makes_rows_wait_as_if_they_were_new(editor, alice):
    done, broken = add_row(alice, vector=[1, 0, 0]), add_quarantined(alice)
    untouched = add_row(alice, vector=[1, 0, 0])

    response = embed_again(editor, done, broken)

    assert "2 embeddings wait for new vectors" in response.text
    for row in (done, broken):
        row.refresh_from_db()
        assert (row.vector, row.embedded_at, row.attempts, row.last_error, row.quarantined_at) == (
            None,
            None,
            0,
            "",
            None,
        )
    untouched.refresh_from_db()
    assert untouched.embedded_at


def test_all_rows_of_a_narrowed_list_are_embedded_again_across_its_pages(editor, alice, bob):
    mine = [add_row(alice, vector=[1, 0, 0]) for _ in range(60)]
    other = add_row(bob, vector=[1, 0, 0])

    embed_again(editor, mine[0], everything=True, query="?q=alice@example.org")

    assert Embedding.objects.filter(user=alice, vector=None).count() == 60
    other.refresh_from_db()
    assert other.embedded_at


def test_a_row_embedded_again_gets_its_vector_back(editor, alice):
    a_turn(alice, "I adopted a cat")
    indexing.embed_pending()
    row = Embedding.objects.get()
    vector = list(row.vector)

    embed_again(editor, row)
    assert indexing.embed_pending().embedded == 1

    row.refresh_from_db()
    assert list(row.vector) == vector


def test_the_workers_are_told_that_rows_wait(alice, django_capture_on_commit_callbacks):
    add_row(alice, vector=[1, 0, 0])
    rows = Embedding.objects.order_by("-id")

    with django_capture_on_commit_callbacks() as first:
        requeue(rows, now=NOW)
    with django_capture_on_commit_callbacks() as second:
        requeue(rows, now=NOW)

    assert (len(first), len(second)) == (1, 0)


def test_one_run_is_bounded_and_the_next_goes_on_where_it_stopped(alice, monkeypatch):
    monkeypatch.setattr(requeueing, "LIMIT", 4)
    monkeypatch.setattr(requeueing, "BATCH", 3)
    for _ in range(6):
        add_row(alice, vector=[1, 0, 0])
    newest_first = Embedding.objects.order_by("-created_at", "-id")

    assert [requeue(newest_first, now=NOW) for _ in range(3)] == [4, 2, 0]


def test_embedding_again_loads_no_vector(alice):
    add_row(alice, vector=[1, 0, 0])

    with CaptureQueriesContext(connection) as queries:
        requeue(Embedding.objects.order_by("-id"), now=NOW)

    select, update = (query["sql"] for query in queries)
    assert select.split("FROM")[0].strip() == 'SELECT "embeddings"."id" AS "pk"'
    assert update.startswith("UPDATE")


def test_embedding_again_is_logged_by_number_only(editor, alice):
    embed_again(editor, add_row(alice, vector=[1, 0, 0]))

    entry = LogEntry.objects.get()
    assert (entry.object_repr, entry.object_id) == ("1 embeddings", None)
    assert entry.user.email == "staff@example.org"


def test_who_may_only_look_cannot_have_rows_embedded_again(viewer, alice):
    row = add_row(alice, vector=[1, 0, 0])

    embed_again(viewer, row)

    row.refresh_from_db()
    assert row.embedded_at
    assert "embed_again" not in viewer.get(LIST).text


# -- Health -----------------------------------------------------------------------------------------------------------


def test_the_health_page_says_what_waits_failed_and_was_set_aside(viewer, alice):
    add_row(alice)
    add_failed(alice, "The model is away.")
    add_quarantined(alice, "ValueError")

    page = viewer.get(HEALTH).text

    for words in ("The model is away.", "ValueError", "Longest wait", "By model", "tiny", "Quarantined"):
        assert words in page


# -- No text anywhere -------------------------------------------------------------------------------------------------

SECRET = "Rumpelstiltskin"


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]


def walk(client) -> dict[str, str]:
    """Every page of the admin that can be reached by following links, each filter and search by itself."""
    pages: dict[str, str] = {}
    seen: set[object] = set()
    to_visit = ["/admin/"]
    while to_visit and len(pages) < 400:
        url = to_visit.pop(0)
        parts = urlsplit(url)
        kind = (parts.path, parts.query.split("=")[0])
        is_foreign = not parts.path.startswith("/admin/") or parts.path == "/admin/logout/"
        if kind in seen or is_foreign or "&" in parts.query:
            continue
        seen.add(kind)
        response = client.get(url, follow=True)
        assert response.status_code == 200, url
        pages[url] = unescape(response.text) + str(response.headers)
        if "html" in response.headers["Content-Type"]:
            links = Links()
            links.feed(response.text)
            to_visit += [urljoin(url, link).split("#")[0] for link in links.found]
    return pages


@pytest.fixture
def chat_with_a_secret(alice, monkeypatch):
    """One turn embedded, one that failed and one set aside, the model quoting them in its error."""
    conversation = Conversation.objects.create(user=alice, title=f"About {SECRET}")
    for number in range(3):
        a_turn(alice, f"{number}: my name is {SECRET}", f"Hello {SECRET}", conversation=conversation)
    Turn.objects.update(tool_calls=[{"input": SECRET}], error={"detail": SECRET})
    embedded, failed, quarantined = Embedding.objects.order_by("chunk_index")
    indexing.fill([embedded], embedder=get_embedder())
    with monkeypatch.context() as broken:
        broken.setattr(get_embedder(), "embed_documents", refuse)
        indexing.fill([failed], embedder=get_embedder())
        quarantined.attempts = settings.EMBEDDING_MAX_ATTEMPTS
        indexing.fill([quarantined], embedder=get_embedder())
    return conversation


def refuse(texts):
    raise ValueError(f"cannot embed {texts}")


def test_no_page_that_a_superuser_can_reach_shows_a_word_of_a_chat(client, superuser, alice, chat_with_a_secret):
    client.force_login(superuser)
    assert {row.last_error for row in Embedding.objects.all()} == {"", "ValueError"}
    embed_again(client, Embedding.objects.quarantined().get())
    client.post(f"/admin/intake/user/{alice.pk}/change/", {"email": alice.email, "time_zone": "UTC"})

    pages = walk(client)

    paths = {urlsplit(url).path for url in pages}
    expected = {LIST, HEALTH, "/admin/intake/user/", f"/admin/intake/user/{alice.pk}/change/", "/admin/auth/group/"}
    expected |= {row_url(row) for row in Embedding.objects.all()}
    assert expected <= paths
    for url, page in pages.items():
        assert SECRET not in page, url


def test_the_admin_needs_no_inline_script_or_style(client, superuser, chat_with_a_secret):
    client.force_login(superuser)
    inline = re.compile(r"<style|\sstyle=|\son[a-z]+=\"|<script(?![^>]*\bsrc=)(?![^>]*application/json)")

    for url, page in walk(client).items():
        if "text/html" in page:
            assert not inline.search(page), (url, inline.search(page))
            assert "script-src 'self'" in page
