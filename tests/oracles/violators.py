"""Policies that break their privacy claim in ways that were found in the wild, and honest ones.

All but the last three share a frame: phases of ten pulls of each arm, after which the arms'
scores are compared and those far behind are dropped. They differ in how the scores come about.
"""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import numpy as np

import balaclava as bl
from balaclava.authoring import (
    BoundedPolicy,
    Epsilon,
    PrivateBoundedPolicy,
    Trees,
    begin_tally,
    begin_trees,
    insert_node,
    laplace_release,
    learn_tally,
    tree_levels,
    tree_sum,
)
from tests.oracles.phases import (
    Phases,
    begin_phases,
    choose_in_phases,
    drop_behind,
    open_phase,
    take,
)

LENGTH = 10
MARGIN = 4.0


class State(NamedTuple):
    """Phases, and a place for what was seen before it is replaced by its score."""

    phases: Phases
    raw: np.ndarray


@bl.kernel
def begin(params):
    phases = begin_phases(params)
    open_phase(phases, LENGTH, True)
    return State(phases, np.zeros(params.arms))


@bl.kernel
def choose(params, state, t, context, rng):
    return choose_in_phases(params, state.phases, t, context, rng)


def frame(score, keep_data=False):
    """`learn` of the shared frame: `score(params, state, rng)` turns sums into scores."""
    bl.kernel(score)

    @bl.kernel
    def learn(params, state, t, arm, reward, phase, rng):
        phases = state.phases
        if take(phases, arm, reward, phase):
            state.raw[:] = phases.sums
            score(params, phases, rng)
            several = drop_behind(phases, MARGIN)
            if keep_data:
                phases.sums[:] = state.raw
            if several:
                open_phase(phases, LENGTH, not keep_data)

    return learn


def honest(params, phases, rng):
    for arm in range(params.arms):
        phases.sums[arm] = laplace_release(rng, phases.sums[arm], 1.0, params.epsilon)


def no_noise(params, phases, rng):
    pass


def half_noise(params, phases, rng):
    for arm in range(params.arms):
        phases.sums[arm] = laplace_release(rng, phases.sums[arm], 1.0, 2.0 * params.epsilon)


def wrong_sensitivity(params, phases, rng):
    for arm in range(params.arms):
        phases.sums[arm] = laplace_release(rng, phases.sums[arm], 0.5, params.epsilon)


def shared_draw(params, phases, rng):
    noise = laplace_release(rng, 0.0, 1.0, params.epsilon)
    for arm in range(params.arms):
        phases.sums[arm] += noise


def first_without_noise(params, phases, rng):
    if phases.number[0] > 1:
        for arm in range(params.arms):
            phases.sums[arm] = laplace_release(rng, phases.sums[arm], 1.0, params.epsilon)


def a_quarter_more(params, phases, rng):
    for arm in range(params.arms):
        phases.sums[arm] = laplace_release(rng, phases.sums[arm], 1.0, 1.25 * params.epsilon)


@bl.kernel
def learn_stopping_early(params, state, t, arm, reward, phase, rng):
    """The phase ends as soon as an arm has six successes: when it ends tells what it saw."""
    phases = state.phases
    full = take(phases, arm, reward, phase)
    if full or (phase == phases.number[0] and phases.sums[arm] >= 6.0):
        for a in range(params.arms):
            phases.sums[a] = laplace_release(rng, phases.sums[a], 1.0, params.epsilon)
        if drop_behind(phases, MARGIN):
            open_phase(phases, LENGTH, True)
        else:
            phases.waiting[0] = 0


@bl.kernel
def choose_with_fresh_noise(params, state, t, context, rng):
    """Reads the sums with new noise in every round: an observer averages it away."""
    if t <= 2 * params.arms:
        return (t - 1) % params.arms, 0
    best, highest = 0, -math.inf
    for arm in range(params.arms):
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        if score > highest:
            best, highest = arm, score
    return best, 0


class TreeState(NamedTuple):
    """A tree counter for each arm."""

    trees: Trees
    pulls: np.ndarray


@bl.kernel
def begin_tree(params):
    levels = tree_levels(64)
    return TreeState(begin_trees(params.arms, levels), np.zeros(params.arms, np.int64))


