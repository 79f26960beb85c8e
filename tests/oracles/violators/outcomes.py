"""Rewards that are not clipped, counts of lost rewards, and failures that depend on data."""

from __future__ import annotations

import math

import numpy as np

import balaclava as bl
from balaclava.authoring import laplace_release
from tests.oracles.violators.frame import LENGTH, best_of, frame, violator

CLIP = {"outside": "clip"}

# What `prepare` lets through


@bl.kernel
def rescaled(params, reward):
    low, high = params.reward_range
    return (reward - low) / (high - low)


@bl.kernel
def clipped_above(params, reward):
    return min(reward, 1.0)


@bl.kernel
def clipped_below(params, reward):
    return max(reward, 0.0)


@bl.kernel
def clipped_at_two(params, reward):
    return min(max(reward, 0.0), 2.0)


@bl.kernel
def clipped_unless_huge(params, reward):
    return reward if math.fabs(reward) > 1e6 else min(max(reward, 0.0), 1.0)


@bl.kernel
def clipped_before_rescaling(params, reward):
    low, high = params.reward_range
    return (min(max(reward, low), high) - low) * 0.2


def through(kernel):
    """The method `prepare` of a policy."""
    return lambda self: kernel


def any_reward(self, reward):
    return float(reward)


# Counts of planned and arrived rewards


def count_lost(params, state, t, arm, phase, rng):
    if phase == state.number[0]:
        state.notes[arm] += 1.0


def shares(params, state, t, arm, reward, phase, rng):
    if phase == state.number[0]:
        state.notes[8 + arm] += 1.0  # arrived
    return reward


@bl.kernel
def clear(params, state):
    for arm in range(params.arms):
        state.notes[arm] = 0.0
        state.notes[8 + arm] = 0.0


def mean_of_arrived(params, state, rng):
    """A mean of the rewards that came, with the noise of one of all that were planned."""
    for arm in range(params.arms):
        planned = max(state.notes[arm] + state.notes[8 + arm], 1.0)
        mean = state.sums[arm] / max(state.notes[8 + arm], 1.0)
        state.scores[arm] = laplace_release(rng, mean, 1.0 / planned, params.epsilon)
    clear(params, state)


def mean_of_few(params, state, rng):
    """The noise is for at least a third of the planned rewards; fewer may come."""
    for arm in range(params.arms):
        planned = max(state.notes[arm] + state.notes[8 + arm], 1.0)
        arrived = max(state.notes[8 + arm], 1.0)
        least = max(arrived, planned / 3.0)
        mean = state.sums[arm] / arrived
        state.scores[arm] = laplace_release(rng, mean, 1.0 / least, params.epsilon)
    clear(params, state)


def spends_for_lost(params, state, rng):
    """Half of epsilon, and the share of lost rewards on top of it, twice."""
    for arm in range(params.arms):
        planned = max(state.notes[arm] + state.notes[8 + arm], 1.0)
        epsilon = params.epsilon * (0.5 + state.notes[arm] / planned)
        state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, epsilon)
    clear(params, state)


def few_are_kept(params, state, rng):
    """The sum of an arm that lost most of its rewards is released, and kept for the next batch."""
    for arm in range(params.arms):
        total = state.sums[arm] + state.notes[16 + arm]
        state.scores[arm] = laplace_release(rng, total, 1.0, params.epsilon)
        few = state.notes[arm] > 3.0 * state.notes[8 + arm]
        state.notes[16 + arm] = state.sums[arm] if few else 0.0
    clear(params, state)


def raw_if_all_but_one_is_lost(params, state, rng):
    for arm in range(params.arms):
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        alone = state.notes[8 + arm] == 1.0 and state.notes[arm] > 2.0
        state.scores[arm] = state.sums[arm] if alone else score
    clear(params, state)


# Failures


def refuses_large_sums(params, state, rng):
    for arm in range(params.arms):
        if state.sums[arm] >= 5.0:
            raise ValueError("the sum is too large")
        state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)


def divides_by_the_rest(params, state, rng):
    for arm in range(params.arms):
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = score + 0.0 / (state.sums[arm] - 3.0)


def looks_up_the_sum(params, state, rng):
    for arm in range(params.arms):
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        if 12.0 * state.sums[arm] >= state.notes.size:
            raise IndexError("notes")
        state.scores[arm] = score


def no_such_arm(params, state, t, context, arm, phase, rng):
    """After 30 rounds a high raw mean is answered with an arm that does not exist."""
    return (params.arms, phase) if t > 30 and state.raw[0] > 0.6 * t else (arm, phase)


def fails_in_round_45(params, state, t, arm, reward, phase, rng):
    if t == 1:
        state.notes[0] = reward
    if t == 45 and state.notes[0] > 0.9:
        raise ValueError("round 45")
    return reward


def fails_after_high(params, state, rng):
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        if state.scores[arm] > 9.0 and state.sums[arm] > 3.0:
            raise ArithmeticError("impossible")


def expects_whole_rewards(params, state, t, arm, reward, phase, rng):
    if reward != math.floor(reward):
        raise ValueError("a reward is not 0 or 1")
    return reward


