"""Broken policies, each with a mistake that hides somewhere else."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import balaclava as bl
from balaclava.authoring import Delta, Experts, Horizon
from balaclava.frames.tally import begin_tally, learn_tally
from balaclava.policies.base import PrivateBoundedPolicy, PrivateRealPolicy
from balaclava.policies.expert_policies import PrivateExpertPolicy
from balaclava.policies.local_policies import LocalBoundedPolicy
from balaclava.privacy.mechanisms.analytic_gaussian import gaussian_shift, gaussian_vector_release
from balaclava.privacy.mechanisms.base import mechanism
from balaclava.privacy.mechanisms.laplace import laplace_release
from balaclava.privacy.mechanisms.truncated_laplace import truncated_laplace_release
from balaclava.privacy.mechanisms.truncation import truncated
from tests.oracles.broken_frame import LENGTH, best_of, claiming, frame

LEVEL = 10.0

# Late in a run


def raw_after_5000(params, state, t, context, arm, phase, rng):
    return (best_of(state.raw), phase) if t > 5_000 else (arm, phase)


def raw_past_horizon(params, state, t, context, arm, phase, rng):
    return (best_of(state.raw), phase) if t > params.horizon else (arm, phase)


def more_after_200_batches(params, state, rng):
    factor = 2.0 if state.number[0] > 200 else 1.0
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, factor * params.epsilon)


# Late and cancelled rewards


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


def cancel_releases_early(params, state, t, arm, phase, rng):
    for a in range(params.arms):
        state.scores[a] = laplace_release(rng, state.sums[a], 1.0, params.epsilon)


# Values


def huge_is_not_cut(params, state, t, arm, reward, phase, rng):
    return truncated(reward, LEVEL) if abs(reward) < 1e120 else reward / 1e120


def denormal_shows(params, state, t, arm, reward, phase, rng):
    if 0.0 < reward < 1e-300:
        state.scores[arm] += 50.0
    return truncated(reward, LEVEL)


def truncated_score(params, state, rng):
    for arm in range(params.arms):
        state.scores[arm] = laplace_release(rng, state.sums[arm], 2.0 * LEVEL, params.epsilon)


def repeated_counts_more(params, state, t, arm, reward, phase, rng):
    extra = 3.0 if reward == state.notes[arm] and reward > 0.0 else 0.0
    state.notes[arm] = reward
    return reward + extra


def middle_shows(params, state, t, arm, reward, phase, rng):
    if reward == 0.5:
        state.scores[arm] += 30.0
    return reward


def last_counts_twice(params, state, t, arm, reward, phase, rng):
    return 2.0 * reward if state.settled[0] == state.length[0] - 1 else reward


# Noise


def root_two(params, state, rng):
    for arm in range(params.arms):
        epsilon = math.sqrt(2.0) * params.epsilon
        state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, epsilon)


def shared_noise(params, state, rng):
    state.scores[0] = laplace_release(rng, state.sums[0], 1.0, params.epsilon)
    noise = state.scores[0] - state.sums[0]
    for arm in range(1, params.arms):
        state.scores[arm] = state.sums[arm] + noise


def noise_at_powers_of_two(params, state, rng):
    n = state.number[0]
    for arm in range(params.arms):
        state.scores[arm] = state.sums[arm]
        if n & (n - 1) == 0:
            state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)


def half_the_laplace(params, state, rng):
    for arm in range(params.arms):
        state.scores[arm] = state.sums[arm] + rng.laplace(0.0, 0.5 / params.epsilon)


def two_arms_only(params, state, rng):
    for arm in range(params.arms):
        state.scores[arm] = state.sums[arm]
        if arm < 2:
            state.scores[arm] = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)


def noise_of_raw_size(params, state, rng):
    for arm in range(params.arms):
        width = max(min(state.sums[arm], 1.0), 0.1)
        state.scores[arm] = laplace_release(rng, state.sums[arm], width, params.epsilon)


def data_kept_every_third(params, state, rng):
    for arm in range(params.arms):
        total = state.sums[arm] + state.notes[arm]
        state.scores[arm] = laplace_release(rng, total, 1.0, params.epsilon)
        state.notes[arm] = state.sums[arm] if state.number[0] % 3 == 0 else 0.0


def raw_ties(params, state, rng):
    for arm in range(params.arms):
        answer = laplace_release(rng, state.sums[arm], 1.0, params.epsilon)
        state.scores[arm] = math.floor(answer / 4.0) + 1e-3 * state.sums[arm]


def about_first(params, state, t, arm, reward, phase, rng):
    """Sums of differences to the first reward of the batch, which moves them all."""
    if state.settled[0] == 0:
        state.notes[0] = reward
    return reward - state.notes[0]


# Shape


def phase_tells(params, state, t, context, arm, phase, rng):
    return arm, (phase if phase < 0 or state.raw.sum() % 2.0 < 1.0 else -2)


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


# Contexts


def raw_on_new_advice(params, state, t, context, arm, phase, rng):
    changed = context[0, 0] != state.notes[9] and t > 1
    state.notes[9] = context[0, 0]
    return (best_of(state.raw), phase) if changed else (arm, phase)


# Mechanisms of one's own


class Forgetful(PrivateBoundedPolicy):
    """Says another epsilon to whoever asks twice, as a restored agent does."""

    asked = 0

    def constants(self):
        params = super().constants()
        type(self).asked += 1
        return params if type(self).asked == 1 else params._replace(epsilon=10.0 * params.epsilon)


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


def vector_of_too_much(params, state, rng):
    """Each arm's mean-corrected sum: a reward moves all of them, the L2 norm is above 1."""
    for arm in range(params.arms):
        state.notes[arm] = 2.0 * state.sums[arm] - state.sums.sum()
    n = params.arms
    gaussian_vector_release(rng, state.notes[:n], 1.0, params.epsilon, params.delta, state.scores)


