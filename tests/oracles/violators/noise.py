"""Mistakes in the noise: too little of it, shared, missing at times, or of another law."""

from __future__ import annotations

import math
from typing import Any

import balaclava as bl
from balaclava.authoring import (
    Delta,
    PrivateBoundedPolicy,
    RadiusScale,
    laplace_release,
    mechanism,
    truncated_laplace_release,
)
from balaclava.frames.episodes import add_reward, keep_release
from balaclava.frames.pools import NO_ROW
from balaclava.policies.contextual.dp_linucb import DPLinUCB
from balaclava.policies.experts import dp_exp4
from balaclava.privacy.mechanisms.analytic_gaussian import gaussian_shift, gaussian_vector_release
from tests.oracles.violators.frame import (
    LINUCB,
    SEED_1,
    Violator,
    as_summed,
    begin,
    best_of,
    frame,
    violator,
)

# Too little


def half_noise(params, state, rng):
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, 2.0 * params.epsilon)


def a_quarter_more(params, state, rng):
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, 1.25 * params.epsilon)


def root_two(params, state, rng):
    for arm in range(params.arms):
        epsilon = math.sqrt(2.0) * params.epsilon
        state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, epsilon)


def half_the_laplace(params, state, rng):
    for arm in range(params.arms):
        state.scores[arm] = state.sums[arm] + rng.laplace(0.0, 0.5 / params.epsilon)


def arms_share(params, state, rng):
    """Epsilon times the number of arms, as if it were split."""
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon * params.arms)


def narrow_noise(params, state, rng):
    """Truncated noise, whose delta the claim does not have."""
    for arm in range(params.arms):
        state.scores[arm] = truncated_laplace_release(
            rng, state.sums[arm], 1.0, params.epsilon, 0.05
        )


def wrong_sensitivity(params, state, rng):
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 0.5, params.epsilon)


def negative_epsilon(params, state, rng):
    for arm in range(params.arms):
        truncated_laplace_release(rng, state.sums[arm], 1.0, -9.0 * params.epsilon, 0.0)
        state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, 10.0 * params.epsilon)


def not_a_number(params, state, rng):
    """Rare, so that games do not see it."""
    for arm in range(params.arms):
        value = state.sums[arm] if state.sums[arm] > 0.0 else math.nan
        answer = laplace_release(rng, value, 1.0, params.epsilon)
        state.scores[arm] = -1000.0 if math.isnan(answer) else answer


@bl.kernel
def begin_long(params):
    state = begin(params)
    state.length[0] = math.ceil(200 * params.radius_scale)
    return state


def scaled_budget(params, state, rng):
    epsilon = params.epsilon * params.radius_scale / 0.3
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, epsilon)


class Forgetful(PrivateBoundedPolicy):
    """Uses ten times the epsilon from the second call on, as after a restore."""

    asked = 0

    def constants(self):
        params = super().constants()
        type(self).asked += 1
        return params if type(self).asked == 1 else params._replace(epsilon=10.0 * params.epsilon)


class QuarterNoise(dp_exp4.DPExp4):
    """dp-exp4 with a quarter of the noise."""

    name = "quarter-noise"

    def constants(self) -> Any:
        params = super().constants()
        return params._replace(epsilon=4.0 * params.epsilon)


@bl.kernel(borrows=True)
def learn_half(params, state, t, arm, reward, phase, rng):
    """As dp-linucb, with noise for half of the sensitivity."""
    row = add_reward(state.episodes, 0, phase, reward, params.step)
    if row != NO_ROW:
        sums, answer = state.episodes.sums[0, row], state.episodes.last_release
        gaussian_vector_release(rng, sums, 0.5, params.epsilon, params.delta, answer)
        keep_release(state.episodes, 0, row)


# Shared


def shared_draw(params, state, rng):
    noise = laplace_release(rng, 0.0, 1.0, params.epsilon)
    for arm in range(params.arms):
        state.scores[arm] = state.sums[arm] + noise


def shared_noise(params, state, rng):
    state.scores[0] = laplace_release(rng, state.sums[0], 1.0, params.epsilon)
    noise = state.scores[0] - state.sums[0]
    for arm in range(1, params.arms):
        state.scores[arm] = state.sums[arm] + noise


