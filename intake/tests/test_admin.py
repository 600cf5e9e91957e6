import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission

from intake.models import Conversation, User

pytestmark = pytest.mark.django_db

PEOPLE = "/admin/intake/user/"
PASSWORD = "correct horse battery"


@pytest.fixture
def alice():
    return User.objects.create_user("alice@example.org", PASSWORD)


@pytest.fixture
def as_superuser(client):
    client.force_login(User.objects.create_superuser("root@example.org"))
    return client


@pytest.fixture
def as_staff(client):
    """Staff with every right over people that can be granted."""
    staff = User.objects.create_user("staff@example.org", is_staff=True)
    staff.user_permissions.set(Permission.objects.filter(content_type__app_label="intake"))
    client.force_login(staff)
    return client


def change_url(user: User) -> str:
    return f"{PEOPLE}{user.pk}/change/"


def test_people_are_listed_and_found_by_address(as_superuser, alice):
    assert alice.email in as_superuser.get(PEOPLE).text
    assert alice.email not in as_superuser.get(PEOPLE, {"q": "bob@"}).text


def test_a_person_is_added_by_address_in_lower_case(as_superuser):
    fields = {"email": "Carol@Example.org", "usable_password": "true", "password1": PASSWORD, "password2": PASSWORD}

    response = as_superuser.post(PEOPLE + "add/", fields)

    assert response.status_code == 302
    assert User.objects.get(email="carol@example.org").check_password(PASSWORD)


def test_nobody_is_added_twice_by_a_capital_letter(as_superuser, alice):
    fields = {"email": "ALICE@example.org", "usable_password": "true", "password1": PASSWORD, "password2": PASSWORD}

    assert as_superuser.post(PEOPLE + "add/", fields).status_code == 200
    assert User.objects.filter(email__iexact=alice.email).count() == 1


def test_a_person_is_deactivated_without_touching_their_password(as_superuser, alice):
    response = as_superuser.post(change_url(alice), {"email": alice.email, "time_zone": "UTC"})

    assert response.status_code == 302
    alice.refresh_from_db()
    assert not alice.is_active
    assert alice.check_password(PASSWORD)


def test_a_superuser_makes_somebody_staff(as_superuser, alice):
    as_superuser.post(
        change_url(alice), {"email": alice.email, "time_zone": "UTC", "is_active": "on", "is_staff": "on"}
    )

    alice.refresh_from_db()
    assert alice.is_staff


def test_a_superuser_sets_a_password_and_it_is_logged(as_superuser, alice):
    fields = {"usable_password": "true", "password1": "another long phrase", "password2": "another long phrase"}

    as_superuser.post(f"{PEOPLE}{alice.pk}/password/", fields)

    alice.refresh_from_db()
    assert alice.check_password("another long phrase")
    assert LogEntry.objects.get().object_repr == alice.email


def test_other_staff_cannot_become_somebody_by_setting_their_password_or_address(as_staff, alice):
    assert as_staff.get(f"{PEOPLE}{alice.pk}/password/").status_code == 403
    as_staff.post(change_url(alice), {"email": "mine@example.org", "time_zone": "UTC", "is_active": "on"})

    alice.refresh_from_db()
    assert alice.email == "alice@example.org"
    assert alice.check_password(PASSWORD)


def test_other_staff_can_deactivate_a_person_but_grant_nothing(as_staff, alice):
    as_staff.post(change_url(alice), {"time_zone": "UTC", "is_staff": "on", "is_superuser": "on"})

    alice.refresh_from_db()
    assert (alice.is_active, alice.is_staff, alice.is_superuser) == (False, False, False)


def test_other_staff_cannot_change_staff_not_even_themselves(as_staff):
    staff = User.objects.get(email="staff@example.org")
    assert as_staff.post(change_url(staff), {"time_zone": "UTC", "is_superuser": "on"}).status_code == 403
    staff.refresh_from_db()
    assert not staff.is_superuser


def test_nobody_is_deleted_from_here(as_superuser, alice):
    Conversation.objects.create(user=alice, title="Private")

    response = as_superuser.get(f"{PEOPLE}{alice.pk}/delete/")

    assert response.status_code == 403
    assert "Private" not in response.text
    assert "delete_selected" not in as_superuser.get(PEOPLE).text
