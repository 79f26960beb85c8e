"""Hand-written loops for policies that learn from losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hand_loops import hand_written


@hand_written
def exp3(
    means: np.ndarray,
    rounds: int,
    policy_rng: Any,
    environment_rng: Any,
    eta: float,
    gamma: float,
) -> np.ndarray:
    arms = means.size
    pulls, losses, chances = np.zeros(arms, np.int64), np.zeros(arms), np.zeros(arms)
    for _ in range(rounds):
        least = losses.min()
        total = 0.0
        for arm in range(arms):
            chances[arm] = math.exp(-eta * (losses[arm] - least))
            total += chances[arm]
        share, floor = (1.0 - gamma) / total, gamma / arms
        left = policy_rng.random()
        chosen, chance = 0, 0.0
        for arm in range(arms):
            chosen, chance = arm, share * chances[arm] + floor
            left -= chance
            if left < 0.0:
                break
        if environment_rng.random() < means[chosen]:
            losses[chosen] += 1.0 / chance
        pulls[chosen] += 1
    return pulls


@hand_written
def dp_exp3(
    means: np.ndarray,
    rounds: int,
    policy_rng: Any,
    environment_rng: Any,
    epsilon: float,
    batch: int,
    base: Any,
) -> np.ndarray:
    arms = means.size
    pulls, losses, chances = np.zeros(arms, np.int64), np.zeros(arms), np.zeros(arms)
    chosen, chance, losses_in_batch, total_loss = 0, 0.0, 0, 0.0
    for _ in range(rounds):
        if losses_in_batch == 0:
            least = losses.min()
            total = 0.0
            for arm in range(arms):
                chances[arm] = math.exp(-base.eta * (losses[arm] - least))
                total += chances[arm]
            share, floor = (1.0 - base.gamma) / total, base.gamma / arms
            left = policy_rng.random()
            for arm in range(arms):
                chosen, chance = arm, share * chances[arm] + floor
                left -= chance
                if left < 0.0:
                    break
        if environment_rng.random() < means[chosen]:
            total_loss += 1.0
        losses_in_batch += 1
        pulls[chosen] += 1
        if losses_in_batch == batch:
            losses[chosen] += (total_loss + policy_rng.laplace(0.0, 1.0 / epsilon)) / batch / chance
            losses_in_batch, total_loss = 0, 0.0
    return pulls
