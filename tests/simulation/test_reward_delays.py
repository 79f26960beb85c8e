"""Delays: the laws, the order of rewards, patience and windows, and what is refused."""

from __future__ import annotations

import itertools
import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import balaclava as bl
from balaclava.cli import main
from balaclava.errors import ExperimentFileError, ParameterError
from balaclava.experiments.experiment_file import read_plan
from balaclava.experiments.sweep import plan_sweep
from balaclava.frames.patience import (
    ENDLESS,
    ESTIMATED,
    LEAST_WAIT,
    MOST_TIMEOUT_FACTOR,
    RISE,
    TIMEOUT_FACTOR,
    begin_patience,
    longest_wait,
    note_wait,
)
from balaclava.privacy.randomness import seeded
from balaclava.reporting.report_data import experiment_toml, results_page_data
from balaclava.simulation.engine import repetition_player
from balaclava.simulation.feedback import Feedback
from balaclava.simulation.loops import make_late_play
from balaclava.simulation.reward_delays import LOST, draw_delay
from balaclava.testing.conformance import POLICY_SEED, late_run
from tests.experiments.settings import simulated

WORLD = bl.environment("bernoulli", means=[0.2, 0.5, 0.8])
UCB = bl.policy("ucb1", arms=3)


def simulate(policy=UCB, **changes):
    given = {"horizon": 400, "repetitions": 3, "seed": 5, "checkpoints": 400, **changes}
    return bl.simulate(policy, WORLD, **given).regret(policy.name)


def drawn(delay: bl.Delay, count: int = 40_000) -> np.ndarray:
    rng, law = seeded(7), delay.constants()
    return np.array([draw_delay(law, rng) for _ in range(count)])


def test_a_missing_reward_is_a_share_of_the_range_or_a_loss() -> None:
    feedback = Feedback.create(None, 9, "window", 15.0)
    assert feedback.in_units((10.0, 20.0)).settling.missing == 0.5
    assert feedback.in_units((10.0, 30.0), losses=True).settling.missing == 0.75
    assert feedback.in_units((20.0, 30.0)).settling.missing == 0.0
    assert Feedback().in_units((0.0, 1.0)) == Feedback()


def test_laws():
    """Mean and spread of 40,000 draws: off by 5 standard errors once in 10^6 seeds."""
    fixed = drawn(bl.Delay(mean=12, law="fixed"))
    assert set(fixed) == {12}
    uniform = drawn(bl.Delay(mean=2.5, law="uniform"))
    assert set(uniform) == set(range(6))
    counts = np.bincount(uniform)
    assert abs(counts - 40_000 / 6).max() < 5 * np.sqrt(40_000 * 5 / 36)
    geometric = drawn(bl.Delay(mean=50))
    assert abs(geometric.mean() - 50) < 5 * np.sqrt(50 * 51 / 40_000)
    share = (geometric == 0).mean()  # 1 / (1 + mean)
    assert abs(share - 1 / 51) < 5 * np.sqrt(50 / 51**2 / 40_000)
    values = drawn(bl.Delay(values=[3, 3, 9]))
    assert abs((values == 3).mean() - 2 / 3) < 5 * np.sqrt(2 / 9 / 40_000)
    lost = drawn(bl.Delay(mean=4, law="fixed", lost=0.25))
    assert abs((lost == LOST).mean() - 0.25) < 5 * np.sqrt(0.1875 / 40_000)


def test_rewards_come_in_order_of_their_round_and_none_twice():
    """For any delays: a log of the kernels' calls, against one made from the stream."""
    log: list[tuple[int, int, int]] = []
    gone: list[int] = []

    def choose(params, state, t, context, rng):
        log.append((0, t, 0))
        return 0, 7

    def learn(params, state, t, arm, reward, phase, rng):
        log.append((1, t, phase))

    def forget(params, state, t, arm, phase, rng):
        gone.append(t)
        log.append((2, t, phase))

    kernels = (lambda params: (), choose, learn, forget, lambda params, reward: reward)
    play = make_late_play(*kernels, lambda *_: 0.5, lambda *_: None)
    delay = bl.Delay(mean=6, lost=0.1)
    feedback = Feedback.create(delay, patience=20).constants(300)
    rounds = np.array([300])
    play((), (), 1, feedback, rounds, None, None, None, seeded(1), np.zeros(2, np.int64))

    rng, law = seeded(1), delay.constants()
    delays = {t: draw_delay(law, rng) for t in range(1, 301)}
    expected: list[tuple[int, int, int]] = []
    for t in range(1, 301):
        old = t - 21  # after 20 further decisions, and not before the next
        if old >= 1 and (delays[old] == LOST or delays[old] > 20):
            expected.append((2, old, 7))
        expected.append((0, t, 0))
        due = [s for s in range(1, t + 1) if delays[s] != LOST and s + delays[s] == t]
        expected += [(1, s, 7) for s in due if delays[s] <= 20]
    assert log == expected
    assert any(delays[s] > 20 for s in gone)
    assert any(delays[s] == LOST for s in gone)


