"""The page with the address for a phone: where others can reach this installation, if they can."""

import pytest

PHONE = "/settings/phone/"
LOOPBACK = ["localhost", "127.0.0.1", "[::1]"]


@pytest.mark.parametrize(
    ("settings_", "host", "address"),
    [
        ({"ALLOWED_HOSTS": LOOPBACK}, "localhost:8000", ""),
        ({"ALLOWED_HOSTS": LOOPBACK}, "127.0.0.1:8000", ""),
        ({"ALLOWED_HOSTS": ["localhost", "127.0.0.1", "box.local", "192.168.1.20"]}, "localhost:8000",
         "http://192.168.1.20:8000/"),
        ({"ALLOWED_HOSTS": ["*"]}, "192.168.1.20:8000", "http://192.168.1.20:8000/"),
        ({"PUBLIC_URL": "https://memory.example/recollect", "ALLOWED_HOSTS": LOOPBACK}, "localhost:8000", "https://memory.example/recollect"),
    ],
)  # fmt: skip
def test_the_address_for_a_phone_is_one_that_it_can_reach(client, person, settings, settings_, host, address):
    for name, value in settings_.items():
        setattr(settings, name, value)
    client.force_login(person)
    page = client.get(PHONE, headers={"host": host}).content.decode()
    assert ("make up HOST=0.0.0.0" in page) == (not address)
    assert ("<svg" in page and f">{address}</code>" in page) == bool(address)
    assert ("is not encrypted" in page) == (not address.startswith("https://"))
