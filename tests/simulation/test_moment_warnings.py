"""Warnings for moment bounds that an environment exceeds."""

from __future__ import annotations

import warnings

import pytest

import balaclava as bl
from balaclava.errors import MomentWarning
from balaclava.simulation.moment_warnings import warn_of_moments
from tests.policies.heavy_tailed.test_truncated_elimination import make, points


def test_a_moment_bound_that_does_not_hold() -> None:
    world = bl.environment("gaussian", means=[2.0, 0.1])
    policy = make("dpr-se", arms=2, horizon=50, moment_order=2.0, moment_bound=4.5)
    with pytest.warns(MomentWarning, match=r"moment_bound = 4\.5, but .*E\|X\|\^2 of 5;"):
        bl.simulate(policy, world, horizon=50, repetitions=1, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fine = make("dpr-se", arms=2, horizon=50, moment_order=2.0, moment_bound=5.0)
        bl.simulate(fine, world, horizon=50, repetitions=1, seed=1)


def test_the_warning_does_not_show_rewards() -> None:
    world = bl.environment("empirical", samples=[[7.0, 7.0], [1.0, 2.0]])
    policy = make("dpr-se", arms=2, horizon=50, moment_order=2.0, moment_bound=3.0)
    with pytest.warns(MomentWarning, match="withheld") as caught:
        warn_of_moments("label", policy, world)
    assert "49" not in str(caught[0].message)


def test_means_and_outliers_that_the_policy_was_not_told_of() -> None:
    world = bl.environment("gaussian", means=[0.0, -102.0])
    common = {"arms": 2, "epsilon": 1.0, "horizon": 50, "moment_order": 2, "moment_bound": 1.0}
    for name in ("prae-central", "dpr-batch-ucb"):
        with pytest.warns(MomentWarning, match=r"mean_range = 10, but .* of 102; .*mean_range"):
            warn_of_moments("label", bl.policy(name, mean_range=10, **common), world)
    dirty = bl.environment(
        "contaminated", inner=world, fraction=0.2, outliers={"kind": "point", "value": 5.0}
    )
    told = {**common, "mean_range": 200}
    with pytest.warns(MomentWarning, match=r"contamination = 0\.1, but .* outliers of 0\.2;"):
        warn_of_moments("label", bl.policy("prae-central", contamination=0.1, **told), dirty)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_moments("label", bl.policy("prae-central", contamination=0.2, **told), dirty)
        warn_of_moments("label", bl.policy("dpr-batch-ucb", **told), world)


def test_central_moments_where_a_policy_is_about_them() -> None:
    world = points(3.0, 2.0)  # no spread at all: central moments are 0
    common = {"arms": 2, "horizon": 50, "moment_order": 1.5, "moment_bound": 1.0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        central = bl.policy("robust-ucb", estimator="median-of-means", **common)
        warn_of_moments("label", central, world)
        warn_of_moments("label", bl.policy("ucb1", arms=2), world)
    raw = bl.policy("robust-ucb", estimator="truncated-mean", **common)
    with pytest.warns(MomentWarning, match=r"E\|X\|\^1\.5 of 5\.19615"):
        warn_of_moments("label", raw, world)
