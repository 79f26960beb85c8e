"""Rewards in more than one release, or decisions that read more than they pay for."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

import balaclava as bl
from balaclava.authoring import (
    Delta,
    Epsilon,
    PrivateBoundedPolicy,
    Trees,
    begin_tally,
    begin_trees,
    count_reward,
    gaussian_index,
    insert_node,
    laplace_release,
    learn_tally,
    starting_arm,
    tree_levels,
    tree_sum,
    truncated_laplace_release,
)
from balaclava.policies.adversarial.conversion import Privatised
from balaclava.policies.contaminated import prae_central
from balaclava.privacy.mechanisms.analytic_gaussian import (
    gaussian_release,
    gaussian_vector_release,
)
from tests.oracles.violators.controls import begin_one, choose_once, count_squares, one_release
from tests.oracles.violators.frame import SEED_1, Violator, best_of, frame, violator

K = bl.Kernels

# Sums that are released again


def data_reused(params, state, rng):
    for arm in range(params.arms):
        state.notes[arm] += state.sums[arm]
        state.scores[arm] = laplace_release(rng, state.notes[arm], 1.0, params.epsilon)


def data_kept_every_third(params, state, rng):
    for arm in range(params.arms):
        total = state.sums[arm] + state.notes[arm]
        state.scores[arm] = laplace_release(rng, total, 1.0, params.epsilon)
        state.notes[arm] = state.sums[arm] if state.number[0] % 3 == 0 else 0.0


def cancel_releases_early(params, state, t, arm, phase, rng):
    for a in range(params.arms):
        state.scores[a] = laplace_release(rng, state.sums[a], 1.0, params.epsilon)


def decayed(params, state, rng):
    """Half of an arm's sum is carried into the next batch: its rewards cost twice epsilon."""
    for arm in range(params.arms):
        total = state.sums[arm] + state.notes[arm]
        state.scores[arm] = laplace_release(rng, total, 1.0, params.epsilon)
        state.notes[arm] = 0.5 * total


def releases_when_given_up(params, state, t, arm, phase, rng):
    """A release when a decision is given up, of a sum that is released again at the end."""
    state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)


def arm_and_total(params, state, rng):
    """The arms' sums at epsilon, and the sum of all arms at a share of epsilon."""
    total = laplace_release(rng, state.sums.sum(), 1.0, params.epsilon / params.arms)
    for arm in range(params.arms):
        own = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = own + 0.01 * total


def mean_and_variance(params, state, rng):
    """Sums and sums of squares, each at the whole epsilon."""
    for arm in range(params.arms):
        total = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        squares = laplace_release(rng, state.notes[arm], 1.0, params.epsilon)
        state.scores[arm] = total + math.sqrt(max(squares, 0.0))
        state.notes[arm] = 0.0


def delta_of_each_arm(params, state, rng):
    """The whole delta for each of two releases of the same sum."""
    for arm in range(params.arms):
        one = gaussian_release(rng, state.sums[arm], 1.0, 0.8 * params.epsilon, params.delta)
        two = gaussian_release(rng, state.sums[arm], 1.0, 0.8 * params.epsilon, params.delta)
        state.scores[arm] = 0.5 * (one + two)


def retries_until_positive(params, state, rng):
    """Draws again while the answer is negative, at most four times: each is a release."""
    for arm in range(params.arms):
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        tries = 0
        while score < 0.0 and tries < 4:
            score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
            tries += 1
        state.scores[arm] = score


def vector_of_too_much(params, state, rng):
    """Each arm's mean-corrected sum: a reward moves all of them, the L2 norm is above 1."""
    for arm in range(params.arms):
        state.notes[arm] = 2.0 * state.sums[arm] - state.sums.sum()
    n = params.arms
    gaussian_vector_release(rng, state.notes[:n], 1.0, params.epsilon, params.delta, state.scores)


@bl.kernel
def learn_both_folds(params, state, t, arm, reward, phase, rng):
    row = phase % 2
    if phase > 0 and state.is_first_fold[row]:
        state.batch.epochs.sums[arm, 1 - row] += min(max(reward, -1.0), 1.0)
    prae_central.learn(params, state, t, arm, reward, phase, rng)


class OneBatch(NamedTuple):
    """The base, and the batch in play."""

    base: Any
    number: np.ndarray
    arm: np.ndarray
    phase: np.ndarray
    asked: np.ndarray
    told: np.ndarray
    total: np.ndarray


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


# Trees


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


# Every decision reads the data


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


@bl.kernel
def choose_ts(params, state, t, context, rng):
    best, highest = 0, -1.0
    for arm in range(params.arms):
        theta = rng.beta(state.sums[arm] + 1.0, state.pulls[arm] - state.sums[arm] + 1.0)
        if theta > highest:
            best, highest = arm, theta
    return best, 0


@bl.kernel
def choose_exponential(params, state, t, context, rng):
    """The exponential mechanism of each decision at four times the epsilon, for all of them."""
    total = 0.0
    for arm in range(params.arms):
        total += math.exp(min(2.0 * params.epsilon * state.sums[arm], 500.0))
    left = rng.random() * total
    for arm in range(params.arms):
        left -= math.exp(min(2.0 * params.epsilon * state.sums[arm], 500.0))
        if left < 0.0:
            return arm, 0
    return params.arms - 1, 0


