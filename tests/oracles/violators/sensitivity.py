"""Rewards that count for more than the sensitivity: clipping, centring and weighting mistakes."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import balaclava as bl
from balaclava.authoring import (
    MomentBound,
    PrivateRealPolicy,
    laplace_release,
    tree_insert,
    tree_sum,
    truncated,
)
from balaclava.policies.experts import dp_exp4
from balaclava.policies.heavy_tailed import dpr_ucb
from balaclava.policies.heavy_tailed.dpr_ucb import DPRUCB
from tests.oracles.violators.controls import (
    FAR_LEVEL,
    LEVEL,
    far_truncated_sums,
    truncated_sums,
    within_far_level,
)
from tests.oracles.violators.frame import LENGTH, SEED_1, Violator, frame, violator

TRUNCATING = {"moment_bound": (MomentBound, 1.0), "moment_order": (float, 2.0), "arms": 3}

# Bounded rewards


def repeated_counts_more(params, state, t, arm, reward, phase, rng):
    extra = 3.0 if reward == state.notes[arm] and reward > 0.0 else 0.0
    state.notes[arm] = reward
    return reward + extra


def last_counts_twice(params, state, t, arm, reward, phase, rng):
    return 2.0 * reward if state.settled[0] == state.length[0] - 1 else reward


def about_first(params, state, t, arm, reward, phase, rng):
    """Sums of differences to the first reward of the batch, which moves them all."""
    if state.settled[0] == 0:
        state.notes[0] = reward
    return reward - state.notes[0]


def mean_of_more(params, state, rng):
    """A mean of three rewards, or more, with the sensitivity of a mean of five."""
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm] / 3.0, 0.2, params.epsilon)


def stretched(params, state, t, arm, reward, phase, rng):
    """Rewards are stretched, then cut to a range wider than the sensitivity."""
    return min(max(2.0 * reward - 0.25, -0.25), 1.25)


# Rewards of any size


def huge_is_not_cut(params, state, t, arm, reward, phase, rng):
    return truncated(reward, LEVEL) if abs(reward) < 1e120 else reward / 1e120


def denormal_shows(params, state, t, arm, reward, phase, rng):
    if 0.0 < reward < 1e-300:
        state.scores[arm] += 50.0
    return truncated(reward, LEVEL)


def clips_at_raw_mean(params, state, t, arm, reward, phase, rng):
    """Rewards beyond twice the running raw mean are cut to it."""
    state.notes[0] += 1.0
    mean = state.raw.sum() / state.notes[0]
    return min(abs(reward), 2.0 * abs(mean) + 0.1)


def level_ten(params, state, rng):
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 10.0, params.epsilon)


def hoped_range(params, state, rng):
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 2000.0, params.epsilon)


def released(sensitivity, scale=1.0):
    """Releases sums, in units of `scale`, at that sensitivity."""

    def score(params, state, rng):
        for arm in range(params.arms):
            value, width = scale * state.sums[arm], scale * sensitivity
            state.scores[arm] = laplace_release(rng, value, width, params.epsilon) / scale

    return score


def about_raw_mean(params, state, t, arm, reward, phase, rng):
    return truncated(reward - state.notes[arm], FAR_LEVEL)


def keep_raw_mean(params, state, rng):
    for arm in range(params.arms):
        total = laplace_release(rng, state.sums[arm], 2.0 * FAR_LEVEL, params.epsilon)
        state.scores[arm] = LENGTH * state.notes[arm] + total
        state.notes[arm] += state.sums[arm] / LENGTH


def about_first_reward(params, state, t, arm, reward, phase, rng):
    if state.settled[0] == 0:
        state.notes[0] = min(max(reward, -FAR_LEVEL), FAR_LEVEL)
    return truncated(reward - state.notes[0], FAR_LEVEL)


def level_of_raw_maximum(params, state, t, arm, reward, phase, rng):
    level = FAR_LEVEL if state.number[0] == 1 else state.notes[arm]
    if phase == state.number[0]:
        state.notes[arm] = max(state.notes[arm], min(abs(reward), FAR_LEVEL))
    return truncated(reward, level) if level > 1e-250 else 0.0


def keep_raw_maximum(params, state, t, arm, reward, phase, rng):
    if phase == state.number[0]:
        state.notes[arm] = max(state.notes[arm], min(abs(reward), FAR_LEVEL), 1e-3)
    return truncated(reward, FAR_LEVEL)


def noise_of_raw_maximum(params, state, rng):
    for arm in range(params.arms):
        width = 2.0 * max(state.notes[arm], 1e-3)
        state.scores[arm] = laplace_release(rng, state.sums[arm], width, params.epsilon)
        state.notes[arm] = 0.0


@bl.kernel
def learn_first_level(params, state, t, arm, reward, phase, rng):
    n = state.indices.tally.pulls[arm] + 1
    if n > params.horizon:
        return
    growth = n**params.root
    item = truncated(reward, params.level * growth)
    tree_insert(rng, state.trees, arm, item, 2.0 * params.level, params.epsilon)
    if n == 1:
        state.indices.tally.unknown[0] -= 1
    state.indices.tally.pulls[arm] = n
    state.indices.means[arm] = tree_sum(state.trees, arm) / n
    state.indices.widths[arm] = growth / n


@bl.kernel
def learn_uncapped(params, state, t, arm, reward, phase, rng):
    """As dp-exp4, but no term is capped."""
    note = dp_exp4.take_note(state.weights.pending, phase)
    if note < 0:
        return
    notes, row = state.weights.pending.notes, dp_exp4.batch_row(params, phase)
    for expert in range(params.experts):
        state.sums[row, expert] += math.floor(
            reward / notes[note, 0] / params.step * notes[note, expert + 1] + 0.5
        )
    dp_exp4.settle(params, state, row, rng)


class NarrowExperts(dp_exp4.DPExp4):
    """Forgets the floor gamma / K: releases as if every chance were 1 or more."""

    name = "narrow-experts"
    kernels: ClassVar = bl.Kernels(dp_exp4.begin, dp_exp4.choose, learn_uncapped)

    def constants(self) -> Any:
        params = super().constants()
        return params._replace(width=params.width * params.mixing / self.arms)


def truncating(name, mistake, keep=within_far_level, score=far_truncated_sums):
    return violator(
        name, mistake, frame(keep=keep, score=score), PrivateRealPolicy, **TRUNCATING, **SEED_1
    )


SENSITIVITY = [
    violator(
        "repeated-counts-more", "a repeated reward counts 3 more", frame(keep=repeated_counts_more)
    ),
    violator(
        "last-counts-twice", "the last reward of a batch counts twice",
        frame(keep=last_counts_twice),
    ),
    violator("about-first", "a batch's first reward moves the others", frame(keep=about_first)),
    violator("mean-of-more", "a mean of 3, the sensitivity of 5", frame(score=mean_of_more)),
    violator("stretched", "a range wider than the sensitivity", frame(keep=stretched)),
    violator(
        "huge-is-not-cut", "huge rewards pass truncation",
        frame(keep=huge_is_not_cut, score=truncated_sums), PrivateRealPolicy,
    ),
    violator(
        "denormal-shows", "a denormal reward changes a score",
        frame(keep=denormal_shows, score=truncated_sums), PrivateRealPolicy,
    ),
    violator(
        "clips-at-raw-mean", "clipped at twice the raw mean",
        frame(keep=clips_at_raw_mean, score=level_ten), PrivateRealPolicy,
    ),
    violator(
        "unbounded", "real rewards without truncation",
        frame(score=hoped_range), PrivateRealPolicy, **SEED_1,
    ),
    truncating("sensitivity-b", "one level, not two", score=released(FAR_LEVEL)),
    truncating("sensitivity-1.5b", "1.5 levels, not two", score=released(1.5 * FAR_LEVEL)),
    truncating("sensitivity-1.9b", "1.9 levels, not two", score=released(1.9 * FAR_LEVEL)),
    truncating(
        "tiny-units", "a hundredth of a level, in units of 1e-20",
        score=released(FAR_LEVEL / 100.0, 1e-20),
    ),
    truncating(
        "about-raw-mean", "truncated about the raw mean of the last batch",
        keep=about_raw_mean, score=keep_raw_mean,
    ),
    truncating(
        "about-first-reward", "truncated about the first reward of the batch",
        keep=about_first_reward,
    ),
    truncating(
        "level-of-raw-maximum", "the level is the largest raw reward", keep=level_of_raw_maximum
    ),
    truncating(
        "noise-of-raw-maximum", "the noise fits the largest raw reward",
        keep=keep_raw_maximum, score=noise_of_raw_maximum,
    ),
    violator(
        "first-level", "dpr-ucb with noise for the first, lowest level in every node",
        bl.Kernels(dpr_ucb.begin, dpr_ucb.choose, learn_first_level), DPRUCB, horizon=600,
        moment_order=1.9, moment_bound=2.0, radius_scale=0.01, **SEED_1,
    ),
    Violator(
        "narrow-experts", "dp-exp4 as if every propensity were 1 or more",
        NarrowExperts(
            arms=3, experts=4, horizon=600, epsilon=1.0, delta=1e-3, learning_rate_scale=0.1
        ), **SEED_1,
    ),
]  # fmt: skip
