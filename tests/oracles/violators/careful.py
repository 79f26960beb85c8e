"""Correct policies that look like common slips: no audit may call one violated."""

from __future__ import annotations

import math

import balaclava as bl
from balaclava.authoring import (
    Delta,
    LocalBoundedPolicy,
    begin_tally,
    laplace_release,
    learn_tally,
)
from balaclava.privacy.mechanisms.analytic_gaussian import gaussian_release
from tests.oracles.violators.controls import choose_by_sum
from tests.oracles.violators.frame import LENGTH, best_of, frame, violator
from tests.oracles.violators.outcomes import clear, count_lost, shares, through


def window_at_half(params, state, rng):
    """Each reward is in two releases, at half of epsilon each."""
    for arm in range(params.arms):
        total = state.sums[arm] + state.notes[arm]
        state.scores[arm] = laplace_release(rng, total, 1.0, 0.5 * params.epsilon)
        state.notes[arm] = state.sums[arm]


def larger_at_half(params, state, rng):
    for arm in range(params.arms):
        one = laplace_release(rng, state.sums[arm], 1.0, 0.5 * params.epsilon)
        other = laplace_release(rng, state.sums[arm], 1.0, 0.5 * params.epsilon)
        state.scores[arm] = max(one, other)


def importance(params, state, t, arm, reward, phase, rng):
    return reward / 0.5


def importance_sums(params, state, rng):
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 2.0, params.epsilon)


def changes(params, state, t, arm, reward, phase, rng):
    """Changes within a batch; with the first of the next one, a reward moves the sum by 2."""
    change = math.fabs(reward - state.notes[arm])
    state.notes[arm] = reward
    return change


def change_sums(params, state, rng):
    """The changes start anew in each batch."""
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 2.0, params.epsilon)
        state.notes[arm] = 0.5


def mean_of_arrived(params, state, rng):
    """Arrivals do not depend on rewards: the mean of those that came, with its own noise."""
    for arm in range(params.arms):
        n = max(state.notes[8 + arm], 1.0)
        state.scores[arm] = laplace_release(rng, state.sums[arm] / n, 1.0 / n, params.epsilon)
    clear(params, state)


def weighted_batches(params, state, rng):
    """Batches weigh by the rewards that came."""
    for arm in range(params.arms):
        n = state.notes[8 + arm]
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        old = state.notes[16 + arm]
        state.scores[arm] = (old * state.scores[arm] + score) / max(old + n, 1.0)
        state.notes[16 + arm] = old + n
    clear(params, state)


def longer_if_lost(params, state, rng):
    lost = 0.0
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        lost += state.notes[arm]
    state.length[0] = LENGTH + int(min(lost, 6.0))
    clear(params, state)


def lost_is_a_half(params, state, t, arm, phase, rng):
    """A constant in place of a lost reward."""
    if phase == state.number[0]:
        state.sums[arm] += 0.5


def around_score(params, state, t, arm, reward, phase, rng):
    centre = min(max(state.scores[arm] / 6.0, 0.0), 1.0)
    return min(max(reward, centre - 0.4), centre + 0.4)


def around_score_sums(params, state, rng):
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 0.8, params.epsilon)


def two_gaussians(params, state, rng):
    for arm in range(params.arms):
        epsilon, delta = 0.5 * params.epsilon, 0.5 * params.delta
        one = gaussian_release(rng, state.sums[arm], 1.0, epsilon, delta)
        other = gaussian_release(rng, state.sums[arm], 1.0, epsilon, delta)
        state.scores[arm] = 0.5 * (one + other)


def exponential_difference(params, state, rng):
    """Laplace noise as the difference of two exponential draws, by hand."""
    for arm in range(params.arms):
        noise = rng.standard_exponential() - rng.standard_exponential()
        state.scores[arm] = state.sums[arm] + noise / params.epsilon


def softmax_of_scores(params, state, t, context, arm, phase, rng):
    """An arm drawn by the released scores."""
    if phase < 0:
        return arm, phase
    top, total = state.scores.max(), 0.0
    for a in range(params.arms):
        total += math.exp(0.3 * (state.scores[a] - top))
    left = rng.random() * total
    for a in range(params.arms):
        left -= math.exp(0.3 * (state.scores[a] - top))
        if left < 0.0:
            return a, phase
    return params.arms - 1, phase


