"""One version, wherever it is shown."""

import pytest

from config import VERSION
from intake.tests.factories import a_person

pytestmark = pytest.mark.django_db


def test_supervisors_read_it_at_healthz(client):
    assert client.get("/healthz").json()["version"] == VERSION


def test_people_read_it_at_the_end_of_their_account_page(client):
    client.force_login(a_person("alice"))
    page = client.get("/settings/account/").text
    assert page.index(f"Recollect {VERSION}") > page.index("Delete")
