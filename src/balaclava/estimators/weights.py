"""Exponential weights over experts, and what must be kept of a decision until its loss comes.

An arm is drawn from Q(i) = (1 - gamma) sum_j P_j advice[j, i] + gamma / K by drawing first whom
to follow: with probability gamma nobody, and the arm is uniform; otherwise an expert from P, and
the arm from that expert's advice. Only Q of the drawn arm is then computed, which takes N + K
steps and not N K.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.estimators.importance import LARGEST, draw_arm
from balaclava.frames.pending import Pending, begin_pending, new_note


class Weights(NamedTuple):
    """Weights of experts. A note holds Q(I), then each expert's advice for the drawn arm I."""

    logs: np.ndarray  # [N]: log-weights, up to a common constant; raw ones would underflow
    shares: np.ndarray  # [N]: P, the weights divided by their sum
    pending: Pending


@kernel
def begin_weights(experts: int, outstanding: int) -> Weights:
    """All experts alike."""
    return Weights(
        np.zeros(experts),
        np.full(experts, 1.0 / experts),
        begin_pending(outstanding, experts + 1),
    )


@kernel(borrows=True)
def draw_advised(state: Weights, advice: np.ndarray, mixing: float, rng: Any) -> int:
    """An arm from Q."""
    if mixing > 0.0 and rng.random() < mixing:
        return int(rng.random() * advice.shape[1])
    return draw_arm(advice[draw_arm(state.shares, rng)], rng)


@kernel(borrows=True)
def note_arm(state: Weights, advice: np.ndarray, mixing: float, arm: int) -> int:
    """Keep what the loss of this decision will be weighed by; the number of the note."""
    row = new_note(state.pending)
    notes = state.pending.notes
    chance = 0.0
    for expert in range(state.shares.size):
        advised = advice[expert, arm]
        chance += state.shares[expert] * advised
        notes[row, expert + 1] = advised
    notes[row, 0] = (1.0 - mixing) * chance + mixing / advice.shape[1]
    return int(state.pending.count[0])


def last_chance(state: Weights) -> float:
    """Q of the arm that was noted last."""
    pending = state.pending
    return float(pending.notes[pending.count[0] % pending.numbers.size, 0])


@kernel(borrows=True)
def renew_shares(state: Weights) -> None:
    """P from the log-weights, whose largest is moved to 0."""
    top = -math.inf
    for expert in range(state.logs.size):
        top = max(top, state.logs[expert])
    total = 0.0
    for expert in range(state.logs.size):
        state.logs[expert] -= top
        state.shares[expert] = math.exp(state.logs[expert])
        total += state.shares[expert]
    for expert in range(state.logs.size):
        state.shares[expert] /= total


@kernel(borrows=True)
def learn_weights(state: Weights, row: int, step: float) -> None:
    """log w_j -= step advice[j, I] / Q(I), by the note in `row`; step = eta times the loss."""
    notes = state.pending.notes
    scaled = min(max(step / notes[row, 0], -LARGEST), LARGEST)
    for expert in range(state.logs.size):
        state.logs[expert] -= scaled * notes[row, expert + 1]
    renew_shares(state)
