"""How often the change test sees a change where there is none.

    python benchmarks/false_alarms.py              # 4,000 runs a cell

An arm's mean stays, and it releases 40 batches. Means .02 to .98, epsilon .1 to 5, one or two draws
of noise in a release, and four courses of sizes: 30 each; a seventh of all before; 5 or 200, and 1
or 60, by whether the last release was above the mean. The test runs after each release, as with
memory="detect". Rewards that come late change only the order of batches.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from balaclava.authoring import compiled
from balaclava.theory.change_test import (
    FALSE_ALARMS,
    MOST_BATCHES_BACK,
    change_evidence,
    change_threshold,
)

MEANS, EPSILONS, DRAWS = (0.02, 0.5, 0.75, 0.98), (0.1, 1.0, 5.0), (1, 2)
SIZES = ("even", "growing", "5 or 200", "1 or 60")
BATCHES = 40


def make_count(evidence: Callable[..., float], threshold: Callable[..., float]) -> Any:
    def count(
        mean: float, epsilon: float, draws: int, course: int, runs: int, rate: float, rng: Any
    ) -> int:
        """The runs in which a change was ever seen."""
        sums, sizes, seen = np.zeros(BATCHES), np.zeros(BATCHES, np.int64), 0
        for _ in range(runs):
            size, total, n, hit = 30 if course == 0 else 10, 0.0, 0, False
            for m in range(BATCHES):
                released = 0.0
                for _ in range(size):
                    released += rng.random() < mean
                for _ in range(draws):
                    released += (rng.standard_exponential() - rng.standard_exponential()) / epsilon
                sums[m], sizes[m] = released, size
                total += released
                n += size
                late, more, last, back = 0.0, 0, 0, 1
                while back <= min(m, MOST_BATCHES_BACK):
                    while last < back:
                        late += sums[m - last]
                        more += sizes[m - last]
                        last += 1
                    before = (total - late) / (n - more), n - more, draws * (m + 1 - back)
                    shown = evidence(before, (late / more, more, draws * back), epsilon)
                    hit = hit or shown >= threshold(m + 1 - back, rate)
                    back *= 2
                above = released > size * mean
                if course == 1:
                    size = max(n // 7, 1)
                elif course == 2:
                    size = 5 if above else 200
                elif course == 3:
                    size = 1 if above else 60
            seen += hit
        return seen

    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=4_000)
    runs = parser.parse_args().runs
    count = compiled(make_count, change_evidence, change_threshold)
    cells = list(itertools.product(MEANS, EPSILONS, DRAWS, range(len(SIZES))))
    shares = []
    for number, (mean, epsilon, draws, course) in enumerate(cells):
        rng = np.random.default_rng(number)
        shares.append(count(mean, epsilon, draws, course, runs, FALSE_ALARMS, rng) / runs)
    worst = int(np.argmax(shares))
    mean, epsilon, draws, course = cells[worst]
    print(
        f"{len(cells)} cells of {runs:,} runs: {np.mean(shares):.3%} on average, at most "
        f"{shares[worst]:.3%} (mean {mean}, epsilon {epsilon}, {draws} draws, {SIZES[course]}); "
        f"stated {FALSE_ALARMS:.0%}"
    )


if __name__ == "__main__":
    main()