def releases_nan(params, state, rng):
    for arm in range(params.arms):
        value = math.nan if state.sums[arm] > 5.5 else state.sums[arm]
        state.scores[arm] = laplace_release(rng, value, 1.0, params.epsilon)


def releases_infinity(params, state, rng):
    for arm in range(params.arms):
        value = -math.inf if state.sums[arm] == 0.0 else state.sums[arm]
        state.scores[arm] = laplace_release(rng, value, 1.0, params.epsilon)


def nan_is_kept(params, state, t, arm, reward, phase, rng):
    """Two equal rewards in a row make the next score of the arm NaN."""
    if reward == state.notes[arm] and reward > 0.2 and phase == state.number[0]:
        state.notes[8 + arm] = math.nan
    state.notes[arm] = reward
    return reward


def scores_with_nan(params, state, rng):
    for arm in range(params.arms):
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = score + state.notes[8 + arm]
        state.notes[8 + arm] = 0.0


def draws_by_sum(params, state, rng):
    """As many draws as the sum is large."""
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        for _ in range(int(state.sums[arm])):
            state.notes[0] = rng.random()


def single_precision(params, state, rng):
    """Scores pass through single precision if the sum is whole, and ties are decided by it."""
    for arm in range(params.arms):
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        whole = state.sums[arm] == math.floor(state.sums[arm])
        state.scores[arm] = np.float32(score) if whole else score


def fails_when_lost(params, state, t, arm, phase, rng):
    if state.raw[arm] > 4.5:
        raise ValueError("cannot be given up")


def raw_best(params, state, t, context, arm, phase, rng):
    if best_of(state.raw) != arm and t > 50 and state.raw[best_of(state.raw)] > 0.45 * t:
        raise RuntimeError("the wrong arm")
    return arm, phase


OUTCOMES = [
    violator("unclipped", "no clip", frame(), prepare=through(rescaled), **CLIP),
    violator("clipped-above", "no lower limit", frame(), prepare=through(clipped_above), **CLIP),
    violator("clipped-below", "no upper limit", frame(), prepare=through(clipped_below), **CLIP),
    violator("clipped-at-two", "at twice it", frame(), prepare=through(clipped_at_two), **CLIP),
    violator(
        "clipped-unless-huge", "huge rewards pass",
        frame(), prepare=through(clipped_unless_huge), **CLIP,
    ),
    violator(
        "rescaled-by-five", "a range of 10 is rescaled to 2",
        frame(), prepare=through(clipped_before_rescaling), reward_range=(0.0, 10.0),
    ),
    violator(
        "takes-any-reward", "refuses nothing, and does not clip",
        frame(), prepare=through(rescaled), checked_reward=any_reward,
    ),
    violator(
        "not-clipped-if-asked", "right only if rewards are refused",
        frame(), prepare=through(rescaled),
    ),
    violator(
        "mean-of-arrived", "noise for the planned rewards",
        frame(keep=shares, lose=count_lost, score=mean_of_arrived),
    ),
    violator(
        "mean-of-few", "noise for a third of the planned rewards",
        frame(keep=shares, lose=count_lost, score=mean_of_few),
    ),
    violator(
        "spends-for-lost", "more epsilon if rewards are lost",
        frame(keep=shares, lose=count_lost, score=spends_for_lost),
    ),
    violator(
        "few-are-kept", "a batch with few rewards is used twice",
        frame(keep=shares, lose=count_lost, score=few_are_kept),
    ),
    violator(
        "raw-if-alone", "one reward of many arrives, and is raw",
        frame(keep=shares, lose=count_lost, score=raw_if_all_but_one_is_lost),
    ),
    violator("refuses-large-sums", "an error for large sums", frame(score=refuses_large_sums)),
    violator("divides-by-the-rest", "a division by 0", frame(score=divides_by_the_rest)),
    violator("looks-up-the-sum", "an index by the sum", frame(score=looks_up_the_sum)),
    violator("no-such-arm", "an arm that does not exist", frame(pick=no_such_arm)),
    violator("fails-in-round-45", "an error about round 1", frame(keep=fails_in_round_45)),
    violator("fails-after-high", "an error by answer and sum", frame(score=fails_after_high)),
    violator("whole-rewards-only", "an error by one reward", frame(keep=expects_whole_rewards)),
    violator("releases-nan", "NaN for a large sum", frame(score=releases_nan)),
    violator("releases-infinity", "infinite for a sum of 0", frame(score=releases_infinity)),
    violator(
        "nan-is-kept", "NaN after equal rewards",
        frame(keep=nan_is_kept, score=scores_with_nan),
    ),
    violator("draws-by-sum", "as many draws as the sum", frame(score=draws_by_sum)),
    violator("single-precision", "digits by the raw sum", frame(score=single_precision)),
    violator("fails-when-lost", "an error by sum when one is lost", frame(lose=fails_when_lost)),
    violator(
        "recommends-without-means", "a raw best arm, of a policy without estimates",
        frame(), recommended_arm=lambda self, state: best_of(state.raw),
    ),
    violator("raw-best-fails", "an error if the raw best is not played", frame(pick=raw_best)),
]  # fmt: skip
assert LENGTH == 12  # the numbers above are for batches of twelve
