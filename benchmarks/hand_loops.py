"""Hand-written loops for one policy and one problem: arrays, one loop, no abstractions.

Each loop plays Bernoulli arms and returns the pulls. Constants of a policy come last. The loops
make the same decisions as the package's policies on the same streams; tests check this.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from balaclava.estimators import kl as divergence

hand_written = numba.njit(nogil=True, error_model="numpy")
kl = hand_written(divergence.kl)
kl_upper = hand_written(divergence.kl_upper)


@hand_written
def ucb1(means: np.ndarray, rounds: int, policy_rng: Any, environment_rng: Any) -> np.ndarray:
    arms = means.size
    pulls, sums = np.zeros(arms, np.int64), np.zeros(arms)
    for t in range(1, rounds + 1):
        best = t - 1
        if t > arms:
            bonus = 2.0 * math.log(t)
            highest = -math.inf
            for arm in range(arms):
                n = pulls[arm]
                index = sums[arm] / n + math.sqrt(bonus / n)
                if index > highest:
                    best, highest = arm, index
        reward = 1.0 if environment_rng.random() < means[best] else 0.0
        pulls[best] += 1
        sums[best] += reward
    return pulls


@hand_written
def late_ucb1(
    means: np.ndarray,
    rounds: int,
    environment_rng: Any,
    delay_rng: Any,
    scale: float,  # of a geometric delay, as the package draws it
    longest: int,
) -> np.ndarray:
    """UCB1 with delayed rewards, as short as possible.

    Each decision draws a delay; its arm and reward are kept until then. Rewards arrive in the order
    of decisions. Nothing is given up or recorded.
    """
    arms, ahead, size = means.size, 256, 1
    while size < longest + ahead + 1:
        size *= 2
    cut = np.int64(size - 1)
    kept_arms, kept_rewards = np.zeros(size, np.int64), np.zeros(size)
    delays, number = np.zeros(ahead, np.int64), np.zeros(size, np.int64)
    following, last = np.zeros(2 * size, np.uint32), np.arange(size, 2 * size).astype(np.uint32)
    asked, pulls, sums = np.zeros(arms, np.int64), np.zeros(arms, np.int64), np.zeros(arms)
    indices, widths = np.zeros(arms), np.zeros(arms)
    unknown = arms
    for t in range(1, rounds + 1):
        if (t - 1) % ahead == 0:
            for i in range(ahead):
                delays[i] = int(delay_rng.standard_exponential() * scale)
            for i in range(ahead):
                if delays[i] <= longest:
                    due, place = (t + i + delays[i]) & cut, (t + i) & cut
                    following[last[due]] = place
                    last[due] = place
                    number[due] += 1
        best = 0
        if unknown > 0:
            best = -1
            for arm in range(arms):
                if pulls[arm] == 0 and (best < 0 or asked[arm] < asked[best]):
                    best = arm
        else:
            bonus, highest = math.sqrt(2.0 * math.log(t)), -math.inf
            for arm in range(arms):
                index = indices[arm] + bonus * widths[arm]
                if index > highest:
                    best, highest = arm, index
        asked[best] += 1
        kept_arms[t & cut] = best
        kept_rewards[t & cut] = 1.0 if environment_rng.random() < means[best] else 0.0
        due = t & cut
        place = size + due
        for _ in range(number[due]):
            place = following[place]
            arm = kept_arms[place]
            unknown -= pulls[arm] == 0
            pulls[arm] += 1
            sums[arm] += kept_rewards[place]
            indices[arm] = sums[arm] / pulls[arm]
            widths[arm] = 1.0 / math.sqrt(pulls[arm])
        number[due] = 0
        last[due] = size + due
    return asked


@hand_written
def kl_ucb(means: np.ndarray, rounds: int, policy_rng: Any, environment_rng: Any) -> np.ndarray:
    arms = means.size
    pulls, sums = np.zeros(arms, np.int64), np.zeros(arms)
    for t in range(1, rounds + 1):
        best = t - 1
        if t > arms:
            level = math.log(t)
            first = 0
            for arm in range(arms):
                if pulls[arm] > pulls[first]:
                    first = arm
            best = first
            highest = kl_upper(sums[first] / pulls[first], level / pulls[first])
            for arm in range(arms):
                n = pulls[arm]
                mean = sums[arm] / n
                if arm == first:
                    continue
                gap, limit = highest - mean, 1.000001 * level / n
                if gap > 0.0:
                    between = (mean + 2.0 * highest) / 3.0
                    if gap * gap > 2.0 * limit * between * (1.0 - between):
                        continue
                    if kl(mean, highest) > limit:
                        continue
                index = kl_upper(mean, level / n)
                if index > highest or (index == highest and arm < best):
                    best, highest = arm, index
        reward = 1.0 if environment_rng.random() < means[best] else 0.0
        pulls[best] += 1
        sums[best] += reward
    return pulls


@hand_written
def imed(means: np.ndarray, rounds: int, policy_rng: Any, environment_rng: Any) -> np.ndarray:
    arms = means.size
    pulls, sums = np.zeros(arms, np.int64), np.zeros(arms)
    for t in range(1, rounds + 1):
        best = t - 1
        if t > arms:
            top = -math.inf
            for arm in range(arms):
                mean = sums[arm] / pulls[arm]
                if mean > top:
                    best, top = arm, mean
            lowest = math.log(pulls[best])
            for arm in range(arms):
                n = pulls[arm]
                mean, log_n = sums[arm] / n, math.log(n)
                limit = (lowest - log_n) / n
                between = (mean + 2.0 * top) / 3.0
                if (top - mean) * (top - mean) > 2.0 * limit * between * (1.0 - between):
                    continue
                index = n * kl(mean, top) + log_n
                if index < lowest or (index == lowest and arm < best):
                    best, lowest = arm, index
        reward = 1.0 if environment_rng.random() < means[best] else 0.0
        pulls[best] += 1
        sums[best] += reward
    return pulls


@hand_written
def thompson_gauss(
    means: np.ndarray, rounds: int, policy_rng: Any, environment_rng: Any
) -> np.ndarray:
    arms = means.size
    pulls, sums = np.zeros(arms, np.int64), np.zeros(arms)
    for _ in range(rounds):
        best, highest = 0, -math.inf
        for arm in range(arms):
            n = pulls[arm] + 1
            theta = sums[arm] / n + 1.0 / math.sqrt(n) * policy_rng.standard_normal()
            if theta > highest:
                best, highest = arm, theta
        reward = 1.0 if environment_rng.random() < means[best] else 0.0
        pulls[best] += 1
        sums[best] += reward
    return pulls


@hand_written
def thompson_beta(
    means: np.ndarray, rounds: int, policy_rng: Any, environment_rng: Any
) -> np.ndarray:
    arms = means.size
    pulls, sums = np.zeros(arms, np.int64), np.zeros(arms)
    for _ in range(rounds):
        best, highest = 0, -1.0
        for arm in range(arms):
            theta = policy_rng.beta(sums[arm] + 1.0, pulls[arm] - sums[arm] + 1.0)
            if theta > highest:
                best, highest = arm, theta
        policy_rng.random()  # the coin for rewards between 0 and 1
        reward = 1.0 if environment_rng.random() < means[best] else 0.0
        pulls[best] += 1
        sums[best] += reward
    return pulls
