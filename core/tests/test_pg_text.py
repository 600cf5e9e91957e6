"""What a model may send and PostgreSQL cannot keep."""

import pytest

from core.pg_text import storable
from intake.models import Turn
from intake.tests.factories import a_person, a_turn

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("a\0b", "ab"),
        ("\ud83d", "\ufffd"),
        ("🙂 é", "🙂 é"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (1.5, 1.5),
        ({"a\0": ["\udfff", {"b": "\0"}]}, {"a": ["\ufffd", {"b": ""}]}),
        ([None, True, 7], [None, True, 7]),
    ],
)
def test_it_is_kept_as_near_as_can_be(value, kept):
    turn = a_turn(a_person(), "Hello")
    turn.tool_calls = [{"input": storable(value)}]
    turn.save()
    assert Turn.objects.get().tool_calls == [{"input": kept}]
