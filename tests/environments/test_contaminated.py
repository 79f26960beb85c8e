"""Outliers among rewards: their law, and what stays clean."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

import balaclava as bl
from balaclava.errors import ParameterError, UnknownNameError
from tests.environments.families import (
    CAUCHY,
    GAUSSIAN,
    POINT,
    WORLDS,
    contaminate,
    draws,
)


@pytest.mark.statistical
def test_outliers_follow_their_law():
    clean = bl.environment("bernoulli", means=[0.5])
    for outliers, law in ((GAUSSIAN, stats.norm(3, 2)), (CAUCHY, stats.cauchy(-1, 0.5))):
        sample = draws(contaminate(clean, 0.5, outliers), 0, 20_000, seed=6)
        dirty = sample[(sample != 0.0) & (sample != 1.0)]
        assert stats.binomtest(dirty.size, 20_000, 0.5).pvalue > 1e-6
        assert stats.kstest(dirty, law.cdf).pvalue > 1e-6


def test_more_contamination_replaces_more_rewards_and_leaves_the_others():
    clean = bl.environment("gaussian", means=[0.0])
    none, some = (draws(contaminate(clean, fraction), 0, 500) for fraction in (0.0, 0.3))
    assert (none != 50.0).all()
    np.testing.assert_array_equal(some[some != 50.0], none[some != 50.0])
    assert 50 < (some == 50.0).sum() < 250


def test_contamination_leaves_means_gaps_and_moments_clean():
    clean = bl.environment("student-t", means=[0.0, 1.0], degrees=3)
    dirty = contaminate(clean, 0.4, CAUCHY)
    np.testing.assert_array_equal(dirty.means, clean.means)
    np.testing.assert_array_equal(dirty.gaps, clean.gaps)
    np.testing.assert_array_equal(dirty.moments(2.5), clean.moments(2.5))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"fraction": 1.0}, "fraction"),
        ({"fraction": -0.1}, "fraction"),
        ({"outliers": "point"}, "not a mapping"),
        ({"outliers": {}}, "kind = None"),
        ({"outliers": {"kind": ["point"]}}, "kind"),
        ({"outliers": {"kind": "point"}}, "'value' is missing"),
        ({"outliers": {"kind": "point", "value": math.nan}}, "value"),
        ({"outliers": {"kind": "point", "value": 1, "scale": 1}}, "unknown entry 'scale'"),
        ({"outliers": {"kind": "gaussian", "mean": 0, "scale": 0}}, "scale"),
        ({"inner": {"means": [0.5]}}, "`name`"),
        ({"inner": {"name": "bernoulli", "means": [2.0]}}, "bernoulli: means"),
        ({"inner": "bernoulli"}, "inner"),
        ({"inner": {"name": "stochastic-losses", "means": [0.5]}}, "returns losses"),
        ({"inner": {"name": "linear", "theta": [0.7, 0.3], "arms": 2}}, "has contexts"),
    ],
)
def test_what_cannot_contaminate_is_refused(changed, message):
    good = {"inner": WORLDS[0], "fraction": 0.1, "outliers": POINT}
    with pytest.raises(ParameterError, match=message):
        bl.environment("contaminated", **{**good, **changed})


def test_an_unknown_inner_environment_is_named():
    with pytest.raises(UnknownNameError, match="bernouli"):
        contaminate({"name": "bernouli", "means": [0.5]})


def test_what_was_given_can_change_without_harm():
    outliers, samples = dict(POINT), [[1.0, 2.0], [3.0]]
    world = contaminate({"name": "empirical", "samples": samples}, outliers=outliers)
    before = json.dumps(world.parameters)
    outliers["value"], samples[0][0] = -1.0, 99.0
    world.parameters["outliers"]["value"] = 7.0
    assert json.dumps(world.parameters) == before
    assert world == contaminate({"name": "empirical", "samples": [[1.0, 2.0], [3.0]]})
