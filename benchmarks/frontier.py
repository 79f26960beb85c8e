"""dp-imed's mean regret against its bad runs: rules for the index and for the length of batches.

    python benchmarks/frontier.py                      # the search: 4 minutes on 16 cores
    python benchmarks/frontier.py --seconds 0 --runs 200000    # the default alone, 10^6 runs a cell
    python benchmarks/frontier.py --device cuda        # and the package's own kernels on a GPU
    python benchmarks/frontier.py --elsewhere --runs 100000    # on problems of another kind
    python benchmarks/frontier.py --seconds 30 --runs 2000

--final-runs 1000000 plays the best rules and the paper's rule that often in every cell. The cell
with 101 arms has an eightieth: its runs take 100 times as long, and no rule has bad runs there.

A bad run costs more than five times the median of the paper's rule with this package's batches
(first 30/epsilon, ratio 1.5). The aim: bad runs at most 5 of 10,000 in every cell, and a mean of at
most 1.1 times that of the paper's rule at epsilon 1 and 3, and 1.25 times at .3 and .1.

With prompt rewards 0 and 1, nothing changes within a batch. So its sum is drawn as one binomial
number, which is exact, and a run of 10^6 rounds takes some 50 microseconds. The rules are written
here for that, with the package's divergences. With `--device cuda` the package's policy is also
played round by round. Finished rows are written to the folder $OUT (or out).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import balaclava as bl
from balaclava.authoring import compiled
from balaclava.estimators.kl import private_kl
from balaclava.estimators.noisy_kl import noisy_kl, noisy_surprisal

PROBLEMS = {
    "9 arms": np.linspace(0.3, 0.7, 9),
    "101 arms": np.linspace(0.3, 0.7, 101),
    "one good": np.array([0.75, 0.7, 0.7, 0.7, 0.7]),
    "linear": np.array([0.75, 0.625, 0.5, 0.375, 0.25]),
    "convex": np.array([0.75, 0.53125, 0.375, 0.28125, 0.25]),
    "concave": np.array([0.75, 0.71875, 0.625, 0.46875, 0.25]),
}
EPSILONS = (3.0, 1.0, 0.3, 0.1)
ELSEWHERE = {  # problems and epsilons that no rule was chosen by
    ".5, .55": np.array([0.5, 0.55]),
    ".95, .9, .85": np.array([0.95, 0.9, 0.85]),
    ".55, .6, .65, .75": np.array([0.55, 0.6, 0.65, 0.75]),
    "7 arms, drawn": np.random.default_rng(7).random(7),
    ".1, eleven .05": np.array([0.1] + 11 * [0.05]),
    "20 arms, .2 to .8": np.linspace(0.2, 0.8, 20),
}
OTHER_EPSILONS = (5.0, 2.0, 0.5, 0.2)
MEAN_LIMIT = {3.0: 1.1, 1.0: 1.1, 0.3: 1.25, 0.1: 1.25}
BAD_LIMIT = 5e-4
HORIZON, EARLY = 10**6, 20_000
MANY = 50  # arms, from which on fewer runs are played
OUT = Path(os.environ.get("OUT", "out"))


class Rule(NamedTuple):
    """Constants of dp-imed."""

    rate: int = 2  # the paper's, 0; the exact one of rewards and noise, 1; the surprise, 2
    doubt: float = math.inf  # nats of the rate from which on the paper's is taken,
    by_pulls: float = 1.0  # less this times log(n epsilon / (1 + epsilon)),
    by_arms: float = 1.0  # and less this times log(arms - 1)
    slack: float = 0.0  # nats by which the lesser of the two is lowered
    short: float = math.inf  # rounds; later it is lowered further,
    haste: float = 1.0  # by this times log(t / short)
    adaptive: bool = True  # adaptive batches, or by the ratio alone
    first: float = 40.0  # pulls of the first batch, over epsilon
    ratio: float = 1.25  # least growth of an arm's pulls by a batch
    most: float = 2.0  # and largest
    lead: float = 2.0  # that of the leader
    ahead: float = 0.5  # nats that an adaptive batch goes beyond log t

    def first_batch(self, epsilon: float) -> float:
        return max(self.first / epsilon, 1.0)

    def __str__(self) -> str:
        default = Rule()._asdict()
        changes = [f"{k} {v:g}" for k, v in self._asdict().items() if v != default[k]]
        return ", ".join(changes) or "surprise, adaptive batches"


PAPER = Rule(rate=0, adaptive=False, first=30.0, ratio=1.5)
DEFAULT = Rule(doubt=12.4, short=12_000.0, haste=5.0)
EXACT = Rule(rate=1, first=33.0, most=3.0, ahead=1.0)
EXACT_IN_DOUBT = EXACT._replace(slack=0.5, doubt=15.0, by_pulls=2.0)
KNOWN = {  # rules with a name: label, colour and mark in the picture
    PAPER: ("the paper's rule, batches by ratio", "black", "*"),
    Rule(rate=0): ("the paper's index, adaptive batches", "C3", "v"),
    EXACT: ("the exact rate, adaptive batches", "C2", "s"),
    EXACT_IN_DOUBT: ("the exact rate while in doubt", "C5", "P"),
    Rule(): ("the surprise, adaptive batches", "C4", "^"),
    DEFAULT: ("the default", "C0", "D"),
}


def make_runs(
    rate: Callable[..., Any], surprise: Callable[..., Any], divergence: Callable[..., Any]
) -> Callable[..., Any]:
    """Close the loop over runs, batch by batch."""

    def index(
        rule: Any, t: float, n: float, x: float, top: float, epsilon: float, m: float, arms: int
    ) -> float:
        paper = n * divergence(min(max(x, 0.0), 1.0), top, epsilon)
        if rule.rate > 0:
            if rule.rate == 1:
                nats = rate(n, x, top, epsilon, m)
            else:
                nats = surprise(n, x, top, epsilon, m)
            doubt = rule.doubt - rule.by_pulls * math.log(n * epsilon / (1.0 + epsilon))
            if nats < doubt - rule.by_arms * math.log(arms - 1.0):
                late = rule.haste * math.log(max(t / rule.short, 1.0))
                paper = max(min(paper, nats) - rule.slack - late, 0.0)
        return paper + math.log(n)

    index = nb_jit(index)

    def pulls_after(
        rule: Any,
        n: float,
        x: float,
        top: float,
        epsilon: float,
        m: float,
        t: float,
        first: float,
        arms: int,
    ) -> float:
        if not rule.adaptive:
            return max(math.ceil(first * rule.ratio**m), n + 1.0)
        if x >= top:
            return max(math.ceil(n * rule.lead), n + 1.0)
        low, high, target = n * rule.ratio, n * rule.most, math.log(t + 1.0) + rule.ahead
        for _ in range(12):
            middle = 0.5 * (low + high)
            if index(rule, t + 1.0, middle, x, top, epsilon, m + 1.0, arms) < target:
                low = middle
            else:
                high = middle
        return max(math.ceil(high), n + 1.0)

    pulls_after = nb_jit(pulls_after)

    def runs(
        rule: Any, means: Any, epsilon: float, horizon: float, first: float, rng: Any, out: Any
    ) -> None:
        arms, best_mean = means.size, means.max()
        n, sums, draws = np.zeros(arms), np.zeros(arms), np.zeros(arms)
        for run in range(out.shape[0]):
            t, regret, arm, batch = 0.0, 0.0, 0, math.ceil(first)
            n[:], sums[:], draws[:] = 0.0, 0.0, 0.0
            while t < horizon:
                pulls = min(batch, horizon - t)
                if t < EARLY:
                    gap = best_mean - means[arm]
                    out[run, 0] = regret + min(pulls, EARLY - t) * gap
                t += pulls
                regret += pulls * (best_mean - means[arm])
                total = rng.binomial(int(pulls), means[arm]) + rng.laplace(0.0, 1.0 / epsilon)
                sums[arm] += total
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
                    value = index(rule, t + 1.0, n[other], x, top, epsilon, m, arms)
                    if value < lowest:
                        arm, lowest = other, value
                x, m = sums[arm] / n[arm], draws[arm]
                batch = pulls_after(rule, n[arm], x, top, epsilon, m, t, first, arms) - n[arm]
            out[run, 1] = regret

    return runs


def nb_jit(function: Any) -> Any:
    import numba

    return numba.njit(nogil=True, error_model="numpy")(function)


def play(rule: Rule, means: np.ndarray, epsilon: float, runs: int, seed: int) -> np.ndarray:
    """The regret of each run after EARLY rounds and at the horizon."""
    loop = compiled(make_runs, noisy_kl, noisy_surprisal, private_kl)
    out, rng = np.empty((runs, 2)), np.random.Generator(np.random.SFC64(seed))
    first = rule.first_batch(epsilon)
    loop(rule, means, epsilon, float(HORIZON), first, rng, out)
    return out


def figures(regret: np.ndarray, today: dict[str, Any] | None) -> dict[str, Any]:
    """The recorded figures of a cell."""
    median = float(np.median(regret))
    threshold = 5.0 * (today["median"] if today else median)
    row = {
        "runs": regret.size,
        "mean": float(regret.mean()),
        "error": float(regret.std() / math.sqrt(regret.size)),
        "median": median,
        "99.9 %": float(np.quantile(regret, 0.999)),
        "worst": float(regret.max()),
        "bad": float((regret > threshold).mean()),
    }
    if today:
        row["times"] = row["mean"] / today["mean"]
    return row


def write(kind: str, rule: Any, problem: str, epsilon: float, row: dict[str, Any]) -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    with open(OUT / "frontier.jsonl", "a", encoding="utf-8") as file:
        entry = {"kind": kind, "rule": rule, "problem": problem, "epsilon": epsilon, **row}
        file.write(json.dumps(entry) + "\n")


Table = dict[tuple[str, float], dict[str, Any]]


class Search:
    """A search over rules, on all cores."""

    def __init__(self, runs: int, workers: int, problems: list[str]) -> None:
        self.runs, self.pool, self.problems = runs, ThreadPoolExecutor(workers), problems
        self.today: Table = {}
        self.tables: dict[Rule, Table] = {}
        play(Rule(), PROBLEMS["one good"], 1.0, 1, 0)  # compiles
        self.today = self.table(PAPER, 5 * runs, "today", seed=1)

    def table(self, rule: Rule, runs: int, kind: str, seed: int) -> Table:
        """Play a rule in every cell."""
        jobs = {}
        for name in sorted(self.problems, key=lambda name: -PROBLEMS[name].size):
            count = max(runs // 80, 100) if PROBLEMS[name].size > MANY else runs
            parts = 8 if PROBLEMS[name].size > MANY else 1
            for epsilon in EPSILONS:
                cell = PROBLEMS[name], epsilon, -(-count // parts)
                jobs[name, epsilon] = [
                    self.pool.submit(play, rule, *cell, 1000 * seed + part) for part in range(parts)
                ]
        table: Table = {}
        for (name, epsilon), parts_of_cell in jobs.items():
            regret = np.concatenate([part.result() for part in parts_of_cell])
            row = figures(regret[:, 1], self.today.get((name, epsilon)))
            row["early"] = float(regret[:, 0].mean())
            table[name, epsilon] = row
            write(kind, rule._asdict(), name, epsilon, table[name, epsilon])
        return table

    def try_rule(self, rule: Rule) -> float:
        """The score of a rule: 1 or less if it keeps all limits."""
        if rule not in self.tables:
            self.tables[rule] = self.table(rule, self.runs, "search", seed=2)
            print(
                f"{score(self.tables[rule]):6.2f}  {summary(self.tables[rule])}  {rule}", flush=True
            )
        return score(self.tables[rule])

    def climb(self, until: float) -> None:
        """Move from the best rules to their neighbours until the time is over."""
        for start in starts():
            if time.monotonic() < until:
                self.try_rule(start)
        seen: set[Rule] = set()
        while time.monotonic() < until:
            ranked = sorted(self.tables, key=lambda rule: score(self.tables[rule]))
            centre = next((rule for rule in ranked[:6] if rule not in seen), None)
            if centre is None:
                return
            seen.add(centre)
            for rule in neighbours(centre):
                if time.monotonic() < until:
                    self.try_rule(rule)


def score(table: Table) -> float:
    """The largest excess over a limit."""
    return max(
        max(row["times"] / MEAN_LIMIT[epsilon], (row["bad"] / BAD_LIMIT) ** 0.1)
        for (_, epsilon), row in table.items()
    )


def summary(table: Table) -> str:
    """The worst mean and the most bad runs at each epsilon."""
    cells = []
    for epsilon in EPSILONS:
        rows = [row for (_, e), row in table.items() if e == epsilon]
        times, bad = max(row["times"] for row in rows), max(row["bad"] for row in rows)
        cells.append(f"{epsilon:g}: {times:.2f} {1e4 * bad:4.1f}")
    return " | ".join(cells)


def starts() -> list[Rule]:
    """Where the search begins."""
    rules = [DEFAULT, Rule(), Rule(slack=1.0), EXACT, EXACT._replace(first=45.0, adaptive=False)]
    rules += [EXACT_IN_DOUBT, DEFAULT._replace(short=7000.0, haste=1.0)]
    rules += [DEFAULT._replace(short=10_000.0, haste=nats) for nats in (2.0, 3.0, 4.0)]
    rules += [DEFAULT._replace(short=rounds) for rounds in (2000.0, 9000.0, 15_000.0, math.inf)]
    rules += [DEFAULT._replace(doubt=DEFAULT.doubt + nats) for nats in (-1.0, -0.5, 0.5, 1.0)]
    return [*rules, Rule(rate=0), PAPER._replace(rate=2)]


def neighbours(rule: Rule) -> Iterator[Rule]:
    """Rules that differ in one thing."""
    for first in (rule.first - 4.0, rule.first + 4.0):
        yield rule._replace(first=first)
    for ratio in (1.15, 1.25, 1.35):
        yield rule._replace(ratio=ratio)
    for nats in (rule.doubt - 0.5, rule.doubt + 0.5):
        yield rule._replace(doubt=nats)
    for slack in (rule.slack - 0.25, rule.slack + 0.25):
        yield rule._replace(slack=slack)
    for rounds in (rule.short / 1.4, rule.short * 1.4):
        yield rule._replace(short=rounds)
    for haste in (rule.haste / 1.5, rule.haste * 1.5):
        yield rule._replace(haste=haste)
    for fall in (rule.by_pulls - 0.5, rule.by_pulls + 0.5):
        yield rule._replace(by_pulls=max(fall, 0.0))
    for ahead in (0.0, 0.5, 1.0):
        yield rule._replace(ahead=ahead)
    for most in (1.5, 2.0, 3.0):
        yield rule._replace(most=most, lead=max(most, 2.0))


def draw(tables: dict[Rule, Table]) -> None:
    """Draw all rules: worst mean against worst share of bad runs, and the frontier."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    size = (14, 4.2)
    figure, axes = pyplot.subplots(
        1, len(EPSILONS), figsize=size, sharey=True, layout="constrained"
    )
    for axis, epsilon in zip(axes, EPSILONS, strict=True):
        points = {rule: worst(table, epsilon) for rule, table in tables.items()}
        for rule, point in points.items():
            label, colour, shape = KNOWN.get(rule, ("another rule that was tried", "0.6", "."))
            axis.plot(
                *point, shape, color=colour, markersize=9 if rule in KNOWN else 6, label=label
            )
        frontier = [
            p for p in sorted(points.values()) if not any(dominates(q, p) for q in points.values())
        ]
        axis.plot(
            *zip(*frontier, strict=True),
            color="0.3",
            lw=1,
            drawstyle="steps-post",
            label="frontier",
        )
        axis.axvline(MEAN_LIMIT[epsilon], color="C1", ls=":", label="aim: to the left and below")
        axis.axhline(1e4 * BAD_LIMIT, color="C1", ls=":")
        axis.set(yscale="log", title=f"epsilon {epsilon:g}", xlabel="mean, times the paper's rule")
    axes[0].set_ylabel("bad runs in 10,000 (log scale)")
    handles = {}
    for axis in axes:
        handles |= dict(zip(*axis.get_legend_handles_labels()[::-1], strict=True))
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(OUT / "frontier.png", dpi=100)


