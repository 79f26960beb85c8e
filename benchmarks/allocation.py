"""How well staff who see all earlier arms can guess the next: `python benchmarks/allocation.py`.

The observer of dp-even knows the design, and computes the chance of each arm exactly: a filter over
the length of the block and the turns that are left. Each line: the share of arms that are known for
sure, and the share that the best guess gets right. Of the other policies the guess is the last arm.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

import balaclava as bl

TURNS, TRIALS = 300, 40  # of each arm; of each row
MEANS = {2: [0.6, 0.7], 3: [0.6, 0.6, 0.7], 4: [0.6, 0.6, 0.6, 0.7]}
Law = dict[tuple[int, ...], float]  # the chance of these turns left in the block


def guesses(arms: int, longest: int, seed: int) -> tuple[float, float]:
    """Shares of arms known for sure, and guessed right, in one trial."""
    policy = bl.policy(
        "dp-even", arms=arms, epsilon=1.0, horizon=arms * TURNS, longest_block=longest
    )
    agent, sure, right = policy.agent(seed=seed), 0, 0
    law: Law = {(0,) * arms: 1.0}
    total = [TURNS] * arms
    for _ in range(arms * TURNS):
        law = with_new_blocks(law, min(total), longest)
        chances = np.zeros(arms)
        for left, chance in law.items():
            chances += chance * np.array(left) / sum(left)
        decision = agent.ask()
        agent.tell(decision, 0.0)  # arms do not depend on it
        arm = decision.arm
        sure += chances.max() > 1.0 - 1e-9
        best = np.flatnonzero(chances > chances.max() - 1e-9)
        right += (arm in best) / best.size
        law = after(law, arm)
        total[arm] -= 1
    return sure / (arms * TURNS), right / (arms * TURNS)


def with_new_blocks(law: Law, turns_left: int, longest: int) -> Law:
    """Where a block is over, the next one."""
    most = min(longest, turns_left)
    more: defaultdict[tuple[int, ...], float] = defaultdict(float)
    for left, chance in law.items():
        if any(left):
            more[left] += chance
        else:
            for turns in range(1, most + 1):
                more[(turns,) * len(left)] += chance / most
    return more


def after(law: Law, arm: int) -> Law:
    """The law after this arm was seen."""
    more = {
        (*left[:arm], left[arm] - 1, *left[arm + 1 :]): chance * left[arm] / sum(left)
        for left, chance in law.items()
        if left[arm]
    }
    total = sum(more.values())
    return {left: chance / total for left, chance in more.items()}


def repeats(name: str, arms: int, seed: int) -> float:
    """The share of decisions with the arm of the one before, with prompt rewards."""
    agent = bl.policy(name, arms=arms, epsilon=1.0).agent(seed=seed)
    rng, last, same = np.random.default_rng(seed), -1, 0
    for _ in range(arms * TURNS):
        decision = agent.ask()
        agent.tell(decision, float(rng.random() < MEANS[arms][decision.arm]))
        same += decision.arm == last
        last = decision.arm
    return same / (arms * TURNS)


def main() -> None:
    for arms in MEANS:
        for longest in (1, 2, 3, 4):
            sure, right = np.mean([guesses(arms, longest, seed) for seed in range(TRIALS)], axis=0)
            print(f"dp-even  {arms} arms, longest_block={longest}: {sure:.0%} sure, {right:.0%}")
        for name in ("dp-top-two", "dp-imed"):
            share = np.mean([repeats(name, arms, seed) for seed in range(TRIALS)])
            print(f"{name}  {arms} arms: {share:.0%}")


if __name__ == "__main__":
    main()
