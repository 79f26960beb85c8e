"""Slips of authors: budgets, sensitivities, windows, priors, and data in side paths."""

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

# Budgets


def window_of_two(params, state, rng):
    """The last two batches together, in every release."""
    for arm in range(params.arms):
        total = state.sums[arm] + state.notes[arm]
        state.scores[arm] = laplace_release(rng, total, 1.0, params.epsilon)
        state.notes[arm] = state.sums[arm]


def larger_of_two(params, state, rng):
    for arm in range(params.arms):
        one = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        other = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = max(one, other)


def median_of_three(params, state, rng):
    """Three releases at half of epsilon each."""
    for arm in range(params.arms):
        a = laplace_release(rng, state.sums[arm], 1.0, 0.5 * params.epsilon)
        b = laplace_release(rng, state.sums[arm], 1.0, 0.5 * params.epsilon)
        c = laplace_release(rng, state.sums[arm], 1.0, 0.5 * params.epsilon)
        state.scores[arm] = max(min(a, b), min(max(a, b), c))


def best_and_its_sum(params, state, rng):
    """The arm with the largest noisy sum at epsilon, and its sum once more at epsilon."""
    best, highest = 0, -math.inf
    for arm in range(params.arms):
        answer = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        if answer > highest:
            best, highest = arm, answer
    state.scores[:] = 0.0
    state.scores[best] = laplace_release(rng, state.sums[best], 1.0, params.epsilon)


def epsilon_squared(params, state, rng):
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon**2)


def classical_gaussian(params, state, rng):
    """The formula for epsilon below 1, at a large epsilon, with a plain draw."""
    scale = math.sqrt(2.0 * math.log(1.25 / params.delta)) / params.epsilon
    for arm in range(params.arms):
        state.scores[arm] = state.sums[arm] + scale * rng.standard_normal()


def gaussian_at_each_arm(params, state, rng):
    """Two Gaussians, each with the whole epsilon and delta."""
    for arm in range(params.arms):
        one = gaussian_release(rng, state.sums[arm], 1.0, params.epsilon, params.delta)
        other = gaussian_release(rng, state.sums[arm], 1.0, params.epsilon, params.delta)
        state.scores[arm] = 0.5 * (one + other)


def checked_often(params, state, t, arm, reward, phase, rng):
    """After each reward a release tells whether the sum is large enough; that arm is preferred."""
    if phase == state.number[0]:
        state.notes[arm] += reward
        if laplace_release(rng, state.notes[arm], 1.0, params.epsilon) > 4.0:
            state.scores[arm] += 1.0
    return reward


def forget_notes(params, state, rng):
    for arm in range(params.arms):
        state.scores[arm] = 0.5 * state.scores[arm]
        state.notes[arm] = 0.0


def exact_threshold(params, state, rng):
    """Above threshold, with noise on the sums and none on the threshold."""
    state.scores[:] = 0.0
    for arm in range(params.arms):
        if laplace_release(rng, state.sums[arm], 1.0, 2.0 * params.epsilon) >= 3.0:
            state.scores[arm] = 1.0


def full_exponential(params, state, rng):
    """The exponential mechanism with twice the exponent."""
    top, total = state.sums.max(), 0.0
    for arm in range(params.arms):
        total += math.exp(2.0 * params.epsilon * (state.sums[arm] - top))
    left, chosen = rng.random() * total, params.arms - 1
    for arm in range(params.arms):
        left -= math.exp(2.0 * params.epsilon * (state.sums[arm] - top))
        if left < 0.0:
            chosen = arm
            break
    for arm in range(params.arms):
        state.scores[arm] = 1.0 if arm == chosen else 0.0


def half_of_them(params, state, t, arm, reward, phase, rng):
    return reward if rng.random() < 0.5 else 0.0


def amplified_too_much(params, state, rng):
    """As if a tenth of the rewards counted."""
    epsilon = math.log1p(10.0 * math.expm1(params.epsilon))
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, epsilon)


def coin(params, state, t, arm, reward, phase, rng):
    return 1.0 if reward >= 0.5 else 0.0


def narrow_geometric(params, state, rng):
    """Discrete noise with the parameter of two epsilon."""
    for arm in range(params.arms):
        chance = -math.expm1(-2.0 * params.epsilon)
        noise = rng.geometric(chance) - rng.geometric(chance)
        state.scores[arm] = state.sums[arm] + noise


# Sensitivities


def changes(params, state, t, arm, reward, phase, rng):
    """The sum of changes from one reward to the next: each reward is in two of them."""
    change = math.fabs(reward - state.notes[arm])
    state.notes[arm] = reward
    return change


def products(params, state, t, arm, reward, phase, rng):
    product = reward * state.notes[arm] + 0.5 * reward
    state.notes[arm] = reward
    return product


