"""`results.winners`: what simulated runs name, in tables, files and pages."""

from __future__ import annotations

import math

import numpy as np
import pytest
from click.testing import CliRunner

import balaclava as bl
from balaclava.cli import main
from balaclava.errors import DeviceError, EstimateError, ExperimentFileError, ParameterError
from balaclava.experiments.experiment_file import read_plan
from balaclava.policies.intervals import NO_WINNER, winner_by_intervals, winner_kernel
from balaclava.reporting.report_data import experiment_toml, read_page_data
from balaclava.simulation.engine import chosen_device
from balaclava.simulation.feedback import PROMPT
from balaclava.simulation.results import Results

WORLD = bl.environment("bernoulli", means=[0.2, 0.8])
POLICY = bl.policy("dp-imed", arms=2, epsilon=1.0, explore=0.3)


def play(**options: object) -> Results:
    return bl.simulate(
        {"private": POLICY, "plain": bl.policy("ucb1", arms=2)},
        WORLD,
        **{"horizon": 1_000, "repetitions": 10, "seed": 1, "checkpoints": 50, **options},
    )


RESULTS = play(winners=True)


def test_far_apart_arms_are_told_apart():
    """Ten runs; a wrong winner at 99.9 % confidence is seen once in 100 tests at most."""
    private, plain = RESULTS.winners(0.999)
    assert private.right == 1.0
    assert private.wrong == private.none == 0.0
    assert 100 < private.median_round < 1_000
    assert math.isnan(plain.right)
    assert RESULTS.winners(0.5)[0].median_round <= private.median_round
    assert "100.0 %" in str(RESULTS.winners())


def test_shares_are_those_of_the_agents_rule():
    """The compiled search against the agent's comparison of arms, checkpoint by checkpoint."""
    name_best, params = winner_kernel(POLICY.require_estimates(0.01)), POLICY.constants()
    rounds = []
    for run in RESULTS.runs["private"].values():
        assert run.released is not None
        for c, row in enumerate(run.released):
            if name_best(params, row, 0.5, 0.05) != NO_WINNER:
                rounds.append(RESULTS.checkpoints[c])
                break
    assert np.median(rounds) == RESULTS.winners(0.95)[0].median_round


@pytest.mark.parametrize(
    "name",
    [
        *("dp-imed", "kl-ucb", "ldp-ucb-bernoulli"),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("dp-se", "dp-klucb")),
    ],
)
def test_no_winner_comes_later_than_by_intervals(name):
    private = {} if name == "kl-ucb" else {"epsilon": 2.0}
    world = bl.environment("bernoulli", means=[0.2, 0.5, 0.9])
    policy = bl.policy(name, arms=3, horizon=10_000, **private)
    results = bl.simulate(
        policy, world, horizon=10_000, repetitions=8, seed=1, checkpoints=80, winners=True
    )
    estimation, params = policy.require_estimates(0.01), policy.constants()
    pairs, intervals = winner_kernel(estimation), winner_by_intervals(estimation.limits)
    named = 0
    for run in results.runs[policy.name].values():
        for row in run.released:
            by_intervals = intervals(params, row, 1 / 3, 0.05)
            assert by_intervals in (NO_WINNER, pairs(params, row, 1 / 3, 0.05))
            named += by_intervals != NO_WINNER
    assert named > 0


def test_recording_changes_nothing_else():
    bare = play()
    for label in bare.labels:
        assert np.array_equal(bare.regret(label), RESULTS.regret(label))
    with pytest.raises(EstimateError, match="winners=True"):
        bare.winners()
    assert "winners" not in str(bare.summary())
    assert "winners named" in str(RESULTS.summary())


def test_with_delays_too():
    late = play(winners=True, delay=bl.Delay(mean=20, lost=0.2))
    released = late.runs["private"][0].released
    assert released is not None
    assert released[-1, :, 0].sum() < 900
    assert late.winners()[0].right > 0.5


def test_files_keep_it(tmp_path):
    RESULTS.save(tmp_path / "results.parquet")
    again = bl.load(tmp_path / "results.parquet")
    assert str(again.winners()) == str(RESULTS.winners())
    assert again.runs["plain"][0].released is None
    assert str(again.summary()) == str(RESULTS.summary())


def test_a_page_shows_it(tmp_path):
    from balaclava.reporting.report_page import write_page

    RESULTS.save(tmp_path / "results.parquet")
    page = write_page(tmp_path / "results.parquet", tmp_path / "page.html")
    text = page.read_text(encoding="utf-8")
    assert "<h2>Winners</h2>" in text
    assert "median round" in text


def test_bad_input():
    with pytest.raises(ParameterError, match="confidence"):
        RESULTS.winners(1.0)
    with pytest.raises(ParameterError, match="winners"):
        play(winners="yes")
    with pytest.raises(DeviceError, match="CPU only"):
        chosen_device("cuda", PROMPT, winners=True)


FILE = """
horizon = 1000
repetitions = 10
seed = 1
checkpoints = 50
{winners}
[environment]
name = "bernoulli"
means = [0.2, 0.8]
[policies.private]
name = "dp-imed"
epsilon = 1
explore = 0.3
[policies.plain]
name = "ucb1"
"""


def test_experiment_files_ask_for_it(tmp_path):
    """By a line or by an option: the same table in the end, on the page too, and none without."""
    texts = {}
    for line, options in (("winners = true", []), ("", ["--winners"]), ("", [])):
        path = tmp_path / f"file{len(texts)}.toml"
        path.write_text(FILE.format(winners=line), encoding="utf-8")
        out = tmp_path / f"out{len(texts)}"
        command = ["simulate", str(path), "--out", str(out), *options]
        done = CliRunner().invoke(main, command)
        assert done.exit_code == 0, done.output
        texts[out] = (out / "summary.txt").read_text(encoding="utf-8")
    by_line, by_option, without = texts.values()
    assert by_line == by_option == str(RESULTS.summary()) + "\n"
    assert "winners" not in without
    folder = next(iter(texts))
    story = read_page_data(folder)
    assert "winners = true" in experiment_toml(story.panels[0].results)
    assert str(bl.load(folder / "results.parquet").winners()) == str(RESULTS.winners())


@pytest.mark.parametrize(
    ("line", "policy", "words"),
    [("winners = 3", "dp-imed", "winners"), ("winners = true", "ucb1", "estimates")],
)
def test_files_that_cannot_name_winners_are_refused(tmp_path, line, policy, words):
    path = tmp_path / "file.toml"
    text = FILE.format(winners=line)
    if policy == "ucb1":
        text = text.replace('"dp-imed"\nepsilon = 1\nexplore = 0.3', '"ucb1"')
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ExperimentFileError, match=words):
        read_plan(path)
