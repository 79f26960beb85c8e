"""Mistakes that show late, seldom, or in the last digits, and mechanisms that declare too much."""

from __future__ import annotations

import math

import numpy as np

import balaclava as bl
from balaclava.authoring import Delta, laplace_release, mechanism
from balaclava.privacy.mechanisms.analytic_gaussian import gaussian_law, gaussian_shift
from balaclava.privacy.mechanisms.base import proportional_loss, scipy_law
from balaclava.privacy.mechanisms.laplace import exact_laplace, laplace_law
from tests.oracles.violators.frame import LENGTH, best_of, frame, violator
from tests.oracles.violators.noise import never

WHOLE = {"by_replay": False}  # a whole audit catches them

# Noise that is missing in a rare share of the draws


def own_laplace(name, exact=exact_laplace, **more):
    return mechanism(name, exact, loss=proportional_loss, law=laplace_law, **more)


@own_laplace("Laplace but for one in a thousand")
def bare_of_a_thousand(rng, value, sensitivity, epsilon):
    noise = rng.laplace(0.0, sensitivity / epsilon)
    return value if rng.random() < 1e-3 else value + noise


@own_laplace("Laplace but for one in 200,000")
def bare_seldom(rng, value, sensitivity, epsilon):
    noise = rng.laplace(0.0, sensitivity / epsilon)
    return value if rng.standard_exponential() > 12.2 else value + noise


@own_laplace("Laplace but for sums of 3")
def bare_threes(rng, value, sensitivity, epsilon):
    """Sums of exactly 3 get a tenth of the noise."""
    return value + rng.laplace(0.0, sensitivity / epsilon) * (0.1 if value == 3.0 else 1.0)


def mostly(release):
    def score(params, state, rng):
        for arm in range(params.arms):
            state.scores[arm] = release(rng, state.sums[arm], 1.0, params.epsilon)

    return score


def bare_by_whole_number(params, state, rng):
    for arm in range(params.arms):
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = state.sums[arm] if rng.integers(0, 5_000) == 7 else score


def float_exact(terms):
    return terms.value + float(np.random.default_rng().laplace(0.0, 1.0 / terms.epsilon))


@own_laplace("Laplace in floating point", exact=float_exact)
def float_laplace(rng, value, sensitivity, epsilon):
    return value + rng.laplace(0.0, sensitivity / epsilon)


# Little of a reward, in means of all releases


def mean_scores(params, state, rng):
    for arm in range(params.arms):
        state.notes[arm] += laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = state.notes[arm] / state.number[0]


def last_arm_by_sum(params, state, t, context, arm, phase, rng):
    """After 3,000 rounds the last arm, if it leads by its raw sum."""
    last = params.arms - 1
    lead = 0
    for other in range(last):
        if state.scores[other] > state.scores[lead]:
            lead = other
    if t > 3_000 and arm == last:
        raw = 1e-7 * (state.sums[last] - 0.5 * state.length[0])
        return last if state.scores[last] + raw > state.scores[lead] else lead, phase
    return arm, phase


def note_round(params, state, t, context, arm, phase, rng):
    state.notes[63] = t
    return arm, phase


def very_late_at_once(params, state, t, arm, reward, phase, rng):
    """A reward that is more than 40 rounds late goes into the mean, and not into a sum."""
    if state.notes[63] - t > 40.0:
        state.notes[arm] += 1e-6 * reward
        return 0.0
    return reward


# Low digits


@own_laplace("Laplace in thousandths")
def coarse_laplace(rng, value, sensitivity, epsilon):
    """The noise is on a grid, the value is not."""
    noise = rng.laplace(0.0, sensitivity / epsilon)
    return value + math.floor(1e3 * noise + 0.5) / 1e3


@own_laplace("Laplace in single precision")
def single_laplace(rng, value, sensitivity, epsilon):
    noise = math.floor(rng.laplace(0.0, sensitivity / epsilon) * 2.0**24) / 2.0**24
    return value + noise


def thirds(params, state, t, arm, reward, phase, rng):
    return reward / 3.0 + 0.1 * reward * reward


def ninth_digit(params, state, rng):
    for arm in range(params.arms):
        answer = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = math.floor(1e6 * answer) / 1e6 + 1e-9 * state.sums[arm]


def with_bonus(params, state, t, context, arm, phase, rng):
    """Plays the best index: a bonus falls with the pulls, so ties of indices never occur."""
    best, highest = arm, -math.inf
    for a in range(params.arms):
        index = state.scores[a] + 3.0 / math.sqrt(1.0 + state.notes[a])
        if index > highest:
            best, highest = a, index
    state.notes[best] += 1.0
    return best, phase


