"""Rounds until dp-top-two names the best arm, how often it is wrong, and answers at a fixed end.

Runs draw whole batches of rewards at once from the policy's own kernels: the same law as round by
round, with rewards that arrive at once. "bound" is `bl.bounds.identification`.

    python benchmarks/best_arm.py             # medians of 10,000 runs a line
    python benchmarks/best_arm.py --others    # beside dp-se and dp-imed with explore, 200 runs
    python benchmarks/best_arm.py --rivals    # AdaP-TT, by its proved threshold and the heuristic
    python benchmarks/best_arm.py --goals     # sets: the best k, all above a threshold or a control
    python benchmarks/best_arm.py --budget    # chance of error after a fixed number of rounds
    python benchmarks/best_arm.py --stages    # other lengths of the stages of halving
    python benchmarks/best_arm.py --wrong     # wrong answers on hard problems, 10^6 runs a line
    python benchmarks/best_arm.py --late      # the same with late and lost rewards, and by window
    python benchmarks/best_arm.py --scan      # other first batches and ratios
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import balaclava as bl
from balaclava.authoring import compiled, kernel
from balaclava.frames.pools import find_row
from balaclava.policies.base import BEST_ARM, Policy
from balaclava.privacy.randomness import seeded

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.oracles.best_arm_rivals import adap_tt, halving_answers

from best_arm_on_gpu import play_on_gpu

LINEAR, ONE_GOOD = [0.75, 0.625, 0.5, 0.375, 0.25], [0.75, 0.7, 0.7, 0.7, 0.7]
CLINIC, LETTERS = [0.55, 0.60, 0.65, 0.75], [0.30, 0.45, 0.60]
ROWS = [(means, epsilon) for means in (LINEAR, ONE_GOOD, CLINIC, LETTERS) for epsilon in (1.0, 0.1)]
# Means, epsilon, and the share of rewards of 1/2; near 0 and 1, near ties, few and many arms.
HARD: list[tuple[Sequence[float], float, float]] = [
    ([0.5, 0.51], 1.0, 0.0),
    ([0.02, 0.04], 1.0, 0.0),
    ([0.97, 0.99], 0.3, 0.0),
    ([0.001, 0.002], 10.0, 0.0),
    ([0.5, 0.55], 0.05, 0.0),
    ([0.45, 0.5, 0.5], 1.0, 0.0),
    ([0.3, 0.4, 0.45], 0.1, 0.0),
    ([0.5, 0.53], 2.0, 0.4),
    ([0.25, 0.3, 0.28], 0.5, 0.3),
    ([0.5] * 49 + [0.6], 1.0, 0.0),
    ([0.9] * 9 + [0.95], 3.0, 0.0),
    ([0.0, 0.02], 5.0, 0.0),
]
# Near ties, one good arm of many, small means: what the lengths of stages were compared on.
STAGED = [
    LINEAR, ONE_GOOD, CLINIC, [0.57, 0.56, 0.55, 0.54, 0.53, 0.52, 0.51, 0.5], [0.6] + [0.5] * 15,
    [0.02, 0.04, 0.06], [0.8 - 0.03 * i for i in range(16)], [0.3 + 0.05 * i for i in range(9)],
]  # fmt: skip
MOST_ROUNDS = 10**8  # a run without an answer ends here
PARTS = 64  # of the runs of a line, each with its own stream


@kernel
def named_arm(state: Any) -> int:
    return state.named[0]  # type: ignore[no-any-return]


@kernel
def named_set(state: Any) -> int:
    """The set as a sum of 2^arm, or -1."""
    members = 0
    for arm in range(state.chosen.size):
        members += state.chosen[arm] << arm
    return members if state.named[0] >= 0 else -1


def make_runs(
    begin: Callable[..., Any], choose: Callable[..., Any], learn: Callable[..., Any], row_of: Any,
    answer: Callable[..., int],
) -> Callable[..., Any]:  # fmt: skip
    """Close a loop that plays runs until the best arm, or the set, is named."""

    def runs(params: Any, means: np.ndarray, half: float, most: int, out: np.ndarray, rng: Any):  # type: ignore[no-untyped-def]
        best = means.max()
        for i in range(out.shape[0]):
            state = begin(params)
            pools = state.pools
            t, regret, worse = 1, 0.0, 0
            while state.named[0] < 0 and t < most:
                arm, phase = choose(params, state, t, None, rng)
                k = 1 + pools.rest_of_batch[0]
                pools.rest_of_batch[0] = 0
                row = row_of(pools, arm, phase)
                halves = rng.binomial(k, half) if half > 0.0 else 0
                ones = rng.binomial(k - halves, (means[arm] - 0.5 * half) / (1.0 - half))
                total = ones + 0.5 * halves
                last = 1.0 if ones > 0 else (0.5 if halves > 0 else 0.0)
                pools.left[arm, row] -= k - 1
                pools.sums[arm, row] += total - last
                learn(params, state, t, arm, last, phase, rng)
                t += k
                regret += k * (best - means[arm])
                worse += k if means[arm] < best else 0
            out[i, 0], out[i, 1], out[i, 2], out[i, 3] = t - 1, answer(state), regret, worse

    return runs


def play(
    policy: Policy, means: Sequence[float], runs: int, seed: int, half: float = 0.0,
    most: int = MOST_ROUNDS,
) -> np.ndarray:  # fmt: skip
    """Rounds, the named arm or set (-1: none), regret and rounds with a worse arm, of each run."""
    kernels = policy.kernels
    answer = named_arm if policy.answer_claim == BEST_ARM else named_set
    loop = compiled(make_runs, kernels.begin, kernels.choose, kernels.learn, find_row, answer)
    params, truth = policy.constants(), np.array(means, float)
    out = np.zeros((runs, 4))
    parts = np.array_split(out, min(PARTS, runs))
    loop(params, truth, half, most, out[:0], seeded(0))
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        jobs = [
            pool.submit(loop, params, truth, half, most, part, seeded(seed, i))
            for i, part in enumerate(parts)
        ]
        for job in jobs:
            job.result()
    return out


def top_two(means: Sequence[float], epsilon: float, confidence: float, **more: Any) -> Policy:
    return bl.policy("dp-top-two", arms=len(means), epsilon=epsilon, confidence=confidence, **more)


def show_rounds(runs: int) -> None:
    print("means                          epsilon  delta   bound  median    90 %  /bound"
          "  wrong  regret  worse")  # fmt: skip
    for means, epsilon in ROWS:
        for delta in (0.01, 0.05):
            out = play(top_two(means, epsilon, 1.0 - delta), means, runs, seed=1)
            bound = bl.bounds.identification(means, epsilon=epsilon, delta=delta)
            median, high = np.quantile(out[:, 0], [0.5, 0.9])
            wrong = np.mean(np.array(means)[out[:, 1].astype(int)] < max(means))
            print(
                f"{brief(means):30} {epsilon:7g} {delta:6g} {bound:7,.0f} {median:7,.0f} "
                f"{high:7,.0f} {median / bound:7.2f} {wrong:6.2%} {out[:, 2].mean():7,.0f} "
                f"{out[:, 3].mean():6,.0f}",
                flush=True,
            )


def show_others(runs: int) -> None:
    for means, epsilon in ROWS:
        horizon = 40_000 if means is not ONE_GOOD else 200_000
        world = bl.environment("bernoulli", means=means)
        rivals = {
            "dp-top-two": top_two(means, epsilon, 0.99),
            "dp-se": bl.policy("dp-se", arms=len(means), epsilon=epsilon, horizon=200_000),
            "explore .5": bl.policy("dp-imed", arms=len(means), epsilon=epsilon, explore=0.5),
            "explore .2": bl.policy("dp-imed", arms=len(means), epsilon=epsilon, explore=0.2),
        }
        results = bl.simulate(
            rivals, world, horizon=horizon, repetitions=runs, seed=1, winners=True,
            checkpoints=400,
        )  # fmt: skip
        print(means, "epsilon", epsilon)
        print(results.winners(0.99), flush=True)


def show_rivals(runs: int) -> None:
    """Medians at delta .01; "counted" are the rounds that the authors' code counts."""
    print("means                          epsilon  stops by    runs  median  counted   90 %  wrong")
    for means, epsilon in ROWS[:4]:
        for proved in (True, False):
            out = adap_tt(np.array(means), epsilon, 0.01, proved, MOST_ROUNDS, runs, 1)
            print(
                f"{brief(means):30} {epsilon:7g}  {'proof' if proved else 'heuristic':9} {runs:5,} "
                f"{np.median(out[:, 0]):7,.0f} {np.median(out[:, 2]):8,.0f} "
                f"{np.quantile(out[:, 0], 0.9):9,.0f} {np.mean(out[:, 1] != 0):6.2%}",
                flush=True,
            )


