"""All rewards of all arms in one pool of linked chunks.

It takes about `horizon` numbers of memory, however the samples are divided among the arms.
"""

from typing import NamedTuple

import numpy as np

from balaclava._core.kernels import kernel

# Samples in a chunk: each arm wastes at most one chunk, and links cost 1/64 of the samples.
CHUNK = 64


class SamplePool(NamedTuple):
    values: np.ndarray  # [chunk, place]
    totals: np.ndarray  # sum of each chunk
    following: np.ndarray  # the next chunk of the same arm
    first: np.ndarray  # first chunk by arm
    last: np.ndarray  # last chunk by arm
    used: np.ndarray  # number of chunks in use


@kernel
def begin_pool(arms: int, horizon: int) -> SamplePool:
    """An empty pool for `horizon` samples; only the last chunk of an arm may be partly filled."""
    chunks = horizon // CHUNK + arms
    return SamplePool(
        values=np.zeros((chunks, CHUNK)),
        totals=np.zeros(chunks),
        following=np.zeros(chunks, np.int64),
        first=np.zeros(arms, np.int64),
        last=np.zeros(arms, np.int64),
        used=np.zeros(1, np.int64),
    )


@kernel(borrows=True)
def append(pool: SamplePool, arm: int, count: int, value: float) -> None:
    """Add a sample to the `count` samples of the arm."""
    place = count % CHUNK
    if place == 0:
        chunk = pool.used[0]
        pool.used[0] += 1
        if count == 0:
            pool.first[arm] = chunk
        else:
            pool.following[pool.last[arm]] = chunk
        pool.last[arm] = chunk
    chunk = pool.last[arm]
    pool.values[chunk, place] = value
    pool.totals[chunk] += value
