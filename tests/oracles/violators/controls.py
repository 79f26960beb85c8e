"""Correct policies, some of unusual structure: no audit may call one violated."""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import numpy as np

import balaclava as bl
from balaclava.authoring import (
    BoundedPolicy,
    Delta,
    LocalBoundedPolicy,
    MomentBound,
    PrivateRealPolicy,
    begin_tally,
    laplace_release,
    learn_tally,
    mechanism,
    truncated,
)
from balaclava.privacy.mechanisms.analytic_gaussian import gaussian_shift, gaussian_vector_release
from balaclava.privacy.mechanisms.laplace import laplace_vector_release
from tests.oracles.violators.frame import LENGTH, as_summed, best_of, frame, violator

LEVEL = 10.0
FAR_LEVEL = 50.0  # far beyond the size of the rewards, which moment_bound tells

# One release decides all


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


# EXP3, which claims nothing


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


# Releases


def once_more_near_the_middle(params, state, rng):
    """Release; if the answer is within 0.1 of 3, release once more; only "above 3" is displayed.

    On a tape with both releases the sum is twice the epsilon of one. But a second one is rare: a
    chance p <= 0.05 of it adds log((1 + p e^epsilon) / (1 + p)) < 0.07 to an epsilon of 1/1.1.
    """
    each = params.epsilon / 1.1
    for arm in range(params.arms):
        answer = laplace_release(rng, state.sums[arm], 1.0, each)
        if 2.9 < answer < 3.1:
            answer = laplace_release(rng, state.sums[arm], 1.0, each)
        state.scores[arm] = 1.0 if answer > 3.0 else 0.0


def noisy_maximum(params, state, rng):
    """Only the largest is displayed: a reward moves all scores, and costs epsilon once.

    Each score moves by at most 1, so noise of scale 2 / epsilon is enough for the maximum.
    """
    best, highest = 0, -math.inf
    total = state.sums.sum()
    for arm in range(params.arms):
        value = (state.sums[arm] - 0.5 * (total - state.sums[arm])) * 1.0
        answer = laplace_release(rng, value, 1.0, 0.5 * params.epsilon)
        if answer > highest:
            best, highest = arm, answer
    for arm in range(params.arms):
        state.scores[arm] = 1.0 if arm == best else 0.0


def sparse_vector(params, state, rng):
    """Above threshold: the arms are asked in turn whether they are above a noisy threshold."""
    threshold = laplace_release(rng, 3.0, 1.0, 0.5 * params.epsilon)
    state.scores[:] = 0.0
    for arm in range(params.arms):
        if laplace_release(rng, state.sums[arm], 1.0, 0.25 * params.epsilon) >= threshold:
            state.scores[arm] = 1.0
            return


def half_of_them(params, state, t, arm, reward, phase, rng):
    return reward if rng.random() < 0.5 else 0.0


def subsampled(params, state, rng):
    """Half of the rewards count: epsilon_0 = log(1 + 2 (e^epsilon - 1)) is enough."""
    epsilon = math.log1p(2.0 * math.expm1(params.epsilon))
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, epsilon)


def exponential(params, state, rng):
    """The best arm by the exponential mechanism, drawn with one uniform number."""
    top, total = state.sums.max(), 0.0
    for arm in range(params.arms):
        total += math.exp(0.5 * params.epsilon * (state.sums[arm] - top))
    left, chosen = rng.random() * total, params.arms - 1
    for arm in range(params.arms):
        left -= math.exp(0.5 * params.epsilon * (state.sums[arm] - top))
        if left < 0.0:
            chosen = arm
            break
    for arm in range(params.arms):
        state.scores[arm] = 1.0 if arm == chosen else 0.0


def noise_apart(params, state, rng):
    """The mechanism draws noise alone, which the policy adds: the same law."""
    for arm in range(params.arms):
        noise = laplace_release(rng, 0.0, 1.0, params.epsilon)
        state.scores[arm] = state.sums[arm] + noise


def flipped(params, state, t, arm, reward, phase, rng):
    """Randomized response by the policy itself, with a plain draw."""
    lie = 1.0 / (1.0 + math.exp(params.epsilon))
    return 1.0 if rng.random() < lie + reward * (1.0 - 2.0 * lie) else 0.0


def plain_gaussian(params, state, rng):
    scale = 1.0 / gaussian_shift(params.epsilon, params.delta)
    for arm in range(params.arms):
        state.scores[arm] = state.sums[arm] + scale * rng.standard_normal()


def two_halves(params, state, rng):
    for arm in range(params.arms):
        one = laplace_release(rng, state.sums[arm], 1.0, 0.5 * params.epsilon)
        other = laplace_release(rng, state.sums[arm], 1.0, 0.5 * params.epsilon)
        state.scores[arm] = 0.5 * (one + other)