def test_no_delay_is_a_delay_of_zero():
    late = simulate(delay=bl.Delay(mean=0, law="fixed"))
    assert np.array_equal(late, simulate())
    assert np.array_equal(late, simulate(delay=bl.Delay(mean=0)))
    assert np.array_equal(late, simulate(patience=3))


def test_the_share_within_a_window():
    """The mean of rewards that are all 1, off by 6 standard errors once in 10^8 seeds."""
    world = bl.environment("bernoulli", means=[1.0, 1.0])
    policy = bl.policy("dp-even", arms=2, epsilon=1e4, horizon=4_000)
    for delay, share in (
        (bl.Delay(mean=20, law="fixed"), 1.0),
        (bl.Delay(mean=21, law="fixed"), 0.0),
        (bl.Delay(mean=20, law="uniform", lost=0.5), 21 / 82),
        (bl.Delay(mean=20), 1 - (20 / 21) ** 21),
        (bl.Delay(values=(3, 20, 21, 60)), 0.5),
    ):
        window = {"delay": delay, "patience": 20, "settle": "window", "missing": 0.0}
        assert Feedback.create(**window).arrived == pytest.approx(share)
        results = bl.simulate(policy, world, horizon=4_100, repetitions=1, seed=1,
                              checkpoints=[4_100], winners=True, **window)  # fmt: skip
        means = results._finished_runs("dp-even")[0].released[-1, :, 1]
        error = np.sqrt(share * (1 - share) / 2_000) + 1e-4
        assert np.all(abs(means - share) < 6 * error), delay


def test_a_window_is_a_fixed_delay():
    window = {"patience": 30, "settle": "window", "missing": 0.0}
    fixed = simulate(delay=bl.Delay(mean=30, law="fixed"))
    assert not np.array_equal(fixed, simulate())
    assert np.array_equal(fixed, simulate(**window))
    assert np.array_equal(fixed, simulate(delay=bl.Delay(mean=15, law="uniform"), **window))
    lossy = bl.Delay(mean=15, law="uniform", lost=0.3)
    assert not np.array_equal(fixed, simulate(delay=lossy, **window))


def test_the_seed_decides_and_delays_have_a_stream_of_their_own():
    delay = bl.Delay(mean=20, lost=0.1)
    assert np.array_equal(simulate(delay=delay), simulate(delay=delay, workers=3))
    assert not np.array_equal(simulate(delay=delay), simulate(delay=bl.Delay(mean=21, lost=0.1)))
    one = bl.Delay(values=[5])
    assert np.array_equal(simulate(delay=one), simulate(delay=bl.Delay(mean=5, law="fixed")))


