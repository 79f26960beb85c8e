"""Arms that come and go: time and memory of a long run, regret of an added arm and of wrong priors.

    python benchmarks/arms.py --table year             # 200 live arms, 10^6 decisions
    python benchmarks/arms.py --table step             # time of a decision
    python benchmarks/arms.py --table added --runs 4000 # an arm added half way
    python benchmarks/arms.py --table added --window 2000 --runs 400  # the same with late rewards
    python benchmarks/arms.py --table prior --runs 400 # priors on a wrong best arm

Epsilon is 1, and rewards come at once, or with `--window` after so many decisions; agents with
dp-imed play "year" and "prior". "year": every 500 decisions one arm leaves and another comes.
"added": arms of .55 .60 .65 in 20,000 rounds; another comes after half, and is compared with a
fresh run of all four arms for 10,000 rounds, which is also its horizon if it needs one.
"prior": arms of .55 .60 .65 .75 in 20,000 rounds; the prior has n rewards behind each mean,
reversed.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np

import balaclava as bl
from balaclava.auditing.state_copies import arrays_of

LIVE, DECISIONS, STAY = 200, 1_000_000, 500
WARM_UP, STEPS = 12_000, 30_000
# All private policies for rewards in [0, 1] that take arms again.
PRIVATE = (
    *("dp-imed", "dp-klucb", "adap-ucb", "adap-klucb", "lazy-dp-ts", "lazy-dp-ucb", "dp-top-two"),
    *("dp-ucb", "dp-ucb-bound", "dp-ucb-int", "private-ucb"),
    *("ldp-ucb-bernoulli", "ldp-ucb-laplace", "ldp-top-two"),
)
NEEDED = {"dp-ucb-int": {"delta": 1e-6}, "private-ucb": {"horizon": 20_000}}
NOT_PRIVATE = ("ucb1", "kl-ucb", "imed", "thompson-beta", "thompson-gauss")
MEANS = {"a": 0.55, "b": 0.60, "c": 0.65}
HALF = 10_000


def agent_of(arms: list[str], seed: int, **more: Any) -> bl.Agent:
    return bl.policy("dp-imed", arms=arms, epsilon=1.0).agent(seed=seed, **more)


def play(agent: bl.Agent, rounds: int, means: dict[str, float], rng: Any) -> dict[str, int]:
    """The decisions of each arm."""
    counts = dict.fromkeys(means, 0)
    for chance in rng.random(rounds):
        decision = agent.ask()
        agent.tell(decision, float(chance < means[decision.label]))
        counts[decision.label] += 1
    return counts


def regret(counts: dict[str, int], means: dict[str, float]) -> float:
    best = max(means.values())
    return sum(count * (best - means[label]) for label, count in counts.items())


def year(decisions: int) -> None:
    rng = np.random.default_rng(1)
    means = {str(arm): rng.uniform(0.3, 0.7) for arm in range(LIVE)}
    agent, last = agent_of(list(means), 1), LIVE
    tracemalloc.start()
    print("| decisions | arms so far | CPU a decision, us | state, MB | Python objects, MB |")
    print("|---|---|---|---|---|")
    for tenth in range(1, 11):
        begun = time.process_time()
        for _ in range(decisions // 10 // STAY):
            play(agent, STAY, means, rng)
            gone = next(iter(means))
            agent.retire_arm(gone)
            del means[gone]
            agent.add_arm(str(last))
            means[str(last)], last = rng.uniform(0.3, 0.7), last + 1
        each = (time.process_time() - begun) / (decisions // 10) * 1e6
        held = sum(array.nbytes for array in arrays_of(agent._runner.state)) / 1e6
        objects = tracemalloc.get_traced_memory()[0] / 1e6 - held
        print(
            f"| {tenth * decisions // 10:,} | {last:,} | {each:.0f} | {held:.2f} | {objects:.2f} |",
            flush=True,
        )


def step() -> None:
    """Time of a decision with arms that come and leave, and without."""
    for comes in (False, True):
        rng = np.random.default_rng(1)
        means = {str(arm): rng.uniform(0.3, 0.7) for arm in range(LIVE)}
        agent, last = agent_of(list(means), 1), LIVE
        play(agent, WARM_UP, means, rng)
        begun = time.process_time()
        for _ in range(STEPS // STAY):
            play(agent, STAY, means, rng)
            if comes:
                gone = next(iter(means))
                agent.retire_arm(gone)
                del means[gone]
                agent.add_arm(str(last))
                means[str(last)], last = rng.uniform(0.3, 0.7), last + 1
        each = (time.process_time() - begun) / STEPS * 1e6
        print(f"{'with' if comes else 'without'} changes: {each:.1f} us a decision")


def added(runs: int, names: list[str], window: int) -> None:
    """Regret of the last 10,000 rounds: with the arm added, and of a fresh run of them."""
    late: dict[str, Any] = {}
    if window:
        law = bl.Delay(mean=window, law="fixed")
        late = {"delay": law, "patience": window, "settle": "window", "missing": 0.0}
    print("| policy | the added arm | added half way | fresh run | ratio of the means |")
    print("|---|---|---|---|---|")
    for name in names or [*PRIVATE, *NOT_PRIVATE]:
        more: dict[str, Any] = {} if name in NOT_PRIVATE else {"epsilon": 1.0}
        more |= NEEDED.get(name, {})
        policy = bl.policy(name, arms=4, **more)
        for mean in (0.50, 0.60, 0.70, 0.75, 0.85):
            shop = bl.environment("bernoulli", means=[*MEANS.values(), mean])
            offers = [(1, [0, 1, 2]), (HALF + 1, [0, 1, 2, 3])]
            world = bl.environment("offered-arms", inner=shop, offers=offers)
            how: dict[str, Any] = {"repetitions": runs, "seed": 1, **late}
            both = bl.simulate(policy, world, horizon=2 * HALF, checkpoints=[HALF, 2 * HALF], **how)
            left = replace(policy, horizon=HALF) if "horizon" in more else policy
            fresh = bl.simulate(left, shop, horizon=HALF, checkpoints=1, **how)
            regrets = both.regret(name)[:, 1] - both.regret(name)[:, 0], fresh.final_regret(name)
            cells = " | ".join([*map(cell, regrets), ratio(*regrets)])
            print(f"| {name} | {mean} | {cells} |", flush=True)


def ratio(late: Any, fresh: Any) -> str:
    """The ratio of two means with its 95 % interval; runs are paired by their rewards."""
    value = late.mean() / fresh.mean()
    error = 1.96 * np.std(late - value * fresh) / (fresh.mean() * np.sqrt(len(late)))
    return f"{value:.2f} ± {error:.2f}"


def cell(values: Any) -> str:
    """The mean with its 95 % interval, and the 99 % quantile."""
    error = 1.96 * np.std(values) / np.sqrt(len(values))
    return f"{np.mean(values):.1f} ± {error:.1f} ({np.quantile(values, 0.99):.0f})"


def prior(runs: int) -> None:
    """Regret after 20,000 rounds, and the allowance of 2 n largest gaps."""
    means = {**MEANS, "d": 0.75}
    wrong = dict(zip(means, reversed(means.values()), strict=True))
    print("| rewards behind a mean | regret | beyond no prior | 2 n gaps |\n|---|---|---|---|")
    without = 0.0
    for n in (0, 30, 100, 300, 1_000, 3_000):
        regrets = []
        for seed in range(runs):
            releases = {label: (mean, n) for label, mean in wrong.items()} if n else None
            agent = agent_of(list(means), seed, prior=releases)
            counts = play(agent, 2 * HALF, means, np.random.default_rng(seed))
            regrets.append(regret(counts, means))
        without = without or float(np.mean(regrets))
        more = np.mean(regrets) - without
        print(f"| {n} | {cell(regrets)} | {more:.1f} | {2 * n * 0.2:.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--table", choices=("year", "step", "added", "prior"), required=True)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--policies", nargs="*", default=[])
    parser.add_argument("--window", type=int, default=0)
    parser.add_argument("--decisions", type=int, default=DECISIONS)
    chosen = parser.parse_args()
    if chosen.table == "year":
        year(chosen.decisions)
    elif chosen.table == "step":
        step()
    elif chosen.table == "added":
        added(chosen.runs, chosen.policies, chosen.window)
    else:
        prior(chosen.runs)


if __name__ == "__main__":
    main()
