"""How good the advice of `bl.recommend` is, from short trials to long ones.

    python benchmarks/short_trials.py            # 60 settings; an hour of one core
    python benchmarks/short_trials.py --quick    # a few of them; a minute
    python benchmarks/short_trials.py --part 3 8 # the third of eight parts: one a process

For each horizon, epsilon and number of arms, it plays the recommended policy, four others and
random play on new runs of two problems. The means are from 0.3 to 0.7, as in the recommendation,
and from 0.1 to 0.5. Figures are shares of the regret of random play.
"""

from __future__ import annotations

import argparse
import itertools
import math
from typing import NamedTuple

import numpy as np

import balaclava as bl

HORIZONS = (100, 1_000, 10_000, 100_000, 1_000_000)
EPSILONS = (0.05, 0.2, 1.0, 5.0)
ARMS = (2, 10, 50)
QUICK = ((500, 0.05, 4), (2_000, 0.1, 10), (10_000, 1.0, 5))
# Those that the advice chooses from, and two that do best of the others in short trials.
CANDIDATES = ("random", "dp-imed", "dp-klucb", "dp-ucb", "adap-ucb")
SEED = 1_000  # far from those of the advice
ROUNDS = 100_000_000  # in all, for each setting
MEANS = ((0.3, 0.7), (0.1, 0.5))


class Row(NamedTuple):
    """The advice in a setting, and its regret."""

    horizon: int
    epsilon: float
    arms: int
    advised: str
    share: float
    plus_minus: float
    best: str
    best_share: float

    @property
    def above_random(self) -> bool:
        """Whether it is significantly worse than random play."""
        return self.advised != "random" and self.share - self.plus_minus > 1.0

    @property
    def ratio(self) -> float:
        """The regret over that of the best candidate."""
        return self.share / self.best_share

    def __str__(self) -> str:
        return (
            f"{self.horizon:>9,} {self.epsilon:>5g} {self.arms:>3}  {self.advised:<9}"
            f"{self.share:>7.3f} ± {self.plus_minus:.3f}  {self.best:<9}{self.best_share:>7.3f}"
            f"{self.ratio:>6.2f}"
        )


def measure(horizon: int, epsilon: float, arms: int, rounds: int = ROUNDS) -> Row:
    """Measure the advice in one setting on new runs."""
    advised = bl.recommend(arms=arms, horizon=horizon, epsilon=epsilon).policy.name
    policies = [
        bl.policy(name, arms=arms)
        if name == "random"
        else bl.policy(name, arms=arms, epsilon=epsilon)
        for name in CANDIDATES
    ]
    each = rounds // (len(policies) * len(MEANS) * horizon)
    repetitions = min(max(each, 8), 2_000)
    shares: dict[str, list[np.ndarray]] = {name: [] for name in CANDIDATES}
    for low, high in MEANS:
        world = bl.environment("bernoulli", means=np.linspace(low, high, arms))
        results = bl.simulate(
            policies, world, horizon=horizon, repetitions=repetitions, seed=SEED, checkpoints=1
        )
        for name, kept in shares.items():
            kept.append(results.final_regret(name) / (horizon * world.gaps.mean()))
    means = {name: float(np.mean(kept)) for name, kept in shares.items()}
    best = min(means, key=lambda name: means[name])
    errors = [kept.var(ddof=1) / kept.size for kept in shares[advised]]
    reach = 1.96 * math.sqrt(sum(errors)) / len(errors)
    return Row(horizon, epsilon, arms, advised, means[advised], reach, best, means[best])


def verdict(rows: list[Row]) -> str:
    """The two criteria for the advice."""
    above = sum(row.above_random for row in rows)
    near = sum(row.ratio <= 1.3 for row in rows)
    return (
        f"worse than playing at random by more than chance: {above} of {len(rows)}\n"
        f"within 1.3 times the best candidate: {near} of {len(rows)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three settings only")
    parser.add_argument("--part", nargs=2, type=int, default=(1, 1), help="which of how many")
    options = parser.parse_args()
    quick, (part, parts) = options.quick, options.part
    settings = QUICK if quick else tuple(itertools.product(HORIZONS, EPSILONS, ARMS))
    settings = settings[part - 1 :: parts]
    print("  horizon   eps arms  advised   share           best     share  ratio")
    rows = []
    for setting in settings:
        rows.append(measure(*setting, rounds=ROUNDS // 50 if quick else ROUNDS))
        print(rows[-1], flush=True)
    print(verdict(rows))


if __name__ == "__main__":
    main()