def make_budget_runs(
    begin: Callable[..., Any], choose: Callable[..., Any], learn: Callable[..., Any], answer: Any
) -> Callable[..., Any]:
    """Close a loop that plays `horizon` rounds: means of the answer and of the most played arm.

    The arms' order is drawn anew for each run, so that an arm named by its place is a random one.
    """

    def runs(params: Any, means: np.ndarray, horizon: int, out: np.ndarray, rng: Any):  # type: ignore[no-untyped-def]
        for i in range(out.shape[0]):
            state, pulls = begin(params), np.zeros(means.size)
            rng.shuffle(means)
            for t in range(1, horizon + 1):
                arm, phase = choose(params, state, t, None, rng)
                pulls[arm] += 1.0
                reward = 1.0 if rng.random() < means[arm] else 0.0
                learn(params, state, t, arm, reward, phase, rng)
            named = answer(state)
            out[i, 0] = means[named] if named >= 0 else -1.0
            out[i, 1] = means[np.argmax(pulls)]

    return runs


@kernel
def last_arm(state: Any) -> int:
    return state.epochs.last_arm[0]  # type: ignore[no-any-return]


@kernel
def leading_arm(state: Any) -> int:
    return state.pools.lead[0] if state.named[0] < 0 else state.named[0]  # type: ignore[no-any-return]


