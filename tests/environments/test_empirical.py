"""Logs as environments: CSV and Parquet, labels, and draws."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from scipy import stats

import balaclava as bl
from tests.environments.families import (
    draws,
)


@pytest.mark.statistical
def test_an_empirical_arm_draws_each_logged_reward_equally_often():
    world = bl.environment("empirical", samples=[[5.0], [1.0, 2.0, 3.0, 4.0, 4.0]])
    sample = draws(world, 1, 20_000, seed=4)
    counts = [(sample == value).sum() for value in (1.0, 2.0, 3.0, 4.0)]
    assert sum(counts) == 20_000
    assert stats.chisquare(counts, [4000, 4000, 4000, 8000]).pvalue > 1e-6
    assert set(draws(world, 0, 50)) == {5.0}


LOG = "when,arm,reward\n9,10,0.5\n9,2,1\n9,10,1.5\n9,2,-3\n9,2,0\n"


def write(tmp_path, text):
    path = tmp_path / "log.csv"
    path.write_text(text)
    return path


def test_csv_and_parquet_are_read_alike(tmp_path):
    csv = write(tmp_path, LOG)
    columns = {"arm": [10, 2, 10, 2, 2], "reward": [0.5, 1.0, 1.5, -3.0, 0.0]}
    whole = tmp_path / "log.parquet"
    parquet.write_table(pa.table(columns), whole)
    coded = tmp_path / "coded.parquet"
    labels = pa.array([str(arm) for arm in columns["arm"]]).dictionary_encode()
    rewards = pa.array(columns["reward"], pa.float32())
    parquet.write_table(pa.table({"who": labels, "what": rewards}), coded)

    direct = bl.environment("empirical", samples={10: [0.5, 1.5], 2: [1.0, -3.0, 0.0]})
    assert direct.arm_labels == (2, 10)  # as numbers, not as text
    assert direct.means == pytest.approx([-2 / 3, 1.0])
    for world in (
        bl.environment("empirical", path=csv),
        bl.environment("empirical", path=str(whole)),
        bl.environment("empirical", path=coded, arm="who", reward="what"),
    ):
        assert world.arm_labels == direct.arm_labels
        np.testing.assert_array_equal(draws(world, 0, 30), draws(direct, 0, 30))
        json.dumps(world.parameters)
        assert bl.environment("empirical", **world.parameters) == world


def test_labels_that_are_not_all_numbers_are_sorted_as_text(tmp_path):
    world = bl.environment(
        "empirical", path=write(tmp_path, "arm,reward\n10,1\nNA,0\n9,1\n007,4\n")
    )
    assert world.arm_labels == ("007", "10", "9", "NA")
    assert world.means.tolist() == [4.0, 1.0, 1.0, 0.0]