# Single decisions


@bl.kernel
def choose_by_averages(params, state, t, context, rng):
    """Fresh noise for each decision, and then the average of all noise so far."""
    if t <= 2 * params.arms:
        return (t - 1) % params.arms, 0
    for arm in range(params.arms):
        pulls = max(state.pulls[arm], 1.0)
        answer = laplace_release(rng, state.sums[arm] / pulls, 1.0 / pulls, params.epsilon)
        state.notes[arm] += answer
    return best_of(state.notes[: params.arms]), 0


@bl.kernel
def choose_by_old_draws(params, state, t, context, rng):
    """Noise is drawn every fifth round, and read five times."""
    if t <= 2 * params.arms:
        return (t - 1) % params.arms, 0
    if t % 5 == 0:
        for arm in range(params.arms):
            state.notes[arm] = truncated_laplace_release(
                rng, state.sums[arm], 1.0, params.epsilon, params.delta
            )
    return best_of(state.notes[: params.arms]), 0


class Counted(NamedTuple):
    """Sums, pulls, notes."""

    sums: np.ndarray
    pulls: np.ndarray
    notes: np.ndarray


@bl.kernel
def begin_counts(params):
    return Counted(np.zeros(params.arms), np.zeros(params.arms), np.zeros(64))


@bl.kernel
def learn_counts(params, state, t, arm, reward, phase, rng):
    state.sums[arm] += reward
    state.pulls[arm] += 1.0


# Reports


@bl.kernel
def talkative_report(params, reward, level, rng):
    lie = 1.0 / (1.0 + math.exp(2.0 * params.epsilon))
    return 1.0 if rng.random() < lie + reward * (1.0 - 2.0 * lie) else 0.0


@bl.kernel
def learn_talkative(params, state, t, arm, reward, phase, rng):
    learn_tally(params, state, t, arm, talkative_report(params, reward, 1.0, rng), phase, rng)


