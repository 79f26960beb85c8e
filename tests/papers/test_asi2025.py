"""The figures of Asi, Raman and Talwar (2025), at a scale that only shows that they work."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import balaclava as bl
from balaclava.environments.hard_losses import fast_commit
from balaclava.errors import ParameterError
from balaclava.papers.asi2025 import (
    bandit_rates,
    exp3_leak,
    expert_rates,
    learning_rate,
    lemma51,
    loss_families,
)
from balaclava.papers.asi2025.lemma51_conditions import lemma_line, strongest_condition
from balaclava.papers.harness.figure_registry import figures
from balaclava.papers.harness.figure_run import FigureRun
from balaclava.papers.harness.worst_case_slopes import (
    LossSetting,
    WorstPoint,
    WorstRegrets,
    fit_slope,
    measure_settings,
    promise_kind,
    worst_point,
)
from balaclava.simulation.results import Run

pytestmark = pytest.mark.xdist_group("adversarial")  # their policies are compiled there

NAMES = ("fig1", "table1", "table2", "lemma51", "learning-rate")
TITLES = ("What the paper shows", "What we see", "Where they differ, and why")


def read(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def make(name: str, folder: Path) -> tuple[bl.Reproduction, list[dict[str, str]]]:
    made = bl.reproduce(f"asi2025-{name}", scale="tiny", out=folder)
    assert [path.suffix for path in made.files] == [".csv", ".png", ".txt"]
    assert made.files[1].read_bytes().startswith(b"\x89PNG")
    assert made.files[2].read_text() == f"{made}\n"
    assert all(title in made.text for title in TITLES)
    return made, read(made.files[0])


def test_every_figure_is_listed() -> None:
    listed = {entry.name: entry for entry in figures()}
    assert {f"asi2025-{name}" for name in NAMES} <= set(listed)
    assert all("ICML 2025" in listed[f"asi2025-{name}"].reference for name in NAMES)


# Figure 1.


def test_the_chances_of_exp3_are_those_of_the_paper() -> None:
    changed, plain = (exp3_leak.exp3_chances(loss, 100_001) for loss in (0.0, 1.0))
    assert changed[2] == pytest.approx(0.5000499949998334, rel=1e-9)
    assert changed[10] == pytest.approx(0.500050015001832, rel=1e-9)
    assert changed[10_000] == pytest.approx(0.5000929193315523, rel=1e-9)
    assert changed[100_000] == pytest.approx(0.99995, rel=1e-9)
    assert plain[1] == pytest.approx(0.4999500050001666, rel=1e-9)
    assert plain[2] == pytest.approx(0.49999999500149983, rel=1e-9)
    assert plain[10_000] == pytest.approx(0.4999570663782057, rel=1e-9)
    assert plain[100_000] == pytest.approx(5e-05, rel=1e-9)
    assert math.log(changed[2] / plain[2]) == pytest.approx(1.0e-4, rel=1e-3)
    assert math.log(changed[100_000] / plain[100_000]) == pytest.approx(9.90, abs=5e-3)


@pytest.mark.parametrize("first_loss", [0.0, 1.0])
def test_the_kernels_do_what_the_paper_prints(first_loss: float) -> None:
    rate, weights, printed = 1e-2, [1.0, 1.0], []
    for t in range(2000):
        chance = (1 - rate) * weights[1] / sum(weights) + rate / 2
        printed.append(chance)
        if t % 2 == 0:
            weights[1] *= math.exp(-rate * (first_loss if t == 0 else 1.0) / chance)
        else:
            weights[0] *= math.exp(-rate / (1 - chance))
    assert exp3_leak.exp3_chances(first_loss, 2000, rate) == pytest.approx(printed, rel=1e-9)


def test_figure_1(tmp_path: Path) -> None:
    made, rows = make("fig1", tmp_path)
    last = rows[-1]
    assert float(last["P"]) == pytest.approx(1 - 5e-5)
    assert float(last["P_prime"]) == pytest.approx(5e-5)
    assert float(last["log_ratio"]) == pytest.approx(9.903, abs=1e-3)
    assert "0.99995 with the loss of 0 and at 5e-05" in " ".join(made.text.split())


# What the measured tables rest on.


def test_gaps_reach_from_the_hardest_to_the_largest() -> None:
    assert loss_families.gaps(0.01) == pytest.approx([0.01, 0.03, 0.09, 0.27, 0.5])
    assert loss_families.gaps(0.5) == [0.5]
    assert loss_families.hardest(10, 10_000, 0.1) == pytest.approx(0.1)
    assert loss_families.hardest(10, 10_000, None) == pytest.approx(math.sqrt(1e-3))


def test_a_tuned_policy_has_the_least_bound() -> None:
    offered: dict[str, Any] = {"arms": 4, "horizon": 100_000, "epsilon": 0.5}
    world = bl.environment("stochastic-losses", means=[0.5] * 3 + [0.4])
    for name in ("dp-exp3", "ldp-exp3"):
        tuned: Any = loss_families.private(f"{name}, tuned", **offered)
        best = tuned.regret_bound(world, 100_000)
        assert best is not None
        for scale in (0.5, 1.0, 2.0):
            other = bl.policy(
                name, **offered, learning_rate_scale=scale * tuned.learning_rate_scale
            )
            bound = other.regret_bound(world, 100_000)
            assert bound is not None
            assert best <= bound * (1 + 1e-12)
        assert tuned.guarantee == loss_families.private(name, **offered).guarantee


def test_a_power_is_found_again() -> None:
    points = [WorstPoint(x, 3.0 * x**-0.5, 0.0, 1e9, 40.0 / x) for x in (1.0, 0.1, 0.01)]
    slope = fit_slope(points)
    assert [slope.power, slope.error, slope.bound] == pytest.approx([-0.5, 0.0, -1.0])
    # With means of relative error r at x = 1, 10, 100 the error is r / (sqrt(2) log 10).
    noisy = [WorstPoint(x, x, 0.1 * x, 1e9, None) for x in (1.0, 10.0, 100.0)]
    assert fit_slope(noisy).error == pytest.approx(0.1 / (math.sqrt(2) * math.log(10)))
    assert fit_slope(noisy).bound is None


def made_up(*values: list[float]) -> WorstRegrets:
    """One policy at the horizons 10, 100, 1000 and so on, with these final regrets."""
    settings, found = [], []
    world = bl.environment("stochastic-losses", means=[0.5, 0.0])
    for i, finals in enumerate(values):
        horizon = 10 ** (i + 1)
        policies = {"exp3": bl.policy("exp3", arms=2, horizon=horizon)}
        results = bl.Results.empty(
            policies, world, horizon=horizon, seed=0, checkpoints=np.array([horizon])
        )
        for repetition, final in enumerate(finals):
            results.add(Run("exp3", repetition, np.array([final]), np.zeros(2, np.int64)))
        settings.append(LossSetting("c", float(horizon), horizon, policies, (world,), horizon / 4))
        found.append([results])
    return WorstRegrets(settings, found)


def test_only_what_is_learned_is_fitted() -> None:
    regrets = made_up([2.0, 2.0], [10.0, 10.0], [31.6, 31.6], [100.0, 100.0])
    slope = regrets.slope("c", "exp3")
    assert slope is not None
    assert slope.power == pytest.approx(0.5, abs=1e-3)  # without the first, 80 % of even play
    assert made_up([2.0, 2.0], [24.0, 25.0], [31.6, 31.6]).slope("c", "exp3") is None
    text = " ".join(loss_families.describe_slopes(regrets, "c"))
    assert "exp3 +0.50 ± 0.00 (its bound +0.49), proved +0.50" in text
    text = " ".join(loss_families.describe_slopes(made_up([2.0, 2.0], [25.0, 25.0]), "c"))
    assert "not fitted" in text
    assert "exp3 (proved +0.50), at least 80% of even play" in text


def test_the_worst_world_counts() -> None:
    regrets = made_up([1.0, 3.0], [5.0, 7.0])
    (one, _), (few, more) = regrets.settings, regrets.results
    point = worst_point(one, [few[0], more[0]], "exp3")
    assert [point.mean, point.error] == pytest.approx([6.0, 12.7062], rel=1e-5)
    assert promise_kind(regrets.policy("exp3")) == "not private"


def test_progress_is_one_count(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    run = FigureRun("x", "tiny", tmp_path, 1, lambda played, total: told.append((played, total)))
    settings = [bandit_rates.setting("c", T, ("dp-htinf",), 2, T, 0.5) for T in (100, 200)]
    measure_settings(run, settings, repetitions=2, seed=1)
    rounds = sum(2 * s.horizon * len(s.worlds) for s in settings)
    assert told[-1] == (rounds, rounds)
    assert [played for played, _ in told] == sorted(played for played, _ in told)
    rows = read(tmp_path / "x.csv")
    assert len(rows) == sum(2 * len(s.worlds) for s in settings)
    assert {row["guarantee"] for row in rows} == {"ε=0.5 per trajectory"}


def test_proved_powers() -> None:
    assert (
        loss_families.proved_power("dp-htinf", "d") == 0.75
    )  # sqrt(T / epsilon), epsilon = T^(-1/2)
    assert loss_families.proved_power("ldp-exp3, tuned", "d") == 1.0
    assert loss_families.proved_power("dp-tsallis-inf", "a") is None
    # They are those of the bounds that the policies state, where these have no logarithms.
    for panel, settings in {
        "a": [bandit_rates.setting("a", e, ("dp-htinf",), 3, 10**6, e) for e in (0.5, 0.05)],
        "b": [bandit_rates.setting("b", K, ("dp-htinf",), K, 10**6, 0.5) for K in (2, 20)],
        "c": [bandit_rates.setting("c", T, ("dp-htinf",), 2, T, 0.5) for T in (10**4, 10**6)],
    }.items():
        bounds = [
            one.policies["dp-htinf"].regret_bound(one.worlds[0], one.horizon) or math.nan
            for one in settings
        ]
        power = math.log(bounds[1] / bounds[0]) / math.log(settings[1].x / settings[0].x)
        assert power == pytest.approx(loss_families.proved_power("dp-htinf", panel), abs=0.01)


def test_experts_of_whom_one_is_good() -> None:
    world = expert_rates.one_good_expert(5, 100, 0.25)
    losses = world.expert_losses(np.array([100]))[0]
    assert losses.tolist() == [50.0] * 4 + [25.0]
    refusals = expert_rates.Refusals({})
    one = expert_rates.expert_setting("a", 0.5, 5, 400, 0.5, refusals)
    assert "dp-exp4" not in one.policies
    assert str(refusals) == "Refused, since the horizon is too short: dp-exp4 at (a) 0.5."
    with pytest.raises(ParameterError):
        bl.policy("dp-exp4", arms=2, experts=5, horizon=400, epsilon=0.5, delta=1e-5)


# Lemma 5.1.


def test_the_bound_of_the_lemma() -> None:
    # P = e^(-1/2) / 2 = 0.3033 for epsilon p = 1/2; (p / gamma - p) / 2 = 49.5; tau / 2 = 10.
    late = 0.5 * math.exp(-0.5) * 49.5 - 10
    assert late > 5 > 0.01 * 100 / 4
    found = bl.bounds.early_commitment(horizon=120, epsilon=0.5, share=0.01, changed=1.0, switch=20)
    assert found == pytest.approx(late - 0.0)
    assert (
        bl.bounds.early_commitment(horizon=10**6, epsilon=0.5, share=0.01, changed=1.0, switch=20)
        == 2500.0
    )


def test_the_line_is_of_order_the_root_of_rounds() -> None:
    at = {(T, e): lemma_line(T, e) for T in (10**6, 10**8) for e in (0.1, 0.001)}
    assert at[10**8, 0.1] / at[10**6, 0.1] == pytest.approx(10, rel=0.05)
    assert at[10**6, 0.001] / at[10**6, 0.1] == pytest.approx(10, rel=0.05)


def base_results(paths: list[list[float]], rounds: list[int]) -> bl.Results:
    """Regret on losses that do not turn: half the pulls of the second arm."""
    world = fast_commit(rounds[-1], 0.1, switched=False)
    policies = {"dp-htinf": bl.policy("dp-htinf", arms=2, horizon=rounds[-1], epsilon=0.1)}
    results = bl.Results.empty(
        policies, world, horizon=rounds[-1], seed=0, checkpoints=np.array(rounds)
    )
    for i, path in enumerate(paths):
        results.add(Run("dp-htinf", i, np.array(path), np.zeros(2, np.int64)))
    return results


def test_of_whom_the_lemma_speaks() -> None:
    # Settled at once: 10 pulls up to round 20, then 90 in the other 9,980.
    early = base_results([[5.0, 50.0]] * 3, [20, 10_000])
    found = strongest_condition(early, "dp-htinf", 0.1, [20])
    assert found is not None
    assert found.switch == 20
    assert 2 * found.share * 20 <= found.changed <= found.share * (10_000 - 20)
    assert found.bound == pytest.approx(
        bl.bounds.early_commitment(
            horizon=10_000, epsilon=0.1, share=found.share, changed=found.changed, switch=20
        )
    )
    # Never settles: all pulls of the second arm come right after the turn.
    late = base_results([[0.0, 50.0, 50.0]] * 3, [20, 200, 10_000])
    assert strongest_condition(late, "dp-htinf", 0.1, [20]) is None


# The figures as a whole. Each compiles its policies, which is what takes the time.


def test_table_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = ("dp-htinf", "ldp-exp3, tuned")
    monkeypatch.setattr(bandit_rates, "SHORT_LIST", few)  # three policies to compile, not seven
    monkeypatch.setattr(bandit_rates, "FULL_LIST", few)
    monkeypatch.setattr(bandit_rates, "BASELINES", ("htinf",))
    made, rows = make("table1", tmp_path)
    plan = bandit_rates.PLANS["tiny"]
    assert {row["panel"] for row in rows} == set("abcd")
    promises = {row["policy"]: row["guarantee"].split(" per ")[-1] for row in rows}
    assert promises["dp-htinf"] == "trajectory"
    assert promises["ldp-exp3, tuned"] == "report"
    assert promises["htinf"] == "not private"
    # What the text says of epsilon = T^(-1/2) is what the rows say.
    mine = [r for r in rows if r["panel"] == "d" and r["policy"] == "dp-htinf"]
    shares = []
    for horizon in plan.long_horizons:
        regrets: dict[str, list[float]] = {}
        for row in mine:
            if int(row["horizon"]) == horizon:
                regrets.setdefault(row["largest_gap"], []).append(float(row["regret"]))
        assert all(len(found) == plan.repetitions for found in regrets.values())
        shares.append(max(np.mean(found) for found in regrets.values()) / (horizon / 4))
    said = ", ".join(f"{share:.0%}" for share in shares)
    assert f"as a share of even play, T from 100 to 400: {said}" in " ".join(made.text.split())


@pytest.mark.slow
def test_table_1_with_every_policy(tmp_path: Path) -> None:
    _, rows = make("table1", tmp_path)
    played = {row["policy"] for row in rows if row["panel"] == "a"}
    assert played == {*bandit_rates.FULL_LIST, *bandit_rates.BASELINES}


@pytest.mark.slow
def test_table_2(tmp_path: Path) -> None:
    made, rows = make("table2", tmp_path)
    assert {row["panel"] for row in rows} == set("abc")
    assert {"dp-htinf-experts", "ldp-exp4", "exp4"} <= {row["policy"] for row in rows}
    assert "dp-exp4 at (a) 1; 0.3; 0.1, (b)" in " ".join(made.text.split())
    printed = bl.recommend_experts(2, 4, 400, 0.3, delta=1e-5).policy
    assert f"ε = 0.3: {printed}" in " ".join(made.text.split())


def test_lemma_51(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lemma51, "TURN_LIST", ("dp-htinf",))
    monkeypatch.setattr(lemma51, "BASELINES", ("htinf",))
    made, rows = make("lemma51", tmp_path)
    first = [r for r in rows if r["panel"] == "a" and r["policy"] == "htinf" and r["x"] == "1.0"]
    mean = np.mean([float(row["regret"]) for row in first])
    assert f"htinf, regret without the turn and with it: ε = 1: {mean:,.0f} and" in made.text
    assert f"{lemma_line(400, 1.0):,.0f} at ε = 1;" in made.text


@pytest.mark.slow
def test_learning_rate(tmp_path: Path) -> None:
    made, rows = make("learning-rate", tmp_path)
    mine = [r for r in rows if r["panel"] == "b" and r["policy"] == "dp-htinf"]
    means = {
        scale: np.mean([float(r["regret"]) for r in mine if float(r["x"]) == scale])
        for scale in learning_rate.RATE_PLANS["tiny"].scales
    }
    best = min(means, key=lambda scale: means[scale])
    text = " ".join(made.text.split())
    assert f"(b) least regret: dp-htinf {means[best]:,.0f} at {best:g}" in text
    assert "bl.calibrate, on the gaps below 0.5, chooses dp-htinf" in text
    assert ("No, as far as this shows" in text) != ("Yes, as far as this shows" in text)
