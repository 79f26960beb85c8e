"""Leaks that wait for a rare answer of a mechanism."""

from __future__ import annotations

from balaclava.authoring import Delta, bernoulli_report, laplace_release
from balaclava.privacy.mechanisms.analytic_gaussian import gaussian_release
from balaclava.privacy.mechanisms.laplace import laplace_vector_release
from tests.oracles.violators.frame import LENGTH, frame, violator


def raw_after_high(params, state, rng):
    """An arm whose last answer was high gets no noise the next time."""
    for arm in range(params.arms):
        high = state.scores[arm] > 8.0
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = state.sums[arm] if high else score


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
    """Draw a report of 0 for each reward; after four false ones in a row, note the raw reward."""
    report = bernoulli_report(rng, 0.0, 3.0)
    state.notes[0] = state.notes[0] + 1.0 if report == 1.0 else 0.0
    if state.notes[0] >= 4.0:
        state.notes[1] = reward
    return reward


def shows_the_last(params, state, t, context, arm, phase, rng):
    return (1, phase) if state.notes[1] > 0.5 and t % 3 == 0 else (arm, phase)


def by_luck(params, state, t, context, arm, phase, rng):
    """One decision in ten thousand follows from raw sums."""
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


RARE = [
    violator("raw-after-high", "raw after an answer above 8", frame(score=raw_after_high)),
    violator("raw-after-very-high", "raw after a mean above 1.4", frame(score=raw_after_very_high)),
    violator("raw-after-low", "raw after an answer below -12", frame(score=raw_after_low)),
    violator("raw-after-pair", "raw after two answers far apart", frame(score=raw_after_pair)),
    violator("raw-after-zero", "raw after an answer of exactly 0", frame(score=raw_after_zero)),
    violator("raw-after-equals", "raw after two equal answers", frame(score=raw_after_equals)),
    violator(  # the seconds of a default audit do not always find such an answer
        "raw-after-a-window", "raw after an answer between 7.30 and 7.31",
        frame(score=raw_after_a_window), by_default=False,
    ),
    violator(
        "raw-after-reports", "raw after four reports that lie",
        frame(keep=report_as_it_is, pick=shows_the_last),
    ),
    violator("raw-by-luck", "one decision in 10,000 is raw", frame(pick=by_luck)),
    violator(
        "raw-after-far", "raw after an answer five deviations out",
        frame(score=raw_after_far_gaussian), delta=(Delta, 1e-6),
    ),
    violator("raw-after-a-far-part", "raw after a far part", frame(score=raw_after_a_far_part)),
]  # fmt: skip
