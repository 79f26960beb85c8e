"""Linear bandits: regret, coverage of the ellipsoids, the cost of a step, and late rewards.

python benchmarks/contextual.py regret --runs 100
python benchmarks/contextual.py worlds --runs 10
python benchmarks/contextual.py coverage --runs 10000
python benchmarks/contextual.py steps
python benchmarks/contextual.py agents
python benchmarks/contextual.py late --runs 40
python benchmarks/contextual.py values --runs 40
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import balaclava as bl
from balaclava.authoring import compiled, seeded
from balaclava.environments.linear import store_means
from balaclava.simulation.analysis.statistics import plus_minus

ARMS, FEATURES = 10, 10
PRIVATE = {"epsilon": 1.0, "delta": 1e-5}
SCALES = (1.0, 0.3, 0.1)  # values of radius_scale, for every baseline


def trial_world(features: int = FEATURES, arms: int = ARMS, seed: int = 1) -> bl.Environment:
    """An intercept, contexts on the sphere, means from 0.1 to 0.9, Bernoulli rewards."""
    rest = np.random.default_rng(seed).normal(size=features - 1)
    theta = np.concatenate([[0.5], 0.4 * rest / np.linalg.norm(rest)]) * math.sqrt(2.0)
    return bl.environment("linear", arms=arms, theta=theta)


def contenders(epsilon: float = 1.0, **shape: Any) -> dict[str, bl.Policy]:
    """The private policies and their baselines, each at several scales."""
    private = {"epsilon": epsilon, "delta": PRIVATE["delta"]}
    families: dict[str, tuple[dict[str, Any], tuple[float, ...]]] = {
        "linucb": ({}, SCALES),
        "lin-ts": ({}, SCALES),
        "dp-linucb": (private, SCALES),
        "dp-lin-ts": (private, SCALES),
        "ldp-linucb": ({"epsilon": epsilon}, SCALES),
        "dp-kernel-ucb": ({"epsilon": epsilon}, (0.85,)),
    }
    return {
        f"{name}, {scale:g}": bl.policy(
            bl.PolicyName(name), radius_scale=scale, **parameters, **shape
        )
        for name, (parameters, scales) in families.items()
        for scale in scales
    }


def show(results: bl.Results, wide: int = 28) -> None:
    """The mean regret at each checkpoint, with its 95 % interval."""
    print(f"{'regret after':{wide}}", *(f"{rounds:>14,}" for rounds in results.checkpoints))
    for label in results.labels:
        regret = results.regret(label)
        cells = zip(regret.mean(axis=0), plus_minus(regret), strict=True)
        print(f"{label:{wide}}", *(f"{mean:8,.0f} ± {half:2.0f}" for mean, half in cells))


def regret(runs: int) -> None:
    """The trial's problem: d = 10, 10 arms, epsilon 1, delta 1e-5."""
    policies = contenders(arms=ARMS, features=FEATURES)
    show(
        bl.simulate(
            policies, trial_world(), horizon=10**5, repetitions=runs, seed=1,
            checkpoints=[10**4, 10**5],
        )
    )  # fmt: skip


def worlds(runs: int) -> None:
    """Ten other coefficients and seeds, with the scales chosen on the first."""
    policies = contenders(arms=ARMS, features=FEATURES)
    regrets: dict[str, list[np.ndarray]] = {label: [] for label in policies}
    for world in range(2, 12):
        results = bl.simulate(
            policies, trial_world(seed=world), horizon=10**5, repetitions=runs, seed=world,
            checkpoints=[10**4, 10**5],
        )  # fmt: skip
        for label, each in regrets.items():
            each.append(results.regret(label))
    for label, each in regrets.items():
        means = np.array([regret.mean(axis=0) for regret in each])
        low, high = means.min(axis=0), means.max(axis=0)
        cells = zip(means.mean(axis=0), low, high, strict=True)
        print(f"{label:28}", *(f"{m:8,.0f} (worlds {a:,.0f} to {b:,.0f})" for m, a, b in cells))


