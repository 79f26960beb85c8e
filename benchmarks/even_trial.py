"""What dp-even names in a trial of fixed size, beside classic tests without privacy.

Sums of rewards are drawn at once; 8 % of the rewards are lost. The first table has the share of
trials that name the best of four arms. The second has levels: arm 0 is the best by a hair, so to
name another arm is wrong, and should happen in at most 5 % of trials.

    python benchmarks/even_trial.py                     # 1,000 trials a line
    python benchmarks/even_trial.py --trials 100
    python benchmarks/even_trial.py --levels            # the second table alone
"""

from __future__ import annotations

import argparse
import math
from statistics import NormalDist

import numpy as np

from balaclava.theory.fixed_sample import best_of_sample, look_share

FAILURE, LOST = 0.05, 0.08
CLINIC = [0.55, 0.60, 0.62, 0.75]
PARTICIPANTS = 1_200
EPSILONS = (0.05, 0.2, 1.0)
LEVELS = (  # epsilon, decisions of each arm, means: near 0 and 1, unequal sizes, three equal arms
    (0.05, 1_000, [0.5, 0.5]),
    (0.05, 1_000, [0.01, 0.01]),
    (1.0, 150, [0.97, 0.97]),
    (1.0, 150, [0.02, 0.02]),
    (10.0, 60, [0.5, 0.5]),
    (1.0, 300, [0.6, 0.6, 0.6]),
)


def classic(rewards: np.ndarray, sums: np.ndarray, level: float) -> int:
    """The arm that beats every other in a pooled z-test without noise; -1 if there is none."""
    means = sums / rewards
    lead, least = int(np.argmax(means)), NormalDist().inv_cdf(1 - level)
    for arm in set(range(means.size)) - {lead}:
        both = rewards[[arm, lead]]
        mean = sums[[arm, lead]].sum() / both.sum()
        deviation = math.sqrt(mean * (1 - mean) * (1 / both).sum())
        if means[lead] - means[arm] < least * deviation:
            return -1
    return lead


def private(rewards: np.ndarray, sums: np.ndarray, epsilon: float, rng: np.random.Generator) -> int:
    """The answer of dp-even with one look."""
    noisy = sums + rng.laplace(0, 1 / epsilon, sums.size)
    released = np.column_stack([rewards, noisy / rewards, np.ones(sums.size)])
    return best_of_sample(released, epsilon, FAILURE)


def in_looks(
    means: np.ndarray, looks: int, epsilon: float, rng: np.random.Generator,
    participants: int = PARTICIPANTS, failure: float = FAILURE,
) -> tuple[int, int]:  # fmt: skip
    """The answer of dp-even with several looks, and the look; the last one if there is none."""
    released, pulls = np.zeros((means.size, 3)), participants // means.size
    for look in range(1, looks + 1):
        more = rng.binomial(
            pulls * look // looks - pulls * (look - 1) // looks, 1 - LOST, means.size
        )
        sums = released[:, 0] * released[:, 1] + rng.binomial(more, means)
        sums += rng.laplace(0, 1 / epsilon, means.size)
        released[:, 0] += more
        released[:, 1] = sums / released[:, 0]
        released[:, 2] = look
        arm = best_of_sample(released, epsilon, failure * look_share(look, looks))
        if arm != -1:
            return arm, look
    return -1, looks


def powers(trials: int, rng: np.random.Generator) -> None:
    means = np.array(CLINIC)
    best, rivals = int(np.argmax(means)), means.size - 1
    pairs = means.size * rivals  # each pair in both directions
    named = []
    for _ in range(trials):
        rewards = rng.binomial(PARTICIPANTS // means.size, 1 - LOST, means.size)
        sums = rng.binomial(rewards, means)
        answers = [classic(rewards, sums, FAILURE / n) for n in (rivals, pairs)]
        named.append(answers + [private(rewards, sums, e, rng) for e in EPSILONS])
    print(f"{PARTICIPANTS:,} participants, means {CLINIC}: trials that name the best, another arm")
    labels = ["z-test", "z-test, all pairs", *(f"dp-even, epsilon {e:g}" for e in EPSILONS)]
    for label, answers in zip(labels, np.array(named).T, strict=True):
        right = (answers == best).mean()
        print(f"{label} | {right:.1%} | {(answers != -1).mean() - right:.1%}", flush=True)
    for looks in (1, 2, 3, 5):
        ends = np.array([in_looks(means, looks, 1.0, rng) for _ in range(trials)])
        share, mean = (ends[:, 0] == best).mean(), PARTICIPANTS * ends[:, 1].mean() / looks
        print(f"epsilon 1, {looks} looks | {share:.1%} | {mean:,.0f} participants", flush=True)


def levels(trials: int, rng: np.random.Generator) -> None:
    print("epsilon | decisions of an arm | means | trials that name another arm than the first")
    for epsilon, pulls, means in LEVELS:
        wrong = 0
        for _ in range(trials):
            rewards = rng.binomial(pulls, [1 - LOST] + [0.8] * (len(means) - 1))
            wrong += private(rewards, rng.binomial(rewards, means), epsilon, rng) > 0
        print(f"{epsilon:g} | {pulls:,} | {means} | {wrong / trials:.1%}", flush=True)
    for looks in (2, 3, 5):
        for epsilon, pulls, means in LEVELS[::2]:
            ends = [in_looks(np.array(means), looks, epsilon, rng, pulls * len(means))[0]
                    for _ in range(trials)]  # fmt: skip
            wrong = sum(arm > 0 for arm in ends)
            print(f"{epsilon:g} | {pulls:,} | {means}, {looks} looks | {wrong / trials:.1%}",
                  flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=1_000)
    parser.add_argument("--levels", action="store_true", help="the second table alone")
    chosen = parser.parse_args()
    if not chosen.levels:
        powers(chosen.trials, np.random.default_rng(1))
    levels(chosen.trials, np.random.default_rng(2))


if __name__ == "__main__":
    main()
