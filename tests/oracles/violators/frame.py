"""The frame of the violators and controls: batches of twelve decisions.

Half of a batch goes to the arms in turn, half to the arm with the best score. When each of its
decisions has its reward or is given up, the sums become scores, and the next batch opens without
data. Decisions while a batch waits are spare: nothing is learned from them. Four hooks say how a
policy differs:

    pick(params, state, t, context, arm, phase, rng) -> (arm, phase)
    keep(params, state, t, arm, reward, phase, rng) -> the value added to the arm's sum
    score(params, state, rng): from sums to scores
    lose(params, state, t, arm, phase, rng): after a decision is given up
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

import balaclava as bl
from balaclava.authoring import Epsilon, PrivateBoundedPolicy, laplace_release

LENGTH = 12
SPARE = -1
PARAMETERS = {"delta", "horizon", "experts", "radius_scale", "moment_bound", "moment_order"}


class BatchState(NamedTuple):
    """The current batch, the scores of earlier ones, and room for what a hook remembers."""

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
    return BatchState(
        number=np.ones(1, np.int64),
        length=np.full(1, LENGTH),
        asked=np.zeros(1, np.int64),
        settled=np.zeros(1, np.int64),
        sums=np.zeros(params.arms),
        scores=np.zeros(params.arms),
        raw=np.zeros(params.arms),
        notes=np.zeros(64),
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
def as_summed(params, state, rng):
    state.scores[:] = state.sums


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
        if hook not in (as_picked, as_told, noisy, as_summed, nothing):
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


@dataclass(frozen=True)
class Violator:
    """A policy with a mistake, or a control without one, and the required verdict."""

    name: str
    mistake: str  # in one line; for a control, why it is correct
    policy: bl.Policy
    pairs: int = 300  # of the replay that must catch it
    seed: int = 0
    rounds: int | None = None  # of that replay; by default as planned
    # False: only a whole audit catches it, by long runs, laws, or games on reports.
    by_replay: bool = True
    in_games: bool = False  # whether 20,000 pairs of games show it
    by_default: bool = True  # whether an audit with default settings always catches it


SETTINGS = {"pairs", "seed", "rounds", "by_replay", "in_games", "by_default"}


def violator(name, mistake, kernels=None, base=PrivateBoundedPolicy, **options):
    """A policy in its row of the table; other options are attributes and parameters."""
    settings = {key: options.pop(key) for key in SETTINGS & options.keys()}
    return Violator(name, mistake, claiming(name, kernels, base, **options), **settings)


def claiming(policy_name, kernels, base=PrivateBoundedPolicy, arms=2, epsilon=1.0, **attributes):
    """An instance of a policy that claims epsilon; pairs of type and value become parameters."""
    names = {"name": policy_name, "__doc__": "Claims epsilon."}
    annotations: dict[str, Any] = {"kernels": ClassVar, "epsilon": Epsilon}
    if kernels is not None:
        names["kernels"] = kernels
    parameters = {}
    for key, value in attributes.items():
        if key in PARAMETERS and isinstance(value, tuple):
            annotations[key], parameters[key] = value
        elif key in PARAMETERS or key in base.annotations:
            parameters[key] = value
        else:
            names[key] = value
            if not callable(value) and not isinstance(value, staticmethod | property):
                annotations[key] = ClassVar
    names |= {"__annotations__": annotations, "__module__": __name__}
    cls = type(f"Claims_{policy_name.replace('-', '_')}", (base,), names)
    return cls(arms=arms, epsilon=epsilon, **parameters)


SEED_1 = {"pairs": 1_000, "seed": 1, "by_default": False}  # more pairs; by default not tried
LINUCB = {
    "features": 2, "delta": 1e-3, "first_episode": 6, "outstanding": 64,
    "pairs": 48, "seed": 1, "rounds": 24, "by_default": False,
}  # fmt: skip