def test_patience_is_found_alike_by_agents_and_in_simulations():
    """One reward in ten comes too late for the least patience, until patience has grown."""
    feedback = Feedback.create(bl.Delay(values=[10] * 9 + [400], lost=0.05))
    arms = late_run(UCB, WORLD, 0, feedback, 1_500)[0]
    played = repetition_player("ucb1", UCB, WORLD, np.arange(1, 1_501), POLICY_SEED, feedback)
    run = played(0, np.zeros(2, np.int64))
    np.testing.assert_allclose(run.regret, np.cumsum(WORLD.gaps[arms]), rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize(
    ("waits", "least", "most"),
    [
        ([0] * 29, ENDLESS, ENDLESS),
        ([0] * 30, LEAST_WAIT, LEAST_WAIT),
        ([0] * 30 + [9_999], LEAST_WAIT + 1, LEAST_WAIT * RISE),
        ([1_000] + [0] * 29, 1_150, 1_250),
        ([1_000] * 5_000, 1_245, 1_250 * RISE),
    ],
)
def test_how_long_a_decision_is_waited_for(waits, least, most):
    rule = begin_patience(ESTIMATED)
    for wait in waits:
        rule = note_wait(rule, wait)
    assert least <= longest_wait(rule) <= most


@pytest.mark.parametrize("longest", [1, 200, 256, 1_000, 50_000])
def test_patience_stays_below_what_memory_is_made_for(longest):
    """Rings hold MOST_TIMEOUT_FACTOR times the longest wait: enough for waits in any order."""
    rng = np.random.default_rng(longest)
    most = max(LEAST_WAIT, MOST_TIMEOUT_FACTOR * longest)
    for waits in (
        itertools.repeat(longest, 2_000),
        rng.integers(0, longest + 1, 2_000).tolist(),
        [longest if t % 40 < 8 else 0 for t in range(2_000)],
        [max(longest - t % 7, 0) for t in range(2_000)],
    ):
        rule = begin_patience(ESTIMATED)
        for count, wait in enumerate(waits, start=1):
            rule = note_wait(rule, wait)
            assert count < 30 or longest_wait(rule) <= most
    assert (
        TIMEOUT_FACTOR * RISE < MOST_TIMEOUT_FACTOR
    )  # a wait moves the reach by RISE at most, if it is longer


def test_the_share_that_takes_longer():
    """Of 20,000 exponential waits, all noted, 3 % exceed the reach: 500 to 700 of them."""
    waits, rule = seeded(1).exponential(1_000.0, 20_000).astype(int), begin_patience(ESTIMATED)
    longer = 0
    for wait in waits.tolist():
        longer += wait > rule.reach
        rule = note_wait(rule, wait)
    assert 500 < longer < 700


def test_no_reward_arrives_and_nothing_is_given_up():
    assert np.array_equal(
        simulate(delay=bl.Delay(mean=1, lost=1.0)),
        simulate(delay=bl.Delay(mean=1_000, law="fixed")),
    )


def test_memory_does_not_grow_with_the_horizon():
    peaks = []
    delay = bl.Delay(mean=10, lost=0.1)
    for horizon in (20_000, 400_000):
        arguments = {"horizon": horizon, "repetitions": 1, "checkpoints": 10, "workers": 1}
        simulate(delay=delay, **arguments)
        tracemalloc.start()
        simulate(delay=delay, **arguments)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]
    sizes = [Feedback.create(delay).constants(t).most_open for t in (10**5, 10**9)]
    assert sizes[0] == sizes[1] < 2_000


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"mean": -1}, "mean"),
        ({"mean": float("nan")}, "mean"),
        ({"mean": 1e12}, "mean"),
        ({"mean": 2.5, "law": "fixed"}, "mean"),
        ({"mean": 2.3, "law": "uniform"}, "mean"),
        ({"mean": 2, "law": "normal"}, "law"),
        ({"mean": 2, "lost": 1.5}, "lost"),
        ({"mean": 2, "lost": -0.1}, "lost"),
        ({"values": [3, -1]}, "values"),
        ({"values": []}, "values"),
        ({"values": [1.5]}, "values"),
        ({"values": [1], "mean": 2}, "mean"),
        ({"values": [1], "law": "fixed"}, "law"),
        ({}, "mean"),
    ],
)
def test_bad_delays(changes, word):
    with pytest.raises(ParameterError, match=word):
        bl.Delay(**changes)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"delay": 3}, "bl.Delay"),
        ({"patience": 0}, "patience"),
        ({"patience": 2.5}, "patience"),
        ({"settle": "later"}, "settle"),
        ({"missing": 0.0}, "window"),
        ({"settle": "window", "missing": 0.0}, "patience"),
        ({"settle": "window", "patience": 5}, "missing"),
        ({"settle": "window", "patience": 5, "missing": float("inf")}, "missing"),
        ({"delay": bl.Delay(mean=10**7), "horizon": 10**10, "checkpoints": 2}, "patience"),
    ],
)
def test_bad_feedback(changes, word):
    with pytest.raises(ParameterError, match=word):
        simulate(**changes)


