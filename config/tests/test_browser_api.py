"""The API's page in a real browser: drawn under the strict Content-Security-Policy, from this server alone."""

import pytest
from django.test import Client

pytestmark = [pytest.mark.extended, pytest.mark.django_db(transaction=True)]


def test_operations_are_listed_opened_and_tried_out(open_page, person):
    page = open_page("/api/docs/", user=person)
    listed = page.locator(".opblock-summary-path")
    listed.first.wait_for()
    assert listed.count() >= 25
    page.locator("#operations-tools-list_tools .opblock-summary-control").click()
    page.get_by_role("button", name="Try it out").click()
    page.get_by_role("button", name="Execute").click()
    answer = page.locator(".live-responses-table .response-col_status").first
    answer.wait_for()
    assert "200" in page.locator(".live-responses-table").inner_text()


def test_a_call_that_writes_brings_the_sessions_csrf_token(open_page, person):
    page = open_page("/settings/tokens/", user=person)
    page.get_by_role("link", name="Read the API").click()
    page.locator("#operations-tools-append_daily_log .opblock-summary-control").click()
    page.get_by_role("button", name="Try it out").click()
    with page.expect_response("**/api/v1/tools/append_daily_log/") as answered:
        page.get_by_role("button", name="Execute").click()
    assert answered.value.status == 200


def test_without_a_script_it_leads_to_the_document(client):
    page = Client().get("/api/docs/")
    assert page.status_code == 200
    assert b"<noscript>" in page.content
    assert b"/api/v1/schema/?format=yaml" in page.content
