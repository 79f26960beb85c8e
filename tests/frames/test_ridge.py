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
    solve_factor,
    solve_transposed,
)


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
