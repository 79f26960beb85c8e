"""Rows of features with landmarks: phi(x) = (x, W' k(Z, x)), for regression with a kernel.

The landmarks z_1, z_2, ... are earlier rows, the kernel is k(x, z) = A / (1 + c |x - z|^2), and
W W' is the inverse of its matrix among the landmarks. So <phi(x), phi(y)> is <x, y> plus the
kernel's projection onto the landmarks (Nystrom). A row becomes a landmark if the ones before
explain little of it (approximate linear dependence; Engel, Mannor, Meir 2004). W is upper
triangular: a new landmark adds an element of phi, and changes no other.
"""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from balaclava._core.kernels import kernel, kernel_by_columns
from balaclava._core.states import range_faults

# A: the prior variance of what is not linear; that of the linear part of a full row is 1. On tables
# 1/2 has 2 % more regret.
AMPLITUDE = 0.25
# c, for rows of length at most 1. On tables 2 has 1 % and 8 has 4 % more regret.
SHARPNESS = 4.0
# A row becomes a landmark if this share of its kernel is unexplained. A guess: a fifth is no better
# on ten tables, and 40 % worse on hayes-roth.
NOVELTY = 0.02


class Landmarks(NamedTuple):
    """The landmarks, and the last row with them."""

    count: np.ndarray  # type: ignore[assignment]  # one element
    points: np.ndarray  # [landmark, d]
    weights: np.ndarray  # [landmark, landmark]: W
    row: np.ndarray  # [d + landmarks]: phi

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0, min(decisions, len(self.points)), count=self.count)
        if (np.diag(self.weights)[: int(self.count[0])] <= 0.0).any():
            yield "a landmark is explained by those before it"


@kernel
def begin_landmarks(d: int, room: int) -> Landmarks:
    """No landmarks yet, and room for some."""
    return Landmarks(
        count=np.zeros(1, np.int64),
        points=np.zeros((room, d)),
        weights=np.zeros((room, room)),
        row=np.zeros(d + room),
    )


@kernel(borrows=True)
def add_landmark(state: Landmarks) -> None:
    """Make `row` a landmark if it is novel, and there is room."""
    count, d = state.count[0], state.points.shape[1]
    left = AMPLITUDE
    for j in range(count):
        left -= state.row[d + j] * state.row[d + j]
    if count < state.points.shape[0] and left > NOVELTY * AMPLITUDE:
        scale = 1.0 / math.sqrt(left)
        for i in range(count):
            for j in range(i, count):
                state.weights[i, count] -= scale * state.weights[i, j] * state.row[d + j]
        state.weights[count, count] = scale
        for i in range(d):
            state.points[count, i] = state.row[i]
        state.count[0] += 1


def expanded(state: Landmarks, x: np.ndarray, bound: float) -> np.ndarray:
    """phi(x / bound) of all rows x, in Python."""
    d, count = x.shape[1], int(state.count[0])
    phi = np.zeros((len(x), d + count))
    phi[:, :d] = x / bound
    square = np.zeros((len(x), count))
    for i in range(d):
        gap = phi[:, i, None] - state.points[:count, i]
        square += gap * gap
    known = AMPLITUDE / (1.0 + SHARPNESS * square)
    phi[:, d:] = products_of_rows(known, state.weights[None, :count])
    return phi


def expand_at_once(state: Landmarks, x: np.ndarray, bound: float) -> None:
    state.row[: x.size + state.count[0]] = expanded(state, x[None], bound)[0]


def always(*_: Any) -> bool:
    return True


@kernel_by_columns(expand_at_once, always)
def expand(state: Landmarks, x: np.ndarray, bound: float) -> None:
    """Write phi(x / bound) to `row`."""
    d, count, phi = x.size, state.count[0], state.row
    for i in range(d):
        phi[i] = x[i] / bound
    for j in range(count):
        square = 0.0
        for i in range(d):
            gap = phi[i] - state.points[j, i]
            square += gap * gap
        phi[d + j] = AMPLITUDE / (1.0 + SHARPNESS * square)
    for j in range(count - 1, -1, -1):  # element j needs those before it unchanged
        total = 0.0
        for i in range(j + 1):
            total += phi[d + i] * state.weights[i, j]
        phi[d + j] = total


def products_of_rows(rows: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    """Row k times matrix k, in Python; one row, or one matrix, serves all k.

    Terms are added in order, as in a loop.
    """
    size = rows.shape[1]
    if len(rows) == 1 and size:  # at once: fast, and small enough
        terms = np.multiply(rows[0, :, None], matrices[:, :size, :size], order="C")
        return np.asarray(np.add.reduce(terms, axis=1))
    products = np.zeros((max(len(rows), len(matrices)), size))
    for i in range(size):
        products += rows[:, i, None] * matrices[:, i, :size]
    return products


def dots_of_rows(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Row k of one times row k of the other, summed in order, in Python."""
    return np.add.accumulate(left * right, axis=1)[:, -1]


def multiply_at_once(matrix: np.ndarray, row: np.ndarray, size: int, product: np.ndarray) -> None:
    product[:size] = products_of_rows(row[None, :size], matrix[None])[0]


@kernel_by_columns(multiply_at_once, always)
def multiply(matrix: np.ndarray, row: np.ndarray, size: int, product: np.ndarray) -> None:
    """The first elements of a row times a symmetric matrix."""
    for j in range(size):
        product[j] = 0.0
    for i in range(size):
        scale = row[i]
        for j in range(size):
            product[j] += scale * matrix[i, j]


@kernel(borrows=True)
def dot(left: np.ndarray, right: np.ndarray, size: int) -> float:
    """The sum of the first products of elements."""
    total = 0.0
    for i in range(size):
        total += left[i] * right[i]
    return total


def subtract_at_once(matrix: np.ndarray, row: np.ndarray, scale: float, size: int) -> None:
    matrix[:size, :size] -= scale * (row[:size, None] * row[:size])


@kernel_by_columns(subtract_at_once, always)
def subtract_square(matrix: np.ndarray, row: np.ndarray, scale: float, size: int) -> None:
    """matrix -= scale * row row', for its first rows and columns; it stays symmetric."""
    for i in range(size):
        for j in range(size):
            matrix[i, j] -= scale * (row[i] * row[j])
