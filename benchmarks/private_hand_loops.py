"""Hand-written loops for the private policies that decide in each round."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hand_loops import hand_written


@hand_written
def dp_ftpl_gauss(
    means: np.ndarray, rounds: int, policy_rng: Any, environment_rng: Any, start: int
) -> np.ndarray:
    arms = means.size
    pulls, sums = np.zeros(arms, np.int64), np.zeros(arms)
    for t in range(rounds):
        best = t % arms
        if t >= start * arms:
            highest = -math.inf
            for arm in range(arms):
                step = 1.0 / pulls[arm]
                theta = sums[arm] * step + math.sqrt(2.0 * step) * policy_rng.standard_normal()
                if theta > highest:
                    best, highest = arm, theta
        reward = 1.0 if environment_rng.random() < means[best] else 0.0
        pulls[best] += 1
        sums[best] += reward
    return pulls


@hand_written
def dp_ftpl_beta(
    means: np.ndarray, rounds: int, policy_rng: Any, environment_rng: Any, start: int
) -> np.ndarray:
    arms = means.size
    pulls, sums = np.zeros(arms, np.int64), np.zeros(arms)
    for t in range(rounds):
        best = t % arms
        if t >= start * arms:
            highest = -math.inf
            for arm in range(arms):
                extra = pulls[arm] // 8 + 2.0
                theta = policy_rng.beta(sums[arm] + extra, pulls[arm] - sums[arm] + extra)
                if theta > highest:
                    best, highest = arm, theta
        policy_rng.random()  # the coin for rewards between 0 and 1
        reward = 1.0 if environment_rng.random() < means[best] else 0.0
        pulls[best] += 1
        sums[best] += reward
    return pulls


@hand_written
def dp_ftpl_new(
    means: np.ndarray,
    rounds: int,
    policy_rng: Any,
    environment_rng: Any,
    epsilon: float,
    delta: float,
    log_horizon: float,
    reach: float,
) -> np.ndarray:
    arms = means.size
    pulls, sums = np.zeros(arms, np.int64), np.zeros(arms)
    kept = math.expm1(epsilon) / (math.expm1(epsilon) + 2.0 * delta)
    for t in range(rounds):
        best = t
        if t >= arms:
            highest = -math.inf
            for arm in range(arms):
                n, u = pulls[arm], policy_rng.random()
                if u < 0.5:
                    total = sums[arm] + math.log1p(-2.0 * u * kept) / epsilon
                else:
                    total = sums[arm] - math.log1p(-(2.0 * u - 1.0) * kept) / epsilon
                theta = (total + reach + math.sqrt(log_horizon * n)) / n
                if theta > highest:
                    best, highest = arm, theta
        reward = 1.0 if environment_rng.random() < means[best] else 0.0
        pulls[best] += 1
        sums[best] += reward
    return pulls


@hand_written
def ldp_ucb_bernoulli(
    means: np.ndarray, rounds: int, policy_rng: Any, environment_rng: Any, epsilon: float
) -> np.ndarray:
    arms = means.size
    pulls, sums = np.zeros(arms, np.int64), np.zeros(arms)
    lie = math.exp(-epsilon) / (1.0 + math.exp(-epsilon))
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
        sums[best] += 1.0 if policy_rng.random() < lie + reward * (1.0 - 2.0 * lie) else 0.0
    return pulls


@hand_written
def ldp_ucb_laplace(
    means: np.ndarray, rounds: int, policy_rng: Any, environment_rng: Any, epsilon: float
) -> np.ndarray:
    arms = means.size
    pulls, sums = np.zeros(arms, np.int64), np.zeros(arms)
    scale = 1.0 + 4.0 / epsilon
    for t in range(1, rounds + 1):
        enough, bonus = 4.0 * math.log(t + 1.0), 2.0 * math.log(t)
        rare, best, highest = -1, 0, -math.inf
        for arm in range(arms):
            n = pulls[arm]
            if n <= enough:
                if rare < 0 or n < pulls[rare]:
                    rare = arm
            else:
                index = sums[arm] / n + scale * math.sqrt(bonus / n)
                if index > highest:
                    best, highest = arm, index
        if rare >= 0:
            best = rare
        reward = 1.0 if environment_rng.random() < means[best] else 0.0
        pulls[best] += 1
        sums[best] += reward + policy_rng.laplace(0.0, 1.0 / epsilon)
    return pulls


@hand_written
def private_ucb(
    means: np.ndarray,
    rounds: int,
    policy_rng: Any,
    environment_rng: Any,
    horizon: int,
    epsilon: float,
    margin: float,
) -> np.ndarray:
    arms = means.size
    levels = 0
    while horizon >> levels > 0:
        levels += 1
    pulls, sums = np.zeros(arms, np.int64), np.zeros(arms)
    exact, noisy = np.zeros((arms, levels)), np.zeros((arms, levels))
    for t in range(1, rounds + 1):
        best = t - 1
        if t > arms:
            bonus = 2.0 * math.log(t)
            highest = -math.inf
            for arm in range(arms):
                n = pulls[arm]
                index = sums[arm] / n + (math.sqrt(bonus / n) + margin / n)
                if index > highest:
                    best, highest = arm, index
        total = 1.0 if environment_rng.random() < means[best] else 0.0
        n = pulls[best] + 1
        level = 0
        while n >> level & 1 == 0:
            total += exact[best, level]
            level += 1
        exact[best, level] = total
        noisy[best, level] = total + policy_rng.laplace(0.0, levels / epsilon)
        private = 0.0
        while n >> level > 0:
            if n >> level & 1:
                private += noisy[best, level]
            level += 1
        pulls[best] += 1
        sums[best] = private
    return pulls


@hand_written
def dp_ucb(
    means: np.ndarray, rounds: int, policy_rng: Any, environment_rng: Any, epsilon: float
) -> np.ndarray:
    arms = means.size
    pulls, sums = np.zeros(arms, np.int64), np.zeros(arms)
    pending, released = np.zeros(arms), np.zeros(arms)
    exact, noisy = np.zeros((arms, 62)), np.zeros((arms, 62))
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
        n = pulls[best] + 1
        pulls[best] = n
        pending[best] += reward
        levels = 0
        while n >> (levels + 1) > 0:
            levels += 1
        since = n - (1 << levels)  # items after the last power of two
        if since == 0:
            released[best] += pending[best] + policy_rng.laplace(0.0, 2.0 / epsilon)
            pending[best] = 0.0
            sums[best] = released[best]
            continue
        level = 0
        while since >> level & 1 == 0:
            reward += exact[best, level]
            level += 1
        exact[best, level] = reward
        noisy[best, level] = reward + policy_rng.laplace(0.0, levels / (0.5 * epsilon))
        private = 0.0
        while since >> level > 0:
            if since >> level & 1:
                private += noisy[best, level]
            level += 1
        sums[best] = released[best] + private
    return pulls


@hand_written
def dpr_ucb(
    means: np.ndarray,
    rounds: int,
    policy_rng: Any,
    environment_rng: Any,
    horizon: int,
    epsilon: float,
    root: float,
    first_level: float,
    bonus: float,
) -> np.ndarray:
    arms = means.size
    levels = 0
    while horizon >> levels > 0:
        levels += 1
    pulls, averages, widths = np.zeros(arms, np.int64), np.zeros(arms), np.zeros(arms)
    exact, noisy = np.zeros((arms, levels)), np.zeros((arms, levels))
    for t in range(1, rounds + 1):
        best = t - 1
        if t > arms:
            scale = bonus * (math.log(2.0) + 4.0 * math.log(t)) ** (1.0 - root)
            highest = -math.inf
            for arm in range(arms):
                index = averages[arm] + scale * widths[arm]
                if index > highest:
                    best, highest = arm, index
        reward = 1.0 if environment_rng.random() < means[best] else 0.0
        n = pulls[best] + 1
        growth = n**root
        bound = first_level * growth
        level = 0
        while n >> level & 1 == 0:
            level += 1
        step = math.ldexp(1.0, math.frexp(bound * (1 << level))[1] - 53)
        total = int(reward / step) * step if abs(reward) <= bound else 0.0
        for lower in range(level):
            total += int(exact[best, lower] / step) * step
        exact[best, level] = total
        noise = policy_rng.laplace(0.0, 2.0 * (bound + step) / (epsilon / levels))
        noisy[best, level] = total + noise
        private = 0.0
        while n >> level > 0:
            if n >> level & 1:
                private += noisy[best, level]
            level += 1
        pulls[best] = n
        averages[best] = private / n
        widths[best] = growth / n
    return pulls
