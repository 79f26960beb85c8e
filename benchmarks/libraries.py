"""UCB1 of other libraries, one step at a time as their users run it: choose, draw, learn."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import steps
from measuring import Line, in_turns

ARMS = 9
MEANS = steps.PROBLEMS[ARMS].tolist()
TARGETS = {"River": 150.0, "MABWiser": 1500.0}


def river(rounds: int) -> None:
    from river import bandit

    coin = random.Random(1)
    policy = bandit.UCB(delta=1, seed=1)  # delta = 1 makes it UCB1
    arms = range(ARMS)
    for _ in range(rounds):
        arm = policy.pull(arms)
        policy.update(arm, 1.0 if coin.random() < MEANS[arm] else 0.0)


def mabwiser(rounds: int) -> None:
    from mabwiser.mab import MAB, LearningPolicy

    coin = random.Random(1)
    arms = list(range(ARMS))
    policy = MAB(arms, LearningPolicy.UCB1(alpha=1), seed=1)
    policy.fit(arms, [1.0 if coin.random() < mean else 0.0 for mean in MEANS])
    for _ in range(rounds - ARMS):
        arm = policy.predict()
        policy.partial_fit([arm], [1.0 if coin.random() < MEANS[arm] else 0.0])


def lines(quick: bool) -> list[Line]:
    """The speed-up over each library, per step and on one thread."""
    scale, repeats = (1, 3) if quick else (10, 7)
    ours, rounds = steps.RIVALS[0].policy(ARMS), 100_000 * scale
    rivals: dict[str, tuple[Callable[[int], None], int]] = {
        "River": (river, 2_000 * scale),
        "MABWiser": (mabwiser, 200 * scale),
    }
    contenders: dict[str, Callable[[], Any]] = {"ours": lambda: steps.simulate(ours, rounds)}
    for name, (play, count) in rivals.items():
        contenders[name] = partial(play, count)
    seconds = in_turns(contenders, repeats)
    rows = []
    for name, (_, count) in rivals.items():
        each = sorted(
            (theirs / count) / (mine / rounds)
            for theirs, mine in zip(seconds[name], seconds["ours"], strict=True)
        )
        rows.append(
            Line(
                f"ucb1, {ARMS} arms, times faster than {name}",
                f"{min(seconds['ours']) / rounds * 1e9:.1f} ns",
                f"{min(seconds[name]) / count * 1e6:.1f} us",
                each[len(each) // 2],
                each[0],
                each[-1],
                ">=",
                TARGETS[name],
            )
        )
    return rows