@kernel
def no_arm(state: Any) -> int:
    return -1


def show_budget(runs: int) -> None:
    """Shares of runs with a wrong answer; the bound is that of dp-sequential-halving."""
    answers = {"dp-sequential-halving": last_arm, "dp-even": last_arm, "dp-top-two": leading_arm,
               "dp-imed": no_arm}  # fmt: skip
    print("means                          epsilon horizon   bound halving  DP-BAI    even top-two"
          "    imed")  # fmt: skip
    for means in (LINEAR, ONE_GOOD, CLINIC, STAGED[3], STAGED[4]):
        for epsilon in (1.0, 0.1):
            for horizon in (100 * len(means), 400 * len(means), 1_600 * len(means)):
                errors = []
                for name, answer in answers.items():
                    policy = bl.policy(name, arms=len(means), epsilon=epsilon, horizon=horizon)
                    kernels, out = policy.kernels, np.zeros((runs, 2))
                    loop = compiled(
                        make_budget_runs, kernels.begin, kernels.choose, kernels.learn, answer
                    )
                    loop(policy.constants(), np.array(means), horizon, out, seeded(1))
                    values = out[:, 1] if answer is no_arm else out[:, 0]
                    errors.append(float(np.mean(values < max(means))))
                halving, world = (
                    bl.policy(
                        "dp-sequential-halving", arms=len(means), epsilon=epsilon, horizon=horizon
                    ),
                    bl.environment("bernoulli", means=means),
                )
                theirs = wrong_share(means, halving_answers(means, epsilon, horizon, runs, 2))
                cells = [halving.error_bound(world), errors[0], theirs, *errors[1:]]
                print(f"{brief(means):30} {epsilon:7g} {horizon:7,}",
                      *(f"{cell:7.2%}" for cell in cells), flush=True)  # fmt: skip


