"""Alarms about a log: raised where rows were lost, doubled or joined wrongly, rarely otherwise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from balaclava.advice.log import data_alarms
from balaclava.advice.log.feature_columns import FeatureColumns
from balaclava.advice.log.log_reading import summarise_log


def test_an_even_split_is_rarely_called_broken() -> None:
    """2,000 fair splits: at most 9 alarms, where 2 are expected; more has a chance below 1e-4."""
    rng = np.random.default_rng(3)
    splits = rng.multinomial(5_000, [1 / 3] * 3, size=2_000)
    alarms = [
        data_alarms.split_alarm(dict(zip("abc", row, strict=True))) for row in splits.tolist()
    ]
    assert sum(map(bool, alarms)) <= 9
    (sentence,) = data_alarms.split_alarm({"a": 50_000, "b": 54_000, "c": 50_000})
    assert "54,000 rows of 'b' and 50,000 of 'a'" in sentence
    assert "sample-ratio mismatch" in sentence


def test_labels_that_differ_by_case_or_spaces_are_named() -> None:
    labels = ["Photo", "plain", "photo", "two words", "Two  words", "words two"]
    first, second = data_alarms.similar_labels(labels)
    assert "'Photo', 'photo' differ only by case or spaces" in first
    assert "'two words', 'Two  words'" in second
    assert data_alarms.similar_labels(["Photo 1", "photo 2", "1", "2"]) == []


def test_compare_warns_of_similar_labels(tmp_path: Path) -> None:
    rows = [f"{label},{number % 2}" for label in ("Photo", "photo") for number in range(50)]
    (tmp_path / "log.csv").write_text("\n".join(["page,paid", *rows]))
    findings = summarise_log(tmp_path / "log.csv", arm="page", reward="paid").findings()
    assert any("'Photo', 'photo' differ only by case" in each for each in findings)


def test_doubled_rows_need_equal_values_in_every_column() -> None:
    arms, people = np.zeros(100, int), np.arange(100) // 2
    rewards, times = np.tile([0.0, 1.0], 50), np.arange(100.0)
    assert data_alarms.doubled_rows(arms, rewards, times, people) == []
    again = [np.concatenate([each, each[7:10]]) for each in (arms, rewards, times, people)]
    (sentence,) = data_alarms.doubled_rows(*again)
    assert sentence.startswith("3 rows (2.9%) repeat another row")
    for column in range(4):
        changed = [each.copy() for each in again]
        changed[column][-3:] += 1_000
        assert data_alarms.doubled_rows(*changed) == []
    days = times // 25  # too coarse: one person's two visits on a day may be equal
    assert data_alarms.doubled_rows(arms, 0 * rewards, days, people) == []


@pytest.mark.parametrize("k", [2, 3, 10])
def test_a_log_that_has_each_row_k_times(k: int) -> None:
    rng = np.random.default_rng(k)
    times, people = rng.integers(0, 5_000_000, 3_000).astype(float), rng.integers(0, 2_000, 3_000)
    arms, rewards = rng.integers(0, 3, 3_000), (rng.random(3_000) < 0.05).astype(float)
    parts = [np.repeat(each, k) for each in (arms, rewards, times, people)]
    (sentence,) = data_alarms.doubled_rows(*parts)
    assert sentence.startswith(f"{3_000 * (k - 1):,} rows ({1 - 1 / k:.1%}) repeat another row")
    (without_people,) = data_alarms.doubled_rows(*parts[:3], None)
    assert "in arm, reward and time." in without_people
    assert data_alarms.doubled_rows(*parts[:2], None, None) == []
    # Outcomes joined to one of the copies make some of them differ in the reward.
    parts[1] = np.where(np.arange(3_000 * k) % k == 0, parts[1], 0.0)
    assert len(data_alarms.doubled_rows(*parts)) == 1


@pytest.mark.parametrize("people", [1, 3, 500])
@pytest.mark.parametrize("slots", [60, 1_440])
def test_honest_rows_at_coarse_times_are_not_called_doubled(people: int, slots: int) -> None:
    rng = np.random.default_rng(people + slots)
    times, ids = rng.integers(0, slots, 10_000).astype(float), rng.integers(0, people, 10_000)
    rewards = (rng.random(10_000) < 0.03).astype(float)
    for arms in (rng.integers(0, 2, 10_000), times.astype(int) % 2, ids % 2):
        for known in ((times, ids), (times, None), (None, ids)):
            assert data_alarms.doubled_rows(arms, rewards, *known) == []


def test_ids_with_very_many_rows() -> None:
    people = np.concatenate([np.arange(900), np.full(3_000, 900), np.full(90, 901)])
    (sentence,) = data_alarms.crowded_ids(people)
    assert sentence.startswith("1 id of 902 has more than 100 rows each, up to 3,000, together 75%")
    assert data_alarms.crowded_ids(np.repeat(np.arange(20), 400)) == []  # all have many


@pytest.mark.parametrize(
    ("rewards", "words"),
    [
        ([1.0] * 500 + [-1.0], "1 reward (0.002 of all) is negative"),
        ([1.0] * 400 + [-1.0] * 100, ""),
        ([0.0] * 500 + [3.0] * 20 + [9999.0] * 3, "The largest reward is in 3 rows"),
        ([0.0] * 500 + [3.0] * 20 + [9999.0], ""),  # one large order
        ([0.0] * 500 + [1.0] * 3, ""),
        ([0.0] * 500, ""),
    ],
)
def test_rewards_that_look_like_mistakes(rewards: list[float], words: str) -> None:
    sentences = data_alarms.strange_rewards(np.array(rewards))
    assert [each.startswith(words) for each in sentences] == ([True] if words else [])
    assert not any("9999" in each for each in sentences)


def test_gaps_and_nights() -> None:
    times = np.arange(30 * 24.0)  # hours
    assert data_alarms.time_gaps(times[times % 24 < 12]) == []
    assert data_alarms.time_gaps(np.arange(3 * 240)[np.arange(3 * 240) % 240 < 120]) == []
    (sentence,) = data_alarms.time_gaps(times[(times < 240) | (times > 400)])
    assert "no rows in 23% of its time span" in sentence
    assert data_alarms.time_gaps(np.zeros(9)) == []


def test_features_that_look_into_the_future() -> None:
    rng = np.random.default_rng(1)
    rewards = (rng.random(2_000) < 0.3).astype(float)
    table = np.column_stack([rng.random(2_000), rewards + 0.1 * rng.random(2_000), np.ones(2_000)])
    features = FeatureColumns(("age", "refund", "one"), table)
    (sentence,) = data_alarms.leaking_features(features, rewards)
    assert sentence.startswith("'refund' nearly determines the reward")
    assert data_alarms.leaking_features(features, np.ones(2_000)) == []
