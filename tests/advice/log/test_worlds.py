"""Worlds drawn from a log are as uncertain as the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from balaclava.advice.log.log_reading import summarise_log
from balaclava.advice.log.off_policy import (
    coefficient_posterior,
)
from balaclava.advice.log.worlds import draw_linear_worlds, draw_worlds
from tests.advice.logs_on_disk import draw_log, write_log


def test_worlds_differ_as_much_as_the_log_leaves_open(tmp_path: Path) -> None:
    """400 draws: their spread is the standard error of the arms, within a fifth."""
    rng = np.random.default_rng(5)
    for name, law in (("clicks", rng.integers(0, 2, 200)), ("sizes", rng.uniform(0, 9, 200))):
        path = write_log(tmp_path / f"{name}.csv", {"a": law, "b": law[::2]})
        log = summarise_log(path, arm="page", reward="paid")
        worlds = draw_worlds(log, 1)
        means = np.empty((400, 2))
        for i in range(400):
            world, order, _ = next(worlds)
            means[i, order] = world.means
        errors = np.array([row.error for row in log.arms])
        np.testing.assert_allclose(means.std(axis=0), errors, rtol=0.2)
        np.testing.assert_allclose(
            means.mean(axis=0), [row.mean for row in log.arms], atol=0.2 * errors.max()
        )


def test_worlds_are_about_what_was_fitted() -> None:
    """200 worlds: the drawn means of a person are about those of the fit, spread as its errors."""
    rng = np.random.default_rng(15)
    arms, rewards, rows, _ = draw_log(rng, slope=0.3)
    theta, roots = coefficient_posterior(rows, arms, rewards, 2)
    worlds = draw_linear_worlds(rows, theta, roots, seed=1)
    drawn = np.empty((200, 2, 2))
    for i in range(200):
        world: Any
        world, order, loss = next(worlds)
        drawn[i, order] = world.theta.reshape(2, 2)
        assert 0 < loss < 0.5
    np.testing.assert_allclose(drawn.mean(axis=0), theta, atol=0.03)
    errors = np.sqrt(np.einsum("aij,aij->ai", roots, roots))
    np.testing.assert_allclose(drawn.std(axis=0), errors, rtol=0.2)
