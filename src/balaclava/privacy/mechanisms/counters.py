"""Continual counters: running sums that are private at every moment (Chan, Shi, Song 2011).

Three counters, each with a row per arm. An item is inserted with its `width`, the largest distance
between two items at that place: 1 for rewards in [0, 1], 2 B for rewards truncated to [-B, B].
Noise is drawn at insertion and kept. Reading draws nothing: two reads give the same answer.

- Tree: for at most `horizon` items; widths may grow (Tao, Wu, Zhao, Wang 2022, Algorithm 2).
- Logarithmic: any number of items, but the sum changes only when that number is a power of two.
- Hybrid: any number of items, and a sum after each. It is a logarithmic counter up to the last
  power of two, and a tree after it. Widths must not shrink.

Proofs: `counters.proof.md` beside this file.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava._core.states import range_faults
from balaclava.privacy.mechanisms.laplace import laplace_release
from balaclava.privacy.mechanisms.truncation import exact_step, towards_0

# Levels of a tree without a horizon: it holds 2^62 - 1 items. More levels cost memory only.
_UNLIMITED_LEVELS = 62


class Trees(NamedTuple):
    """One tree counter for each arm."""

    items: np.ndarray  # [arms]: number of inserted items
    exact: np.ndarray  # [arms, levels]: sums of the last 2^level items
    noisy: np.ndarray  # [arms, levels]: the same sums as released

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0, decisions, items=self.items)


class Logarithmic(NamedTuple):
    """One logarithmic counter for each arm."""

    items: np.ndarray  # [arms]
    pending: np.ndarray  # [arms]: the sum of the items since the last release
    released: np.ndarray  # [arms]: the published sum

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0, decisions, items=self.items)


class Hybrid(NamedTuple):
    """One hybrid counter for each arm."""

    whole: Logarithmic  # up to the last power of two
    since: Trees  # after it


@kernel(borrows=True)
def tree_levels(horizon: int) -> int:
    """L = floor(log2 horizon) + 1."""
    levels = 0
    while horizon > 0:
        horizon >>= 1
        levels += 1
    return levels


@kernel(borrows=True)
def lowest_bit(n: int) -> int:
    """Position of the lowest set bit of n > 0."""
    place = 0
    while n & 1 == 0:
        n >>= 1
        place += 1
    return place


@kernel
def begin_trees(arms: int, levels: int) -> Trees:
    """Empty trees for 2^levels - 1 items; `tree_levels(horizon)` levels hold `horizon` items."""
    return Trees(np.zeros(arms, np.int64), np.zeros((arms, levels)), np.zeros((arms, levels)))


@kernel(borrows=True)
def tree_insert(
    rng: Any, trees: Trees, arm: int, item: float, width: float, epsilon: float
) -> None:
    """Insert an item; all releases of the arm's tree together cost `epsilon`."""
    insert_node(rng, trees, arm, item, width, epsilon / trees.exact.shape[1])


@kernel(borrows=True)
def insert_node(
    rng: Any, trees: Trees, arm: int, item: float, width: float, node_epsilon: float
) -> None:
    """Insert an item at `node_epsilon` per node; a full tree ignores it."""
    n = trees.items[arm] + 1
    i = lowest_bit(n)
    if i >= trees.exact.shape[1]:
        return
    trees.items[arm] = n
    total = item
    for j in range(i):
        total += trees.exact[arm, j]
        trees.exact[arm, j] = 0.0
        trees.noisy[arm, j] = 0.0
    trees.exact[arm, i] = total
    trees.noisy[arm, i] = laplace_release(rng, total, width, node_epsilon)


@kernel(borrows=True)
def tree_insert_within(
    rng: Any, trees: Trees, arm: int, item: float, level: float, epsilon: float
) -> None:
    """As `tree_insert`, for an item within [-level, level]; levels must not shrink."""
    n = trees.items[arm] + 1
    i = lowest_bit(n)
    if i >= trees.exact.shape[1]:
        return
    trees.items[arm] = n
    step = exact_step(level, float(1 << i))
    total = towards_0(item, step)
    for j in range(i):
        total += towards_0(trees.exact[arm, j], step)
        trees.exact[arm, j] = 0.0
        trees.noisy[arm, j] = 0.0
    trees.exact[arm, i] = total
    node_epsilon = epsilon / trees.exact.shape[1]
    trees.noisy[arm, i] = laplace_release(rng, total, 2.0 * (level + step), node_epsilon)


@kernel(borrows=True)
def tree_sum(trees: Trees, arm: int) -> float:
    """The private sum of the arm's items."""
    total = 0.0
    n = trees.items[arm]
    j = 0
    while n > 0:
        if n & 1:
            total += trees.noisy[arm, j]
        n >>= 1
        j += 1
    return total


@kernel
def begin_logarithmic(arms: int) -> Logarithmic:
    """Empty counters."""
    return Logarithmic(np.zeros(arms, np.int64), np.zeros(arms), np.zeros(arms))


@kernel(borrows=True)
def logarithmic_insert(
    rng: Any, counters: Logarithmic, arm: int, item: float, width: float, epsilon: float
) -> None:
    """Insert an item; all releases of the arm's counter together cost `epsilon`."""
    n = counters.items[arm] + 1
    counters.items[arm] = n
    counters.pending[arm] += item
    if n & (n - 1) == 0:
        counters.released[arm] += laplace_release(rng, counters.pending[arm], width, epsilon)
        counters.pending[arm] = 0.0


@kernel(borrows=True)
def logarithmic_sum(counters: Logarithmic, arm: int) -> float:
    """The private sum of the arm's items up to the last power of two."""
    return float(counters.released[arm])


@kernel
def begin_hybrid(arms: int) -> Hybrid:
    """Empty counters without a horizon."""
    return Hybrid(begin_logarithmic(arms), begin_trees(arms, _UNLIMITED_LEVELS))


@kernel(borrows=True)
def hybrid_insert(
    rng: Any, counters: Hybrid, arm: int, item: float, width: float, epsilon: float
) -> None:
    """Insert an item; all releases of the arm's counter together cost `epsilon`."""
    logarithmic_insert(rng, counters.whole, arm, item, width, 0.5 * epsilon)
    n = counters.whole.items[arm]
    if n & (n - 1) == 0:
        counters.since.items[arm] = 0  # a new tree: old nodes are overwritten before they are read
    else:
        levels = tree_levels(n) - 1
        insert_node(rng, counters.since, arm, item, width, 0.5 * epsilon / levels)


@kernel(borrows=True)
def hybrid_sum(counters: Hybrid, arm: int) -> float:
    """The private sum of all of the arm's items."""
    return logarithmic_sum(counters.whole, arm) + tree_sum(counters.since, arm)