@bl.kernel
def choose_by_tree(params, state, t, context, rng):
    best, highest = 0, -math.inf
    for arm in range(params.arms):
        n = state.pulls[arm]
        score = math.inf if n == 0 else tree_sum(state.trees, arm) / n
        if score > highest:
            best, highest = arm, score
    return best, 0


@bl.kernel
def learn_by_tree(params, state, t, arm, reward, phase, rng):
    """The split that is printed in the paper: epsilon / log(horizon), natural logarithm."""
    state.pulls[arm] += 1
    insert_node(rng, state.trees, arm, reward, 1.0, params.epsilon / math.log(64.0))


class One(NamedTuple):
    """One noisy sum decides for ever."""

    sums: np.ndarray
    verdict: np.ndarray


@bl.kernel
def begin_one(params):
    return One(np.zeros(1), np.zeros(1, np.int64))


@bl.kernel
def choose_once(params, state, t, context, rng):
    return state.verdict[0], 0


def one_release(factor):
    """Arm 0 for four rounds; then arm 1 for ever unless its noisy sum is at least 3."""

    @bl.kernel
    def learn(params, state, t, arm, reward, phase, rng):
        if t <= 4:
            state.sums[0] += reward
        if t == 4 and laplace_release(rng, state.sums[0], 1.0, factor * params.epsilon) < 3.0:
            state.verdict[0] = 1

    return learn


class Exp3State(NamedTuple):
    """Log-weights and the chances of the last choice."""

    weights: np.ndarray
    chances: np.ndarray


@bl.kernel
def begin_exp3(params):
    return Exp3State(np.zeros(params.arms), np.zeros(params.arms))


@bl.kernel
def choose_exp3(params, state, t, context, rng):
    total = 0.0
    highest = state.weights.max()
    for arm in range(params.arms):
        state.chances[arm] = math.exp(state.weights[arm] - highest)
        total += state.chances[arm]
    left = rng.random()
    chosen = params.arms - 1
    for arm in range(params.arms):
        state.chances[arm] = 0.8 * state.chances[arm] / total + 0.2 / params.arms
        if left >= 0.0:
            left -= state.chances[arm]
            if left < 0.0:
                chosen = arm
    return chosen, 0


@bl.kernel
def learn_exp3(params, state, t, arm, reward, phase, rng):
    state.weights[arm] += 0.2 * reward / state.chances[arm]


class Exp3(BoundedPolicy):
    """EXP3 with mixing: random decisions, and yet not private."""

    name = "bare-exp3"
    kernels: ClassVar = bl.Kernels(begin_exp3, choose_exp3, learn_exp3)


def make(policy_name, kernels):
    """A policy class that claims epsilon for its whole trajectory."""

    class Claims(PrivateBoundedPolicy):
        """Claims epsilon."""

        name = policy_name
        epsilon: Epsilon

    Claims.kernels = kernels
    Claims.__qualname__ = f"Claims_{policy_name}"
    return Claims


HONEST = {
    "honest": make("honest", bl.Kernels(begin, choose, frame(honest))),
    "one-release": make("one-release", bl.Kernels(begin_one, choose_once, one_release(1.0))),
}
VIOLATORS = {
    name: make(name, kernels)
    for name, kernels in {
        "no-noise": bl.Kernels(begin, choose, frame(no_noise)),
        "half-noise": bl.Kernels(begin, choose, frame(half_noise)),
        "wrong-sensitivity": bl.Kernels(begin, choose, frame(wrong_sensitivity)),
        "shared-draw": bl.Kernels(begin, choose, frame(shared_draw)),
        "first-without-noise": bl.Kernels(begin, choose, frame(first_without_noise)),
        "redrawn": bl.Kernels(begin_tally, choose_with_fresh_noise, learn_tally),
        "data-reused": bl.Kernels(begin, choose, frame(honest, keep_data=True)),
        "stopped-early": bl.Kernels(begin, choose, learn_stopping_early),
        "natural-log-tree": bl.Kernels(begin_tree, choose_by_tree, learn_by_tree),
        "a-quarter-more": bl.Kernels(begin, choose, frame(a_quarter_more)),
        "one-release-a-quarter-more": bl.Kernels(begin_one, choose_once, one_release(1.25)),
    }.items()
}
