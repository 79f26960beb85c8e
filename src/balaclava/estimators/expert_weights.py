"""Exponential weights over experts, and the notes kept until a loss arrives.

An arm is drawn from Q(i) = (1 - gamma) sum_j P_j advice[j, i] + gamma / K in two steps. With
probability gamma the arm is uniform; otherwise an expert is drawn from P, and the arm from that
expert's advice. Only Q of the drawn arm is then computed, in N + K steps instead of N K.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava.estimators.arm_probabilities import LARGEST_LOSS_SUM, draw_arm
from balaclava.frames.pending import Pending, begin_pending, new_note

# Difference of a row's sum from 1: float rounding is far below it.
_ADVICE_SUM_TOLERANCE = 1e-9


class ExpertWeights(NamedTuple):
    """Weights of experts. A note holds Q(I), then each expert's advice for the drawn arm I."""

    logs: np.ndarray  # [N]: log-weights up to a common constant; weights would underflow
    shares: np.ndarray  # [N]: P, the weights divided by their sum
    pending: Pending


@kernel
def begin_weights(experts: int, outstanding: int) -> ExpertWeights:
    return ExpertWeights(
        np.zeros(experts), np.full(experts, 1.0 / experts), begin_pending(outstanding, experts + 1)
    )


@kernel(borrows=True)
def draw_advised(state: ExpertWeights, advice: np.ndarray, mixing: float, rng: Any) -> int:
    """Draw an arm from Q."""
    if mixing > 0.0 and rng.random() < mixing:
        return int(rng.random() * advice.shape[1])
    return draw_arm(advice[draw_arm(state.shares, rng)], rng)


@kernel(borrows=True)
def note_arm(state: ExpertWeights, advice: np.ndarray, mixing: float, arm: int) -> int:
    """Note Q and the advice for the drawn arm, until its loss arrives; return the note's number."""
    row = new_note(state.pending)
    notes = state.pending.notes
    chance = 0.0
    for expert in range(state.shares.size):
        advised = advice[expert, arm]
        chance += state.shares[expert] * advised
        notes[row, expert + 1] = advised
    notes[row, 0] = (1.0 - mixing) * chance + mixing / advice.shape[1]
    return int(state.pending.count[0])


def last_chance(state: ExpertWeights) -> float:
    """Q of the last arm that was noted."""
    pending = state.pending
    return float(pending.notes[pending.count[0] % pending.numbers.size, 0])


@kernel(borrows=True)
def renew_shares(state: ExpertWeights) -> None:
    """Compute P from the log-weights, and shift the largest of these to 0."""
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
def learn_weights(state: ExpertWeights, row: int, step: float) -> None:
    """log w_j -= step advice[j, I] / Q(I), from the note in `row`; step is eta times the loss."""
    notes = state.pending.notes
    scaled = min(max(step / notes[row, 0], -LARGEST_LOSS_SUM), LARGEST_LOSS_SUM)
    for expert in range(state.logs.size):
        state.logs[expert] -= scaled * notes[row, expert + 1]
    renew_shares(state)


def advice_fault(advice: np.ndarray, experts: int | None, arms: int) -> str:
    """What is wrong with advice[..., expert, arm], or "". Its rows must be distributions."""
    if advice.ndim < 2 or advice.size == 0:
        return f"has shape {advice.shape}; give one row per expert and one column per arm"
    if experts is not None and advice.shape[-2] != experts:
        return f"has {advice.shape[-2]} rows, not {experts}, one per expert"
    if advice.shape[-1] != arms:
        return f"has {advice.shape[-1]} columns, not {arms}, one per arm"
    wrong = ~(np.isfinite(advice) & (advice >= 0)).all(axis=-1)
    if wrong.any():
        return f"of {_row(wrong)} must hold probabilities"
    wrong = np.abs(advice.sum(axis=-1) - 1.0) > _ADVICE_SUM_TOLERANCE
    if wrong.any():
        return f"of {_row(wrong)} does not sum to 1; divide the row by its sum"
    return ""


def as_advice(rows: Any) -> np.ndarray | None:
    """Return a read-only copy as numbers, or None if the rows are not numbers."""
    try:
        advice = np.array(rows, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        return None
    advice.flags.writeable = False
    return advice


def _row(wrong: np.ndarray) -> str:
    *earlier, expert = (int(i) for i in np.argwhere(wrong)[0])
    return f"expert {expert}" + (f" in round {earlier[0] + 1}" if earlier else "")
