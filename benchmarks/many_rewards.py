"""Participants with many rewards: regret with Laplace and with Gaussian noise.

    python benchmarks/many_rewards.py [--rounds 100000] [--runs 100]

Each row protects k rewards of a participant together, at epsilon 1 and delta 1e-6. Laplace noise is
that of epsilon/k. Gaussian noise assumes that no two rewards of a participant are in one batch; the
last column does without the assumption.

    python benchmarks/many_rewards.py --enforced [--rounds 100000] [--runs 10]

What it costs to enforce the assumption, with the service's own code (`rewards_apart`): each of
rounds/k participants comes k times, in random order, and rewards come at once. The noise is the
same with and without the rule.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

import balaclava as bl
from balaclava.privacy.accounting import gaussian_epsilon
from balaclava.privacy.mechanisms.analytic_gaussian import gaussian_shift
from balaclava.service.engine.definition import ExperimentDefinition
from balaclava.service.engine.served_experiment import Offer, ServedExperiment

MEANS = [0.75, 0.65, 0.6, 0.55, 0.5, 0.45, 0.4, 0.35, 0.3]
EPSILON, DELTA = 1.0, 1e-6


def cell(rounds: int, runs: int, **noise: object) -> str:
    policy = bl.policy("dp-imed", arms=len(MEANS), horizon=rounds, **noise)
    world = bl.environment("bernoulli", means=MEANS)
    regret = bl.simulate(policy, world, horizon=rounds, repetitions=runs, seed=1)
    final = regret.final_regret("dp-imed")
    return f"{final.mean():,.0f} ± {1.96 * final.std(ddof=1) / math.sqrt(runs):,.0f}"


def served_regret(rounds: int, k: int, seed: int, apart: bool) -> tuple[float, int]:
    """Regret of one run of the service's experiment, and the decisions that learned."""
    epsilon = gaussian_epsilon(gaussian_shift(EPSILON, DELTA) / math.sqrt(k), DELTA)
    noise = {"epsilon": epsilon, "delta": DELTA, "noise": "gaussian", "horizon": rounds}
    definition = ExperimentDefinition.checked(
        name="run",
        policy="dp-imed",
        parameters=noise,
        arms=[str(mean) for mean in MEANS],
        reward_window=1.0,
        default_reward=0.0,
        rewards_per_person=k,
        rewards_apart=apart,
    )
    experiment = ServedExperiment(definition)
    experiment.runner.rng = np.random.default_rng(seed)
    world = np.random.default_rng([seed, 1])
    visits = world.permutation(np.repeat(np.arange(rounds // k), k))
    joined = [set() for _ in range(rounds // k)]
    regret, learned = 0.0, 0
    for person in visits:
        offer = Offer(batches=joined[person] if apart else None)
        (row,) = experiment.decide(1, 1, True, offer)
        regret += max(MEANS) - MEANS[row["arm"]]
        reward = float(world.random() < MEANS[row["arm"]])
        if row["learns"]:
            learned += 1
            row.update(kind="reward", value=reward, person=None)
            experiment.close_window(row)
    return regret, learned


def print_enforced(rounds: int, runs: int) -> None:
    print("| rewards | rule enforced | not enforced | decisions that learn |\n|---|---|---|---|")
    for k in (1, 5, 25, 100):
        cells = []
        for apart in (True, False):
            played = [served_regret(rounds, k, seed, apart) for seed in range(runs)]
            regrets = np.array([regret for regret, _ in played])
            error = 1.96 * regrets.std(ddof=1) / math.sqrt(runs)
            cells.append(f"{regrets.mean():,.0f} ± {error:,.0f}")
            if apart:
                learned = np.mean([count for _, count in played]) / rounds
        print(f"| {k} | {' | '.join(cells)} | {100 * learned:.1f} % |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--enforced", action="store_true", help="the cost of `rewards_apart`")
    options = parser.parse_args()
    if options.enforced:
        print_enforced(options.rounds, options.runs)
        return
    print("| rewards | Laplace | Gaussian, apart | Gaussian, in any batches |\n|---|---|---|---|")
    for k in (1, 5, 25, 100):
        cells = [cell(options.rounds, options.runs, epsilon=EPSILON / k)]
        for factor in (math.sqrt(k), k):
            epsilon = gaussian_epsilon(gaussian_shift(EPSILON, DELTA) / factor, DELTA)
            noise = {"epsilon": epsilon, "delta": DELTA, "noise": "gaussian"}
            cells.append(cell(options.rounds, options.runs, **noise))
        print(f"| {k} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
