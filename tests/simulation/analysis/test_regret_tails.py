"""Quantiles with their uncertainty, and bad runs."""

from __future__ import annotations

import json

import numpy as np
import pytest

import balaclava as bl
from balaclava.cli.commands.summary_command import print_summary, results_json
from balaclava.cli.terminal import print_json
from balaclava.errors import ParameterError, UnknownNameError
from balaclava.simulation.analysis.regret_tails import regret_quantiles
from balaclava.simulation.analysis.statistics import clopper_pearson, share_interval
from balaclava.simulation.results import Results, Run

WORLD = bl.environment("bernoulli", means=[0.25, 0.75])


def results_of(**finals: np.ndarray) -> Results:
    """Results whose runs end with these regrets."""
    policies = {label: bl.policy("ucb1", arms=2) for label in finals}
    results = Results.empty(policies, WORLD, horizon=100, seed=1, checkpoints=np.array([100]))
    for label, values in finals.items():
        for i, value in enumerate(values):
            results.add(Run(label, i, np.array([value]), np.array([40, 60])))
    return results


def test_intervals_hold_the_true_quantile_as_often_as_they_say():
    # 400 samples: the number of misses is binomial with a chance of 5 % at most (0.05 % more than
    # 34 of them by chance); and the interval is not so wide that it always holds.
    rng = np.random.default_rng(3)
    misses = 0
    for _ in range(400):
        (tail,) = regret_quantiles(rng.standard_exponential(5_000), [0.99])
        assert tail.low <= tail.value <= tail.high
        misses += not tail.low <= -np.log(0.01) <= tail.high
    assert 5 <= misses <= 34


def test_a_quantile_is_left_out_where_no_run_bounds_it():
    values = np.arange(40_000.0)
    assert [t.level for t in regret_quantiles(values)] == [0.99, 0.999, 0.9999]
    assert [t.level for t in regret_quantiles(values[:36_886])] == [0.99, 0.999]
    assert [t.level for t in regret_quantiles(values[:3_687])] == [0.99]
    assert regret_quantiles(values[:0]) == regret_quantiles(values[:300]) == ()


def test_clopper_pearson_against_closed_forms():
    low, high = clopper_pearson(np.array([0, 10]), 10, 0.05)
    assert low == pytest.approx([0.0, 0.05**0.1])
    assert high == pytest.approx([1.0 - 0.05**0.1, 1.0])


def test_bad_runs_are_counted_against_the_own_median_or_anothers():
    values = np.ones(1_000)
    values[:3] = 50.0
    results = results_of(calm=np.ones(1_000), wild=values)
    bad = results.bad_runs(factor=5)
    assert bad["calm"].share == 0.0
    assert bad["calm"].high == pytest.approx(1 - 0.025 ** (1 / 1_000))
    assert bad["wild"][:3] == pytest.approx((0.003, *share_interval(3, 1_000)))
    assert bad["wild"].threshold == 5.0
    assert results.bad_runs(medians={"wild": 20.0})["wild"].share == 0.0
    assert str(bad["wild"]).startswith("0.003 of 1,000 runs cost more than 5 (95%: ")


def test_a_median_below_zero_is_no_unit():
    (bad,) = results_of(lucky=np.arange(-9.0, 1.0)).bad_runs().values()
    assert np.isnan(bad.share)
    assert bad[1:4] == (0.0, 1.0, 10)


def test_a_terminal_and_a_script_are_told_of_tails(monkeypatch, capsys):
    many = results_of(calm=np.arange(5_000.0))
    tail = many.tails("calm")[1]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    print_summary(many)
    assert f"{tail.high:,.5g}" in capsys.readouterr().out
    print_json(results_json([("it", many)]))
    ((row,),) = (setting["policies"] for setting in json.loads(capsys.readouterr().out))
    assert row["tails"][1] == {"level": 0.999, **tail._asdict()}


def test_odd_questions_are_refused():
    results = results_of(calm=np.ones(10))
    with pytest.raises(ParameterError, match="factor"):
        results.bad_runs(factor=0)
    with pytest.raises(UnknownNameError, match="calm"):
        results.bad_runs(medians={"clam": 1.0})


def test_summaries_show_the_tails_that_there_are():
    few, many = results_of(calm=np.ones(10)), results_of(calm=np.arange(5_000.0))
    assert "99.9 %" not in str(few.summary())
    assert few.tails("calm") == ()
    line = next(row for row in str(many.summary()).splitlines() if "99.9 %" in row)
    tail = many.tails("calm")[1]
    assert [f"{tail.value:,.5g}", f"{tail.low:,.5g}", f"{tail.high:,.5g}"] == line.split()[3:]
    assert "99.9 %" in many.summary()._repr_html_()
