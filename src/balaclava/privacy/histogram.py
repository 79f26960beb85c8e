"""Where most of the data lies: the fullest bin of a noisy histogram (Wu et al. 2023, Algorithm 3).

With n records and counts c_j the paper takes the largest of c_j / n + Lap(2 / (n epsilon)).
Multiplied by n that is c_j + Lap(2 / epsilon), which stays exact.

Proof.
    A changed record leaves one bin and enters another: two counts move, each by 1. Each count
    is released by the Laplace mechanism with sensitivity 1 and epsilon / 2, so that all counts
    together, and the fullest bin computed from them, are epsilon-private. A record outside every
    bin moves one count only.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.privacy.laplace import laplace_release


@kernel(borrows=True)
def private_argmax_histogram(rng: Any, counts: np.ndarray, epsilon: float) -> int:
    """The bin that seems fullest; `counts` hold each record at most once."""
    fullest, most = 0, -math.inf
    for j in range(counts.size):
        count = laplace_release(rng, float(counts[j]), 1.0, 0.5 * epsilon)
        if count > most:
            fullest, most = j, count
    return fullest
