"""Regret where means change: memories of dp-imed, even draws, and policies without privacy.

    python benchmarks/drift.py                         # 1,000 runs a line
    python benchmarks/drift.py --runs 100 --world fall # one world
    python benchmarks/drift.py --bound                 # the lower bound for a weak arm that rises
    python benchmarks/drift.py --world fall --with FALSE_ALARMS=0.05   # another value of a constant

Six worlds of four arms, 40,000 rounds, epsilon 1. "constant": .55 .60 .65 .75. "fall": reversed
at half. "rise": the worst arm rises to .95 at half. "week": reversed on two days of seven, with
1,000 rounds a day; "level": all means fall by .2 on these days, and the best arm stays. "walk":
means that follow random walks. Regret is against the best arm of each round. Of the first three the
second half is shown too. Discounted and sliding-window UCB have no privacy: they show the scale.
"""

from __future__ import annotations

import argparse
import atexit
import math
import os
import shutil
import tempfile
from typing import Annotated, Any, NamedTuple

import numpy as np

import balaclava as bl
from balaclava.authoring import Range
from balaclava.policies.base import Policy
from balaclava.policies.bounded import remembering
from balaclava.theory import change_test
from balaclava.theory.rising_arm import least_regret_of_a_rise

MEANS = [0.55, 0.60, 0.65, 0.75]
REVERSED = MEANS[::-1]
HORIZON, HALF, SEED, DAY = 40_000, 20_000, 1, 1_000
QUANTILES = (0.5, 0.9, 0.99, 0.999)


def changing(*schedule: tuple[int, list[float]], **more: Any) -> bl.Environment:
    return bl.environment("changing", schedule=list(schedule), **more)


WORLDS = {
    "constant": changing((1, MEANS)),
    "fall": changing((1, MEANS), (HALF + 1, REVERSED)),
    "rise": changing((1, MEANS), (HALF + 1, [0.95, 0.60, 0.65, 0.75])),
    "week": changing((1, MEANS), (5 * DAY + 1, REVERSED), period=7 * DAY),
    "level": changing((1, MEANS), (5 * DAY + 1, [mean - 0.2 for mean in MEANS]), period=7 * DAY),
    "walk": bl.environment("drifting", means=MEANS, step=0.002, low=0.1, high=0.9),
}
WITH_A_CHANGE = ("constant", "fall", "rise")
Discount = Annotated[float, Range(0, 1, "factor of the counts in each round", open_high=True)]
Window = Annotated[int, Range(1, meaning="rounds that count")]
Width = Annotated[float, Range(0, meaning="factor of the bonus", open_low=True)]


class Counts(NamedTuple):
    """Counts and sums that fade, and the rounds of a window."""

    pulls: np.ndarray
    sums: np.ndarray
    arms: np.ndarray  # of the last rounds, in a ring
    rewards: np.ndarray


@bl.kernel
def begin(params: Any) -> Counts:
    room = int(params.window)
    arms = params.arms
    return Counts(np.zeros(arms), np.zeros(arms), np.full(room, -1), np.zeros(room))


@bl.kernel
def choose(params: Any, state: Counts, t: int, context: Any, rng: Any) -> tuple[int, int]:
    best, highest, total = 0, -math.inf, 0.0
    for arm in range(params.arms):
        total += state.pulls[arm]
    for arm in range(params.arms):
        if state.pulls[arm] < 1e-6:
            return arm, 0
        bonus = params.width * math.sqrt(math.log(max(total, 2.0)) / state.pulls[arm])
        index = state.sums[arm] / state.pulls[arm] + bonus
        if index > highest:
            best, highest = arm, index
    return best, 0