def eliminated(params, state, rng):
    """An arm far behind by released scores is not released any more."""
    for arm in range(params.arms):
        if state.scores[arm] > state.scores[best_of(state.scores)] - 20.0:
            state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)


def doubling(params, state, rng):
    for arm in range(params.arms):
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = score / state.length[0]
    state.length[0] = min(2 * state.length[0], 20_000)


def released_at_most_50_times(params, state, rng):
    """After 50 batches nothing is learned."""
    for arm in range(params.arms):
        if state.number[0] <= 50:
            state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)


def by_level(params, state, rng):
    """A counter of four levels: a batch is in one node of each, at a quarter of epsilon."""
    for arm in range(params.arms):
        total, number = 0.0, int(state.number[0] - 1) % 8 + 1
        for level in range(4):
            place = 8 + 8 * level + arm
            state.notes[place] += state.sums[arm]
            if number % 2**level == 0:
                epsilon = 0.25 * params.epsilon
                total += laplace_release(rng, state.notes[place], 1.0, epsilon)
                state.notes[place] = 0.0
        state.scores[arm] = total


@bl.kernel
def own_clip(params, reward):
    """Rescales and clips by comparisons."""
    low, high = params.reward_range
    if reward <= low:
        return 0.0
    if reward >= high:
        return 1.0
    return (reward - low) / (high - low)


@bl.kernel
def two_bits(params, reward, level, rng):
    """Two bits, each by randomized response at half of epsilon."""
    lie = 1.0 / (1.0 + math.exp(0.5 * params.epsilon))
    high = 1.0 if reward >= 0.5 else 0.0
    low = 1.0 if 4.0 * reward - 2.0 * high >= 1.0 else 0.0
    one = 1.0 if rng.random() < lie + high * (1.0 - 2.0 * lie) else 0.0
    other = 1.0 if rng.random() < lie + low * (1.0 - 2.0 * lie) else 0.0
    return 0.5 * one + 0.25 * other


@bl.kernel
def learn_two_bits(params, state, t, arm, reward, phase, rng):
    learn_tally(params, state, t, arm, two_bits(params, reward, 1.0, rng), phase, rng)


CAREFUL = [
    violator("window-at-half", "two releases at half of epsilon", frame(score=window_at_half)),
    violator("larger-at-half", "the larger of two halves", frame(score=larger_at_half)),
    violator(
        "importance-of-two", "rewards up to 2 with sensitivity 2",
        frame(keep=importance, score=importance_sums),
    ),
    violator(
        "changes-by-two", "changes move a sum by 2 at most, in one batch",
        frame(keep=changes, score=change_sums),
    ),
    violator(
        "own-mean-of-arrived", "noise for the rewards that came",
        frame(keep=shares, lose=count_lost, score=mean_of_arrived),
    ),
    violator(
        "weighted-batches", "weights by the rewards that came",
        frame(keep=shares, lose=count_lost, score=weighted_batches),
    ),
    violator(
        "longer-if-lost", "lengths by lost rewards",
        frame(keep=shares, lose=count_lost, score=longer_if_lost),
    ),
    violator("lost-is-a-half", "a constant for lost rewards", frame(lose=lost_is_a_half)),
    violator(
        "both-sides", "clipped on two sides, noise for both",
        frame(keep=around_score, score=around_score_sums),
    ),
    violator(
        "gaussian-halves", "two Gaussians at half of the budget",
        frame(score=two_gaussians), delta=(Delta, 1e-3),
    ),
    violator("exponential-difference", "by hand", frame(score=exponential_difference)),
    violator("softmax-of-scores", "drawn by released scores", frame(pick=softmax_of_scores)),
    violator("eliminated", "dropped by released scores", frame(score=eliminated)),
    violator("doubling", "longer batches of new data", frame(score=doubling)),
    violator("fifty-releases", "then nothing", frame(score=released_at_most_50_times)),
    violator("by-level", "a counter at a quarter a level", frame(score=by_level)),
    violator(
        "own-clip", "clipped by comparisons",
        frame(), prepare=through(own_clip), outside="clip", reward_range=(-3.0, 7.0),
    ),
    violator("clipped", "rewards outside are clipped", frame(), outside="clip"),
    violator(
        "two-bits-at-half", "two bits at half of epsilon",
        bl.Kernels(begin_tally, choose_by_sum, learn_two_bits), LocalBoundedPolicy,
        report_kernel=staticmethod(two_bits),
    ),
]  # fmt: skip
