"""Figures of Tao et al. 2022: text and results agree, and the setting is the paper's."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import balaclava as bl
from balaclava.papers import tao2022, wu2023
from balaclava.papers.harness.claims import compare_means
from balaclava.papers.harness.figure_registry import figures
from balaclava.simulation.analysis.statistics import mean_of_regret
from tests.papers.figures import check, read, squeezed

NAMES = [
    *(f"tao2022-{name}" for name in ("fig1", "fig2", "fig3", "fig4", "local-rate")),
    *(f"wu2023-{name}" for name in ("alpha", "epsilon", "moment", "range")),
]


def test_every_figure_is_listed() -> None:
    assert set(NAMES) <= {entry.name for entry in figures()}


def test_the_instances_are_the_papers() -> None:
    a = np.arange(1, 6)
    assert tao2022.instance(1, 0.5).means == pytest.approx(1.1 - 0.2 * a)
    assert tao2022.instance(2, 0.5).means == pytest.approx(0.05 * (a - 5) ** 2 + 0.1)
    assert tao2022.instance(3, 0.5).means == pytest.approx(0.9 - 0.05 * (a - 1) ** 2)
    for v, u in ((0.5, 5.594637409335428), (0.9, 8.142063093163385)):
        for number in (1, 2, 3):
            told = tao2022.TaoSetting(number, 1.0, v).parameters(1000)
            assert told["moment_bound"] == pytest.approx(u)
            assert told["moment_order"] == 1.0 + v
    assert tao2022.TAO_2022.sizes["proved"]["paper"].repetitions == 90


def test_the_horizon_is_the_first_power_of_ten_at_which_an_arm_can_go() -> None:
    horizon = tao2022.TAO_2022.sizes["proved"]["paper"].horizon
    for epsilon in (0.5, 1.0):
        told = tao2022.TaoSetting(1, epsilon, 0.9).parameters(horizon)
        first = 5 * bl.policy("dpr-se", **told).first_epoch  # type: ignore[attr-defined]
        assert horizon / 10 < first < horizon
        told = tao2022.TaoSetting(1, epsilon, 0.5).parameters(horizon)
        assert 5 * bl.policy("dpr-se", **told).first_epoch > 1e8  # type: ignore[attr-defined]


def test_calibration_uses_other_instances() -> None:
    assert not set(tao2022.CALIBRATION_MEANS) & set(tao2022.PARETO_INSTANCES.values())
    assert wu2023.STUDENT_GAP not in wu2023.CALIBRATION_GAPS


@pytest.mark.slow
def test_central_figure(tmp_path: Path, fixed_scales: None) -> None:
    made = bl.reproduce("tao2022-fig1", scale="tiny", out=tmp_path)
    check(made, tmp_path, ["", "-calibrated"])
    assert sorted(made.results) == sorted([*"abcd", *(f"{c}-calibrated" for c in "abcd")])
    proved, tuned = made.results["d"], made.results["d-calibrated"]
    assert proved.policies["dpr-se"].parameters["radius_scale"] == 1.0
    assert tuned.policies["dpr-se × 0.02"].parameters["radius_scale"] == 0.02
    text = squeezed(made)
    mean, error = mean_of_regret(tuned, "dpr-se × 0.02")
    assert f"dpr-se × 0.02 {mean:,.0f} ± {error:,.0f}" in text
    se = proved.policies["dpr-se"]
    assert f"dpr-se cannot drop an arm before round {5 * se.first_epoch:,}" in text  # type: ignore[attr-defined]
    assert "(d) dpr-ucb 0.01, dpr-se 0.02, dpr-batch-ucb 0.125, robust-ucb 0.125." in text
    # The verdict in the text is that of the numbers.
    verdict = compare_means(*(tao2022.policy_regret(tuned, name) for name in ("dpr-se", "dpr-ucb")))
    _, seen = text.split("with calibrated radii", 1)
    line = seen.split("dpr-se below dpr-ucb: ")[1].split(". ")[0]
    assert "(d)" in next(part for part in line.split("; ") if part.startswith(verdict))
    for letter in "abcd":
        for results in (made.results[letter], made.results[f"{letter}-calibrated"]):
            scopes = {policy.guarantee.scope for policy in results.policies.values()}
            assert scopes == {"trajectory", "none"}


def test_bonus_is_that_of_the_formula() -> None:
    told = tao2022.TaoSetting(1, 1.0, 0.9).parameters(10**6)
    policy, n = bl.policy("dpr-ucb", **told), 10**6 / 5
    u, v, log = told["moment_bound"], 0.9, math.log(10**6)
    inside = math.log(2 * 10**24) * log ** (1.5 + 1 / v) / n
    expected = 18 * u ** (1 / (1 + v)) * inside ** (v / (1 + v))
    assert tao2022._bonus(policy, 10**6) == pytest.approx(expected)
    assert expected == pytest.approx(29, rel=0.02)


@pytest.mark.slow
def test_local_figure(tmp_path: Path, fixed_scales: None) -> None:
    made = bl.reproduce("tao2022-fig2", scale="tiny", out=tmp_path)
    check(made, tmp_path, ["", "-calibrated"])
    tuned = made.results["b-calibrated"]
    for epsilon in (5, 10, 20):
        guarantee = tuned.policies[f"ldpr-se ε={epsilon} × 0.125"].guarantee
        assert (guarantee.epsilon, guarantee.scope) == (epsilon, "report")
    se = made.results["b"].policies["ldpr-se ε=20"]
    assert f"{5 * se.first_epoch:.2g} at ε=20 rounds" in squeezed(made)  # type: ignore[attr-defined]
    assert "ldpr-se ε=5 above dpr-se at ε=1, central:" in squeezed(made)


@pytest.mark.slow
def test_the_rate_of_local_privacy(tmp_path: Path) -> None:
    made = bl.reproduce("tao2022-local-rate", scale="tiny", out=tmp_path)
    check(made, tmp_path, [""])
    text = squeezed(made)
    assert "at v=1, printed: -1.00; corrected: -3.00." in text
    bounds = tao2022.proved_rates()
    slopes = {
        what: tao2022.fit_log_slope(tao2022.BOUND_GAPS, values) for what, values in bounds.items()
    }
    for what, slope in slopes.items():
        assert f"(b) {what}: fitted slope {slope:.2f}." in text
        assert slope < -2.5  # far from the printed -1; the log in the lower bound flattens it
    least, *_ = (values for what, values in bounds.items() if "lower" in what)
    for what, values in bounds.items():
        if "upper" in what:
            assert all(upper > lower for upper, lower in zip(values, least, strict=True))
    rows = read(tmp_path / "tao2022-local-rate.csv")
    assert [float(row["value"]) for row in rows] == [0.05, 0.1, 0.2]
    assert {row["guarantee"] for row in rows} == {"ε=10 per report"}


@pytest.mark.parametrize("v", [1.0, 0.75, 0.5])
def test_no_constant_makes_the_printed_bound_true(v: float) -> None:
    """The constant that it needs grows as gap^(-(1+v)/v), once the horizon is long enough."""
    gaps = (0.02, 0.2)
    needed = [tao2022.needed_constant(gap, v, 10**18) for gap in gaps]
    logs = [math.log(gap * 10**4.5 / 8) for gap in gaps]  # the part that depends on the horizon
    slope = math.log((needed[1] / logs[1]) / (needed[0] / logs[0])) / math.log(10)
    assert slope == pytest.approx(tao2022.printed_exponent(v) - tao2022.corrected_exponent(v))
    assert slope == pytest.approx(-(1 + v) / v)