def make_coverage(
    begin: Callable[..., Any],
    choose: Callable[..., Any],
    learn: Callable[..., Any],
    draw: Callable[..., Any],
    open_scene: Callable[..., Any],
    renew: Callable[..., Any],
) -> Callable[..., Any]:
    """Close a loop that counts the games in which an ellipsoid misses theta*."""

    def cover(
        params: Any, world: Any, theta: np.ndarray, games: int, rounds: int, hostile: bool, rng: Any
    ) -> int:
        missed, d = 0, theta.size
        error = np.zeros(d)
        for _ in range(games):
            state, scene = begin(params), open_scene(world)
            inside, releases = True, 0
            for t in range(1, rounds + 1):
                renew(scene, t, rng)
                if hostile and releases > 0:  # nothing more is learned where theta is wrong
                    length = (error[1:] ** 2).sum() + 1e-300
                    for row in range(scene.features.shape[0]):
                        x = scene.features[row]
                        share = (x[1:] * error[1:]).sum() / length
                        x[1:] -= share * error[1:]
                    store_means(scene)
                arm, phase = choose(params, state, t, scene.features, rng)
                learn(params, state, t, arm, draw(scene, t, arm, rng), phase, rng)
                if state.episodes.draws[0] > releases:
                    releases = state.episodes.draws[0]
                    error[:] = state.episodes.theta[0] - theta
                    square = 0.0
                    for i in range(d):
                        for j in range(d):
                            square += error[i] * state.episodes.known.gram[0, i, j] * error[j]
                    inside = inside and math.sqrt(square) <= state.radii[0]
            missed += not inside
        return missed

    return cover


def coverage(runs: int) -> None:
    """The share of runs in which any ellipsoid misses theta*; claimed is at most 5 %."""
    world = trial_world(5, 3)
    theta = world.constants().theta[0]
    for delta in (1e-5, 0.0):
        policy = bl.policy(
            "dp-linucb", arms=3, features=5, epsilon=1.0, delta=delta, failure_probability=0.05,
            first_episode=20, ridge=1.0,
        )  # fmt: skip
        loop = compiled(make_coverage, *policy.kernels[:3], world.draw, *world.scene[:2])
        for hostile in (False, True):
            missed = loop(
                policy.constants(), world.constants(), theta, runs, 500, hostile, seeded(1)
            )
            kind = "adversarial" if hostile else "drawn"
            print(f"delta {delta:g}, contexts {kind}: {missed} of {runs} runs missed, allowed 5 %")


def make_hand_written() -> Callable[..., Any]:
    """LinUCB and its environment in one hand-written loop."""

    def play(theta: np.ndarray, arms: int, rounds: int, rng: Any) -> float:
        d = theta.size
        V, inverse, b, coefficients = np.eye(d), np.eye(d), np.zeros(d), np.zeros(d)
        X, means, product = np.zeros((arms, d)), np.zeros(arms), np.zeros(d)
        growth, lost, half = 0.0, 0.0, math.sqrt(0.5)
        for t in range(1, rounds + 1):
            for a in range(arms):
                square = 0.0
                for i in range(1, d):
                    X[a, i] = rng.standard_normal()
                    square += X[a, i] * X[a, i]
                X[a, 0], length, means[a] = half, half / math.sqrt(square), theta[0] * half
                for i in range(1, d):
                    X[a, i] *= length
                    means[a] += X[a, i] * theta[i]
            beta = 0.5 * math.sqrt(2.0 * math.log(100.0) + growth) + 1.0
            best, highest = 0, -math.inf
            for a in range(arms):
                for j in range(d):
                    product[j] = X[a, 0] * inverse[0, j]
                for i in range(1, d):
                    for j in range(d):
                        product[j] += X[a, i] * inverse[i, j]
                square, mean = 0.0, 0.0
                for i in range(d):
                    square += product[i] * X[a, i]
                    mean += coefficients[i] * X[a, i]
                index = mean + beta * math.sqrt(square)
                if index > highest:
                    best, highest = a, index
            reward = 1.0 if rng.random() < means[best] else 0.0
            lost += means.max() - means[best]
            x, square, mean = X[best], 0.0, 0.0
            for j in range(d):
                product[j] = x[0] * inverse[0, j]
            for i in range(1, d):
                for j in range(d):
                    product[j] += x[i] * inverse[i, j]
            for i in range(d):
                square += product[i] * x[i]
                mean += coefficients[i] * x[i]
            scale = (reward - mean) / (1.0 + square)
            for i in range(d):
                b[i] += reward * x[i]
                coefficients[i] += scale * product[i]
                for j in range(d):
                    V[i, j] += x[i] * x[j]
                    inverse[i, j] -= product[i] * product[j] / (1.0 + square)
            growth += math.log1p(square)
            if t % (d * d) == 0:
                inverse[:] = np.linalg.inv(V)
                coefficients[:] = inverse @ b
        return lost

    return play


def mabwiser(world: bl.Environment, rounds: int) -> float:
    """Seconds per step of MABWiser's LinUCB (disjoint coefficients)."""
    from mabwiser.mab import MAB, LearningPolicy

    rng, arms = np.random.default_rng(1), list(range(ARMS))
    policy = MAB(arms, LearningPolicy.LinUCB(alpha=1.0, l2_lambda=1.0), seed=1)
    rows = rng.normal(size=(rounds + ARMS, FEATURES))
    policy.fit(arms, [0.5] * ARMS, rows[:ARMS])
    start = time.process_time()
    for row in rows[ARMS:]:
        arm = policy.predict(row[None])
        policy.partial_fit([arm], [float(rng.random() < 0.5)], row[None])
    return (time.process_time() - start) / rounds


