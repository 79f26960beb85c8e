"""Policies that leak only after a rare answer, and correct ones that look like them."""

from __future__ import annotations

import math

from balaclava.authoring import Delta
from balaclava.privacy.mechanisms.analytic_gaussian import gaussian_release
from balaclava.privacy.mechanisms.base import mechanism
from balaclava.privacy.mechanisms.laplace import laplace_release, laplace_vector_release
from balaclava.privacy.mechanisms.randomized_response import bernoulli_report
from tests.oracles.broken_frame import LENGTH, claiming, frame


def raw_after_very_high(params, state, rng):
    """No noise once an arm's mean was above 1.4, as in one answer of fifty or fewer."""
    for arm in range(params.arms):
        high = state.scores[arm] / LENGTH > 1.4
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = state.sums[arm] if high else score


def raw_after_low(params, state, rng):
    """No noise once an arm's answer was below -12."""
    for arm in range(params.arms):
        low = state.scores[arm] < -12.0
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = state.sums[arm] if low else score


def raw_after_pair(params, state, rng):
    """No noise for the second arm if the first had a high answer and it had a low one itself."""
    pair = state.scores[0] > 14.0 and state.scores[1] < -2.0
    for arm in range(params.arms):
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = state.sums[arm] if pair else score


def raw_after_zero(params, state, rng):
    """No noise after an answer of exactly 0, which exact noise gives once in millions."""
    for arm in range(params.arms):
        zero = state.number[0] > 1 and state.scores[arm] == 0.0
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = state.sums[arm] if zero else score


def raw_after_equals(params, state, rng):
    """No noise once two arms had the same answer."""
    equal = state.number[0] > 1 and state.scores[0] == state.scores[1]
    for arm in range(params.arms):
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = state.sums[arm] if equal else score


def raw_after_a_window(params, state, rng):
    """No noise after an answer between 7.30 and 7.31."""
    for arm in range(params.arms):
        inside = 7.30 < state.scores[arm] < 7.31
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = state.sums[arm] if inside else score


def report_as_it_is(params, state, t, arm, reward, phase, rng):
    """A coin of its own for each reward; after seven that lied for 0 comes a raw one."""
    report = bernoulli_report(rng, 0.0, 3.0)
    state.notes[0] = state.notes[0] + 1.0 if report == 1.0 else 0.0
    if state.notes[0] >= 4.0:
        state.notes[1] = reward
    return reward


def shows_the_last(params, state, t, context, arm, phase, rng):
    return (1, phase) if state.notes[1] > 0.5 and t % 3 == 0 else (arm, phase)


def by_luck(params, state, t, context, arm, phase, rng):
    """One decision in ten thousand goes by raw sums."""
    if rng.random() < 1e-4:
        return (0 if state.raw[0] > state.raw[1] else 1), phase
    return arm, phase


def raw_after_far_gaussian(params, state, rng):
    """Gaussian noise, and none once an answer was five deviations out."""
    for arm in range(params.arms):
        far = abs(state.scores[arm]) > 26.0
        score = gaussian_release(rng, state.sums[arm], 1.0, params.epsilon, params.delta)
        state.scores[arm] = state.sums[arm] if far else score


def raw_after_a_far_part(params, state, rng):
    """An array in one release, and none of its noise once a part was above 15."""
    far = state.scores.max() > 15.0
    laplace_vector_release(rng, state.sums, 1.0, params.epsilon, state.scores)
    if far:
        state.scores[:] = state.sums


# Correct ones


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


def policies():
    """The broken ones, by name."""
    return {
        policy.name: policy
        for policy in (
            claiming("raw-after-very-high", frame(score=raw_after_very_high)),
            claiming("raw-after-low", frame(score=raw_after_low)),
            claiming("raw-after-pair", frame(score=raw_after_pair)),
            claiming("raw-after-zero", frame(score=raw_after_zero)),
            claiming("raw-after-equals", frame(score=raw_after_equals)),
            claiming("raw-after-a-window", frame(score=raw_after_a_window)),
            claiming("raw-after-reports", frame(keep=report_as_it_is, pick=shows_the_last)),
            claiming("raw-by-luck", frame(pick=by_luck)),
            claiming("raw-after-far", frame(score=raw_after_far_gaussian), delta=(Delta, 1e-6)),
            claiming("raw-after-a-far-part", frame(score=raw_after_a_far_part)),
        )
    }


def correct_policies():
    """The correct ones, by name."""
    return {
        policy.name: policy
        for policy in (
            claiming("stays-after-high", frame(score=stays_after_high)),
            claiming("less-noise-after-low", frame(score=less_noise_after_low)),
            claiming("ties-by-coin", frame(pick=ties_by_coin)),
            claiming("longer-after-zero", frame(score=longer_after_zero)),
            claiming("looked-up", frame(keep=whole_rewards, score=looked_up)),
        )
    }