def fraction_kept(params, state, rng):
    """The digits after the sixth are those of the raw sum, modulo 1."""
    for arm in range(params.arms):
        answer = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        digits = state.sums[arm] * 0.37 - math.floor(state.sums[arm] * 0.37)
        state.scores[arm] = math.floor(1e6 * answer) / 1e6 + 1e-7 * digits


# Gaussian noise that is a little short


@mechanism("Gaussian for 1.1 delta", never)
def gaussian_for_more(rng, value, sensitivity, epsilon, delta):
    return value + sensitivity / gaussian_shift(epsilon, 1.1 * delta) * rng.standard_normal()


@mechanism("Gaussian, 0.6 % short", never, law=gaussian_law)
def shorter_gaussian(rng, value, sensitivity, epsilon, delta):
    scale = 0.994 * sensitivity / gaussian_shift(epsilon, delta)
    return value + scale * rng.standard_normal()


def by_gaussian(release):
    def score(params, state, rng):
        for arm in range(params.arms):
            state.scores[arm] = release(rng, state.sums[arm], 1.0, params.epsilon, params.delta)

    return score


# Long batches


def doubling(carry_from):
    """Batches double; from a length on, sums are carried into the next batch."""

    def score(params, state, rng):
        for arm in range(params.arms):
            total = state.sums[arm] + state.notes[arm]
            state.scores[arm] = laplace_release(rng, total, 1.0, params.epsilon) / state.length[0]
            state.notes[arm] = state.sums[arm] if state.length[0] >= carry_from else 0.0
        state.length[0] = min(2 * state.length[0], 40_000)

    return score


def less_noise_when_long(params, state, rng):
    """The noise of a mean, in place of that of a sum, for batches above 5,000."""
    for arm in range(params.arms):
        epsilon = 1.5 * params.epsilon if state.length[0] > 5_000 else params.epsilon
        state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, epsilon) / state.length[0]
    state.length[0] = min(2 * state.length[0], 20_000)


# Ties


def deep_ties(params, state, t, context, arm, phase, rng):
    tie = math.fabs(state.scores[0] - state.scores[1]) < 1e-6
    return (best_of(state.raw), phase) if t > 60_000 and tie else (arm, phase)


def late_close_ties(params, state, t, context, arm, phase, rng):
    tie = math.fabs(state.scores[0] - state.scores[1]) < 0.01
    return (best_of(state.raw), phase) if state.number[0] > 2_500 and tie else (arm, phase)


# Budgets that add up


def cumulative(share):
    """All rewards so far in every release, whose epsilon falls with its number."""

    def score(params, state, rng):
        for arm in range(params.arms):
            state.notes[arm] += state.sums[arm]
            epsilon = share(params.epsilon, state.number[0])
            state.scores[arm] = laplace_release(rng, state.notes[arm], 1.0, epsilon)

    return score


@bl.kernel
def harmonic(epsilon, number):
    return 0.09 * epsilon / number


@bl.kernel
def slow_harmonic(epsilon, number):
    return 0.05 * epsilon / (number + 10.0)


@bl.kernel
def root_harmonic(epsilon, number):
    return 1e-4 * epsilon / math.sqrt(number)


# Arrays with a false norm


def array_law(terms):
    return scipy_law("laplace", 0.0, terms.sensitivity / terms.epsilon)


@mechanism("Laplace of an array, L2", never, norm=2.0, loss=proportional_loss, law=array_law)
def laplace_by_length(rng, value, sensitivity, epsilon, out):
    for i in range(value.size):
        out[i] = value[i] + rng.laplace(0.0, sensitivity / epsilon)


@mechanism("Laplace of an array, max", never, norm=math.inf, loss=proportional_loss, law=array_law)
def laplace_by_largest(rng, value, sensitivity, epsilon, out):
    for i in range(value.size):
        out[i] = value[i] + rng.laplace(0.0, sensitivity / epsilon)


def spread_law(terms):
    deviation = terms.sensitivity / gaussian_shift(terms.epsilon, terms.delta)
    return scipy_law("norm", 0.0, deviation)


@mechanism("Gaussian of an array, max", never, norm=math.inf, law=spread_law)
def gaussian_by_largest(rng, value, sensitivity, epsilon, delta, out):
    for i in range(value.size):
        scale = sensitivity / gaussian_shift(epsilon, delta)
        out[i] = value[i] + scale * rng.standard_normal()


def spread(release, size):
    def score(params, state, rng):
        for arm in range(params.arms):
            state.notes[arm] = size * state.sums.sum() * (1.0 if arm % 2 == 0 else -1.0)
        release(rng, state.notes[: params.arms], 1.0, params.epsilon, state.scores)

    return score


def spread_gaussian(params, state, rng):
    for arm in range(params.arms):
        state.notes[arm] = state.sums.sum() * (1.0 if arm % 2 == 0 else -1.0)
    n = params.arms
    gaussian_by_largest(rng, state.notes[:n], 1.0, params.epsilon, params.delta, state.scores)