def unit_rows(rng: np.random.Generator, *shape: int) -> np.ndarray:
    rows = rng.normal(size=shape)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def agent_cost(policy: bl.Policy, shape: tuple[int, ...] | None) -> tuple[float, float]:
    """Processor time of an unseeded agent for a decision and its reward, and the MB of its save.

    The first 100 decisions are not counted: then dp-kernel-ucb has all of its landmarks.
    """
    agent, rng, spent = policy.agent(), np.random.default_rng(1), 0.0
    for number in range(200):
        features = None if shape is None else unit_rows(rng, *shape)
        before = time.process_time()
        agent.tell(agent.ask(features), reward=float(number % 2))
        spent += time.process_time() - before if number >= 100 else 0.0
    return spent / 100, len(json.dumps(agent.save())) / 1e6


def agents(runs: int) -> None:
    """The time and the save of an agent: ten arms with ten features, or 65; 10^4 arms."""
    many = unit_rows(np.random.default_rng(1), 10_000, FEATURES)
    ten = {"arms": ARMS, "features": FEATURES}
    kinds: list[tuple[dict[str, Any], tuple[int, ...] | None]] = [
        (ten, (ARMS, FEATURES)),
        ({**ten, "disjoint": True}, (FEATURES,)),
        ({"arms": ARMS, "features": 65, "disjoint": True}, (65,)),
        ({"arms": 10_000, "features": FEATURES, "catalogue": many}, None),
    ]
    pure: dict[str, Any] = {"epsilon": 1.0}
    episodes = {**PRIVATE, "first_episode": 5}  # all arms have releases when times count
    families: dict[str, dict[str, Any]] = {
        "linucb": {}, "lin-ts": {}, "ldp-linucb": pure, "dp-kernel-ucb": pure,
        "dp-linucb": episodes, "dp-lin-ts": episodes, "dp-squarecb": {**PRIVATE, "first_batch": 20},
    }  # fmt: skip
    for known, shape in kinds:
        print("a catalogue of 10,000 arms" if shape is None else f"features of shape {shape}")
        costs: dict[str, list[tuple[float, float]]] = {name: [] for name in families}
        for _ in range(runs):
            for name, parameters in families.items():
                policy = bl.policy(bl.PolicyName(name), **parameters, **known)
                costs[name].append(agent_cost(policy, shape))
        least = {name: min(each) for name, each in costs.items()}
        for name, (seconds, save) in least.items():
            ratio = seconds / least["linucb"][0]
            print(f"{name:14} {1e3 * seconds:6.2f} ms, {ratio:5.2f} times linucb, {save:.2f} MB")


def show_steps(arms: int, rounds: int, runs: int) -> float:
    """Processor time of a step, contexts drawn in it; returns that of linucb."""
    world, shape = trial_world(arms=arms), {"arms": arms, "features": FEATURES}
    theta, hand = world.constants().theta[0], compiled(make_hand_written)
    policies = {
        "linucb": bl.policy("linucb", **shape),
        "dp-linucb": bl.policy("dp-linucb", **PRIVATE, **shape),
    }
    plays: dict[str, Callable[[], Any]] = {
        "by hand": lambda: hand(theta, arms, rounds, seeded(1)),
        **{
            name: lambda policy=policy: bl.simulate(  # type: ignore[misc]
                policy, world, horizon=rounds, repetitions=1, seed=1, checkpoints=1, workers=1
            )
            for name, policy in policies.items()
        },
    }
    seconds: dict[str, list[float]] = {name: [] for name in plays}
    for turn in range(runs + 1):
        for name, play in plays.items():
            start = time.process_time()
            play()
            if turn:  # the first compiles
                seconds[name].append((time.process_time() - start) / rounds)
    best = {name: min(times) for name, times in seconds.items()}
    print(f"{arms:,} arms")
    for name, each in best.items():
        print(f"{name:12} {each * 1e9:8.0f} ns a step")
    print(f"linucb / by hand: {best['linucb'] / best['by hand']:.2f} (target at most 1.3)")
    print(f"dp-linucb / linucb: {best['dp-linucb'] / best['linucb']:.2f} (target at most 1.2)")
    return best["linucb"]


def steps(runs: int) -> None:
    """Processor time of a step with ten features, 10^4 arms and ten; the best of `runs`."""
    show_steps(10_000, 200, runs)
    ours = show_steps(ARMS, 200_000, runs)
    try:
        theirs = mabwiser(trial_world(), 300)
    except ImportError:
        print("MABWiser is not installed: pip install -r requirements-bench.lock")
    else:
        print(f"MABWiser     {theirs * 1e9:8.0f} ns a step")
        print(f"MABWiser / linucb: {theirs / ours:.0f} (target at least 100)")