def old_noise(params, state, rng):
    """Every second batch has the noise of the batch before."""
    for arm in range(params.arms):
        if state.number[0] % 2 == 1:
            score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
            state.notes[arm] = score - state.sums[arm]
        state.scores[arm] = state.sums[arm] + state.notes[arm]


# Missing


def first_without_noise(params, state, rng):
    for arm in range(params.arms):
        state.scores[arm] = state.sums[arm]
        if state.number[0] > 1:
            state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)


def noise_at_powers_of_two(params, state, rng):
    n = state.number[0]
    for arm in range(params.arms):
        state.scores[arm] = state.sums[arm]
        if n & (n - 1) == 0:
            state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)


def two_arms_only(params, state, rng):
    for arm in range(params.arms):
        state.scores[arm] = state.sums[arm]
        if arm < 2:
            state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)


def bare_third(params, state, rng):
    """Every third batch of arm 1 has no noise."""
    for arm in range(params.arms):
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        bare = arm == 1 and state.number[0] % 3 == 0
        state.scores[arm] = state.sums[arm] if bare else score


def winner_only_noise(params, state, rng):
    """Only the arm that leads without noise gets noise."""
    leader = best_of(state.sums)
    for arm in range(params.arms):
        state.scores[arm] = state.sums[arm]
    state.scores[leader] = laplace_release(rng, state.sums[leader], 1.0, params.epsilon)


def skips_empty(params, state, rng):
    """An arm whose sum is 0 is not released: no noise shows that it is 0."""
    for arm in range(params.arms):
        state.scores[arm] = 0.0
        if state.sums[arm] > 0.0:
            state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)


def raw_argument(params, state, rng):
    """Raw sums as the argument of a plain draw."""
    for arm in range(params.arms):
        state.scores[arm] = rng.normal(state.sums[arm], 1e-9)


@bl.kernel
def two_noisy_arms(params, state, rng):
    for arm in range(2):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)


def third_raw_argument(params, state, rng):
    two_noisy_arms(params, state, rng)
    state.scores[2] = rng.laplace(state.sums[2], 0.05)


def third_negative(params, state, rng):
    two_noisy_arms(params, state, rng)
    truncated_laplace_release(rng, state.sums[2], 1.0, -9.0 * params.epsilon, 0.0)
    state.scores[2] = laplace_release(rng, state.sums[2], 1.0, 10.0 * params.epsilon)


def third_nan(params, state, rng):
    two_noisy_arms(params, state, rng)
    value = math.nan if state.number[0] == 1 and state.sums[2] > 1.9 else state.sums[2]
    answer = laplace_release(rng, value, 1.0, params.epsilon)
    state.scores[2] = 1000.0 if math.isnan(answer) else answer


# Of another law, or of a size that depends on data


def noise_of_raw_size(params, state, rng):
    for arm in range(params.arms):
        width = max(min(state.sums[arm], 1.0), 0.1)
        state.scores[arm] = laplace_release(rng, state.sums[arm], width, params.epsilon)


def never(terms: Any) -> float:
    raise NotImplementedError("for simulation only")


@mechanism("own Gaussian", never)
def own_gaussian(rng, value, sensitivity, epsilon, delta):
    """Calibrated for ten times its delta."""
    return value + sensitivity / gaussian_shift(epsilon, 10.0 * delta) * rng.standard_normal()


@mechanism("own uniform", never)
def own_uniform(rng, value, sensitivity, epsilon):
    return value + (rng.random() - 0.5) * 6.0 * sensitivity / epsilon


@mechanism("own cut Laplace", never)
def own_cut_laplace(rng, value, sensitivity, epsilon):
    scale = sensitivity / epsilon
    return value + min(max(rng.laplace(0.0, scale), -2.0 * scale), 2.0 * scale)


def by_own_gaussian(params, state, rng):
    for arm in range(params.arms):
        state.scores[arm] = own_gaussian(rng, state.sums[arm], 1.0, params.epsilon, params.delta)


def by_own_uniform(params, state, rng):
    for arm in range(params.arms):
        state.scores[arm] = own_uniform(rng, state.sums[arm], 1.0, params.epsilon)