def show_stages(runs: int) -> None:
    """Chance of error over the least of all ratios: geometric mean, and the worst problem."""
    ratios = (1.0, 0.8, 0.7, 0.6, 0.5, 0.35)
    for epsilon in (1.0, 0.1, 0.03):
        losses = []
        for means in STAGED:
            for pulls in (100, 400, 1_600, 6_400):
                row = [
                    wrong_share(means, halving_answers(
                        means, epsilon, pulls * len(means), runs, 1, ratio=ratio, forget=False
                    )) + 4.0 / runs
                    for ratio in ratios
                ]  # fmt: skip
                if min(row) < 0.7 and max(row) > 0.004:
                    losses.append([math.log(each / min(row)) for each in row])
        table = np.array(losses)
        for ratio, mean, most in zip(ratios, table.mean(axis=0), table.max(axis=0), strict=True):
            loss = f"{math.exp(mean):.3f}, {math.exp(most):.2f}"
            print(f"epsilon {epsilon:g}, ratio {ratio:g}: {loss}", flush=True)


def right_sets(policy: Policy, means: Sequence[float]) -> set[int]:
    """The right answers of a goal, each as a sum of 2^arm."""
    values, bits = np.array(means), 2 ** np.arange(len(means))
    if policy.top is not None:
        sets = [np.array(each) for each in itertools.combinations(range(len(means)), policy.top)]
        return {
            int(bits[each].sum()) for each in sets
            if values[each].min() >= max(np.delete(values, each), default=0.0)
        }  # fmt: skip
    level = policy.threshold if policy.control is None else values[policy.control]
    ties = [arm for arm in np.flatnonzero(values == level) if arm != policy.control]
    above = int(bits[values > level].sum())
    return {above + int(bits[list(some)].sum()) for n in range(len(ties) + 1)
            for some in itertools.combinations(ties, n)}  # fmt: skip


def show_goals(runs: int) -> None:
    """Sets of arms at delta .05: rounds, and shares of wrong answers."""
    goals: list[tuple[Sequence[float], dict[str, Any]]] = [
        (LINEAR, {"goal": "top", "top": 2}),
        (CLINIC, {"goal": "top", "top": 2}),
        ([0.5, 0.5, 0.55], {"goal": "top", "top": 2}),
        (LINEAR, {"goal": "above", "threshold": 0.55}),
        ([0.02, 0.04, 0.05], {"goal": "above", "threshold": 0.03}),
        (CLINIC, {"goal": "above", "control": 1}),
        ([0.5, 0.52, 0.53], {"goal": "above", "control": 0}),
        ([0.5] * 9 + [0.6], {"goal": "above", "control": 9}),
    ]
    print("means                          epsilon goal                      runs  median     90 %"
          "   wrong   none")  # fmt: skip
    for means, goal in goals:
        for epsilon in (1.0, 0.1):
            policy = top_two(means, epsilon, 0.95, **goal)
            out, right = play(policy, means, runs, 1, most=10**6), right_sets(policy, means)
            sets = out[:, 1].astype(int)
            wrong = np.mean([each >= 0 and each not in right for each in sets])
            median, high = np.quantile(out[:, 0], [0.5, 0.9])
            cells = f"{runs:6,} {median:7,.0f} {high:8,.0f} {wrong:7.3%} {np.mean(sets < 0):6.2%}"
            print(f"{brief(means):30} {epsilon:7g} {policy.answer_claim:24} {cells}", flush=True)


def wrong_share(means: Sequence[float], answers: np.ndarray) -> float:
    return float(np.mean(np.array(means)[answers.astype(int)] < max(means)))


def brief(means: Sequence[float]) -> str:
    text = " ".join(f"{mean:g}".lstrip("0") or "0" for mean in means[:5])
    return text if len(means) <= 5 else f"{text} ... ({len(means)})"


