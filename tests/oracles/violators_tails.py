"""Violators of the kinds that truncation, located means, experts, reports and batches invite."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

import balaclava as bl
from balaclava.authoring import (
    Epsilon,
    LocalRealPolicy,
    MomentBound,
    PrivateRealPolicy,
    laplace_release,
    laplace_report,
    truncated,
)
from balaclava.policies.adversarial.conversion import Privatised
from balaclava.policies.contaminated import prae_central
from balaclava.policies.experts import dp_exp4
from balaclava.policies.heavy_tailed import dpr_ucb
from balaclava.policies.heavy_tailed.dpr_ucb import DPRUCB
from balaclava.privacy.mechanisms.counters import tree_insert, tree_sum
from tests.oracles.batches import (
    Batches,
    arm_in_play,
    begin_batches,
    close_batch,
    hand_out,
    take_batch,
)

LEVEL = 50.0  # far beyond the size of the rewards, which moment_bound tells
SIZE = 8


class State(NamedTuple):
    """Batches, and a note on an arm's raw rewards that no decision should depend on."""

    batches: Batches
    raw: np.ndarray  # by arm
    kept: np.ndarray  # rewards of the batch within the level, by arm


@bl.kernel
def begin(params):
    return State(
        begin_batches(params.arms, SIZE), np.zeros(params.arms), np.zeros(params.arms, np.int64)
    )


@bl.kernel
def choose(params, state, t, context, rng):
    """Every arm for a batch, then always the highest mean for a batch."""
    batches = state.batches
    best = arm_in_play(batches)
    if best < 0:
        best = 0
        for arm in range(params.arms):
            if batches.means[arm] > batches.means[best]:
                best = arm
        batches.current[0] = best
    return hand_out(batches, best)


def released(sensitivity, scale=1.0):
    """`learn` that truncates at LEVEL and releases, in units of `scale`, at that sensitivity."""

    @bl.kernel
    def learn(params, state, t, arm, reward, phase, rng):
        batches = state.batches
        if take_batch(batches, arm, truncated(reward, LEVEL), phase):
            total = laplace_release(
                rng, scale * batches.sums[arm], scale * sensitivity, params.epsilon
            )
            close_batch(batches, arm, total / scale, SIZE, SIZE)

    return learn


@bl.kernel
def about_raw_mean(params, state, t, arm, reward, phase, rng):
    """Truncated about the mean of the last batch, as it was before the noise."""
    batches, centre = state.batches, state.raw[arm]
    if take_batch(batches, arm, truncated(reward - centre, LEVEL), phase):
        total = laplace_release(rng, batches.sums[arm], 2.0 * LEVEL, params.epsilon)
        state.raw[arm] = centre + batches.sums[arm] / SIZE
        close_batch(batches, arm, centre * SIZE + total, SIZE, SIZE)


@bl.kernel
def about_first_reward(params, state, t, arm, reward, phase, rng):
    """Truncated about the first reward of the batch: it moves all the others."""
    batches = state.batches
    if phase != batches.number[arm]:
        return
    if batches.pulls[arm] == 0:
        state.raw[arm] = min(max(reward, -LEVEL), LEVEL)
    if take_batch(batches, arm, truncated(reward - state.raw[arm], LEVEL), phase):
        total = laplace_release(rng, batches.sums[arm], 2.0 * LEVEL, params.epsilon)
        close_batch(batches, arm, total, SIZE, SIZE)


@bl.kernel
def level_of_raw_maximum(params, state, t, arm, reward, phase, rng):
    """The level of the next batch is the largest reward of this one; the noise is for LEVEL."""
    batches = state.batches
    level = LEVEL if batches.number[arm] == 1 else state.raw[arm]
    if phase == batches.number[arm]:
        state.raw[arm] = max(state.raw[arm], min(abs(reward), LEVEL))
    if take_batch(batches, arm, truncated(reward, level) if level > 1e-250 else 0.0, phase):
        total = laplace_release(rng, batches.sums[arm], 2.0 * LEVEL, params.epsilon)
        close_batch(batches, arm, total, SIZE, SIZE)


@bl.kernel
def noise_of_raw_maximum(params, state, t, arm, reward, phase, rng):
    """The noise fits the largest reward of the batch: its size tells that reward."""
    batches = state.batches
    if phase == batches.number[arm]:
        state.raw[arm] = max(state.raw[arm], min(abs(reward), LEVEL), 1e-3)
    if take_batch(batches, arm, truncated(reward, LEVEL), phase):
        total = laplace_release(rng, batches.sums[arm], 2.0 * state.raw[arm], params.epsilon)
        state.raw[arm] = 0.0
        close_batch(batches, arm, total, SIZE, SIZE)


@bl.kernel
def mean_of_the_kept(params, state, t, arm, reward, phase, rng):
    """The private sum is divided by how many rewards were within the level, which is raw."""
    batches = state.batches
    if phase == batches.number[arm] and abs(reward) <= LEVEL:
        state.kept[arm] += 1
    if take_batch(batches, arm, truncated(reward, LEVEL), phase):
        total = laplace_release(rng, batches.sums[arm], 2.0 * LEVEL, params.epsilon)
        close_batch(batches, arm, total, max(state.kept[arm], 1), SIZE)
        state.kept[arm] = 0