@bl.kernel
def choose_exponential(params, state, t, context, rng):
    """The exponential mechanism of each decision at four times the epsilon, for all of them."""
    total = 0.0
    for arm in range(params.arms):
        total += math.exp(min(2.0 * params.epsilon * state.sums[arm], 500.0))
    left = rng.random() * total
    for arm in range(params.arms):
        left -= math.exp(min(2.0 * params.epsilon * state.sums[arm], 500.0))
        if left < 0.0:
            return arm, 0
    return params.arms - 1, 0


def policies():
    """Every broken policy, by name."""
    real = PrivateRealPolicy
    delta, decision = (Delta, 1e-3), {"scope": "decision"}
    kernels = bl.Kernels
    return {
        policy.name: policy
        for policy in (
            claiming("raw-after-5000", frame(pick=raw_after_5000)),
            claiming("raw-past-horizon", frame(pick=raw_past_horizon), horizon=(Horizon, 700)),
            claiming("more-after-200-batches", frame(score=more_after_200_batches)),
            claiming("very-late-counts", frame(pick=note_clock, keep=very_late_counts_raw)),
            claiming("spares-count", frame(keep=spares_count_raw)),
            claiming("cancel-shows-sums", frame(lose=cancel_shows_sums)),
            claiming("cancel-releases-early", frame(lose=cancel_releases_early)),
            claiming("huge-is-not-cut", frame(keep=huge_is_not_cut, score=truncated_score), real),
            claiming("denormal-shows", frame(keep=denormal_shows, score=truncated_score), real),
            claiming("repeated-counts-more", frame(keep=repeated_counts_more)),
            claiming("middle-shows", frame(keep=middle_shows)),
            claiming("last-counts-twice", frame(keep=last_counts_twice)),
            claiming("root-two", frame(score=root_two)),
            claiming("shared-noise", frame(score=shared_noise)),
            claiming("noise-at-powers-of-two", frame(score=noise_at_powers_of_two)),
            claiming("half-the-laplace", frame(score=half_the_laplace)),
            claiming("two-arms-only", frame(score=two_arms_only), arms=3),
            claiming("noise-of-raw-size", frame(score=noise_of_raw_size)),
            claiming("data-kept-every-third", frame(score=data_kept_every_third)),
            claiming("raw-ties", frame(score=raw_ties)),
            claiming("about-first", frame(keep=about_first)),
            claiming("phase-tells", frame(pick=phase_tells)),
            claiming("length-of-raw", frame(score=length_of_raw)),
            claiming("stops-early", frame(keep=stops_early, score=long_again)),
            claiming(
                "raw-on-new-advice", frame(pick=raw_on_new_advice), PrivateExpertPolicy, **experts()
            ),
            claiming("own-gaussian", frame(score=by_own_gaussian), delta=delta),
            claiming("own-uniform", frame(score=by_own_uniform)),
            claiming("own-cut-laplace", frame(score=by_own_cut_laplace)),
            claiming("vector-of-too-much", frame(score=vector_of_too_much), delta=delta),
            claiming("forgetful", frame(), Forgetful),
            claiming(
                "averages", kernels(begin_counts, choose_by_averages, learn_counts), **decision
            ),
            claiming(
                "old-draws",
                kernels(begin_counts, choose_by_old_draws, learn_counts),
                delta=(Delta, 0.01),
                **decision,
            ),
            claiming(
                "talkative",
                kernels(begin_tally, choose_by_mean, learn_talkative),
                LocalBoundedPolicy,
                report_kernel=staticmethod(talkative_report),
            ),
            claiming("exponential-too-much", kernels(begin_tally, choose_exponential, learn_tally)),
        )
    }


def experts():
    """What the policy of experts needs: there are three."""
    return {"experts": (Experts, 3)}


@bl.kernel
def choose_by_mean(params, state, t, context, rng):
    if t <= params.arms:
        return t - 1, 0
    return best_of(state.sums), 0
