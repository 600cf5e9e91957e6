"""The parts that the apps above register, and the failure where one is not there."""

import pytest
from django.core.exceptions import ImproperlyConfigured

from intake import checks, ports
from intake.ports import Port


def test_each_part_is_registered_by_an_installed_app():
    assert checks.check_ports(None) == []
    assert ports.chat_tools.get().__name__ == "agent_tools.chat"
    assert ports.memory.get().__name__ == "memory.hooks"


def test_a_part_that_no_app_has_registered_fails_at_its_first_use_by_name():
    with pytest.raises(ImproperlyConfigured, match=r"No app has registered intake\.ports\.notes\."):
        Port("notes").get()


def test_the_system_check_names_a_part_that_no_app_has_registered(monkeypatch):
    monkeypatch.setattr(ports.memory, "load", None)
    (found,) = checks.check_ports(None)
    assert (found.id, found.msg) == ("intake.E005", "No app has registered intake.ports.memory.")


def test_a_part_has_one_owner():
    port = Port("notes")
    port.register(lambda: "first")
    with pytest.raises(ImproperlyConfigured, match="registered already"):
        port.register(lambda: "second")
    assert port.get() == "first"


def test_a_part_is_loaded_once_and_not_before_its_first_use():
    loaded = []
    port = Port("notes")
    port.register(lambda: loaded.append("notes") or "notes")
    assert loaded == []
    assert (port.get(), port.get(), loaded) == ("notes", "notes", ["notes"])