@bl.kernel
def spares_count(params, state, t, arm, reward, phase, rng):
    """The reward of a spare is added to the mean, past the mechanism."""
    batches = state.batches
    if phase != batches.number[arm]:
        batches.means[arm] += truncated(reward, LEVEL) / SIZE
    elif take_batch(batches, arm, truncated(reward, LEVEL), phase):
        total = laplace_release(rng, batches.sums[arm], 2.0 * LEVEL, params.epsilon)
        close_batch(batches, arm, total, SIZE, SIZE)


def truncating(policy_name, learn):
    """A policy for rewards of any size that claims epsilon for its whole trajectory."""

    class Claims(PrivateRealPolicy):
        """Claims epsilon."""

        name = policy_name
        kernels: ClassVar = bl.Kernels(begin, choose, learn)
        epsilon: Epsilon
        moment_bound: MomentBound = 1.0
        moment_order: float = 2.0

    Claims.__qualname__ = f"Claims_{policy_name}"
    return Claims(arms=3, epsilon=1.0)


# The histogram's fold enters the sum as well: a reward pays twice.
@bl.kernel
def learn_both_folds(params, state, t, arm, reward, phase, rng):
    row = phase % 2
    if phase > 0 and state.is_first_fold[row]:
        state.batch.epochs.sums[arm, 1 - row] += min(max(reward, -1.0), 1.0)
    prae_central.learn(params, state, t, arm, reward, phase, rng)


class FoldReused(prae_central.PRAECentral):
    """The rewards that located the mean are averaged, too."""

    name = "fold-reused"
    kernels: ClassVar = bl.Kernels(prae_central.begin, prae_central.choose, learn_both_folds)


# A node's noise is made for the first of its items, whose level is the lowest.
@bl.kernel
def learn_first_level(params, state, t, arm, reward, phase, rng):
    n = state.indices.tally.pulls[arm] + 1
    if n > params.horizon:
        return
    growth = n**params.root
    item = truncated(reward, params.level * growth)
    tree_insert(rng, state.trees, arm, item, 2.0 * params.level, params.epsilon)
    if n == 1:
        state.indices.tally.unknown[0] -= 1
    state.indices.tally.pulls[arm] = n
    state.indices.means[arm] = tree_sum(state.trees, arm) / n
    state.indices.widths[arm] = growth / n


class FirstLevel(DPRUCB):
    """Noise for the first level in every node."""

    name = "first-level"
    kernels: ClassVar = bl.Kernels(dpr_ucb.begin, dpr_ucb.choose, learn_first_level)


# dp-exp4 with a quarter of the noise, and with noise for losses that nobody weighed
class QuarterNoise(dp_exp4.DPExp4):
    """A quarter of the noise."""

    name = "quarter-noise"

    def constants(self) -> Any:
        params = super().constants()
        return params._replace(epsilon=4.0 * params.epsilon)


@bl.kernel
def learn_uncapped(params, state, t, arm, reward, phase, rng):
    """As dp-exp4, but no term is capped."""
    note = dp_exp4.take_note(state.weights.pending, phase)
    if note < 0:
        return
    notes, row = state.weights.pending.notes, dp_exp4.batch_row(params, phase)
    for expert in range(params.experts):
        state.sums[row, expert] += math.floor(
            reward / notes[note, 0] / params.step * notes[note, expert + 1] + 0.5
        )
    dp_exp4.settle(params, state, row, rng)


class NarrowExperts(dp_exp4.DPExp4):
    """Forgets the floor gamma / K: releases as if every chance were 1 or more."""

    name = "narrow-experts"
    kernels: ClassVar = bl.Kernels(dp_exp4.begin, dp_exp4.choose, learn_uncapped)

    def constants(self) -> Any:
        params = super().constants()
        return params._replace(width=params.width * params.mixing / self.arms)


class OneBatch(NamedTuple):
    """The base, and the batch in play."""

    base: Any
    number: np.ndarray
    arm: np.ndarray
    phase: np.ndarray
    asked: np.ndarray
    told: np.ndarray
    total: np.ndarray