def late(runs: int) -> None:
    """Regret in 10^4 rounds if rewards are late: 5 arms with 3 shared features, epsilon 1."""
    world = bl.environment("linear", arms=5, theta=[0.7, 0.3, -0.4])
    for delay in (None, bl.Delay(mean=1_000, law="fixed"), bl.Delay(mean=1_000)):
        print(f"\n{delay or 'no delay'}")
        policies = contenders(arms=5, features=3)
        policies["dp-squarecb"] = bl.policy("dp-squarecb", arms=5, features=3, **PRIVATE)
        show(
            bl.simulate(
                policies, world, horizon=10**4, repetitions=runs, seed=1, checkpoints=[10**4],
                delay=delay,
            )
        )  # fmt: skip


def make_valued(
    choose: Callable[..., Any],
    learn: Callable[..., Any],
    draw: Callable[..., Any],
    renew: Callable[..., Any],
) -> Callable[..., Any]:
    """Close a loop that also adds up the true values of the rule and of fixed arms, by round."""

    def play(
        params: Any, state: Any, scene: Any, first: int, last: int, true: np.ndarray, rng: Any
    ) -> None:
        for t in range(first, last + 1):
            renew(scene, t, rng)
            arm, phase = choose(params, state, t, scene.features, rng)
            true[t] = true[t - 1]
            for a in range(params.arms):
                own = (state.chances[a] - params.least) / (1.0 - params.arms * params.least)
                true[t, 0] += own * scene.means[a]
                true[t, 1 + a] += scene.means[a]
            learn(params, state, t, arm, draw(scene, t, arm, rng), phase, rng)

    return play


def values(runs: int) -> None:
    """Intervals of values at 95 %: two arms, three features; epsilon 0.7 and 0.3 for values."""
    z = np.random.default_rng(1).normal(size=(200, 2))
    z /= 1.5 * np.abs(z).max(axis=0)
    table = np.column_stack([np.full(200, 0.7), z / math.sqrt(2.0)])
    for name, theta in (
        ("half of the rewards, useful features", [0.7, 0.6, 0.0, 0.7, -0.6, 0.0]),
        ("half of the rewards, useless features", [0.75, 0.0, 0.0, 0.7, 0.0, 0.0]),
        ("3 % of the rewards, useful features", [0.045, 0.06, 0.0, 0.045, -0.06, 0.0]),
    ):
        world = bl.environment("linear", arms=2, theta=theta, contexts="disjoint", table=table)
        base = bl.policy("dp-kernel-ucb", arms=2, features=3, disjoint=True, epsilon=0.7)
        policy = bl.policy("with-values", arms=2, base=base, value_epsilon=0.3, least_chance=0.1)
        loop = compiled(make_valued, *policy.kernels[1:3], world.draw, world.scene[1])
        seen: dict[int, list[tuple[bool, float, float, bool | None]]] = {}
        for run in range(runs):
            rng, true, first = seeded(run), np.zeros((10**5 + 1, 3)), 1
            state = policy.kernels.begin(policy.constants())
            scene = world.scene[0](world.constants())
            for last in (10**4, 10**5):
                loop(policy.constants(), state, scene, first, last, true, rng)
                estimates = policy.value_estimates(state, 0.95)
                released = estimates[0].rewards  # they are of the first decisions
                share = released / last
                halves = [0.5 * (row.interval[1] - row.interval[0]) for row in estimates]
                inside = all(
                    row.interval[0] <= mean <= row.interval[1]
                    for row, mean in zip(estimates, true[released] / released, strict=True)
                )
                seen.setdefault(last, []).append(
                    (inside, share, halves[0], max(halves[1:]), estimates.context_helps)
                )
                first = last + 1
        for last, rows in seen.items():
            missed = sum(not row[0] for row in rows)
            answers = [sum(row[4] is answer for row in rows) for answer in (True, False, None)]
            rule, arms = (float(np.mean([row[i] for row in rows])) for i in (2, 3))
            print(
                f"{name}, {last:,}: missed {missed} of {runs}; half widths {rule:.3f} (rule), "
                f"{arms:.3f} (arms); helps / does not / open: {answers}; in releases "
                f"{np.mean([row[1] for row in rows]):.0%}; values {true[released] / released}"
            )


def main() -> None:
    parts = {"regret": (regret, 100), "coverage": (coverage, 10_000), "steps": (steps, 5)}
    parts |= {
        "agents": (agents, 5),
        "worlds": (worlds, 10),
        "late": (late, 40),
        "values": (values, 40),
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=parts)
    parser.add_argument("--runs", type=int)
    options = parser.parse_args()
    play, runs = parts[options.part]
    play(options.runs or runs)


if __name__ == "__main__":
    main()
