"""A frame in which policies are broken, or correct in unusual ways: batches of twelve decisions.

Half of a batch goes to the arms in turn, half to the arm with the best score. When each of its
decisions has its reward or was given up, the sums become scores, and the next batch opens with no
data. Decisions while a batch waits are spares, of which nothing is learned. Four hooks say what a
policy does otherwise:

    pick(params, state, t, context, arm, phase, rng) -> (arm, phase)
    keep(params, state, t, arm, reward, phase, rng) -> what is added to the arm's sum
    score(params, state, rng): from sums to scores
    lose(params, state, t, arm, phase, rng): after a decision was given up
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np

import balaclava as bl
from balaclava.authoring import Epsilon
from balaclava.policies.base import PrivateBoundedPolicy
from balaclava.privacy.mechanisms.laplace import laplace_release

LENGTH = 12
SPARE = -1


class Books(NamedTuple):
    """The current batch, what earlier ones gave, and notes that nobody should need."""

    number: np.ndarray  # one element: of the batch, from 1
    length: np.ndarray  # one element
    asked: np.ndarray  # one element
    settled: np.ndarray  # one element
    sums: np.ndarray
    scores: np.ndarray
    raw: np.ndarray  # by arm: sums of all rewards ever
    notes: np.ndarray  # anything


@bl.kernel
def begin(params):
    return Books(
        np.ones(1, np.int64),
        np.full(1, LENGTH),
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
        np.zeros(params.arms),
        np.zeros(params.arms),
        np.zeros(params.arms),
        np.zeros(64),
    )


@bl.kernel
def best_of(values):
    best = 0
    for arm in range(values.size):
        if values[arm] > values[best]:
            best = arm
    return best


@bl.kernel
def as_picked(params, state, t, context, arm, phase, rng):
    return arm, phase


@bl.kernel
def as_told(params, state, t, arm, reward, phase, rng):
    return reward


@bl.kernel
def noisy(params, state, rng):
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)


@bl.kernel
def nothing(params, state, t, arm, phase, rng):
    pass


@bl.kernel
def open_batch(state):
    state.number[0] += 1
    state.asked[0] = 0
    state.settled[0] = 0
    state.sums[:] = 0.0


def frame(pick=as_picked, keep=as_told, score=noisy, lose=nothing):
    """The kernels around some hooks."""
    for hook in (pick, keep, score, lose):
        if hook not in (as_picked, as_told, noisy, nothing):
            bl.kernel(hook)

    @bl.kernel
    def choose(params, state, t, context, rng):
        best = best_of(state.scores)
        if state.asked[0] >= state.length[0]:
            return pick(params, state, t, context, best, SPARE, rng)
        state.asked[0] += 1
        arm = best
        if 2 * state.asked[0] <= state.length[0]:
            arm = state.asked[0] % params.arms
        return pick(params, state, t, context, arm, state.number[0], rng)

    @bl.kernel
    def settle(params, state, phase, rng):
        state.settled[0] += 1
        if state.settled[0] >= state.length[0]:
            score(params, state, rng)
            open_batch(state)

    @bl.kernel
    def learn(params, state, t, arm, reward, phase, rng):
        value = keep(params, state, t, arm, reward, phase, rng)
        state.raw[arm] += reward
        if phase == state.number[0]:
            state.sums[arm] += value
            settle(params, state, phase, rng)

    @bl.kernel
    def forget(params, state, t, arm, phase, rng):
        lose(params, state, t, arm, phase, rng)
        if phase == state.number[0]:
            settle(params, state, phase, rng)

    return bl.Kernels(begin, choose, learn, forget)


def claiming(policy_name, kernels, base=PrivateBoundedPolicy, arms=2, epsilon=1.0, **attributes):
    """An instance of a policy that claims epsilon; annotations and values become parameters."""
    names = {"name": policy_name, "kernels": kernels, "__doc__": "Claims epsilon."}
    annotations: dict[str, Any] = {"kernels": ClassVar, "epsilon": Epsilon}
    parameters = {}
    for key, value in attributes.items():
        if isinstance(value, tuple) and len(value) == 2 and key in ("delta", "horizon", "experts"):
            annotations[key], parameters[key] = value
        else:
            names[key] = value
            if not callable(value) and not isinstance(value, staticmethod | property):
                annotations[key] = ClassVar
    names |= {"__annotations__": annotations, "__module__": __name__}
    cls = type(f"Claims_{policy_name.replace('-', '_')}", (base,), names)
    return cls(arms=arms, epsilon=epsilon, **parameters)
