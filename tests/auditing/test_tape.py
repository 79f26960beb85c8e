"""A tape answers the same queries alike, and notes which inputs moved."""

from __future__ import annotations

import numpy as np
import pytest

from balaclava.auditing.tape import Divergence, Recorder, Replayer
from balaclava.errors import PrivacyError
from balaclava.privacy.mechanisms.analytic_gaussian import gaussian_vector_release
from balaclava.privacy.mechanisms.base import Loss
from balaclava.privacy.mechanisms.laplace import laplace_release, laplace_report
from balaclava.privacy.randomness import seeded


def queries(rng, value, epsilon=0.5, width=10):
    out = np.zeros(2)
    gaussian_vector_release(rng, np.array([value, 1.0]), 2.0, 1.0, 0.01, out)
    return [
        laplace_release(rng, value, 2.0, epsilon),
        laplace_report(rng, 0.5, 1.0, 1.0),
        rng.integers(0, width),
        *out.tolist(),
    ]


def test_a_recorder_answers_as_a_seeded_generator_does():
    assert queries(Recorder(7, 1), 3.0) == queries(seeded(7, 1), 3.0)
    assert queries(Recorder(7, 1), 3.0) != queries(Recorder(7, 2), 3.0)
    recorder = Recorder(0)
    for _ in range(2):
        with pytest.raises(PrivacyError, match="epsilon"):
            laplace_release(recorder, 0.0, 1.0, -1.0)
    assert recorder.tape == []


def test_moved_inputs_are_noted_with_their_loss_and_place():
    recorder = Recorder(0)
    answers = queries(recorder, 3.0)
    assert [entry.terms is None for entry in recorder.tape] == [False, False, False, True]
    same = Replayer(recorder.tape, 0)
    assert queries(same, 3.0) == answers
    assert (same.moves, same.position) == ([], 4)
    moved = Replayer(recorder.tape, 0)
    assert queries(moved, 4.0) == answers
    first, second = moved.moves
    assert (first.position, second.position) == (0, 1)
    assert (first.distance, second.distance) == (0.5, 0.5)
    assert second.loss == Loss(0.25)
    assert second.terms == (4.0, 2.0, 0.5, 0.0)
    assert (first.local, second.local) == (False, False)
    assert first.loss.shift > 0.0
    silent = Replayer(recorder.tape, 0, note_moves=False)
    assert queries(silent, 4.0) == answers
    assert silent.moves == []


def test_a_report_of_a_device_is_local():
    recorder = Recorder(0)
    laplace_report(recorder, 0.0, 1.0, 1.0)
    replayer = Replayer(recorder.tape, 0)
    laplace_report(replayer, 1.0, 1.0, 1.0)
    assert [move.local for move in replayer.moves] == [True]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rng: queries(rng, 3.0, epsilon=0.6), "the sensitivity, epsilon or delta of"),
        (lambda rng: queries(rng, 3.0, width=11), "the arguments of its draw from integers"),
        (lambda rng: rng.random(), "it queried random"),
        (lambda rng: laplace_release(rng, 3.0, 2.0, 0.5), "it queried Laplace"),
        (lambda rng: [queries(rng, 3.0), rng.integers(0, 10)], "it queried integers"),
    ],
)
def test_other_queries_diverge(change, message):
    recorder = Recorder(0)
    queries(recorder, 3.0)
    with pytest.raises(Divergence, match=message):
        change(Replayer(recorder.tape, 0))


def test_any_terms_may_be_allowed():
    recorder = Recorder(0)
    answers = queries(recorder, 3.0)
    replayer = Replayer(recorder.tape, 0, any_terms=True)
    assert queries(replayer, 9.0, epsilon=0.6, width=11) == answers
    assert replayer.moves == []


def test_shuffled_arrays_are_replayed():
    recorder, items = Recorder(0), np.arange(6)
    recorder.shuffle(items)
    again = np.arange(6)
    Replayer(recorder.tape, 0).shuffle(again)
    assert again.tolist() == items.tolist() != list(range(6))
    with pytest.raises(Divergence, match="depend on a reward"):
        Replayer(recorder.tape, 0).shuffle(np.arange(1, 7))
    for randomness in (recorder, Replayer(recorder.tape, 0)):
        with pytest.raises(AttributeError):
            randomness._secret  # noqa: B018