def by_own_cut_laplace(params, state, rng):
    for arm in range(params.arms):
        state.scores[arm] = own_cut_laplace(rng, state.sums[arm], 1.0, params.epsilon)


NOISE = [
    violator("no-noise", "raw sums", frame(score=as_summed), in_games=True, **SEED_1),
    violator("half-noise", "twice the epsilon", frame(score=half_noise), in_games=True, **SEED_1),
    violator("a-quarter-more", "1.25 epsilon", frame(score=a_quarter_more), **SEED_1),
    violator("root-two", "epsilon times the root of 2", frame(score=root_two)),
    violator("half-the-laplace", "a plain draw of half the scale", frame(score=half_the_laplace)),
    violator("arms-share", "epsilon times the number of arms", frame(score=arms_share)),
    violator("narrow-noise", "truncated noise, without a delta", frame(score=narrow_noise)),
    violator(
        "wrong-sensitivity", "half the sensitivity",
        frame(score=wrong_sensitivity), in_games=True, **SEED_1,
    ),
    violator(
        "negative-epsilon", "a negative epsilon pays for another release",
        frame(score=negative_epsilon), **SEED_1,
    ),
    violator("nan", "NaN in place of a small sum", frame(score=not_a_number), **SEED_1),
    violator(
        "radius-scaled", "spends more with a larger radius_scale",
        frame(score=scaled_budget)._replace(begin=begin_long),
        radius_scale=(RadiusScale, 1.0), rounds=232, **SEED_1,
    ),
    violator("forgetful", "a restored agent has ten times the epsilon", frame(), Forgetful),
    Violator(
        "quarter-noise", "dp-exp4 with a quarter of the noise",
        QuarterNoise(
            arms=3, experts=4, horizon=600, epsilon=1.0, delta=1e-3, learning_rate_scale=0.1
        ), **SEED_1,
    ),
    violator(
        "half-linucb", "dp-linucb with half the sensitivity",
        DPLinUCB.kernels._replace(learn=learn_half), DPLinUCB, **LINUCB,
    ),
    violator(
        "shared-draw", "one draw for all arms", frame(score=shared_draw), in_games=True, **SEED_1
    ),
    violator("shared-noise", "the first arm's noise for all arms", frame(score=shared_noise)),
    violator("old-noise", "the noise of the batch before", frame(score=old_noise)),
    violator(
        "first-without-noise", "the first batch is raw",
        frame(score=first_without_noise), in_games=True, **SEED_1,
    ),
    violator("noise-at-powers-of-two", "noise at times", frame(score=noise_at_powers_of_two)),
    violator("two-arms-only", "the third arm is raw", frame(score=two_arms_only), arms=3),
    violator("bare-third", "every third batch of arm 1 is raw", frame(score=bare_third)),
    violator("winner-only-noise", "noise for the raw leader only", frame(score=winner_only_noise)),
    violator("skips-empty", "an arm of sum 0 is not released", frame(score=skips_empty)),
    violator("raw-argument", "raw sums in a plain draw", frame(score=raw_argument), **SEED_1),
    violator(
        "raw-argument-8", "the same, with a large claim",
        frame(score=raw_argument), epsilon=8.0, **SEED_1,
    ),
    violator(
        "third-raw-argument", "a plain draw for arm 2, which no game varies",
        frame(score=third_raw_argument), arms=3, **SEED_1,
    ),
    violator(
        "third-negative", "a negative epsilon for arm 2",
        frame(score=third_negative), arms=3, **SEED_1,
    ),
    violator("third-nan", "NaN for a large sum of arm 2", frame(score=third_nan), arms=3, **SEED_1),
    violator("noise-of-raw-size", "a scale by the raw sum", frame(score=noise_of_raw_size)),
    violator(
        "own-gaussian", "calibrated for ten times its delta",
        frame(score=by_own_gaussian), delta=(Delta, 1e-3), by_replay=False,
    ),
    violator("own-uniform", "uniform noise", frame(score=by_own_uniform), by_replay=False),
    violator("own-cut-laplace", "clipped noise", frame(score=by_own_cut_laplace), by_replay=False),
]  # fmt: skip
