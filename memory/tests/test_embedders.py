import os
import threading

import numpy as np
import pytest
from django.test import override_settings

from memory.backends.embedders import EmbedderError, FakeEmbedder, get_embedder, normalised

FAKE = {"BACKEND": "memory.backends.embedders.FakeEmbedder", "OPTIONS": {"dimensions": 8}}


def test_setting_names_the_backend_and_its_options():
    with override_settings(EMBEDDER=FAKE):
        embedder = get_embedder()

    assert isinstance(embedder, FakeEmbedder)
    assert embedder.dimensions == 8


def test_all_threads_share_one_embedder():
    found = []
    with override_settings(EMBEDDER=FAKE):
        threads = [threading.Thread(target=lambda: found.append(get_embedder())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert len(found) == 8
    assert len({id(embedder) for embedder in found}) == 1


def test_changed_setting_takes_effect_at_once():
    with override_settings(EMBEDDER=FAKE):
        before = get_embedder()
        with override_settings(EMBEDDER={**FAKE, "OPTIONS": {"dimensions": 16}}):
            assert get_embedder().dimensions == 16
        assert get_embedder() is not before


def test_forked_process_builds_its_own():
    with override_settings(EMBEDDER=FAKE):
        parents = get_embedder()
        child = os.fork()
        if child == 0:
            os._exit(0 if get_embedder() is not parents else 1)
        _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"BACKEND": "memory.backends.embedders.nowhere.Embedder"}, "nowhere"),
        ({"BACKEND": "memory.backends.embedders.FakeEmbedder", "OPTIONS": {"colour": "red"}}, "colour"),
        ({"BACKEND": "builtins.dict"}, "is no Embedder"),
        ({}, "BACKEND"),
    ],
)
def test_setting_that_cannot_be_followed_says_what_is_wrong(setting, named):
    with override_settings(EMBEDDER=setting), pytest.raises(EmbedderError, match=named):
        get_embedder()


def test_normalised_leaves_zero_vectors_alone():
    assert normalised([[3.0, 4.0], [0.0, 0.0]]).tolist() == [[np.float32(0.6), np.float32(0.8)], [0.0, 0.0]]


def test_fake_puts_texts_that_share_words_near_each_other():
    fake = FakeEmbedder()
    query = fake.embed_query("where does the cat sleep")
    near, far = fake.embed_documents(["The cat sleeps: does the cat dream?", "Quarterly revenue figures"])

    assert query @ near > query @ far + 0.3
    assert np.linalg.norm(near) == pytest.approx(1.0, abs=1e-6)


def test_fake_is_the_same_in_every_process():
    assert FakeEmbedder(dimensions=4).embed_query("cat").tolist() == pytest.approx(
        FakeEmbedder(dimensions=4).embed_documents(["Cat"])[0].tolist()
    )
