"""Rivals of the package's best-arm policies, written from their papers in plain loops.

- DP-BAI (Chen, Karthik, Chee, Tan 2024, Algorithm 1) for arms without features: its dimension is
  then the number of arms, no arm is left out of the design, and it halves the arms in each of
  log2(K) phases of equal length. Each phase has its own means; earlier rewards are forgotten. The
  paper's numbers of arms after each phase (its equations 5 and 6) were not at hand: a variant.
- AdaP-TT (Azize, Jourdan, Al Marjani, Basu 2023): top two with an optimistic leader; an arm's mean
  is that of its last phase, in which its pulls doubled, with one draw of noise. It stops by the
  threshold that the paper proves, or by that of the authors' published experiments ("heuristic").
"""

# ruff: noqa: NPY002 (numba's own generator, so as to share no stream with the package)

from __future__ import annotations

import math
from collections.abc import Sequence

import numba
import numpy as np


def halving_answers(
    means: Sequence[float], epsilon: float, horizon: int, runs: int, seed: int,
    *, ratio: float = 1.0, forget: bool = True,
) -> np.ndarray:  # fmt: skip
    """The arms with which halving ends. DP-BAI by default; `ratio` is that of stages' lengths."""
    rng, truth = np.random.default_rng(seed), np.array(means)
    arms = np.tile(np.arange(truth.size), (runs, 1))
    stages = math.ceil(math.log2(truth.size))
    lengths = [ratio**stage for stage in range(stages)]
    sums, pulls, spent = np.zeros(arms.shape), 0, 0
    for stage in range(stages):
        active = arms.shape[1]
        until = math.floor(horizon * sum(lengths[: stage + 1]) / sum(lengths) + 1e-9)
        new = (until - spent) // active
        spent += new * active
        sums = (0 if forget else sums) + rng.binomial(new, truth[arms])
        sums = sums + rng.laplace(0.0, 1.0 / epsilon, arms.shape)
        pulls = new + (0 if forget else pulls)
        stay = np.argsort(-sums / pulls, axis=1, kind="stable")[:, : (active + 1) // 2]
        arms, sums = np.take_along_axis(arms, stay, 1), np.take_along_axis(sums, stay, 1)
    answers: np.ndarray = arms[:, 0]
    return answers


@numba.njit
def coin(mean):
    return 1.0 if np.random.random() < mean else 0.0


@numba.njit
def proved_threshold(n, m, arms, phase, delta, epsilon):
    union = math.pi**2 / 6.0 * phase**2 / delta
    x = 0.5 * math.log((arms - 1.0) * union)
    sampling = 2.0 * (x + math.log(x))
    sampling += 2.0 * math.log(4.0 + math.log(n)) + 2.0 * math.log(4.0 + math.log(m))
    return sampling + (1.0 / n + 1.0 / m) * (math.log(2.0 * arms * union) / epsilon) ** 2


@numba.njit
def heuristic_threshold(n, m, arms, phase, delta, epsilon):
    sampling = math.log(1.0 / delta) + math.log(1.0 + math.log(n)) + math.log(1.0 + math.log(m))
    return sampling + (1.0 / n + 1.0 / m) * (math.log(1.0 / delta) / epsilon) ** 2


@numba.njit
def optimistic_leader(values, last, total, epsilon):
    best, highest = 0, -math.inf
    for arm in range(values.size):
        bonus = math.log(total) / (epsilon * last[arm]) + math.sqrt(
            0.5 * math.log(total) / last[arm]
        )
        if values[arm] + bonus > highest:
            best, highest = arm, values[arm] + bonus
    return best


@numba.njit
def challenger_of(leader, values, pulls, total):
    best, least = -1, math.inf
    for arm in range(values.size):
        if arm != leader:
            gap = values[leader] - values[arm] + 1.0 / (1.0 + math.sqrt(total))
            cost = gap / math.sqrt(1.0 / pulls[leader] + 1.0 / pulls[arm])
            if cost < least:
                best, least = arm, cost
    return best


@numba.njit
def adap_tt_run(means, epsilon, delta, proved, most):
    """Rounds and answer of one run, and the rounds in ended phases; -1 after `most` rounds."""
    arms = means.size
    before, last, phase = np.zeros(arms), np.ones(arms), np.ones(arms)  # pulls of ended phases
    now, sums, pulls, values = np.zeros(arms), np.zeros(arms), np.ones(arms), np.zeros(arms)
    for arm in range(arms):
        before[arm] = 1.0
        values[arm] = coin(means[arm]) + np.random.laplace(0.0, 1.0 / epsilon)
    leader = optimistic_leader(values, last, before.sum(), epsilon)
    while pulls.sum() < most:
        arm = leader
        if np.random.random() > 0.5:
            arm = challenger_of(leader, values, pulls, before.sum())
        sums[arm] += coin(means[arm])
        now[arm] += 1.0
        pulls[arm] += 1.0
        if now[arm] < before[arm]:
            continue
        values[arm] = sums[arm] / now[arm] + np.random.laplace(0.0, 1.0 / (epsilon * now[arm]))
        before[arm] += now[arm]
        last[arm], now[arm], sums[arm] = now[arm], 0.0, 0.0
        phase[arm] += 1.0
        leader = optimistic_leader(values, last, before.sum(), epsilon)
        beaten = 0
        for other in range(arms):
            n, m = last[leader], last[other]
            index = max(phase[leader], phase[other])
            if proved:
                limit = proved_threshold(n, m, arms, index, delta, epsilon)
            else:
                limit = heuristic_threshold(n, m, arms, index, delta, epsilon)
            gap = max(values[leader] - values[other], 0.0)
            if other != leader and 0.5 * gap * gap / (1.0 / n + 1.0 / m) >= limit:
                beaten += 1
        if beaten == arms - 1:
            return pulls.sum(), leader, before.sum()
    return most, -1, most


@numba.njit
def adap_tt(means, epsilon, delta, proved, most, runs, seed):
    """One row a run: rounds, answer, and rounds in ended phases, which the authors' code counts."""
    np.random.seed(seed)
    out = np.zeros((runs, 3))
    for i in range(runs):
        out[i, 0], out[i, 1], out[i, 2] = adap_tt_run(means, epsilon, delta, proved, most)
    return out
