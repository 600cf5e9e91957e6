import pytest
from pydantic import BaseModel, ConfigDict

from core.errors import InvalidInput
from core.validation import validate


class Inner(BaseModel):
    numbers: list[int] = []


class Wanted(BaseModel):
    model_config = ConfigDict(extra="forbid")

    count: int = 0
    share: float = 0.0
    inner: Inner = Inner()
    is_on: bool = False


def test_an_integer_may_be_written_with_a_fraction_of_nothing():
    requested = validate(Wanted, {"count": 3.0, "share": 1.0, "inner": {"numbers": [2.0]}})
    assert (requested.count, requested.share, requested.inner.numbers) == (3, 1.0, [2])
    assert [type(requested.count), type(requested.share)] == [int, float]


@pytest.mark.parametrize("count", [3.5, "3", True, None])
def test_what_is_no_integer_is_refused(count):
    with pytest.raises(InvalidInput) as refused:
        validate(Wanted, {"count": count})
    assert set(refused.value.errors) == {"count"}


def test_a_number_is_no_truth_value():
    with pytest.raises(InvalidInput):
        validate(Wanted, {"is_on": 1.0})