@bl.kernel
def learn_discounted(
    params: Any, state: Counts, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    for other in range(params.arms):
        state.pulls[other] *= params.discount
        state.sums[other] *= params.discount
    state.pulls[arm] += 1.0
    state.sums[arm] += reward


@bl.kernel
def learn_in_window(
    params: Any, state: Counts, t: int, arm: int, reward: float, phase: int, rng: Any
) -> None:
    place = t % state.arms.size
    old = state.arms[place]
    if old >= 0:
        state.pulls[old] -= 1.0
        state.sums[old] -= state.rewards[place]
    state.arms[place], state.rewards[place] = arm, reward
    state.pulls[arm] += 1.0
    state.sums[arm] += reward


@bl.register
class DiscountedUCB(Policy):
    """Discounted UCB (Garivier, Moulines 2011); its bonus is `width` times sqrt(log n / n_a)."""

    name = "discounted-ucb"
    discount: Discount = 0.999
    window: Window = 1
    width: Width = 0.5
    kernels = bl.Kernels(begin, choose, learn_discounted)


@bl.register
class WindowUCB(Policy):
    """Sliding-window UCB (Garivier, Moulines 2011), with the same bonus."""

    name = "window-ucb"
    discount: Discount = 0.0
    window: Window = 1_000
    width: Width = 0.5
    kernels = bl.Kernels(begin, choose, learn_in_window)


def policies() -> dict[str, Policy]:
    """Every policy with a range of its settings."""
    private: dict[str, Any] = {"arms": 4, "epsilon": 1.0}
    rows: dict[str, Policy] = {"dp-imed": bl.policy("dp-imed", **private)}
    for share in (0.02, 0.1):
        rows[f"dp-imed, explore {share}"] = bl.policy("dp-imed", explore=share, **private)
    rows["dp-imed, detect"] = bl.policy("dp-imed", memory="detect", **private)
    for share in (0.005, 0.02, 0.05, 0.1):
        policy = bl.policy("dp-imed", memory="detect", explore=share, **private)
        rows[f"dp-imed, detect, explore {share}"] = policy
    for memory in (1_000, 2_000, 4_000, 8_000, 16_000):
        rows[f"dp-imed, memory {memory:,}"] = bl.policy("dp-imed", memory=memory, **private)
    rows["dp-klucb"] = bl.policy("dp-klucb", **private)
    rows["dp-klucb, detect"] = bl.policy("dp-klucb", memory="detect", **private)
    for memory in (2_000, 8_000):
        rows[f"dp-klucb, memory {memory:,}"] = bl.policy("dp-klucb", memory=memory, **private)
    rows["ldp-ucb-bernoulli"] = bl.policy("ldp-ucb-bernoulli", **private)
    for memory in (4_000, 8_000, 16_000):
        policy = bl.policy("ldp-window-klucb", memory=memory, **private)
        rows[f"ldp-window-klucb, memory {memory:,}"] = policy
    for discount in (0.999, 0.9995, 0.9998):
        for width in (0.3, 0.6):
            label = f"discounted-ucb, {discount}, width {width}"
            rows[label] = DiscountedUCB(arms=4, discount=discount, width=width)
    for window in (1_000, 2_000, 4_000):
        for width in (0.3, 0.6):
            label = f"window-ucb, {window:,}, width {width}"
            rows[label] = WindowUCB(arms=4, window=window, width=width)
    return rows


def set_constant(setting: str) -> None:
    """Set a constant of memory="detect", given as NAME=VALUE, and compile again."""
    name, _, value = setting.partition("=")
    for module in (remembering, change_test):
        if hasattr(module, name):
            setattr(module, name, type(getattr(module, name))(value))
    # The cache knows the sources only.
    os.environ["BALACLAVA_CACHE_DIR"] = folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)


def play(world: str, runs: int, only: str = "", device: Any = "cpu") -> None:
    print(f"\n## {world}, {runs:,} runs\n")
    second = world in WITH_A_CHANGE
    names = ["mean", *(f"{q:.3g}" for q in QUANTILES)]
    header = ["policy", *names, *([f"{name} after half" for name in names] if second else [])]
    print("| " + " | ".join(header) + " |\n" + "|---" * len(header) + "|")
    for label, policy in policies().items():
        if only not in ("", label):
            continue
        results = bl.simulate(
            policy, WORLDS[world], horizon=HORIZON, repetitions=runs, seed=SEED, checkpoints=2,
            device=device,
        )  # fmt: skip
        regret = results.regret(policy.name)
        half = regret[:, list(results.checkpoints).index(HALF)]
        columns = [regret[:, -1], *([regret[:, -1] - half] if second else [])]
        cells = [
            f"{number:,.0f}"
            for column in columns
            for number in (column.mean(), *np.quantile(column, QUANTILES))
        ]
        print(f"| {label} | " + " | ".join(cells) + " |", flush=True)


def bound() -> None:
    """Regret of the weak arm's pulls in 20,000 rounds, and the least regret of its rise."""
    print(
        "| regret of the arm's pulls without a change | least regret of a rise to .95 |\n|---|---|"
    )
    for cost in (4, 10, 20, 50, 100, 200, 400):
        rate = cost / (MEANS[-1] - MEANS[0]) / HALF
        print(f"| {cost} | {least_regret_of_a_rise(MEANS[0], MEANS[-1], 0.95, rate):,.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=1_000)
    parser.add_argument("--world", choices=list(WORLDS), action="append")
    parser.add_argument("--policy", default="", help="label of the only policy")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--bound", action="store_true")
    parser.add_argument("--with", dest="setting", metavar="NAME=VALUE")
    chosen = parser.parse_args()
    if chosen.setting:
        set_constant(chosen.setting)
    if chosen.bound:
        bound()
        return
    for world in chosen.world or WORLDS:
        only = "dp-imed, detect" if chosen.setting else chosen.policy
        play(world, chosen.runs, only, chosen.device)


if __name__ == "__main__":
    main()
