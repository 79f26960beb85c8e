"""Does a logistic model of the rewards pay? A linear and a logistic fit of the same private sums.

python benchmarks/logistic_rewards.py worlds --runs 12
python benchmarks/logistic_rewards.py tables --runs 4

Contexts are public, and each arm has coefficients of its own. The sum of r x over a batch is
released once, with Gaussian noise N(0, s^2 I). It is sufficient for both models. The linear fit
takes it for normal with mean G theta, G the sum of x x', and covariance v G + s^2 I. The logistic
fit is one Newton step from the last estimate t: the sum minus that of sigma(t'x) x is about normal
with mean H (theta - t), H the sum of sigma (1 - sigma) x x', and covariance H + s^2 I. Both have a
normal prior with the true base rate as its mean, and play the arm with the largest quantile. Each
has the best of 24 settings in hindsight, for each line of the table. dp-kernel-ucb has its
defaults.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numba import njit

import balaclava as bl
from balaclava.authoring import compiled, seeded
from balaclava.privacy.mechanisms.analytic_gaussian import gaussian_shift
from balaclava.simulation.analysis.statistics import plus_minus

DELTA, GROWTH = 1e-5, 1.6
STARTS = (1.0, 4.0)  # decisions of the first batch of an arm, in d s
QUANTILES = (0.0, 0.5, 1.5)
LINEAR = tuple(itertools.product(STARTS, QUANTILES, (1.0, 0.02), (0.25, 0.04)))  # prior, v
LOGISTIC = tuple(itertools.product(STARTS, QUANTILES, (16.0, 4.0, 1.0, 0.25), (0.0,)))


@njit
def chance(z: float) -> float:
    return 1.0 / (1.0 + math.exp(-min(max(z, -30.0), 30.0)))


@njit
def play(
    logistic: bool,
    rows: np.ndarray,  # [participant, d]
    means: np.ndarray,  # [participant, arm]
    rounds: int,
    deviation: float,
    setting: tuple[float, float, float, float],
    base: float,
    rng: np.random.Generator,
) -> float:
    """The regret of one run."""
    start, quantile, prior, spread = setting
    arms, d, lost = means.shape[1], rows.shape[1], 0.0
    precision, cover = np.zeros((arms, d, d)), np.zeros((arms, d, d))
    weighted, theta = np.zeros((arms, d)), np.zeros((arms, d))
    gram, total, expected = np.zeros((arms, d, d)), np.zeros((arms, d)), np.zeros((arms, d))
    asked, releases, unit = np.zeros(arms), np.zeros(arms, np.int64), np.eye(d)
    ends = np.full(arms, math.ceil(start * max(deviation, 1.0) * d))
    for a in range(arms):
        precision[a], cover[a] = unit / prior, unit * prior
        theta[a, 0] = (math.log(base / (1.0 - base)) if logistic else base) * math.sqrt(2.0)
        weighted[a] = precision[a] @ theta[a]
    for _ in range(rounds):
        person = int(rng.random() * rows.shape[0])
        x, arm, highest = rows[person], -1, -math.inf
        for a in range(arms):
            index, square = 0.0, 0.0
            for i in range(d):
                index += theta[a, i] * x[i]
                for j in range(d):
                    square += x[i] * cover[a, i, j] * x[j]
            index += quantile * math.sqrt(max(square, 0.0))
            if releases[a] == 0:  # until each has a release they take turns at random
                index = 1e9 + rng.random()
            if index > highest:
                arm, highest = a, index
        lost += means[person].max() - means[person, arm]
        reward = 1.0 if rng.random() < means[person, arm] else 0.0
        z = 0.0
        for i in range(d):
            z += theta[arm, i] * x[i]
        mean = chance(z) if logistic else 0.0
        weight = max(mean * (1.0 - mean), 1e-4) if logistic else 1.0
        for i in range(d):
            total[arm, i] += reward * x[i]
            expected[arm, i] += (mean - weight * z if logistic else 0.0) * x[i]
            for j in range(d):
                gram[arm, i, j] += weight * x[i] * x[j]
        asked[arm] += 1.0
        if asked[arm] >= ends[arm]:
            ends[arm] = math.ceil(ends[arm] * GROWTH)
            releases[arm] += 1
            noisy = total[arm] - expected[arm]
            for i in range(d):
                noisy[i] += deviation * rng.standard_normal()
            variance = (1.0 if logistic else spread) * gram[arm]
            gain = np.linalg.solve(variance + (deviation**2 + 1e-9) * unit, gram[arm])
            precision[arm] += gram[arm] @ gain
            weighted[arm] += gain.T @ noisy
            cover[arm] = np.linalg.inv(precision[arm])
            theta[arm] = cover[arm] @ weighted[arm]
            gram[arm], total[arm], expected[arm] = 0.0, 0.0, 0.0
    return lost


def make_policy_loop(choose: Callable[..., Any], learn: Callable[..., Any]) -> Callable[..., Any]:
    """Close the same loop over the kernels of a policy."""

    def play_policy(
        params: Any, state: Any, rows: np.ndarray, means: np.ndarray, rounds: int, rng: Any
    ) -> float:
        lost = 0.0
        for t in range(1, rounds + 1):
            person = int(rng.random() * rows.shape[0])
            x = rows[person : person + 1]
            arm, phase = choose(params, state, t, x, rng)
            lost += means[person].max() - means[person, arm]
            reward = 1.0 if rng.random() < means[person, arm] else 0.0
            learn(params, state, t, arm, reward, phase, rng)
        return lost

    return play_policy


def show(
    name: str, draw: Callable[[int], tuple[np.ndarray, np.ndarray]], rounds: int, runs: int
) -> None:
    """Print the regret of each model at each epsilon; `draw` makes the world of a run."""
    worlds = [draw(run) for run in range(runs)]
    base = float(np.mean([means.mean() for _, means in worlds]))
    even = np.mean([(means.max(axis=1) - means.mean(axis=1)).mean() for _, means in worlds])
    print(f"{name}, {rounds:,} rounds; a random arm: {rounds * even:,.0f}", flush=True)
    for epsilon in (1.0, 3.0, math.inf):
        deviation = 0.0 if math.isinf(epsilon) else 1.0 / gaussian_shift(epsilon, DELTA)
        cells = []
        for logistic, settings in ((False, LINEAR), (True, LOGISTIC)):
            lost = np.array(
                [
                    [
                        play(logistic, *world, rounds, deviation, setting, base, seeded(run))
                        for run, world in enumerate(worlds)
                    ]
                    for setting in settings
                ]
            )
            cells.append(lost[lost.mean(axis=1).argmin()])
        if not math.isinf(epsilon):
            d, arms = worlds[0][0].shape[1], worlds[0][1].shape[1]
            policy = bl.policy(
                "dp-kernel-ucb", arms=arms, features=d, disjoint=True, epsilon=epsilon
            )
            loop, params = compiled(make_policy_loop, *policy.kernels[1:3]), policy.constants()
            losses = [
                loop(params, policy.kernels.begin(params), *world, rounds, seeded(run))
                for run, world in enumerate(worlds)
            ]
            cells.append(np.array(losses))
        labels = ("linear", "logistic", "dp-kernel-ucb")
        texts = [
            f"{label} {cell.mean():,.0f} ± {plus_minus(cell[:, None])[0]:,.0f}"
            for label, cell in zip(labels, cells, strict=False)
        ]
        print(f"  epsilon {epsilon:g}: " + "; ".join(texts), flush=True)


def logistic_world(base: float, slope: float) -> Callable[[int], tuple[np.ndarray, np.ndarray]]:
    """Four arms, an intercept and four features on the sphere."""

    def draw(run: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng([run, 1])
        directions, people = rng.normal(size=(4, 4)), rng.normal(size=(2_000, 4))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        people /= np.linalg.norm(people, axis=1, keepdims=True)
        scores = base + 0.3 * rng.normal(size=4) + slope * people @ directions.T
        rows = np.hstack([np.ones((len(people), 1)), people]) / math.sqrt(2.0)
        return rows, 1.0 / (1.0 + np.exp(-scores))

    return draw


def worlds(runs: int) -> None:
    """The truth is logistic; means from a few per mille to a few per cent, and about a half."""
    for base, slope in ((-4.5, 2.0), (-3.5, 2.0), (0.0, 2.0)):
        name = f"base rate {1 / (1 + math.exp(-base)):.1%}, slope {slope:g}"
        show(name, logistic_world(base, slope), 100_000, runs)


def tables(runs: int) -> None:
    """Tables of scikit-learn: the right label is rewarded with probability 1, or 5 %."""
    for name, world in sklearn_tables():
        params = world.constants()
        for share in (1.0, 0.05):
            means = np.zeros((len(params.features), world.arms))
            means[np.arange(len(means)), params.labels] = share
            rows = np.ascontiguousarray(params.features)
            show(f"{name}, {share:.0%}", lambda run, m=means, r=rows: (r, m), 30_000, runs)


def sklearn_tables() -> Iterator[tuple[str, bl.Environment]]:
    """Small tables, scaled by rows that are not played."""
    from sklearn import datasets

    from contextual_tables import scaled

    for name in ("iris", "wine", "breast_cancer"):
        data = getattr(datasets, f"load_{name}")()
        yield name, scaled(data.data, data.target)


def main() -> None:
    parts = {"worlds": (worlds, 12), "tables": (tables, 4)}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=parts)
    parser.add_argument("--runs", type=int)
    options = parser.parse_args()
    measure, runs = parts[options.part]
    measure(options.runs or runs)


if __name__ == "__main__":
    main()
