"""Median of means, as in Bubeck, Cesa-Bianchi, Lugosi 2013."""

from typing import NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.estimators.sample_pool import CHUNK, SamplePool, begin_pool


class MedianOfMeans(NamedTuple):
    """All samples, and the blocks of each arm's last estimate."""

    samples: SamplePool
    blocks: np.ndarray  # by arm
    size: np.ndarray  # samples in a block, by arm
    means: np.ndarray  # scratch space for the means of the blocks


@kernel
def begin_median_of_means(arms: int, horizon: int, most_blocks: int) -> MedianOfMeans:
    return MedianOfMeans(
        begin_pool(arms, horizon),
        np.zeros(arms, np.int64),
        np.zeros(arms, np.int64),
        np.zeros(most_blocks),
    )


@kernel(borrows=True)
def has_new_blocks(state: MedianOfMeans, arm: int, count: int, most_blocks: int) -> bool:
    """Whether k = min(most_blocks, n/2) or floor(n/k) changed since the arm's last estimate.

    With k unchanged floor(n/k) changes once in k samples: O(n) work costs n/k per sample.
    """
    blocks = max(min(most_blocks, count // 2), 1)
    # floor(n/k) != size, without a division: this runs for every arm in every round.
    size = state.size[arm]
    return bool(blocks != state.blocks[arm] or not blocks * size <= count < blocks * (size + 1))


@kernel(borrows=True)
def median_of_means(state: MedianOfMeans, arm: int, count: int, most_blocks: int) -> float:
    """The median of the means of the first k blocks of floor(n/k) samples, in order of arrival."""
    blocks = max(min(most_blocks, count // 2), 1)
    size = count // blocks
    state.blocks[arm] = blocks
    state.size[arm] = size
    _block_means(state, arm, blocks, size)
    upper = select(state.means, blocks, blocks // 2)
    if blocks % 2 == 1:
        return upper
    lower = state.means[0]  # the largest mean below the upper middle one
    for i in range(1, blocks // 2):
        lower = max(lower, state.means[i])
    return 0.5 * lower + 0.5 * upper


@kernel(borrows=True)
def select(values: np.ndarray, count: int, rank: int) -> float:
    """The value of that rank, from 0, among the first `count`; smaller values end up before it.

    Hoare's selection works in place; a library's sort would allocate.
    """
    low, high = 0, count - 1
    while low < high:
        pivot = values[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                swap = values[i]
                values[i] = values[j]
                values[j] = swap
                i += 1
                j -= 1
        if rank <= j:
            high = j
        elif rank >= i:
            low = i
        else:
            break
    return values[rank]


@kernel(borrows=True)
def _block_means(state: MedianOfMeans, arm: int, blocks: int, size: int) -> None:
    # Differences of running sums would lose all digits after one huge sample.
    samples = state.samples
    chunk, place = samples.first[arm], 0
    for block in range(blocks):
        total = 0.0
        left = size
        while left > 0:
            if place == 0 and left >= CHUNK:
                total += samples.totals[chunk]
                left -= CHUNK
                chunk = samples.following[chunk]
            else:
                end = min(place + left, CHUNK)
                for i in range(place, end):
                    total += samples.values[chunk, i]
                left -= end - place
                place = end
                if place == CHUNK:
                    chunk, place = samples.following[chunk], 0
        state.means[block] = total / size
