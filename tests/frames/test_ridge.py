"""Ridge regression: the running inverse."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from balaclava._core.kernels import compiled
from balaclava.frames.ridge import (
    add_row,
    add_to_factor,
    begin_ridge,
    compute_afresh,
    factorise,
    invert_factor,
    radius,
    solve_factor,
    solve_transposed,
    squared_width,
)
from tests.frames.frame_machine import require_ranges


def test_the_inverse_follows_v() -> None:
    rng = np.random.default_rng(1)
    state, gram = begin_ridge(1, 4, 0.5), 0.5 * np.eye(4)
    factor, work = math.sqrt(0.5) * np.eye(4), np.zeros(4)
    for _ in range(40):  # more than 4^2: it is computed afresh on the way
        x = rng.normal(size=4)
        square = float(x @ np.linalg.inv(gram) @ x)
        assert add_row(state, 0, x) == pytest.approx(square, rel=1e-10)
        add_to_factor(factor, x, work)
        gram += np.outer(x, x)
    assert np.allclose(state.inverse[0], np.linalg.inv(gram), rtol=1e-10, atol=1e-14)
    assert state.growth[0] == pytest.approx(np.linalg.slogdet(gram / 0.5)[1])
    assert np.allclose(factor @ factor.T, gram)
    b, forward, back = rng.normal(size=4), np.zeros(4), np.zeros(4)
    solve_factor(factor, b, forward)
    solve_transposed(factor, forward, back)
    assert np.allclose(back, np.linalg.solve(gram, b))


def make_many_rows() -> Any:
    def many_rows(state: Any, rows: int, rng: Any) -> None:
        x = np.zeros(state.product.size)
        for _ in range(rows):
            for i in range(x.size):
                x[i] = rng.standard_normal() if i else 1.0  # one direction far above the others
            add_row(state, 0, x)

    return many_rows


def test_a_million_rows_lose_no_precision() -> None:
    state = begin_ridge(1, 3, 1.0)
    compiled(make_many_rows)(state, 1_000_007, np.random.Generator(np.random.SFC64(1)))
    followed, growth = state.inverse[0].copy(), float(state.growth[0])
    assert state.since[0] > 0
    compute_afresh(state, 0)
    assert np.allclose(followed, state.inverse[0], rtol=1e-12, atol=0)
    assert growth == pytest.approx(float(state.growth[0]), rel=1e-12)


def test_blocks_and_their_inverse_recomputed_every_d_squared_rows() -> None:
    rng = np.random.default_rng(2)
    state, grams = begin_ridge(2, 3, 2.0), [2.0 * np.eye(3), 2.0 * np.eye(3)]
    for row in range(1, 20):
        x = rng.normal(size=3)
        assert squared_width(state, row % 2, x) == pytest.approx(
            x @ np.linalg.inv(grams[row % 2]) @ x
        )
        add_row(state, row % 2, x)
        grams[row % 2] += np.outer(x, x)
        for block in range(2):
            rows = row // 2 + (row % 2) * block
            assert state.since[block] == rows % 9
            assert np.allclose(state.gram[block], grams[block])
            assert np.allclose(state.inverse[block], np.linalg.inv(grams[block]))
            assert state.growth[block] == pytest.approx(np.linalg.slogdet(grams[block] / 2.0)[1])


def test_the_factor_is_lower_and_clears_what_was_above() -> None:
    matrix, factor = np.array([[4.0, 2.0], [2.0, 10.0]]), np.full((2, 2), 7.0)
    assert factorise(matrix, factor) == pytest.approx(math.log(36.0))
    assert factor.tolist() == [[2.0, 0.0], [1.0, 3.0]]
    invert_factor(factor)
    assert np.allclose(factor, [[0.5, 0.0], [-1 / 6, 1 / 3]])


def test_the_radius_is_that_of_abbasi_yadkori() -> None:
    expected = 0.5 * math.sqrt(2 * math.log(20) + 3.0) + math.sqrt(2.0) * 1.5
    assert radius(3.0, 2.0, 0.5, 1.5, 0.05) == pytest.approx(expected)


def test_faults() -> None:
    state = begin_ridge(2, 2, 1.0)
    assert list(state.faults(0)) == []
    require_ranges(state, 4, {"since": (0, 4)})
    for growth, wrong in ((-1e-7, False), (-1e-5, True), (0.0, False)):
        state.growth[1] = growth
        assert bool(list(state.faults(0))) is wrong
    state.inverse[1, 0, 1] = math.nan
    assert list(state.faults(0)) == ["a determinant fell, or an inverse is not finite"]
