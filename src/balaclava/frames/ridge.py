"""Ridge regression as rewards come: V = ridge I + the sum of x x', its inverse and its determinant.

A state has one block, or one for each arm with coefficients of its own. The inverse follows V by
the formula of Sherman and Morrison. Every d^2 rows it is recomputed from V by a Cholesky factor, so
that rounding errors do not grow. Loops are explicit: nothing is allocated, and compiled and
interpreted runs round alike.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from balaclava._core.kernels import kernel
from balaclava._core.states import range_faults


class Ridge(NamedTuple):
    """V of each block, its inverse and its determinant."""

    gram: np.ndarray  # [block, d, d]: V
    inverse: np.ndarray  # [block, d, d]: V^-1
    growth: np.ndarray  # [block]: log(det V / ridge^d)
    since: np.ndarray  # [block]: rows since the inverse was recomputed
    ridge: np.ndarray  # one element
    factor: np.ndarray  # [d, d]: scratch space
    product: np.ndarray  # [d]: V^-1 x of the last width

    def faults(self, decisions: int) -> Iterator[str]:
        yield from range_faults(0, decisions, since=self.since)
        if (self.growth < -1e-6).any() or not np.isfinite(self.inverse).all():
            yield "a determinant fell, or an inverse is not finite"


@kernel
def begin_ridge(blocks: int, d: int, ridge: float) -> Ridge:
    """No rows: V = ridge I."""
    gram, inverse = np.zeros((blocks, d, d)), np.zeros((blocks, d, d))
    for block in range(blocks):
        for i in range(d):
            gram[block, i, i] = ridge
            inverse[block, i, i] = 1.0 / ridge
    return Ridge(
        gram=gram,
        inverse=inverse,
        growth=np.zeros(blocks),
        since=np.zeros(blocks, np.int64),
        ridge=np.full(1, ridge),
        factor=np.zeros((d, d)),
        product=np.zeros(d),
    )


@kernel(borrows=True)
def multiply(matrix: np.ndarray, x: np.ndarray, out: np.ndarray) -> None:
    """A symmetric matrix times x; its independent sums vectorise."""
    for j in range(x.size):
        out[j] = x[0] * matrix[0, j]
    for i in range(1, x.size):
        for j in range(x.size):
            out[j] += x[i] * matrix[i, j]


@kernel(borrows=True)
def dot(x: np.ndarray, y: np.ndarray) -> float:
    total = 0.0
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@kernel(borrows=True)
def squared_width(state: Ridge, block: int, x: np.ndarray) -> float:
    """x' V^-1 x; leaves V^-1 x in `product`."""
    multiply(state.inverse[block], x, state.product)
    return max(dot(state.product, x), 0.0)


def dots(rows: np.ndarray, y: np.ndarray) -> np.ndarray:
    """`dot` of each row with y, to the last bit."""
    total = np.zeros(len(rows))
    for i in range(y.size):
        total += rows[:, i] * y[i]
    return total


def squared_widths(state: Ridge, block: int, rows: np.ndarray) -> np.ndarray:
    """`squared_width` of each row, to the last bit."""
    inverse, square = state.inverse[block], np.zeros(len(rows))
    columns = np.ascontiguousarray(rows.T)
    for j in range(len(columns)):
        product = columns[0] * inverse[0, j]
        for i in range(1, len(columns)):
            product += columns[i] * inverse[i, j]
        square += product * columns[j]
    return np.maximum(square, 0.0)


@kernel(borrows=True)
def add_row(state: Ridge, block: int, x: np.ndarray) -> float:
    """Add x x' to V. Returns x' V^-1 x of the old V, and leaves its V^-1 x in `product`."""
    square = squared_width(state, block, x)
    gram, inverse, product = state.gram[block], state.inverse[block], state.product
    scale = 1.0 / (1.0 + square)
    for i in range(x.size):
        shrink = scale * product[i]
        for j in range(x.size):
            gram[i, j] += x[i] * x[j]
            inverse[i, j] -= shrink * product[j]
    state.growth[block] += math.log1p(square)
    state.since[block] += 1
    if state.since[block] >= x.size * x.size:
        compute_afresh(state, block)
    return square


@kernel(borrows=True)
def compute_afresh(state: Ridge, block: int) -> None:
    """Recompute the inverse and the determinant from V."""
    factor = state.factor
    growth = factorise(state.gram[block], factor)
    state.growth[block] = growth - factor.shape[0] * math.log(state.ridge[0])
    state.since[block] = 0
    invert_factor(factor)
    inverse, d = state.inverse[block], factor.shape[0]
    for i in range(d):
        for j in range(i + 1):
            total = 0.0
            for k in range(i, d):
                total += factor[k, i] * factor[k, j]
            inverse[i, j] = total
            inverse[j, i] = total