def test_missing_must_be_a_reward_that_the_policy_takes():
    policy = bl.policy("kl-ucb", arms=3)
    with pytest.raises(ParameterError, match="missing = 2"):
        simulate(policy, settle="window", patience=5, missing=2.0)


FILE = """
horizon = 60
repetitions = 2
seed = 1
patience = 20
[delay]
mean = {mean}
lost = 0.1
[environment]
name = "bernoulli"
means = [0.2, 0.5, 0.8]
[policies.ucb1]
"""


def test_files_and_sweeps(tmp_path: Path):
    path = tmp_path / "late.toml"
    path.write_text(FILE.replace("{mean}", "8"))
    (experiment,) = read_plan(path).settings
    assert experiment.feedback == Feedback.create(bl.Delay(mean=8, lost=0.1), 20)
    results = simulated(experiment)
    results.save(tmp_path / "late.parquet")
    again = bl.load(tmp_path / "late.parquet")
    assert again.feedback == experiment.feedback
    said = "geometric delay of mean 8, 10 % lost, patience 20"
    assert said in str(again.summary())
    assert said in again.plot().axes[0].get_title(loc="left").replace("\n", " ")
    assert said in results_page_data(again, "late").panels[0].facts
    recipe = tmp_path / "again.toml"
    recipe.write_text(experiment_toml(again))
    assert read_plan(recipe).settings[0].feedback == experiment.feedback

    prompt = tmp_path / "prompt.toml"
    prompt.write_text(FILE.replace("{mean}", "8").replace("lost = 0.1", "lost = 0.2"))
    keys = [plan_sweep(read_plan(p), tmp_path / "out").cells[0].key for p in (path, prompt)]
    assert keys[0] != keys[1]

    path.write_text(FILE.replace("{mean}", "{ grid = [1, 8] }"))
    labels = [each.environment_label for each in read_plan(path).settings]
    assert labels == ["bernoulli, delay(mean=1)", "bernoulli, delay(mean=8)"]
    path.write_text(FILE.replace("{mean}", "-8"))
    with pytest.raises(ExperimentFileError, match="mean = -8"):
        read_plan(path)


def test_command_line(tmp_path: Path):
    path = tmp_path / "late.toml"
    path.write_text(FILE.replace("{mean}", "8"))
    options = ["--delay", "3", "--law", "fixed", "--lost", "0.05", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(main, ["simulate", str(path), *options])
    assert done.exit_code == 0, done.output
    assert "fixed delay of 3, 5 % lost, patience 20" in done.output
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["settings"][0]["feedback"]["delay"]["mean"] == 3


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--delay", "-3"], "mean = -3"),
        (["--delay", "3", "--lost", "1.5"], "lost = 1.5"),
        (["--delay", "2.5", "--law", "fixed"], "whole number"),
        (["--law", "fixed"], "--delay"),
        (["--law", "normal"], "geometric"),
        (["--patience", "0"], "patience = 0"),
    ],
)
@pytest.mark.parametrize("command", ["simulate", "calibrate"])
def test_bad_options_are_refused_before_anything_is_played(tmp_path, command, options, word):
    path = tmp_path / "late.toml"
    path.write_text(FILE.replace("{mean}", "8"))
    more = {"simulate": ["--out", str(tmp_path / "out")], "calibrate": ["--policy", "ucb1"]}
    refusal = CliRunner().invoke(main, [command, str(path), *more[command], *options])
    assert refusal.exit_code == 2
    assert word in refusal.output
    assert not (tmp_path / "out").exists()


def test_the_last_of_many_random_delays_is_far_below_the_longest() -> None:
    feedback = Feedback.create(bl.Delay(mean=60), None, "arrival", None)
    assert feedback.longest_wait == 1_200
    draws = np.random.default_rng(1).geometric(1.0 / 61.0, size=(400, 2_000)) - 1
    assert feedback.wait_for(2_000) == pytest.approx(draws.max(axis=1).mean(), rel=0.03)
    assert Feedback.create(bl.Delay(mean=60), 200, "arrival", None).wait_for(2_000) == 200
    assert Feedback.create(bl.Delay(mean=60, law="fixed")).wait_for(2_000) == 60