# The conversion tells its base the batch so far, after every loss.
def partial(begin_base, choose_base, learn_base):
    """The kernels of the conversion, with releases of partial sums."""

    @bl.kernel
    def choose_in_batch(params, state, t, context, rng):
        if state.asked[0] == 0:
            state.number[0] += 1
            arm, phase = choose_base(params.base, state.base, state.number[0], None, rng)
            state.arm[0], state.phase[0] = arm, phase
        if state.asked[0] >= params.batch:
            return state.arm[0], -1
        state.asked[0] += 1
        return state.arm[0], state.number[0]

    @bl.kernel
    def learn(params, state, t, arm, reward, phase, rng):
        if phase != state.number[0]:
            return
        state.total[0] += reward
        state.told[0] += 1
        so_far = laplace_release(rng, state.total[0], 1.0, params.epsilon) / state.told[0]
        if state.told[0] == params.batch:
            state.total[0] = 0.0
            state.asked[0] = 0
            state.told[0] = 0
            learn_base(params.base, state.base, phase, arm, so_far, state.phase[0], rng)

    @bl.kernel
    def begin_batches(params):
        return OneBatch(
            begin_base(params.base),
            np.zeros(1, np.int64),
            np.zeros(1, np.int64),
            np.zeros(1, np.int64),
            np.zeros(1, np.int64),
            np.zeros(1, np.int64),
            np.zeros(1),
        )

    return bl.Kernels(begin_batches, choose_in_batch, learn)


class PartialBatch(Privatised):
    """Releases after every loss."""

    name = "partial-batch"
    examples: ClassVar = ()

    @property
    def kernels(self) -> Any:
        return partial(*self.base.kernels[:3])

    def propensity(self, state: Any, arm: int) -> float | None:
        """Its state is not the conversion's."""
        return None


# Reports that are private at the level of the policy only, or at all but far levels.
@bl.kernel
def noise_ignores_level(params, reward, level, rng):
    return laplace_report(rng, truncated(reward, level), 2.0 * LEVEL, params.epsilon)


@bl.kernel
def truncation_ignores_level(params, reward, level, rng):
    return laplace_report(rng, truncated(reward, LEVEL), 2.0 * level, params.epsilon)


@bl.kernel
def raw_at_far_levels(params, reward, level, rng):
    if level > 1e60:
        return laplace_report(rng, reward, 2.0, params.epsilon)
    return laplace_report(rng, truncated(reward, level), 2.0 * level, params.epsilon)


@bl.kernel
def level_of_batch(params, state, arm, phase):
    return LEVEL


def reporting(policy_name, report):
    """A local policy for rewards of any size, whose owners do that."""

    @bl.kernel
    def learn_report(params, state, t, arm, value, phase, rng):
        batches = state.batches
        if take_batch(batches, arm, value, phase):
            close_batch(batches, arm, batches.sums[arm], SIZE, SIZE)

    @bl.kernel
    def learn(params, state, t, arm, reward, phase, rng):
        learn_report(params, state, t, arm, report(params, reward, LEVEL, rng), phase, rng)

    class Claims(LocalRealPolicy):
        """Claims epsilon for each report."""

        name = policy_name
        kernels: ClassVar = bl.Kernels(begin, choose, learn)
        report_level = staticmethod(level_of_batch)
        report_kernel = staticmethod(report)
        epsilon: Epsilon

    Claims.learn_report = staticmethod(learn_report)
    Claims.__qualname__ = f"Claims_{policy_name}"
    return Claims(arms=3, epsilon=1.0)


HONEST = {"truncated": truncating("truncated", released(2.0 * LEVEL))}
VIOLATORS = {
    "sensitivity-b": truncating("sensitivity-b", released(LEVEL)),
    "sensitivity-1.5b": truncating("sensitivity-1.5b", released(1.5 * LEVEL)),
    "sensitivity-1.9b": truncating("sensitivity-1.9b", released(1.9 * LEVEL)),
    "tiny-units": truncating("tiny-units", released(LEVEL / 100.0, 1e-20)),
    "about-raw-mean": truncating("about-raw-mean", about_raw_mean),
    "about-first-reward": truncating("about-first-reward", about_first_reward),
    "level-of-raw-maximum": truncating("level-of-raw-maximum", level_of_raw_maximum),
    "noise-of-raw-maximum": truncating("noise-of-raw-maximum", noise_of_raw_maximum),
    "mean-of-the-kept": truncating("mean-of-the-kept", mean_of_the_kept),
    "spares-count": truncating("spares-count", spares_count),
    "fold-reused": FoldReused(
        arms=2,
        epsilon=1.0,
        horizon=600,
        moment_order=2,
        mean_range=7,
        threshold=0,
        radius_scale=0.02,
    ),
    "first-level": FirstLevel(
        arms=2, epsilon=1.0, horizon=600, moment_order=1.9, moment_bound=2.0, radius_scale=0.01
    ),
    "quarter-noise": QuarterNoise(
        arms=3, experts=4, horizon=600, epsilon=1.0, delta=1e-3, learning_rate_scale=0.1
    ),
    "narrow-experts": NarrowExperts(
        arms=3, experts=4, horizon=600, epsilon=1.0, delta=1e-3, learning_rate_scale=0.1
    ),
    "partial-batch": PartialBatch(
        arms=2, base=bl.policy("exp3", arms=2, eta=0.2, gamma=0.1), epsilon=0.25
    ),
    "noise-ignores-level": reporting("noise-ignores-level", noise_ignores_level),
    "truncation-ignores-level": reporting("truncation-ignores-level", truncation_ignores_level),
    "raw-at-far-levels": reporting("raw-at-far-levels", raw_at_far_levels),
}