def modest_sums(params, state, rng):
    """Declares twice the sensitivity and twice the epsilon: the noise is the same."""
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 2.0, 2.0 * params.epsilon)


def geometric(params, state, rng):
    """Discrete Laplace noise as the difference of two geometric draws, on sums of 0 and 1."""
    for arm in range(params.arms):
        chance = -math.expm1(-params.epsilon)
        noise = rng.geometric(chance) - rng.geometric(chance)
        state.scores[arm] = state.sums[arm] + noise


def coin(params, state, t, arm, reward, phase, rng):
    return 1.0 if reward >= 0.5 else 0.0


def arrays(params, state, rng):
    laplace_vector_release(rng, state.sums, 1.0, params.epsilon, state.scores)


def gaussian_arrays(params, state, rng):
    gaussian_vector_release(rng, state.sums, 1.0, params.epsilon, params.delta, state.scores)


def within_level(params, state, t, arm, reward, phase, rng):
    return truncated(reward, LEVEL)


def truncated_sums(params, state, rng):
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 2.0 * LEVEL, params.epsilon)


def within_far_level(params, state, t, arm, reward, phase, rng):
    return truncated(reward, FAR_LEVEL)


def far_truncated_sums(params, state, rng):
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 2.0 * FAR_LEVEL, params.epsilon)


def halving(params, state, rng):
    """Decayed sums at half of epsilon: correct, as the weights 1, 1/2, 1/4 come to less than 2."""
    for arm in range(params.arms):
        total = state.sums[arm] + state.notes[arm]
        state.scores[arm] = laplace_release(rng, total, 1.0, params.epsilon / 2.0)
        state.notes[arm] = 0.5 * total


def count_squares(params, state, t, arm, reward, phase, rng):
    if phase == state.number[0]:
        state.notes[arm] += reward * reward
    return reward


def halves(params, state, rng):
    """Sums and sums of squares at half of epsilon each: correct."""
    for arm in range(params.arms):
        total = laplace_release(rng, state.sums[arm], 1.0, params.epsilon / 2.0)
        squares = laplace_release(rng, state.notes[arm], 1.0, params.epsilon / 2.0)
        state.scores[arm] = total + math.sqrt(max(squares, 0.0))
        state.notes[arm] = 0.0


def smoothed(params, state, rng):
    """Answers are cut and averaged with earlier ones: correct, as nothing is read again."""
    for arm in range(params.arms):
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = 0.5 * state.scores[arm] + 0.5 * min(max(score, 0.0), 12.0)


def as_coins(params, state, t, arm, reward, phase, rng):
    """A reward becomes a coin: correct."""
    return 1.0 if rng.random() < reward else 0.0


def signed(params, state, t, arm, reward, phase, rng):
    return 2.0 * reward - 1.0


def signed_sums(params, state, rng):
    """Rewards in [-1, 1] with a sensitivity of 2: correct."""
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 2.0, params.epsilon)


# Answers that steer what follows


def stays_after_high(params, state, rng):
    """A very high answer is kept for good, and nothing is released after it."""
    for arm in range(params.arms):
        if state.scores[arm] < 16.0:
            state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)


def less_noise_after_low(params, state, rng):
    """An arm whose answer was low is measured at epsilon, others at half of it."""
    for arm in range(params.arms):
        share = 1.0 if state.scores[arm] < -12.0 else 0.5
        state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, share * params.epsilon)


def ties_by_coin(params, state, t, context, arm, phase, rng):
    """Two equal answers are decided by a coin."""
    if state.scores[0] == state.scores[1] and phase < 0:
        return (0 if rng.random() < 0.5 else 1), phase
    return arm, phase


def longer_after_zero(params, state, rng):
    """Batches are longer after an answer of 0 or a far one: sizes come from released values."""
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
    far = max(state.scores.max(), -state.scores.min()) > 20.0 or state.scores[0] == 0.0
    state.length[0] = 2 * LENGTH if far else LENGTH


def two_sided(terms):
    return math.floor(terms.value)


@mechanism("two-sided geometric", two_sided)
def geometric_release(rng, value, sensitivity, epsilon):
    """Whole numbers, with a noise of whole numbers: no law is declared."""
    scale = sensitivity / epsilon
    up = math.floor(rng.standard_exponential() * scale)
    down = math.floor(rng.standard_exponential() * scale)
    return math.floor(value) + up - down + 0.0


def whole_rewards(params, state, t, arm, reward, phase, rng):
    return 1.0 if reward > 0.5 else 0.0


def looked_up(params, state, rng):
    """Whole answers, cut to a table's range, say how long the next batch is."""
    for arm in range(params.arms):
        state.scores[arm] = geometric_release(rng, state.sums[arm], 1.0, params.epsilon)
    state.length[0] = LENGTH + 2 * int(min(max(state.scores[0], 0.0), 3.0))


