"""The test of laws: draws that do not follow the declared law are detected."""

from __future__ import annotations

import numpy as np
import pytest

from balaclava.auditing.laws.mechanism_laws import audit_laws
from balaclava.auditing.replay.recorded_run import record
from balaclava.auditing.scenario import plain_scenario
from balaclava.auditing.tape import Recorder
from balaclava.privacy.mechanisms.base import mechanism
from balaclava.privacy.mechanisms.laplace import laplace_vector_release
from tests.oracles.violators import VIOLATORS


@pytest.mark.parametrize("name", ["own-gaussian", "own-uniform", "own-cut-laplace"])
def test_a_mechanism_with_another_law_is_caught(name):
    policy = VIOLATORS[name].policy
    run = record(policy, plain_scenario(policy, np.ones((30, 2))), seed=0)
    found = audit_laws(run.tape[:1], seed=0, draws=200_000)
    assert found.verdict == "unproved", str(found)


def half_a_law(terms):
    from scipy import stats

    return stats.laplace(terms.value, terms.sensitivity / terms.epsilon)


@mechanism("half the noise it declares", lambda terms: terms.value, law=half_a_law)
def half_the_noise(rng, value, sensitivity, epsilon):
    return value + rng.laplace(0.0, 0.5 * sensitivity / epsilon)


@mechanism("one draw for all parts", lambda terms: terms.value)
def one_draw(rng, value, sensitivity, epsilon, out):
    noise = rng.laplace(0.0, sensitivity / epsilon)
    for i in range(value.size):
        out[i] = value[i] + noise


def test_a_body_must_follow_its_declared_law():
    recorder = Recorder(0)
    half_the_noise(recorder, 0.3, 1.0, 1.0)
    assert "do not follow" in audit_laws(recorder.tape, seed=0, draws=100_000).fault


def test_parts_of_an_array_must_not_share_their_noise():
    recorder, out = Recorder(0), np.empty(3)
    one_draw(recorder, np.zeros(3), 1.0, 1.0, out)
    assert "not independent" in audit_laws(recorder.tape, seed=0, draws=30_000).fault
    recorder.tape.clear()
    laplace_vector_release(recorder, np.zeros(3), 1.0, 1.0, out)
    assert audit_laws(recorder.tape, seed=0, draws=30_000).verdict == "consistent"
