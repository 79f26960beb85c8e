"""Correct policies of unusual structure: replay cannot prove them all, and none is violated."""

from __future__ import annotations

import math

import balaclava as bl
from balaclava.authoring import Delta
from balaclava.frames.tally import begin_tally, learn_tally
from balaclava.policies.base import PrivateRealPolicy
from balaclava.policies.local_policies import LocalBoundedPolicy
from balaclava.privacy.mechanisms.analytic_gaussian import gaussian_shift, gaussian_vector_release
from balaclava.privacy.mechanisms.laplace import laplace_release, laplace_vector_release
from balaclava.privacy.mechanisms.truncation import truncated
from tests.oracles.broken_frame import best_of, claiming, frame

LEVEL = 10.0


def once_more_near_the_middle(params, state, rng):
    """Release; if the answer is within 0.1 of 3, release once more; all that leaves is "above 3".

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
    """Only which is largest leaves: a reward moves all scores, and costs epsilon once.

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
    """The mechanism is asked for noise alone, which is then added: the same law."""
    for arm in range(params.arms):
        noise = laplace_release(rng, 0.0, 1.0, params.epsilon)
        state.scores[arm] = state.sums[arm] + noise


def flipped(params, state, t, arm, reward, phase, rng):
    """Randomized response by the policy itself, with a plain draw."""
    lie = 1.0 / (1.0 + math.exp(params.epsilon))
    return 1.0 if rng.random() < lie + reward * (1.0 - 2.0 * lie) else 0.0


def as_summed(params, state, rng):
    state.scores[:] = state.sums


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
    """Declares twice what a reward moves, and twice the epsilon: the noise is the same."""
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


def redrawn_afterwards(params, state, t, context, arm, phase, rng):
    """Thompson-like play about what was released: nothing raw."""
    if phase < 0 or 2 * state.asked[0] <= state.length[0]:
        return arm, phase
    best, highest = 0, -math.inf
    for a in range(params.arms):
        theta = rng.normal(state.scores[a], 2.0)
        if theta > highest:
            best, highest = a, theta
    return best, phase


def arrays(params, state, rng):
    laplace_vector_release(rng, state.sums, 1.0, params.epsilon, state.scores)


def gaussian_arrays(params, state, rng):
    gaussian_vector_release(rng, state.sums, 1.0, params.epsilon, params.delta, state.scores)


def within_level(params, state, t, arm, reward, phase, rng):
    return truncated(reward, LEVEL)


def truncated_sums(params, state, rng):
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 2.0 * LEVEL, params.epsilon)


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


def policies():
    """Every correct policy, by name."""
    kernels = bl.Kernels
    return {
        policy.name: policy
        for policy in (
            claiming("once-more", frame(score=once_more_near_the_middle)),
            claiming("noisy-maximum", frame(score=noisy_maximum), arms=3),
            claiming("sparse-vector", frame(score=sparse_vector), arms=3),
            claiming("subsampled", frame(keep=half_of_them, score=subsampled)),
            claiming("exponential", frame(score=exponential)),
            claiming("noise-apart", frame(score=noise_apart)),
            claiming("flipped", frame(keep=flipped, score=as_summed)),
            claiming("plain-gaussian", frame(score=plain_gaussian), delta=(Delta, 1e-3)),
            claiming("two-halves", frame(score=two_halves)),
            claiming("modest-sums", frame(score=modest_sums)),
            claiming("geometric", frame(keep=coin, score=geometric)),
            claiming("redrawn-afterwards", frame(pick=redrawn_afterwards)),
            claiming("arrays", frame(score=arrays)),
            claiming("gaussian-arrays", frame(score=gaussian_arrays), delta=(Delta, 1e-3)),
            claiming(
                "truncated", frame(keep=within_level, score=truncated_sums), PrivateRealPolicy
            ),
            claiming(
                "fresh-exponential",
                kernels(begin_tally, choose_fresh, learn_tally),
                scope="decision",
            ),
            claiming(
                "own-report",
                kernels(begin_tally, choose_by_sum, learn_honest),
                LocalBoundedPolicy,
                report_kernel=staticmethod(honest_report),
            ),
        )
    }
