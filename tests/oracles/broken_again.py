"""Ten more broken policies, written after the auditor was finished and without a look at it."""

from __future__ import annotations

import math

from balaclava.authoring import Delta
from balaclava.policies.base import PrivateRealPolicy
from balaclava.privacy.mechanisms.analytic_gaussian import gaussian_release
from balaclava.privacy.mechanisms.laplace import laplace_release
from balaclava.privacy.mechanisms.truncated_laplace import truncated_laplace_release
from tests.oracles.broken_frame import best_of, claiming, frame

ELSEWHERE: set[str] = {"slow-memory"}


def slow_memory(params, state, t, context, arm, phase, rng):
    """Every 997th round is decided by the raw sums."""
    return (best_of(state.raw), phase) if t % 997 == 0 else (arm, phase)


def winner_only_noise(params, state, rng):
    """Only the arm that leads without noise gets noise."""
    leader = best_of(state.sums)
    for arm in range(params.arms):
        state.scores[arm] = state.sums[arm]
    state.scores[leader] = laplace_release(rng, state.sums[leader], 1.0, params.epsilon)


def means_by_raw_count(params, state, rng):
    """A noisy sum over the number of rewards above one half."""
    for arm in range(params.arms):
        total = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = total / max(state.notes[arm], 1.0)
        state.notes[arm] = 0.0


def count_high(params, state, t, arm, reward, phase, rng):
    if reward > 0.5 and phase == state.number[0]:
        state.notes[arm] += 1.0
    return reward


def clips_at_raw_mean(params, state, t, arm, reward, phase, rng):
    """Rewards beyond twice the running raw mean are cut to it."""
    state.notes[0] += 1.0
    mean = state.raw.sum() / state.notes[0]
    return min(abs(reward), 2.0 * abs(mean) + 0.1)


def level_ten(params, state, rng):
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 10.0, params.epsilon)


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


def skips_empty(params, state, rng):
    """An arm whose sum is 0 is not released: no noise shows that it is 0."""
    for arm in range(params.arms):
        state.scores[arm] = 0.0
        if state.sums[arm] > 0.0:
            state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)


def lost_returns(params, state, t, arm, phase, rng):
    """For a lost reward the raw mean so far is put in."""
    state.sums[arm] += state.raw[arm] / max(t, 1)


def narrow_noise(params, state, rng):
    """Truncated noise, whose delta the claim does not have."""
    for arm in range(params.arms):
        state.scores[arm] = truncated_laplace_release(
            rng, state.sums[arm], 1.0, params.epsilon, 0.05
        )


def last_bits(params, state, rng):
    """The noisy score keeps the raw sum in its last digits, and ties are decided by them."""
    for arm in range(params.arms):
        answer = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = math.floor(answer) + 1e-6 * state.sums[arm]


def policies():
    """All of them, by name."""
    return {
        policy.name: policy
        for policy in (
            claiming("slow-memory", frame(pick=slow_memory)),
            claiming("winner-only-noise", frame(score=winner_only_noise)),
            claiming("means-by-raw-count", frame(keep=count_high, score=means_by_raw_count)),
            claiming(
                "clips-at-raw-mean",
                frame(keep=clips_at_raw_mean, score=level_ten),
                PrivateRealPolicy,
            ),
            claiming("delta-of-each", frame(score=delta_of_each_arm), delta=(Delta, 1e-3)),
            claiming("retries-until-positive", frame(score=retries_until_positive)),
            claiming("skips-empty", frame(score=skips_empty)),
            claiming("lost-returns", frame(lose=lost_returns)),
            claiming("narrow-noise", frame(score=narrow_noise)),
            claiming("last-bits", frame(score=last_bits)),
        )
    }