@bl.kernel
def choose_by_averages(params, state, t, context, rng):
    """Fresh noise for each decision, and then the average of all noise so far."""
    if t <= 2 * params.arms:
        return (t - 1) % params.arms, 0
    for arm in range(params.arms):
        pulls = max(state.pulls[arm], 1.0)
        answer = laplace_release(rng, state.sums[arm] / pulls, 1.0 / pulls, params.epsilon)
        state.notes[arm] += answer
    return best_of(state.notes[: params.arms]), 0


@bl.kernel
def choose_by_old_draws(params, state, t, context, rng):
    """Noise is drawn every fifth round, and read five times."""
    if t <= 2 * params.arms:
        return (t - 1) % params.arms, 0
    if t % 5 == 0:
        for arm in range(params.arms):
            state.notes[arm] = truncated_laplace_release(
                rng, state.sums[arm], 1.0, params.epsilon, params.delta
            )
    return best_of(state.notes[: params.arms]), 0


class Counted(NamedTuple):
    """Sums, pulls, notes."""

    sums: np.ndarray
    pulls: np.ndarray
    notes: np.ndarray


@bl.kernel
def begin_counts(params):
    return Counted(np.zeros(params.arms), np.zeros(params.arms), np.zeros(64))


@bl.kernel
def learn_counts(params, state, t, arm, reward, phase, rng):
    state.sums[arm] += reward
    state.pulls[arm] += 1.0


@bl.kernel
def choose_early(params, state, t, context, rng):
    best = starting_arm(state, 1)
    if best < 0:
        highest = -math.inf
        for arm in range(params.arms):
            step = 1.0 / state.pulls[arm]
            theta = gaussian_index(rng, state.sums[arm] * step, step, params.epsilon, params.delta)
            if theta > highest:
                best, highest = arm, theta
    state.asked[best] += 1
    return best, 0


@bl.kernel
def learn_early(params, state, t, arm, reward, phase, rng):
    count_reward(state, arm, reward, 1)


class Early(PrivateBoundedPolicy):
    """Gaussian indices from the first reward on."""

    name = "early"
    scope: ClassVar = "decision"
    epsilon: Epsilon
    delta: Delta
    kernels: ClassVar = K(begin_tally, choose_early, learn_early)
    start_phase = 8

    def index_law(self, pulls, total):
        from scipy import stats

        return stats.norm(total / pulls, math.sqrt(2.0 / pulls))


REUSE = [
    violator("data-reused", "sums go on over all batches", frame(score=data_reused), **SEED_1),
    violator(
        "data-kept-every-third", "every third sum is in the next one too",
        frame(score=data_kept_every_third),
    ),
    violator("decayed", "half of a sum goes into the next batch", frame(score=decayed)),
    violator(
        "cancel-releases-early", "a lost reward releases all sums",
        frame(lose=cancel_releases_early),
    ),
    violator(
        "releases-when-given-up", "a lost reward releases its arm's sum",
        frame(lose=releases_when_given_up),
    ),
    violator("arm-and-total", "each sum, and their total", frame(score=arm_and_total)),
    violator(
        "mean-and-variance", "sums and sums of squares, each at epsilon",
        frame(keep=count_squares, score=mean_and_variance),
    ),
    violator(
        "delta-of-each", "the whole delta for each of two releases",
        frame(score=delta_of_each_arm), delta=(Delta, 1e-3),
    ),
    violator(
        "retries-until-positive", "draws again while negative",
        frame(score=retries_until_positive),
    ),
    violator(
        "vector-of-too-much", "a reward moves every part of an array",
        frame(score=vector_of_too_much), delta=(Delta, 1e-3),
    ),
    violator(
        "fold-reused", "the fold that locates the mean is averaged too",
        K(prae_central.begin, prae_central.choose, learn_both_folds), prae_central.PRAECentral,
        horizon=600, moment_order=2, mean_range=7, threshold=0, radius_scale=0.02, **SEED_1,
    ),
    Violator(
        "partial-batch", "the sum is released after every loss",
        PartialBatch(arms=2, base=bl.policy("exp3", arms=2, eta=0.2, gamma=0.1), epsilon=0.25),
        **SEED_1,
    ),
    violator(
        "one-release-a-quarter-more", "1.25 epsilon in one release that decides all",
        K(begin_one, choose_once, one_release(1.25)), in_games=True, rounds=64, **SEED_1,
    ),
    violator(
        "natural-log-tree", "epsilon over the natural logarithm of the horizon, as printed",
        K(begin_tree, choose_by_tree, learn_by_tree), rounds=64, **SEED_1,
    ),
    violator(
        "redrawn", "new noise on the same sums in every round",
        K(begin_tally, choose_with_fresh_noise, learn_tally), in_games=True, rounds=64, **SEED_1,
    ),
    violator(
        "thompson", "Thompson sampling that claims 3",
        K(begin_tally, choose_ts, learn_tally), epsilon=3.0, **SEED_1,
    ),
    violator(
        "exponential-too-much", "an exponential mechanism for every decision of a run",
        K(begin_tally, choose_exponential, learn_tally),
    ),
    violator(
        "averages", "decisions average earlier noise away",
        K(begin_counts, choose_by_averages, learn_counts), scope="decision",
    ),
    violator(
        "old-draws", "five decisions read one draw",
        K(begin_counts, choose_by_old_draws, learn_counts),
        delta=(Delta, 0.01), scope="decision",
    ),
    Violator(
        "early", "indices before there are enough rewards, and another law than declared",
        Early(arms=2, epsilon=1.0, delta=0.01), **SEED_1,
    ),
]  # fmt: skip