@kernel(borrows=True)
def factorise(matrix: np.ndarray, factor: np.ndarray) -> float:
    """The lower Cholesky factor of a positive definite matrix. Returns log det of the matrix."""
    growth = 0.0
    for j in range(matrix.shape[0]):
        root = math.sqrt(max(square_of_pivot(matrix, factor, j), 1e-300))
        fill_column(matrix, factor, j, root)
        growth += 2.0 * math.log(root)
    return growth


@kernel(borrows=True)
def factorise_if_definite(matrix: np.ndarray, factor: np.ndarray, shift: float) -> bool:
    """The lower Cholesky factor of matrix + shift I, if that is positive definite."""
    for j in range(matrix.shape[0]):
        square = square_of_pivot(matrix, factor, j) + shift
        if square <= 0.0:
            return False
        fill_column(matrix, factor, j, math.sqrt(square))
    return True


@kernel(borrows=True)
def square_of_pivot(matrix: np.ndarray, factor: np.ndarray, j: int) -> float:
    total = matrix[j, j]
    for k in range(j):
        total -= factor[j, k] * factor[j, k]
    return total


@kernel(borrows=True)
def fill_column(matrix: np.ndarray, factor: np.ndarray, j: int, root: float) -> None:
    """Column j of a factor, given those before it and its entry on the diagonal."""
    factor[j, j] = root
    for i in range(j + 1, matrix.shape[0]):
        total = matrix[i, j]
        for k in range(j):
            total -= factor[i, k] * factor[j, k]
        factor[i, j] = total / root
    for i in range(j):
        factor[i, j] = 0.0


@kernel(borrows=True)
def invert_factor(factor: np.ndarray) -> None:
    """Invert a lower triangular matrix in place."""
    d = factor.shape[0]
    for j in range(d):
        factor[j, j] = 1.0 / factor[j, j]
    for i in range(1, d):
        for j in range(i):
            total = 0.0
            for k in range(j, i):
                total += factor[i, k] * factor[k, j]
            factor[i, j] = -factor[i, i] * total


@kernel(borrows=True)
def radius(growth: float, ridge: float, spread: float, norm: float, failure: float) -> float:
    """beta = R sqrt(2 log(1/failure) + log(det V / ridge^d)) + sqrt(ridge) S.

    |theta - theta*|_V <= beta in every round, except with probability `failure`, where theta =
    V^-1 sum of r x, the rewards are R-sub-Gaussian about <theta*, x> and |theta*| <= S
    (Abbasi-Yadkori, Pal, Szepesvari 2011, Theorem 2).
    """
    return spread * math.sqrt(2.0 * math.log(1.0 / failure) + growth) + math.sqrt(ridge) * norm


@kernel(borrows=True)
def add_to_factor(factor: np.ndarray, x: np.ndarray, work: np.ndarray) -> None:
    """Update L in place to the lower Cholesky factor of L L' + x x', by a rotation a column."""
    d = x.size
    for i in range(d):
        work[i] = x[i]
    for k in range(d):
        # Not hypot, whose last bit differs between compiled and interpreted runs.
        long = math.sqrt(factor[k, k] * factor[k, k] + work[k] * work[k])
        c, s = long / factor[k, k], work[k] / factor[k, k]
        factor[k, k] = long
        for i in range(k + 1, d):
            factor[i, k] = (factor[i, k] + s * work[i]) / c
            work[i] = c * work[i] - s * factor[i, k]


@kernel(borrows=True)
def solve_factor(factor: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """L^-1 b."""
    for i in range(b.size):
        total = b[i]
        for k in range(i):
            total -= factor[i, k] * out[k]
        out[i] = total / factor[i, i]


def solve_factors(factors: np.ndarray, b: np.ndarray) -> np.ndarray:
    """`solve_factor` of each factor, to the last bit, in Python."""
    out = np.tile(b, (len(factors), 1))
    for k in range(b.size):
        out[:, k] /= factors[:, k, k]
        out[:, k + 1 :] -= factors[:, k + 1 :, k] * out[:, k, None]
    return out


@kernel(borrows=True)
def solve_transposed(factor: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    """L'^-1 b."""
    for back in range(b.size):
        i = b.size - 1 - back
        total = b[i]
        for k in range(i + 1, b.size):
            total -= factor[k, i] * out[k]
        out[i] = total / factor[i, i]
