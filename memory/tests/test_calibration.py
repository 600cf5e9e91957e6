"""How distances are read: by the model's own numbers where somebody tuned it, else by the person's own vectors."""

import pytest

from intake.tests.factories import NOW, a_person, a_turn
from memory import index
from memory.backends.embedders import TUNED, UNCALIBRATED, UNRELATED, Calibration, FakeEmbedder, using
from memory.backends.minilm import MiniLMEmbedder
from memory.models import Corpus
from memory.models.documents import Scope
from memory.search import hybrid
from memory.search.history import HistoryRequest, search_history
from memory.search.hybrid import by_terms_and_meaning, embedded

pytestmark = pytest.mark.django_db


class UntunedEmbedder(FakeEmbedder):
    calibration = None


@pytest.fixture
def alice():
    return a_person()


@pytest.fixture
def untuned():
    with using(UntunedEmbedder()) as embedder:
        yield embedder


def calibration_for(user):
    return by_terms_and_meaning(Scope(user, (Corpus.CHAT,)), query="cat", meaning=embedded("cat")).calibration


def test_the_built_in_model_brings_the_numbers_it_was_tuned_with():
    assert MiniLMEmbedder.calibration == TUNED


def test_a_tuned_model_is_read_by_its_own_numbers_however_much_is_stored(alice):
    assert calibration_for(alice) == TUNED


def test_an_untuned_model_beside_few_vectors_leaves_nothing_out(alice, untuned):
    a_turn(alice, "The weather is fine")
    index.embed_pending()
    assert calibration_for(alice) == UNCALIBRATED
    found = search_history(HistoryRequest(query="quantum chromodynamics"), user=alice, now=NOW)
    assert len(found.results) == 1


def test_an_untuned_model_is_measured_on_the_persons_own_vectors(alice, untuned, monkeypatch):
    monkeypatch.setattr(hybrid, "MEASURED_TEXTS", 5)
    for number in range(6):
        a_turn(alice, f"Something else, number {number}")
    index.embed_pending()
    calibration = calibration_for(alice)
    assert calibration != UNCALIBRATED
    assert calibration.far / calibration.convincing == pytest.approx(TUNED.far / TUNED.convincing)
    found = search_history(HistoryRequest(query="quantum chromodynamics"), user=alice, now=NOW)
    assert found.results == []


def test_measured_on_vectors_that_lie_as_the_built_in_models_do_a_calibration_is_the_tuned_one():
    measured = Calibration.measured(UNRELATED)
    assert (measured.convincing, measured.far) == (TUNED.convincing, TUNED.far)
