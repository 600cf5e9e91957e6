"""A call is counted against the token's owner."""

import pytest
from django.utils import timezone

from agent_tools.authentication import Refusal, TokenRefused, admit, create_token, revoke_token
from core import rate_limits
from core.errors import RateLimited
from intake.tests.factories import a_person

pytestmark = pytest.mark.django_db

HERE = "192.0.2.1"


@pytest.fixture(autouse=True)
def three_an_hour(settings, limited):
    """Buckets of its own for each test."""
    settings.SECRET_KEY = f"for this test {timezone.now().timestamp()}"
    limited(api="3/hour")
    rate_limits.bypass.until = 0.0


def times_admitted(secret: str, *, tries: int = 6) -> int:
    admitted = 0
    for _ in range(tries):
        try:
            admit(secret, address=HERE, now=timezone.now())
        except RateLimited:
            continue
        admitted += 1
    return admitted


def test_a_token_is_admitted_as_often_as_its_owner_may_ask():
    assert times_admitted(create_token(user=a_person()).secret) == 3


def test_all_tokens_of_a_person_are_counted_together_and_each_persons_apart():
    alice, bob = a_person("alice@example.com"), a_person("bob@example.com")
    first, second = (create_token(user=alice).secret for _ in range(2))
    assert times_admitted(first, tries=2) + times_admitted(second) == 3
    assert times_admitted(create_token(user=bob).secret) == 3


def test_a_token_that_is_no_good_is_told_so_even_when_no_more_may_ask():
    made = create_token(user=(alice := a_person()))
    assert times_admitted(made.secret) == 3
    revoke_token(user=alice, token_id=str(made.id))
    with pytest.raises(TokenRefused) as refused:
        admit(made.secret, address=HERE, now=timezone.now())
    assert refused.value.reason is Refusal.UNKNOWN


def test_whoever_has_a_revoked_token_does_not_use_up_what_its_owner_may_ask_for():
    alice = a_person()
    lost, kept = create_token(user=alice), create_token(user=alice)
    assert times_admitted(lost.secret, tries=1) == 1
    revoke_token(user=alice, token_id=str(lost.id))
    for _ in range(5):
        with pytest.raises(TokenRefused):
            admit(lost.secret, address=HERE, now=timezone.now())
    assert times_admitted(kept.secret) == 2