# Answers near 0


def raw_near_zero(params, state, rng):
    for arm in range(params.arms):
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = state.sums[arm] if math.fabs(score) < 1e-3 else score


def nudged_near_zero(params, state, rng):
    for arm in range(params.arms):
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        nudge = 1e-4 * state.sums[arm] if math.fabs(score) < 1e-2 else 0.0
        state.scores[arm] = score + nudge


def sign_near_zero(params, state, rng):
    """An answer close to 0 gets the sign of the raw sum's distance from its middle."""
    for arm in range(params.arms):
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        if math.fabs(score) < 1e-5:
            score = math.copysign(score, state.sums[arm] - LENGTH / 6.0)
        state.scores[arm] = score


GAUSS = {"delta": (Delta, 1e-3), **WHOLE}
HIDDEN = [
    violator(
        "mostly-noise", "no noise in one draw of a thousand",
        frame(score=mostly(bare_of_a_thousand)), **WHOLE,
    ),
    violator("seldom-bare", "none in one of 200,000", frame(score=mostly(bare_seldom)), **WHOLE),
    violator("bare-threes", "little for a sum of 3", frame(score=mostly(bare_threes)), **WHOLE),
    violator("bare-by-luck", "a draw decides", frame(score=bare_by_whole_number), **WHOLE),
    violator(
        "coarse-digits", "noise in thousandths",
        frame(keep=thirds, score=mostly(coarse_laplace)), **WHOLE,
    ),
    violator(
        "single-digits", "noise in single precision",
        frame(keep=thirds, score=mostly(single_laplace)), **WHOLE,
    ),
    violator(
        "float-exact", "exact answers in floating point",
        frame(score=mostly(float_laplace)), **WHOLE,
    ),
    violator(
        "last-arm", "the last arm's raw sum if it leads",
        frame(pick=last_arm_by_sum, score=mean_scores), arms=4, **WHOLE,
    ),
    violator(
        "very-late", "rewards 40 rounds late are not in a sum",
        frame(pick=note_round, keep=very_late_at_once, score=mean_scores), **WHOLE,
    ),
    violator("ninth-digit", "raw sums in the ninth digit", frame(score=ninth_digit), **WHOLE),
    violator(
        "digits-of-indices", "the same below a bonus",
        frame(pick=with_bonus, score=ninth_digit), **WHOLE,
    ),
    violator(
        "fraction-kept", "the raw sum's fraction in low digits",
        frame(pick=with_bonus, score=fraction_kept), **WHOLE,
    ),
    violator("short-gauss", "for 1.1 delta", frame(score=by_gaussian(gaussian_for_more)), **GAUSS),
    violator(
        "shorter-gauss", "0.6 % less than the declared law",
        frame(score=by_gaussian(shorter_gaussian)), **GAUSS,
    ),
    violator(
        "long-batches", "batches of 1,536 or more are used twice",
        frame(score=doubling(1_536)), **WHOLE,
    ),
    violator(
        "longer-batches", "batches of 10,000 or more are used twice",
        frame(score=doubling(10_000)), **WHOLE,
    ),
    violator("long-and-less", "less noise when long", frame(score=less_noise_when_long), **WHOLE),
    violator("deep-tie-break", "raw ties after 60,000", frame(pick=deep_ties), **WHOLE),
    violator("late-close-ties", "after 2,500 batches", frame(pick=late_close_ties), **WHOLE),
    violator("harmonic-budget", "0.09 / k", frame(score=cumulative(harmonic)), **WHOLE),
    violator("slow-harmonic", "0.05 / (k + 10)", frame(score=cumulative(slow_harmonic)), **WHOLE),
    violator("root-harmonic", "1e-4 / root k", frame(score=cumulative(root_harmonic)), **WHOLE),
    violator(
        "false-norm", "Laplace noise for the L2 norm",
        frame(score=spread(laplace_by_length, 1.0 / math.sqrt(3.0))), arms=3, **WHOLE,
    ),
    violator(
        "false-largest", "Laplace noise for the largest part",
        frame(score=spread(laplace_by_largest, 1.0)), **WHOLE,
    ),
    violator(
        "false-gaussian-norm", "Gaussian noise for the largest part",
        frame(score=spread_gaussian), **GAUSS,
    ),
    violator("raw-near-zero", "raw within 1e-3 of 0", frame(score=raw_near_zero), **WHOLE),
    violator("nudged-near-zero", "nudged near 0", frame(score=nudged_near_zero), **WHOLE),
    violator("sign-near-zero", "a raw sign near 0", frame(score=sign_near_zero), **WHOLE),
]  # fmt: skip
