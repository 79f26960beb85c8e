"""Raw data that reaches a decision, a batch's length, a phase or a display."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

import balaclava as bl
from balaclava.authoring import (
    Estimation,
    Experts,
    Horizon,
    PrivateBoundedPolicy,
    PrivateExpertPolicy,
    laplace_release,
    truncated,
)
from balaclava.policies.base import ArmRelease
from balaclava.policies.contextual.dp_linucb import DPLinUCB
from tests.oracles.violators.controls import FAR_LEVEL
from tests.oracles.violators.frame import LENGTH, LINUCB, SEED_1, best_of, frame, violator
from tests.oracles.violators.sensitivity import truncating

# Decisions by raw sums, at times


def after_300(params, state, t, context, arm, phase, rng):
    return (best_of(state.raw), phase) if t > 300 else (arm, phase)


def raw_after_5000(params, state, t, context, arm, phase, rng):
    return (best_of(state.raw), phase) if t > 5_000 else (arm, phase)


def raw_past_horizon(params, state, t, context, arm, phase, rng):
    return (best_of(state.raw), phase) if t > params.horizon else (arm, phase)


def slow_memory(params, state, t, context, arm, phase, rng):
    """Every 997th round is decided by the raw sums."""
    return (best_of(state.raw), phase) if t % 997 == 0 else (arm, phase)


def more_after_200_batches(params, state, rng):
    factor = 2.0 if state.number[0] > 200 else 1.0
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, factor * params.epsilon)


def raw_on_new_advice(params, state, t, context, arm, phase, rng):
    changed = context[0, 0] != state.notes[9] and t > 1
    state.notes[9] = context[0, 0]
    return (best_of(state.raw), phase) if changed else (arm, phase)


def raw_ties(params, state, rng):
    for arm in range(params.arms):
        answer = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = math.floor(answer / 4.0) + 1e-3 * state.sums[arm]


def last_bits(params, state, rng):
    """The noisy score keeps the raw sum in its last digits, and ties are decided by them."""
    for arm in range(params.arms):
        answer = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = math.floor(answer) + 1e-6 * state.sums[arm]


class MemoryParams(NamedTuple):
    """Parameters, and an array among them that no replay restores."""

    arms: int
    reward_range: tuple
    epsilon: float
    memory: np.ndarray


class ParamsMemory(PrivateBoundedPolicy):
    """Has an array among its parameters."""

    def constants(self):
        return MemoryParams(self.arms, self.reward_range, self.epsilon, np.zeros(1))


def note_in_params(params, state, t, arm, reward, phase, rng):
    if t == 1:
        params.memory[0] = reward
    return reward


def params_show(params, state, t, context, arm, phase, rng):
    return (1, -1) if t == 45 and params.memory[0] > 0.9 else (arm, phase)


LEARN_LINUCB = DPLinUCB.kernels.learn


@bl.kernel(borrows=True)
def learn_raw_theta(params, state, t, arm, reward, phase, rng):
    """As dp-linucb; every reward also moves the coefficients at once."""
    state.episodes.theta[0, 0] += 0.01 * reward
    LEARN_LINUCB(params, state, t, arm, reward, phase, rng)


# Single rewards


def middle_shows(params, state, t, arm, reward, phase, rng):
    if reward == 0.5:
        state.scores[arm] += 30.0
    return reward


def count_streak(params, state, t, arm, reward, phase, rng):
    state.notes[0] = state.notes[0] + 1.0 if reward > 0.99 else 0.0
    state.notes[1] = max(state.notes[1], state.notes[0])
    return reward


def streak_shows(params, state, t, context, arm, phase, rng):
    """Six rewards of 1 one after the other show."""
    return (0, phase) if state.notes[1] >= 6.0 and t % 5 == 1 else (arm, phase)


def half_steps(params, state, rng):
    """Half a step is added to the rounded answer of a large sum."""
    for arm in range(params.arms):
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = math.floor(64.0 * score) / 64.0
        if state.sums[arm] > 2.0:
            state.scores[arm] += 1.0 / 128.0


def half_steps_show(params, state, t, context, arm, phase, rng):
    step = 64.0 * state.scores[0]
    return (1, phase) if step - math.floor(step) > 0.25 and t % 4 == 2 else (arm, phase)


# Counts, extremes and lengths


def count_high(params, state, t, arm, reward, phase, rng):
    if reward > 0.5 and phase == state.number[0]:
        state.notes[arm] += 1.0
    return reward


def means_by_raw_count(params, state, rng):
    """A noisy sum over the number of rewards above one half."""
    for arm in range(params.arms):
        total = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = total / max(state.notes[arm], 1.0)
        state.notes[arm] = 0.0


def keep_least(params, state, t, arm, reward, phase, rng):
    state.notes[arm] = min(state.notes[arm], reward - 1.0)
    return reward


def above_the_least(params, state, rng):
    """A noisy mean that is never below the least raw reward of the arm."""
    for arm in range(params.arms):
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = max(score, LENGTH * (state.notes[arm] + 1.0))
        state.notes[arm] = 0.0


def count_ones(params, state, t, arm, reward, phase, rng):
    state.notes[arm] += 1.0 if reward == 1.0 else 0.0
    return reward


def steps_by_raw_count(params, state, rng):
    """The answer is rounded to steps whose width depends on a raw count."""
    for arm in range(params.arms):
        width = 4.0 if state.notes[arm] % 2.0 == 0.0 else 1.0
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = math.floor(score / width) * width


def length_of_raw(params, state, rng):
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
    state.length[0] = LENGTH + 2 * math.floor(state.sums.sum() / 4.0)


def stops_early(params, state, t, arm, reward, phase, rng):
    if state.sums[arm] + reward >= 3.0 and phase == state.number[0]:
        state.length[0] = state.settled[0] + 1
    return reward


def long_again(params, state, rng):
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
    state.length[0] = LENGTH


def stopped_early(params, state, t, arm, reward, phase, rng):
    if state.sums[arm] + reward >= 5.0 and phase == state.number[0]:
        state.length[0] = state.settled[0] + 1
    return reward


def count_kept(params, state, t, arm, reward, phase, rng):
    if phase == state.number[0] and abs(reward) <= FAR_LEVEL:
        state.notes[arm] += 1.0
    return truncated(reward, FAR_LEVEL)


def mean_of_the_kept(params, state, rng):
    for arm in range(params.arms):
        total = laplace_release(rng, state.sums[arm], 2.0 * FAR_LEVEL, params.epsilon)
        state.scores[arm] = total / max(state.notes[arm], 1.0)
        state.notes[arm] = 0.0


# Phases


def phase_tells(params, state, t, context, arm, phase, rng):
    return arm, (phase if phase < 0 or state.raw.sum() % 2.0 < 1.0 else -2)


def note_first(params, state, t, arm, reward, phase, rng):
    if t == 1:
        state.notes[0] = reward
    return reward


def phase_leak(params, state, t, context, arm, phase, rng):
    return arm, (-2 if t == 30 and state.notes[0] >= 0.9 else phase)


# Late and lost rewards


def note_clock(params, state, t, context, arm, phase, rng):
    state.notes[7] = t
    return arm, phase


def very_late_counts_raw(params, state, t, arm, reward, phase, rng):
    if state.notes[7] - t > 1_000:
        state.scores[arm] += 20.0 * reward
    return reward


def spares_count_raw(params, state, t, arm, reward, phase, rng):
    if phase < 0:
        state.scores[arm] += reward
    return reward


def cancel_shows_sums(params, state, t, arm, phase, rng):
    for a in range(params.arms):
        state.scores[a] = state.sums[a]


def lost_returns(params, state, t, arm, phase, rng):
    """For a lost reward the raw mean so far is put in."""
    state.sums[arm] += state.raw[arm] / max(t, 1)


def note_late(params, state, t, arm, reward, phase, rng):
    if t < state.notes[0]:
        state.notes[1] = reward
    state.notes[0] = max(state.notes[0], t)
    return reward


def late_shows(params, state, t, context, arm, phase, rng):
    """A reward that comes out of order determines the decision."""
    return (1 - arm, phase) if state.notes[1] > 0.9 and t % 7 == 5 else (arm, phase)


class Late(NamedTuple):
    asked: np.ndarray
    number: np.ndarray
    sums: np.ndarray
    scores: np.ndarray


@bl.kernel
def begin_late(params):
    return Late(
        np.zeros(1, np.int64), np.ones(1, np.int64), np.zeros(params.arms), np.zeros(params.arms)
    )


@bl.kernel
def choose_late(params, state, t, context, rng):
    """A batch of 20 decisions in turn is closed by the next decision, told or not."""
    if state.asked[0] == 20:
        for a in range(params.arms):
            state.scores[a] = laplace_release(rng, state.sums[a], 1.0, params.epsilon)
            state.sums[a] = 0.0
        state.asked[0] = 0
        state.number[0] += 1
    state.asked[0] += 1
    if state.asked[0] <= 10:
        return state.asked[0] % params.arms, state.number[0]
    best = 0
    for a in range(params.arms):
        if state.scores[a] > state.scores[best]:
            best = a
    return best, state.number[0]


@bl.kernel
def learn_late(params, state, t, arm, reward, phase, rng):
    if phase == state.number[0]:
        state.sums[arm] += reward
    else:
        state.scores[arm] += reward  # late: past the mechanism


def truncated_spares_count(params, state, t, arm, reward, phase, rng):
    value = truncated(reward, FAR_LEVEL)
    if phase != state.number[0]:
        state.scores[arm] += value / LENGTH
    return value


# Displays beside decisions


@bl.kernel
def raw_mean(params, state, arm):
    return LENGTH, state.raw[arm] / LENGTH, 0.0


@bl.kernel
def anything(params, rewards, mean, noise, failure):
    return 0.0, 1.0


def raw_chances(policy, state):
    """As if the arm had been drawn by raw sums."""
    shares = np.exp(state.raw - state.raw.max())
    return shares / shares.sum()


def raw_releases(policy, state):
    """Declares raw values as released."""
    return [ArmRelease(arm, LENGTH, state.sums[arm], 1, 1) for arm in range(policy.arms)]


RAW_DATA = [
    violator("after-300", "raw sums decide after 300 rounds", frame(pick=after_300), **SEED_1),
    violator(
        "raw-after-5000", "raw sums decide after 5,000 rounds",
        frame(pick=raw_after_5000), by_replay=False,
    ),
    violator(
        "raw-past-horizon", "raw sums decide past the horizon",
        frame(pick=raw_past_horizon), horizon=(Horizon, 700),
    ),
    violator(
        "slow-memory", "raw sums decide every 997th round",
        frame(pick=slow_memory), by_replay=False,
    ),
    violator(
        "more-after-200-batches", "half the noise after 200 batches",
        frame(score=more_after_200_batches), by_replay=False,
    ),
    violator(
        "raw-on-new-advice", "raw sums decide when advice changes",
        frame(pick=raw_on_new_advice), PrivateExpertPolicy, experts=(Experts, 3),
    ),
    violator("raw-ties", "raw sums decide ties", frame(score=raw_ties)),
    violator("last-bits", "raw sums in the last digits", frame(score=last_bits)),
    violator(
        "memory", "a reward is kept in the parameters",
        frame(keep=note_in_params, pick=params_show), ParamsMemory, **SEED_1,
    ),
    violator(
        "raw-theta", "dp-linucb with raw rewards in its coefficients",
        DPLinUCB.kernels._replace(learn=learn_raw_theta), DPLinUCB, **LINUCB,
    ),
    violator("middle-shows", "a reward of one half changes a score", frame(keep=middle_shows)),
    violator(
        "streak-shows", "six rewards of 1 in a row show",
        frame(keep=count_streak, pick=streak_shows),
    ),
    violator(
        "half-steps", "half a step tells of a large sum",
        frame(score=half_steps, pick=half_steps_show),
    ),
    violator(
        "means-by-raw-count", "divided by a raw count",
        frame(keep=count_high, score=means_by_raw_count),
    ),
    truncating(
        "mean-of-the-kept", "divided by the raw number of rewards within the level",
        keep=count_kept, score=mean_of_the_kept,
    ),
    violator(
        "above-the-least", "never below the smallest raw reward",
        frame(keep=keep_least, score=above_the_least),
    ),
    violator(
        "steps-by-raw-count", "rounded to steps by a raw count",
        frame(keep=count_ones, score=steps_by_raw_count),
    ),
    violator("length-of-raw", "a batch's length by raw sums", frame(score=length_of_raw)),
    violator("stops-early", "a sum of 3 ends the batch", frame(keep=stops_early, score=long_again)),
    violator(
        "stopped-early", "a sum of 5 ends the batch",
        frame(keep=stopped_early, score=long_again), in_games=True, **SEED_1,
    ),
    violator("phase-tells", "the phase tells of raw sums", frame(pick=phase_tells)),
    violator(
        "phase-leak", "one phase tells of one reward",
        frame(keep=note_first, pick=phase_leak), **SEED_1,
    ),
    violator(
        "very-late-counts", "rewards 1,000 rounds late are raw",
        frame(pick=note_clock, keep=very_late_counts_raw), by_replay=False,
    ),
    violator("spares-count", "rewards of spare decisions are raw", frame(keep=spares_count_raw)),
    truncating(
        "truncated-spares-count", "the same for truncated rewards", keep=truncated_spares_count
    ),
    violator("cancel-shows-sums", "a lost reward shows the sums", frame(lose=cancel_shows_sums)),
    violator("lost-returns", "the raw mean replaces a lost reward", frame(lose=lost_returns)),
    violator(
        "late-shows", "a reward out of order decides by itself",
        frame(keep=note_late, pick=late_shows),
    ),
    violator(
        "late", "a batch closes without its late rewards, which are then raw",
        bl.Kernels(begin_late, choose_late, learn_late), **SEED_1,
    ),
    violator(
        "estimates-raw", "an agent estimates by raw means",
        frame(), estimation=Estimation(raw_mean, anything),
    ),
    violator("chances-raw", "propensities by raw sums", frame(), chances=raw_chances),
    violator("releases-raw", "raw sums as released values", frame(), released=raw_releases),
]  # fmt: skip
