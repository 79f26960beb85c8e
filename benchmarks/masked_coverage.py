"""How often intervals miss the mean where participants can get some arms only.

    python benchmarks/masked_coverage.py               # 2,000 runs a line, all cores
    python benchmarks/masked_coverage.py --runs 200

Half of the participants can get all three arms, three in ten the first two, two in ten the last
alone. An arm's mean is the same for all kinds. A fourth arm, for those who can get all, comes after
150 of 300 decisions; the first leaves after 220. A run misses if any interval at 80 % excludes its
mean at any of ten looks. "late": rewards are up to 40 decisions late. "lost": a fifth never comes,
too. "late by value": a reward of 1 is up to 40 decisions late, and 0 comes at once. "window": the
same, and after 25 decisions 0 counts in place of a reward that has not come.
"""

from __future__ import annotations

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np

import balaclava as bl

CONFIDENCE, ROUNDS, LOOK, LATE = 0.8, 300, 30, 40
COMES, LEAVES = 150, 220
MEANS = {"a": 0.3, "b": 0.6, "c": 0.5, "d": 0.8}
SHARES = (0.5, 0.3, 0.2)
KINDS = (("a", "b", "c", "d"), ("a", "b"), ("c",))
POLICIES = {
    "dp-imed": {"epsilon": 2.0, "first_batch": 8},
    "dp-klucb": {"epsilon": 2.0, "first_batch": 8, "explore": 0.2},
    "ldp-ucb-bernoulli": {"epsilon": 2.0},
}
WINDOW = 25
MODES = ("late", "lost", "late by value", "window")


def misses(name: str, mode: str, seed: int) -> bool:
    """Whether an interval of the run misses its mean."""
    how = {"patience": 2 * LATE}
    means = MEANS
    if mode == "window":
        how = {"settle": "window", "patience": WINDOW, "missing": 0.0}
        # A reward of 1 counts if it is at most WINDOW late, of 0 to LATE decisions.
        means = {arm: mean * (WINDOW + 1) / (LATE + 1) for arm, mean in MEANS.items()}
    agent = bl.policy(name, arms=["a", "b", "c"], **POLICIES[name]).agent(seed=seed, **how)
    luck, due, live = np.random.default_rng([seed, 1]), {}, {"a", "b", "c"}
    for t in range(ROUNDS):
        if t == COMES:
            agent.add_arm("d")
            live.add("d")
        if t == LEAVES:
            agent.retire_arm("a")
            live.remove("a")
        offered = [arm for arm in KINDS[luck.choice(3, p=SHARES)] if arm in live]
        decision = agent.ask(available=offered)
        reward = float(luck.random() < MEANS[decision.label])
        wait = int(luck.integers(0, LATE + 1))
        if mode in ("late by value", "window") and reward == 0.0:
            wait = 0
        if mode != "lost" or luck.random() < 0.8:
            due.setdefault(t + wait, []).append((decision, reward))
        for late, value in due.pop(t, ()):
            if mode != "window" or t - int(late.id.rpartition("-")[2]) < WINDOW:
                agent.tell(late, value)
        if t % LOOK == LOOK - 1:
            for each in agent.estimates(CONFIDENCE):
                low, high = each.interval
                if not low <= means[each.label] <= high:
                    return True
    return False


def count_misses(name: str, mode: str, runs: int, first: int = 0) -> int:
    """The runs with a miss, of seeds from `first` on."""
    return sum(misses(name, mode, seed) for seed in range(first, first + runs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=2_000)
    chosen = parser.parse_args()
    print(f"| policy | rewards | runs that miss, of {chosen.runs:,} at {CONFIDENCE:.0%} |")
    print("|---|---|---|")
    with ProcessPoolExecutor() as pool:
        for name in POLICIES:
            for mode in MODES:
                done = pool.map(partial(misses, name, mode), range(chosen.runs), chunksize=20)
                print(f"| {name} | {mode} | {sum(done):,} |", flush=True)


if __name__ == "__main__":
    main()
