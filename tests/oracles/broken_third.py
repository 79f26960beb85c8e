"""Fifteen more broken policies, and five correct ones, of kinds that the earlier sets have not."""

from __future__ import annotations

import math

from balaclava.privacy.mechanisms.laplace import laplace_release
from tests.oracles.broken_frame import LENGTH, claiming, frame


def releases_when_given_up(params, state, t, arm, phase, rng):
    """A release when a decision is given up, of a sum that is released again at the end."""
    state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)


def old_noise(params, state, rng):
    """Every second batch has the noise of the batch before."""
    for arm in range(params.arms):
        if state.number[0] % 2 == 1:
            score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
            state.notes[arm] = score - state.sums[arm]
        state.scores[arm] = state.sums[arm] + state.notes[arm]


def arm_and_total(params, state, rng):
    """The arms' sums at epsilon, and the sum of all arms at a share of epsilon."""
    total = laplace_release(rng, state.sums.sum(), 1.0, params.epsilon / params.arms)
    for arm in range(params.arms):
        own = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = own + 0.01 * total


def count_squares(params, state, t, arm, reward, phase, rng):
    if phase == state.number[0]:
        state.notes[arm] += reward * reward
    return reward


def mean_and_variance(params, state, rng):
    """Sums and sums of squares, each at the whole epsilon."""
    for arm in range(params.arms):
        total = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        squares = laplace_release(rng, state.notes[arm], 1.0, params.epsilon)
        state.scores[arm] = total + math.sqrt(max(squares, 0.0))
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


def note_late(params, state, t, arm, reward, phase, rng):
    if t < state.notes[0]:
        state.notes[1] = reward
    state.notes[0] = max(state.notes[0], t)
    return reward


def late_shows(params, state, t, context, arm, phase, rng):
    """A reward that comes out of order decides by itself."""
    return (1 - arm, phase) if state.notes[1] > 0.9 and t % 7 == 5 else (arm, phase)


def mean_of_more(params, state, rng):
    """A mean of three rewards, or more, with the sensitivity of a mean of five."""
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm] / 3.0, 0.2, params.epsilon)


def raw_after_high(params, state, rng):
    """An arm whose last answer was high gets no noise the next time."""
    for arm in range(params.arms):
        high = state.scores[arm] > 8.0
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = state.sums[arm] if high else score


def count_streak(params, state, t, arm, reward, phase, rng):
    state.notes[0] = state.notes[0] + 1.0 if reward > 0.99 else 0.0
    state.notes[1] = max(state.notes[1], state.notes[0])
    return reward


def streak_shows(params, state, t, context, arm, phase, rng):
    """Six rewards of 1 one after the other show."""
    return (0, phase) if state.notes[1] >= 6.0 and t % 5 == 1 else (arm, phase)


def decayed(params, state, rng):
    """Half of an arm's sum goes on into the next batch: its rewards cost twice epsilon."""
    for arm in range(params.arms):
        total = state.sums[arm] + state.notes[arm]
        state.scores[arm] = laplace_release(rng, total, 1.0, params.epsilon)
        state.notes[arm] = 0.5 * total


def bare_third(params, state, rng):
    """Every third batch of arm 1 has no noise."""
    for arm in range(params.arms):
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        bare = arm == 1 and state.number[0] % 3 == 0
        state.scores[arm] = state.sums[arm] if bare else score


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


def arms_share(params, state, rng):
    """Epsilon times the number of arms, as if it were split."""
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon * params.arms)


def stretched(params, state, t, arm, reward, phase, rng):
    """Rewards are stretched, then cut to a range wider than the sensitivity."""
    return min(max(2.0 * reward - 0.25, -0.25), 1.25)


def halving(params, state, rng):
    """Decayed sums at half of epsilon: correct, as the weights 1, 1/2, 1/4 come to less than 2."""
    for arm in range(params.arms):
        total = state.sums[arm] + state.notes[arm]
        state.scores[arm] = laplace_release(rng, total, 1.0, params.epsilon / 2.0)
        state.notes[arm] = 0.5 * total


def halves(params, state, rng):
    """Sums and sums of squares at half of epsilon each: correct."""
    for arm in range(params.arms):
        total = laplace_release(rng, state.sums[arm], 1.0, params.epsilon / 2.0)
        squares = laplace_release(rng, state.notes[arm], 1.0, params.epsilon / 2.0)
        state.scores[arm] = total + math.sqrt(max(squares, 0.0))
        state.notes[arm] = 0.0


def smoothed(params, state, rng):
    """Answers are cut and averaged with earlier ones: correct, as nothing is read again."""
    for arm in range(params.arms):
        score = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = 0.5 * state.scores[arm] + 0.5 * min(max(score, 0.0), 12.0)


def as_coins(params, state, t, arm, reward, phase, rng):
    """A reward becomes a coin: correct."""
    return 1.0 if rng.random() < reward else 0.0


def signed(params, state, t, arm, reward, phase, rng):
    return 2.0 * reward - 1.0


def signed_sums(params, state, rng):
    """Rewards in [-1, 1] with a sensitivity of 2: correct."""
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 2.0, params.epsilon)


def policies():
    """The broken ones, by name."""
    return {
        policy.name: policy
        for policy in (
            claiming("releases-when-given-up", frame(lose=releases_when_given_up)),
            claiming("old-noise", frame(score=old_noise)),
            claiming("arm-and-total", frame(score=arm_and_total)),
            claiming("mean-and-variance", frame(keep=count_squares, score=mean_and_variance)),
            claiming("above-the-least", frame(keep=keep_least, score=above_the_least)),
            claiming("steps-by-raw-count", frame(keep=count_ones, score=steps_by_raw_count)),
            claiming("late-shows", frame(keep=note_late, pick=late_shows)),
            claiming("mean-of-more", frame(score=mean_of_more)),
            claiming("raw-after-high", frame(score=raw_after_high)),
            claiming("streak-shows", frame(keep=count_streak, pick=streak_shows)),
            claiming("decayed", frame(score=decayed)),
            claiming("bare-third", frame(score=bare_third)),
            claiming("half-steps", frame(score=half_steps, pick=half_steps_show)),
            claiming("arms-share", frame(score=arms_share)),
            claiming("stretched", frame(keep=stretched)),
        )
    }


def correct_policies():
    """The correct ones, by name."""
    return {
        policy.name: policy
        for policy in (
            claiming("halving", frame(score=halving)),
            claiming("halves", frame(keep=count_squares, score=halves)),
            claiming("smoothed", frame(score=smoothed)),
            claiming("as-coins", frame(keep=as_coins)),
            claiming("signed", frame(keep=signed, score=signed_sums)),
        )
    }