def show_wrong(runs: int, device: str, arms: Sequence[int], deltas: Sequence[float]) -> None:
    print("means                epsilon  halves   delta     runs    wrong   none  median rounds")
    for means, epsilon, half in HARD:
        for delta in deltas if not arms or len(means) in arms else ():
            policy = top_two(means, epsilon, 1.0 - delta)
            if device == "cuda":
                out = play_on_gpu(policy, means, runs, 2, half, 10**7)
            else:
                out = play(policy, means, runs, 2, half, 10**7)
            named = out[:, 1].astype(int)
            wrong = np.mean((named >= 0) & (np.array(means)[named] < max(means)))
            label = " ".join(f"{mean:g}".lstrip("0") or "0" for mean in means[:3])
            label += f" ({len(means)})"
            print(
                f"{label:20} {epsilon:7g} {half:7g} {delta:7g} {runs:8,} {wrong:8.4%} "
                f"{np.mean(named < 0):6.2%} {np.median(out[:, 0]):14,.0f}",
                flush=True,
            )


def show_late(runs: int, rounds: int) -> None:
    """Wrong answers if rewards are late, lost or count by window."""
    late = bl.Delay(mean=100, law="fixed")
    ways: dict[str, dict[str, Any]] = {
        "100 late": {"delay": late, "patience": 200},
        "100 late, 20 % lost": {
            "delay": bl.Delay(mean=100, law="fixed", lost=0.2),
            "patience": 200,
        },
        "window of 200": {"delay": late, "patience": 200, "settle": "window", "missing": 0.0},
    }
    looks = np.unique(np.geomspace(50, rounds, 400).astype(int)).tolist()  # more than releases
    print("means           epsilon  rewards               delta    runs    wrong    none")
    for means, epsilon in (([0.5, 0.51], 1.0), ([0.02, 0.04], 1.0), ([0.9, 0.91, 0.93], 3.0),
                           ([0.45, 0.48, 0.5], 0.3)):  # fmt: skip
        world = bl.environment("bernoulli", means=means)
        for way, options in ways.items():
            for delta in (0.01, 0.05):
                policy = top_two(means, epsilon, 1.0 - delta)
                (row,) = bl.simulate(
                    policy, world, horizon=rounds, repetitions=runs, seed=3, winners=True,
                    checkpoints=looks, **options,
                ).winners(1.0 - delta)  # fmt: skip
                print(f"{brief(means):15} {epsilon:7g}  {way:20} {delta:6g} {runs:7,} "
                      f"{row.wrong:8.4%} {row.none:7.2%}", flush=True)  # fmt: skip


def show_scan(runs: int) -> None:
    print("first_batch * epsilon, batch_ratio: medians of", [f"{m[0]:g} {e:g}" for m, e in ROWS])
    for first in (20.0, 30.0, 40.0, 60.0):
        for ratio in (1.1, 1.25, 1.5):
            medians = [
                np.median(
                    play(top_two(m, e, 0.99, first_batch=first / e, batch_ratio=ratio), m, runs, 1)[
                        :, 0
                    ]
                )
                for m, e in ROWS
            ]
            print(f"{first:g} {ratio:g}", [f"{value:,.0f}" for value in medians], flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, help="runs a line")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="for --wrong")
    parser.add_argument("--arms", type=int, nargs="*", default=[], help="for --wrong: only these")
    parser.add_argument("--deltas", type=float, nargs="+", default=[0.01, 0.05], help="for --wrong")
    parser.add_argument("--rounds", type=int, default=10**5, help="for --late")
    for name in ("others", "rivals", "goals", "budget", "stages", "wrong", "late", "scan"):
        parser.add_argument(f"--{name}", action="store_true")
    options = parser.parse_args()
    if options.others:
        show_others(options.runs or 200)
    elif options.rivals:
        show_rivals(options.runs or 200)
    elif options.goals:
        show_goals(options.runs or 10_000)
    elif options.budget:
        show_budget(options.runs or 4_000)
    elif options.stages:
        show_stages(options.runs or 8_000)
    elif options.wrong:
        show_wrong(options.runs or 10**6, options.device, options.arms, options.deltas)
    elif options.late:
        show_late(options.runs or 2_000, options.rounds)
    elif options.scan:
        show_scan(options.runs or 1_000)
    else:
        show_rounds(options.runs or 10_000)