def importance(params, state, t, arm, reward, phase, rng):
    """Divided by a propensity of one half."""
    return reward / 0.5


def count_and_keep_largest(params, state, t, arm, reward, phase, rng):
    if phase == state.number[0]:
        state.notes[arm] = max(state.notes[arm], reward)
        state.notes[8 + arm] += 1.0
    return reward


def largest_reward(params, state, rng):
    """The largest reward, with the sensitivity of a mean."""
    for arm in range(params.arms):
        n = max(state.notes[8 + arm], 1.0)
        state.scores[arm] = laplace_release(rng, state.notes[arm], 1.0 / n, params.epsilon)
        state.notes[arm] = 0.0
        state.notes[8 + arm] = 0.0


def around_score(params, state, t, arm, reward, phase, rng):
    """Clipped to the released mean plus or minus 0.4."""
    centre = min(max(state.scores[arm] / 6.0, 0.0), 1.0)
    return min(max(reward, centre - 0.4), centre + 0.4)


def around_score_sums(params, state, rng):
    """The sensitivity of one side."""
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 0.4, params.epsilon)


def weights_by_round(params, state, t, arm, reward, phase, rng):
    """Later rewards of a batch count up to twice as much."""
    return reward * (1.0 + state.settled[0] / LENGTH)


# Data in side paths


def raw_prior(params, state, rng):
    """A release, drawn towards the raw mean of everything before."""
    for arm in range(params.arms):
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = 0.9 * score + 0.1 * state.notes[arm]
        state.notes[arm] = 0.5 * (state.notes[arm] + state.sums[arm])


def only_if_changed(params, state, rng):
    """A sum that equals the last one is not released again."""
    for arm in range(params.arms):
        if state.sums[arm] != state.notes[arm]:
            state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.notes[arm] = state.sums[arm]


def noise_by_formula(params, state, rng):
    """Noise from the number of the batch: no draw at all."""
    for arm in range(params.arms):
        u = 0.5 * math.sin(12.9898 * (state.number[0] + 78.233 * arm)) * 0.99
        noise = -math.copysign(math.log1p(-2.0 * math.fabs(u)), u) / params.epsilon
        state.scores[arm] = state.sums[arm] + noise


def settles_the_lead(params, state, rng):
    """A raw lead of more than 4 ends the releases."""
    if math.fabs(state.sums[0] - state.sums[1]) > 4.0:
        state.notes[0] = 1.0
    for arm in range(params.arms):
        if state.notes[0] == 0.0:
            state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)


def by_raw_variance(params, state, t, context, arm, phase, rng):
    """A bonus by the raw variance of the rewards so far."""
    best, highest = arm, -math.inf
    for a in range(params.arms):
        mean = state.raw[a] / (1.0 + 0.5 * t)
        index = state.scores[a] + math.sqrt(math.fabs(mean * (1.0 - mean)))
        if index > highest:
            best, highest = a, index
    return best, phase


def lost_takes_back(params, state, t, arm, phase, rng):
    """A lost reward takes the raw mean out of the score."""
    state.scores[arm] -= state.raw[arm] / (t + 1.0)


def keep_last(params, state, t, arm, reward, phase, rng):
    if phase == state.number[0]:
        state.notes[arm] = reward
    return reward


def last_goes_on(params, state, rng):
    """The last reward of each arm is in the next batch too."""
    for arm in range(params.arms):
        total = state.sums[arm] + state.notes[8 + arm]
        state.scores[arm] = laplace_release(rng, total, 1.0, params.epsilon)
        state.notes[8 + arm] = state.notes[arm]
        state.notes[arm] = 0.0


def spare_by_last_reward(params, state, t, context, arm, phase, rng):
    """Ties of rounded scores go to the arm with the larger last reward."""
    if math.floor(0.25 * state.scores[0]) == math.floor(0.25 * state.scores[1]):
        return (0 if state.notes[0] >= state.notes[1] else 1), phase
    return arm, phase


def restart_at_500(params, state, t, context, arm, phase, rng):
    if t == 500:
        for a in range(params.arms):
            state.scores[a] = state.raw[a] / 40.0
    return arm, phase


def largest_by_luck(params, state, t, arm, reward, phase, rng):
    """The largest raw sum so far shows in one round of a hundred."""
    if rng.random() < 0.01:
        state.scores[best_of(state.raw)] += 5.0
    return reward


def longer_if_varied(params, state, rng):
    """A batch is longer if its rewards were neither all low nor all high."""
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
    share = state.sums.sum() / state.length[0]
    state.length[0] = LENGTH + 2 * int(8.0 * share * (1.0 - share))


# Reports


