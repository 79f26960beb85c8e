"""dp-imed's mean regret against its bad runs: rates of the index, clocks and batches.

    python benchmarks/frontier.py --runs 100000                # all cells, every rule
    python benchmarks/frontier.py --horizon 20000 --runs 20000 # short runs
    python benchmarks/frontier.py --check                      # against the package's simulator

A bad run costs more than five times the median of the paper's rule with this package's batches
(first 30/epsilon, ratio 1.5). The aim: at most 2 of 100,000 in every cell, at a mean of at most 1.2
times that of index="rechecking", and below it over 20,000 rounds.

With prompt rewards 0 and 1, nothing changes within a batch. So its sum is drawn as one binomial
number, which is exact, and a run of 10^6 rounds takes some 100 microseconds. The rules are written
here for that, with the package's rates. `--check` compares the distribution of regret with that of
`bl.simulate`. Finished rows are appended to the folder $OUT (or out).
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import balaclava as bl
from balaclava.authoring import compiled
from balaclava.estimators.kl import private_kl
from balaclava.estimators.noisy_kl import best_tilt, noisy_kl, noisy_surprisal, noisy_tail

PROBLEMS = {
    "9 arms": np.linspace(0.3, 0.7, 9),
    "101 arms": np.linspace(0.3, 0.7, 101),
    "one good": np.array([0.75, 0.7, 0.7, 0.7, 0.7]),
    "linear": np.array([0.75, 0.625, 0.5, 0.375, 0.25]),
    "convex": np.array([0.75, 0.53125, 0.375, 0.28125, 0.25]),
    "concave": np.array([0.75, 0.71875, 0.625, 0.46875, 0.25]),
}
EPSILONS = (3.0, 1.0, 0.3, 0.1)
# Two-armed, close and extreme problems. The clock and the grid of sizes were chosen with some of
# them in view, so they are not held out.
FRESH = [
    (".05, .06", np.array([0.05, 0.06]), 0.2),
    (".2, .25, .3", np.array([0.2, 0.25, 0.3]), 0.2),
    ("8 arms, .50 to .57", np.linspace(0.5, 0.57, 8), 0.5),
    (".9, .92, .94, .96, .99", np.array([0.9, 0.92, 0.94, 0.96, 0.99]), 0.5),
    (".55, .6, .65, .75", np.array([0.55, 0.6, 0.65, 0.75]), 1.0),
    (".5, .55", np.array([0.5, 0.55]), 0.5),
    (".1, eleven .05", np.array([0.1] + 11 * [0.05]), 0.5),
]
MANY = 50  # arms, from which on fewer runs are played
PARTS = 32  # of the runs of a cell, each with its own stream
OUT = Path(os.environ.get("OUT", "out"))
PAPER, EXACT, SURPRISAL, ONE_DRAW, TAIL, RECHECKING = range(6)


class Rule(NamedTuple):
    """A rule of dp-imed."""

    rate: int = TAIL
    clock: float = 0.0  # rounds; 0: part horizon arms^power (1 + noise/epsilon)
    part: float = 1.0
    power: float = -1.0
    noise: float = 0.0
    growth: float = math.inf  # the clock is at most so many times the round
    adaptive: bool = True  # adaptive batches, or by the ratio alone
    first: float = 40.0  # pulls of the first batch, over epsilon
    ratio: float = 1.14  # of successive sizes

    def first_batch(self, epsilon: float, horizon: int, arms: int) -> float:
        pulls = self.first / epsilon
        if self.rate not in (PAPER, RECHECKING) and not self.clock:
            pulls = min(pulls, horizon / (8 * arms))
        return max(pulls, 1.0)


PUBLISHED = Rule(PAPER, adaptive=False, first=30.0, ratio=1.5)
RULES = {
    "rechecking": Rule(RECHECKING, ratio=1.25),
    "tail, T/arms": Rule(),
    "tail, noisy": Rule(noise=1.0),  # H = (1 + 1/epsilon) T/arms
    "tail, half noisy": Rule(part=0.5, noise=1.0),
    "tail, 2 T/arms": Rule(part=2.0),
    "tail, T/sqrt(arms)": Rule(power=-0.5),
    "tail, T": Rule(power=0.0),
    "tail, 2 T": Rule(part=2.0, power=0.0),
    "tail, 5,000": Rule(clock=5e3),
    "tail, 20,000": Rule(clock=2e4),
    "tail, 10^5": Rule(clock=1e5),
    "tail, T/arms, ratio": Rule(adaptive=False, first=30.0, ratio=1.5),
    "exact, T/arms": Rule(EXACT),
    "exact, T": Rule(EXACT, power=0.0),
    "R - log(1-s), T/arms": Rule(ONE_DRAW),
    "surprisal, T/arms": Rule(SURPRISAL),
}
# First batches and ratios beside the default's, on two clocks; clocks that grow with the round.
SCAN = {
    f"{name}, {first:g}, {ratio:g}": Rule(power=power, noise=noise, first=first, ratio=ratio)
    for name, power, noise in (("T/arms", -1.0, 0.0), ("noisy", -1.0, 1.0))
    for first in (20.0, 30.0, 40.0, 60.0)
    for ratio in (1.14, 1.25, 1.5)
} | {
    f"{growth:g} t, {clock:g}": Rule(clock=clock, growth=growth)
    for growth in (2.0, 3.0, 5.0)
    for clock in (1e5, 5e5, math.inf)
}


def make_runs(
    exponent: Callable[..., Any],
    surprisal: Callable[..., Any],
    tail: Callable[..., Any],
    tilt: Callable[..., Any],
    divergence: Callable[..., Any],
) -> Callable[..., Any]:
    """Close the loop over runs, batch by batch."""

    def index(
        kind: int,
        clock: float,
        growth: float,
        t: float,
        n: float,
        x: float,
        top: float,
        epsilon: float,
        m: float,
        arms: int,
    ) -> float:
        if kind == EXACT:
            nats = exponent(n, x, top, epsilon, m)
        elif kind == SURPRISAL:
            nats = surprisal(n, x, top, epsilon, m)
        elif kind == ONE_DRAW:
            nats = exponent(n, x, top, epsilon, m)
            if x < top:
                nats -= math.log1p(-tilt(n, x, top, epsilon, m))
        elif kind == TAIL:
            nats = tail(n, x, top, epsilon, m)
        else:
            nats = n * divergence(min(max(x, 0.0), 1.0), top, epsilon)
            if kind == RECHECKING:
                other = surprisal(n, x, top, epsilon, m)
                if other < 12.4 - math.log(max(arms - 1.0, 1.0) * n * epsilon / (1.0 + epsilon)):
                    nats = max(min(nats, other) - 5.0 * math.log(max(t / 12_000.0, 1.0)), 0.0)
            return nats + math.log(n)
        return max(nats - math.log(max(min(clock / t, growth), 1.0)), 0.0) + math.log(n)

    index = nb_jit(index)

    def runs(
        kind: int,
        clock: float,
        growth: float,
        adaptive: bool,
        ratio: float,
        means: Any,
        epsilon: float,
        horizon: float,
        first: float,
        rng: Any,
        out: Any,
    ) -> None:
        arms, best_mean = means.size, means.max()
        n, sums, draws = np.zeros(arms), np.zeros(arms), np.zeros(arms)
        for run in range(out.size):
            t, regret, arm, after = 0.0, 0.0, 0, math.ceil(first)
            n[:], sums[:], draws[:] = 0.0, 0.0, 0.0
            rng.shuffle(means)
            while t < horizon:
                pulls = min(after - n[arm], horizon - t)
                t += pulls
                regret += pulls * (best_mean - means[arm])
                noise = rng.laplace(0.0, 1.0 / epsilon)
                sums[arm] += rng.binomial(int(pulls), means[arm]) + noise
                n[arm] += pulls
                draws[arm] += 1.0
                if n[arms - 1] == 0.0:
                    arm += 1
                    continue
                top, lowest = -math.inf, math.inf
                for other in range(arms):
                    top = max(top, sums[other] / n[other])
                top = min(max(top, 0.0), 1.0)
                for other in range(arms):
                    x, m = sums[other] / n[other], draws[other]
                    value = index(kind, clock, growth, t + 1.0, n[other], x, top, epsilon, m, arms)
                    if value < lowest:
                        arm, lowest = other, value
                x, m, before = sums[arm] / n[arm], draws[arm], n[arm]
                if not adaptive:
                    after = max(math.ceil(first * ratio**m), before + 1.0)
                    continue
                if kind == RECHECKING:
                    low, high = ratio * before, 2.0 * before
                    for _ in range(12 if x < top else 0):
                        middle = 0.5 * (low + high)
                        value = index(
                            kind, clock, growth, t + 1.0, middle, x, top, epsilon, m + 1.0, arms
                        )
                        if value < math.log(t + 1.0) + 0.5:
                            low = middle
                        else:
                            high = middle
                    after = max(math.ceil(high), before + 1.0)
                    continue
                power = 0.0
                while math.ceil(first * ratio**power) <= before:
                    power += 1.0
                after = math.ceil(first * ratio**power)
                while math.ceil(first * ratio ** (power + 1.0)) <= 2.0 * before and (
                    x >= top
                    or index(kind, clock, growth, t + 1.0, after, x, top, epsilon, m + 1.0, arms)
                    < math.log(t + 1.0)
                ):
                    power += 1.0
                    after = math.ceil(first * ratio**power)
            out[run] = regret

    return runs


def nb_jit(function: Any) -> Any:
    import numba

    return numba.njit(nogil=True, error_model="numpy")(function)


def play(
    rule: Rule, means: np.ndarray, epsilon: float, horizon: int, runs: int, *seed: int
) -> np.ndarray:
    """The regret of each run."""
    loop = compiled(make_runs, noisy_kl, noisy_surprisal, noisy_tail, best_tilt, private_kl)
    out, rng = np.empty(runs), np.random.Generator(np.random.SFC64(seed))
    clock = rule.clock or rule.part * horizon * means.size**rule.power * (
        1.0 + rule.noise / epsilon
    )
    first = rule.first_batch(epsilon, horizon, means.size)
    how = rule.rate, float(clock), rule.growth, rule.adaptive, rule.ratio
    loop(*how, means.copy(), epsilon, float(horizon), first, rng, out)
    return out


def figures(regret: np.ndarray, paper: np.ndarray, today: np.ndarray) -> dict[str, float]:
    """The recorded figures of a rule in a cell."""
    return {
        "runs": regret.size,
        "mean": float(regret.mean()),
        "error": float(regret.std() / math.sqrt(regret.size)),
        "median": float(np.median(regret)),
        "99.9 %": float(np.quantile(regret, 0.999)),
        "worst": float(regret.max()),
        "bad in 100,000": 1e5 * float((regret > 5.0 * np.median(paper)).mean()),
        "times": float(regret.mean() / today.mean()),
    }


CELLS = [(name, means, e) for name, means in PROBLEMS.items() for e in EPSILONS] + FRESH


def table(problems: list[str], names: list[str], runs: int, horizon: int, workers: int) -> None:
    """Every rule in every cell, as rows of a table; the first rule is that of "times"."""
    print("| problem | epsilon | rule | mean | times | 99.9 % | bad in 100,000 |")
    print("|---|---|---|---|---|---|---|")
    OUT.mkdir(parents=True, exist_ok=True)
    rules = {"paper": PUBLISHED, **{name: (RULES | SCAN)[name] for name in names}}
    with ThreadPoolExecutor(workers) as pool, open(OUT / "frontier.jsonl", "a") as file:
        cells: list[Any] = []
        for problem, means, epsilon in CELLS:
            if problem in problems:
                count = max(runs // 80, 1) if means.size > MANY else runs
                shares = [part.size for part in np.array_split(np.arange(count), min(PARTS, count))]
                jobs = [
                    [pool.submit(play, rule, means, epsilon, horizon, share, 7, i)
                     for i, share in enumerate(shares)]
                    for rule in rules.values()
                ]  # fmt: skip
                cells.append((problem, epsilon, jobs))
        for problem, epsilon, jobs in cells:
            regrets = [np.concatenate([job.result() for job in parts]) for parts in jobs]
            for name, regret in zip(rules, regrets, strict=True):
                row = figures(regret, regrets[0], regrets[1])
                where = {"problem": problem, "epsilon": epsilon, "horizon": horizon}
                file.write(json.dumps({**where, "rule": name, **row}) + "\n")
                file.flush()
                print(
                    f"| {problem} | {epsilon:g} | {name} | {row['mean']:,.0f} | {row['times']:.2f} "
                    f"| {row['99.9 %']:,.0f} | {row['bad in 100,000']:.0f} |",
                    flush=True,
                )


def check(runs: int) -> None:
    """Kolmogorov-Smirnov tests of this file's runs against the package's simulator."""
    from scipy.stats import ks_2samp

    horizon, means = 5_000, PROBLEMS["one good"]
    settings: dict[str, dict[str, Any]] = {
        "rechecking": {"index": "rechecking"},
        "tail, T/arms": {"horizon": horizon},
        "tail, 5,000": {},
        "exact, T/arms": {"index": "exact", "horizon": horizon},
        "tail, T/arms, ratio": {"batches": "ratio", "horizon": horizon},
    }
    for name, parameters in settings.items():
        for epsilon in (1.0, 0.1):
            policy = bl.policy("dp-imed", arms=means.size, epsilon=epsilon, **parameters)
            world = bl.environment("bernoulli", means=means)
            how: dict[str, Any] = {"horizon": horizon, "repetitions": runs, "checkpoints": 1}
            package = bl.simulate(policy, world, seed=1, **how).final_regret("dp-imed")
            here = play(RULES[name], means, epsilon, horizon, runs, 7)
            chance = ks_2samp(here.round(6), package.round(6)).pvalue  # sums of gaps are rounded
            print(f"{name}, epsilon {epsilon:g}: p = {chance:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20_000, help="of a cell")
    parser.add_argument("--horizon", type=int, default=10**6)
    parser.add_argument("--rules", nargs="+", choices=[*RULES, *SCAN], default=list(RULES))
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    names = list(dict.fromkeys(name for name, _, _ in CELLS))
    parser.add_argument("--problems", nargs="+", choices=names, default=names)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.check:
        return check(options.runs)
    how = options.runs, options.horizon, options.workers or 1
    table(options.problems, options.rules, *how)


if __name__ == "__main__":
    main()
