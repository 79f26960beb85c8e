"""Landmarks, and the arithmetic of rows: what Python runs and what the compiler does agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from balaclava.estimators.kernel_rows import (
    AMPLITUDE,
    SHARPNESS,
    add_landmark,
    begin_landmarks,
    dot,
    dots_of_rows,
    expand,
    expanded,
    multiply,
    products_of_rows,
    subtract_square,
)


def found(rows: np.ndarray, room: int) -> Any:
    """Landmarks among the rows, in order."""
    state = begin_landmarks(rows.shape[1], room)
    for row in rows:
        expand(state, row, 1.0)
        add_landmark(state)
    return state


def similarity(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    return AMPLITUDE / (1.0 + SHARPNESS * ((x[:, None] - z) ** 2).sum(axis=2))


def test_products_of_rows_are_the_kernel_between_landmarks() -> None:
    """And its Nystrom projection elsewhere: k(x, Z) K^-1 k(Z, y)."""
    rows = np.random.default_rng(1).uniform(-0.5, 0.5, size=(30, 4))
    state = found(rows[:8], room=8)
    assert state.count[0] == 8
    phi, Z = expanded(state, 3.0 * rows, 3.0), state.points
    cross = similarity(rows, Z)
    projected = cross @ np.linalg.solve(similarity(Z, Z), cross.T)
    assert np.allclose(phi @ phi.T, rows @ rows.T + projected)
    assert np.allclose(np.diag(projected)[:8], AMPLITUDE)


def test_landmarks_follow_from_rows_alone() -> None:
    """Repeated and nearly repeated rows add none, nor does any when there is no room."""
    rows = np.random.default_rng(2).uniform(-0.5, 0.5, size=(5, 4))
    state = found(np.vstack([rows[:3], rows[:3] + 1e-3, rows]), room=8)
    assert state.count[0] == 5
    assert np.array_equal(state.points[:5], rows)
    assert found(rows, room=2).count[0] == 2
    assert found(rows, room=0).count[0] == 0
    assert not list(state.faults(5))
    assert list(state.faults(4))


@pytest.mark.parametrize("kernel", [expand, multiply, subtract_square])
def test_loops_and_array_expressions_round_alike(kernel: Any) -> None:
    """Bit for bit, also beyond the used part of each array, which stays as it is."""
    rng = np.random.default_rng(3)
    state = found(rng.uniform(-0.5, 0.5, size=(7, 4)), room=10)
    state = state._replace(row=rng.normal(size=14))
    matrix, row, product = rng.normal(size=(9, 9)), rng.normal(size=9), rng.normal(size=9)
    given = {
        expand: (state, rng.normal(size=4), 2.0),
        multiply: (matrix, row, 6, product),
        subtract_square: (matrix, row, 0.3, 6),
    }[kernel]
    one, other = copied(given), copied(given)
    kernel(*one)
    kernel.__wrapped__(*other)
    for mine, theirs in zip(flat(one), flat(other), strict=True):
        assert np.array_equal(mine, theirs)
    assert any(not np.array_equal(a, b) for a, b in zip(flat(one), flat(given), strict=True))


@pytest.mark.parametrize(("rows", "matrices"), [(1, 1), (1, 4), (4, 1)])
def test_many_rows_are_multiplied_as_one_is(rows: int, matrices: int) -> None:
    rng = np.random.default_rng(4)
    x, m, out = rng.normal(size=(rows, 6)), rng.normal(size=(matrices, 9, 9)), np.zeros(6)
    products = products_of_rows(x, m)
    dots = dots_of_rows(products, x)
    for k in range(max(rows, matrices)):
        one = x[min(k, rows - 1)]
        multiply.__wrapped__(m[min(k, matrices - 1)], one, 6, out)
        assert np.array_equal(products[k], out)
        assert dots[k] == dot(out, one, 6)


def copied(part: Any) -> Any:
    if isinstance(part, np.ndarray):
        return part.copy()
    if isinstance(part, tuple):
        parts = [copied(each) for each in part]
        return type(part)(*parts) if hasattr(part, "_fields") else tuple(parts)
    return part


def flat(part: Any) -> list[np.ndarray]:
    if isinstance(part, tuple):
        return [array for each in part for array in flat(each)]
    return [np.asarray(part)]