@bl.kernel
def two_bits(params, reward, level, rng):
    """Two bits of a reward, each by randomized response at epsilon."""
    lie = 1.0 / (1.0 + math.exp(params.epsilon))
    high = 1.0 if reward >= 0.5 else 0.0
    low = 1.0 if 4.0 * reward - 2.0 * high >= 1.0 else 0.0
    one = 1.0 if rng.random() < lie + high * (1.0 - 2.0 * lie) else 0.0
    other = 1.0 if rng.random() < lie + low * (1.0 - 2.0 * lie) else 0.0
    return 0.5 * one + 0.25 * other


@bl.kernel
def learn_two_bits(params, state, t, arm, reward, phase, rng):
    learn_tally(params, state, t, arm, two_bits(params, reward, 1.0, rng), phase, rng)


@bl.kernel
def clipped_noise(params, reward, level, rng):
    noise = rng.laplace(0.0, 1.0 / params.epsilon)
    return reward + min(max(noise, -2.0), 2.0)


@bl.kernel
def learn_clipped_noise(params, state, t, arm, reward, phase, rng):
    learn_tally(params, state, t, arm, clipped_noise(params, reward, 1.0, rng), phase, rng)


def local(name, mistake, learn, report, **options):
    return violator(
        name, mistake, bl.Kernels(begin_tally, choose_by_sum, learn), LocalBoundedPolicy,
        report_kernel=staticmethod(report), by_replay=False, **options,
    )  # fmt: skip


SLIPS = [
    violator("window-of-two", "each batch is in two releases", frame(score=window_of_two)),
    violator("larger-of-two", "two releases at epsilon", frame(score=larger_of_two)),
    violator("median-of-three", "three at half of epsilon", frame(score=median_of_three)),
    violator("best-and-its-sum", "the best arm, and its sum", frame(score=best_and_its_sum)),
    violator("epsilon-squared", "epsilon squared", frame(score=epsilon_squared), epsilon=2.0),
    violator(
        "classical-gaussian", "the formula for small epsilon",
        frame(score=classical_gaussian), epsilon=8.0, delta=(Delta, 1e-3),
    ),
    violator(
        "two-gaussians", "twice the whole budget",
        frame(score=gaussian_at_each_arm), delta=(Delta, 1e-3),
    ),
    violator(
        "checked-often", "a release after each reward",
        frame(keep=checked_often, score=forget_notes),
    ),
    violator("exact-threshold", "an exact one at twice epsilon", frame(score=exact_threshold)),
    violator("full-exponential", "four times the exponent", frame(score=full_exponential)),
    violator(
        "amplified-too-much", "half counts, a tenth is claimed",
        frame(keep=half_of_them, score=amplified_too_much),
    ),
    violator(
        "narrow-geometric", "discrete noise for two epsilon",
        frame(keep=coin, score=narrow_geometric),
    ),
    violator("changes", "sums of changes", frame(keep=changes)),
    violator("products", "products of neighbouring rewards", frame(keep=products)),
    violator("importance", "divided by the propensity", frame(keep=importance)),
    violator(
        "largest-reward", "a maximum with a mean's noise",
        frame(keep=count_and_keep_largest, score=largest_reward),
    ),
    violator(
        "one-side", "clipped on two sides, noise for one",
        frame(keep=around_score, score=around_score_sums),
    ),
    violator("weights-by-round", "later ones count more", frame(keep=weights_by_round)),
    violator("raw-prior", "drawn towards a raw mean", frame(score=raw_prior)),
    violator("only-if-changed", "an equal sum is not released", frame(score=only_if_changed)),
    violator("noise-by-formula", "noise without a draw", frame(score=noise_by_formula)),
    violator("settles-the-lead", "a raw lead ends the releases", frame(score=settles_the_lead)),
    violator("by-raw-variance", "a bonus by raw variance", frame(pick=by_raw_variance)),
    violator("lost-takes-back", "a lost one shows raw means", frame(lose=lost_takes_back)),
    violator(
        "last-goes-on", "a batch's last reward is used twice",
        frame(keep=keep_last, score=last_goes_on),
    ),
    violator(
        "tie-by-last", "ties by last rewards",
        frame(keep=keep_last, pick=spare_by_last_reward),
    ),
    violator("restart-at-500", "raw sums in round 500", frame(pick=restart_at_500)),
    violator("largest-by-luck", "the raw best shows at times", frame(keep=largest_by_luck)),
    violator("longer-if-varied", "lengths by raw sums", frame(score=longer_if_varied)),
    local("two-bits", "epsilon for each of two bits", learn_two_bits, two_bits),
    local("clipped-noise", "clipped noise in a report", learn_clipped_noise, clipped_noise),
]  # fmt: skip