def worst(table: Table, epsilon: float) -> tuple[float, float]:
    """The largest mean, over that of the paper's rule, and the most bad runs in 10,000."""
    rows = [row for (_, e), row in table.items() if e == epsilon]
    return max(row.get("times", 1.0) for row in rows), 1e4 * max(row["bad"] for row in rows)


def dominates(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one != other and one[0] <= other[0] and one[1] <= other[1]


def elsewhere(runs: int, workers: int) -> None:
    """The default and the paper's rule where neither was tuned, as rows of a table."""
    print("| problem | eps | mean | 99.9 % | bad in 10,000 | paper's: mean | 99.9 % | bad |")
    print("|---|---|---|---|---|---|---|---|")
    with ThreadPoolExecutor(workers) as pool:
        cells = [(name, epsilon) for name in ELSEWHERE for epsilon in OTHER_EPSILONS]
        rules = PAPER, DEFAULT
        jobs = [
            [pool.submit(play, rule, ELSEWHERE[name], epsilon, runs, 4) for rule in rules]
            for name, epsilon in cells
        ]
        for (name, epsilon), (paper, default) in zip(cells, jobs, strict=True):
            today = figures(paper.result()[:, 1], None)
            row = figures(default.result()[:, 1], today)
            shown = [
                f"{one['mean']:,.0f} | {one['99.9 %']:,.0f} | {1e4 * one['bad']:.1f}"
                for one in (row, today)
            ]
            print(f"| {name} | {epsilon:g} | {shown[0]} | {shown[1]} |", flush=True)
            write("elsewhere", DEFAULT._asdict(), name, epsilon, row)
            write("elsewhere", PAPER._asdict(), name, epsilon, today)


def on_device(search: Search, runs: int, until: float) -> None:
    """The package's policy, round by round on a GPU."""
    settings: list[dict[str, Any]] = [
        {},
        {"index": "paper", "batches": "ratio"},
        {"index": "exact"},
    ]
    for parameters in settings:
        for (name, epsilon), today in search.today.items():
            if time.monotonic() > until:
                return
            means = PROBLEMS[name]
            policy = bl.policy("dp-imed", arms=means.size, epsilon=epsilon, **parameters)
            results = bl.simulate(
                policy,
                bl.environment("bernoulli", means=means),
                horizon=HORIZON,
                repetitions=runs // 16 if means.size > MANY else runs,
                seed=1,
                checkpoints=1,
                device="cuda",
            )
            row = figures(results.final_regret("dp-imed"), today)
            write("device", parameters, name, epsilon, row)
            print(f"{name}, epsilon {epsilon:g}, {parameters}: {row}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=200.0, help="of search")
    parser.add_argument("--final-seconds", type=float, default=90.0, help="of the best rules")
    parser.add_argument("--device-seconds", type=float, default=120.0)
    parser.add_argument("--runs", type=int, default=20_000, help="of a cell in the search")
    parser.add_argument("--final-runs", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--elsewhere", action="store_true", help="on other problems, no search")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    if options.elsewhere:
        return elsewhere(options.runs, options.workers)
    search = Search(options.runs, options.workers, options.problems)
    search.climb(time.monotonic() + options.seconds)
    draw({PAPER: search.today, **search.tables})
    ranked = sorted(search.tables, key=lambda rule: score(search.tables[rule]))
    print("\nThe best, with more runs:")
    began, spent, runs = time.monotonic(), 0.0, min(10 * options.runs, options.final_runs)
    for rule in ranked[:4] or [DEFAULT]:
        if 1.2 * spent < options.final_seconds - (time.monotonic() - began):
            start = time.monotonic()
            table = search.table(rule, runs, "final", seed=3)
            spent = time.monotonic() - start
            print(f"{score(table):6.2f}  {summary(table)}  {rule}", flush=True)
    if options.device == "cuda":
        on_device(search, 67_584, time.monotonic() + options.device_seconds)


if __name__ == "__main__":
    main()