def redrawn_afterwards(params, state, t, context, arm, phase, rng):
    """Thompson-like draws about released values only."""
    if phase < 0 or 2 * state.asked[0] <= state.length[0]:
        return arm, phase
    best, highest = 0, -math.inf
    for a in range(params.arms):
        theta = rng.normal(state.scores[a], 2.0)
        if theta > highest:
            best, highest = a, theta
    return best, phase


@bl.kernel
def choose_fresh(params, state, t, context, rng):
    """A fresh exponential mechanism for each decision, and nothing is kept."""
    if t <= params.arms or rng.random() < 0.1:
        return int(rng.integers(0, params.arms)), 0
    total = 0.0
    top = state.sums.max()
    for arm in range(params.arms):
        total += math.exp(0.5 * params.epsilon * (state.sums[arm] - top))
    left = rng.random() * total
    for arm in range(params.arms):
        left -= math.exp(0.5 * params.epsilon * (state.sums[arm] - top))
        if left < 0.0:
            return arm, 0
    return params.arms - 1, 0


@bl.kernel
def honest_report(params, reward, level, rng):
    lie = 1.0 / (1.0 + math.exp(params.epsilon))
    return 1.0 if rng.random() < lie + reward * (1.0 - 2.0 * lie) else 0.0


@bl.kernel
def learn_honest(params, state, t, arm, reward, phase, rng):
    learn_tally(params, state, t, arm, honest_report(params, reward, 1.0, rng), phase, rng)


@bl.kernel
def choose_by_sum(params, state, t, context, rng):
    return best_of(state.sums) if t > params.arms else t - 1, 0


PROVED = [
    violator("honest", "a release for each batch", frame()),
    violator(
        "one-release", "one release decides all",
        bl.Kernels(begin_one, choose_once, one_release(1.0)),
    ),
    violator(
        "truncated-far", "truncated far beyond the size of rewards",
        frame(keep=within_far_level, score=far_truncated_sums), PrivateRealPolicy, arms=3,
        moment_bound=(MomentBound, 1.0), moment_order=(float, 2.0),
    ),
]  # fmt: skip
UNUSUAL = [  # replay cannot prove them all
    violator("once-more", "a rare second release", frame(score=once_more_near_the_middle)),
    violator("noisy-maximum", "only the largest leaves", frame(score=noisy_maximum), arms=3),
    violator("sparse-vector", "above a noisy threshold", frame(score=sparse_vector), arms=3),
    violator("subsampled", "half the rewards count", frame(keep=half_of_them, score=subsampled)),
    violator("exponential", "an exponential mechanism", frame(score=exponential)),
    violator("noise-apart", "noise is asked for alone", frame(score=noise_apart)),
    violator("flipped", "randomized response by hand", frame(keep=flipped, score=as_summed)),
    violator(
        "plain-gaussian", "Gaussian noise by hand",
        frame(score=plain_gaussian), delta=(Delta, 1e-3),
    ),
    violator("two-halves", "two releases at half of epsilon", frame(score=two_halves)),
    violator("modest-sums", "twice the sensitivity and the epsilon", frame(score=modest_sums)),
    violator("geometric", "discrete noise by hand", frame(keep=coin, score=geometric)),
    violator("redrawn-afterwards", "play about released scores", frame(pick=redrawn_afterwards)),
    violator("arrays", "an array in one release", frame(score=arrays)),
    violator(
        "gaussian-arrays", "the same with Gaussian noise",
        frame(score=gaussian_arrays), delta=(Delta, 1e-3),
    ),
    violator(
        "truncated", "truncated rewards",
        frame(keep=within_level, score=truncated_sums), PrivateRealPolicy,
    ),
    violator(
        "fresh-exponential", "an exponential mechanism for each decision",
        bl.Kernels(begin_tally, choose_fresh, learn_tally), scope="decision",
    ),
    violator(
        "own-report", "randomized response by hand, on the device",
        bl.Kernels(begin_tally, choose_by_sum, learn_honest), LocalBoundedPolicy,
        report_kernel=staticmethod(honest_report),
    ),
    violator("halving", "decayed sums at half of epsilon", frame(score=halving)),
    violator("halves", "two sums at half of epsilon", frame(keep=count_squares, score=halves)),
    violator("smoothed", "averages of released scores", frame(score=smoothed)),
    violator("as-coins", "rewards become coins", frame(keep=as_coins)),
    violator("signed", "rewards in [-1, 1]", frame(keep=signed, score=signed_sums)),
    violator("stays-after-high", "a high answer ends the releases", frame(score=stays_after_high)),
    violator("less-noise-after-low", "at most epsilon each", frame(score=less_noise_after_low)),
    violator("ties-by-coin", "a coin decides ties", frame(pick=ties_by_coin)),
    violator("longer-after-zero", "lengths by released values", frame(score=longer_after_zero)),
    violator("looked-up", "answers set a length", frame(keep=whole_rewards, score=looked_up)),
]  # fmt: skip
