"""The figures of Tao et al. 2022 and after Wu et al. 2023, at a scale that shows that they work."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import balaclava as bl
from balaclava.advice.choose.calibrate import calibrate, choose_scale
from balaclava.advice.choose.scale_search import ScaleSearch
from balaclava.errors import ParameterError
from balaclava.papers import tao2022, wu2023
from balaclava.papers.harness import figure_calibration
from balaclava.papers.harness.claims import compare_means
from balaclava.papers.harness.figure_registry import figures
from balaclava.papers.harness.figure_run import FigureRun, RunSize
from balaclava.papers.harness.final_regret_curves import FinalRegretCurve, RegretStudy
from balaclava.simulation.analysis.statistics import mean_of_regret

pytestmark = pytest.mark.xdist_group("heavy_tailed")  # their policies are compiled there

NAMES = [
    *(f"tao2022-{name}" for name in ("fig1", "fig2", "fig3", "fig4", "local-rate")),
    *(f"wu2023-{name}" for name in ("alpha", "epsilon", "moment", "range")),
]


def squeezed(made: bl.Reproduction) -> str:
    return " ".join(made.text.split())


def read(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def check(made: bl.Reproduction, folder: Path, pictures: list[str]) -> None:
    """Pictures, data of every panel, and a text with its three parts."""
    for picture in pictures:
        path = folder / f"{made.name}{picture}.png"
        assert path in made.files
        assert path.read_bytes().startswith(b"\x89PNG\r\n")
    for letter, results in made.results.items():
        saved = bl.load(folder / f"{made.name}{letter}.parquet")
        assert saved.labels == results.labels
    assert (folder / f"{made.name}.txt").read_text() == f"{made}\n"
    for title in ("What the paper shows", "What we see", "Where they differ, and why"):
        assert title in made.text


@pytest.fixture
def fixed_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    """No search: that of calibrate is tested with calibrate."""

    def given(
        questions: dict[Any, figure_calibration.ScaleQuestion], *_: object
    ) -> dict[Any, float]:
        fixed = {"dpr-ucb": 0.01, "dpr-se": 0.02}
        return {name: fixed.get(asked.policy.name, 0.125) for name, asked in questions.items()}

    monkeypatch.setattr(tao2022, "find_scales", given)
    monkeypatch.setattr(wu2023, "find_scales", given)


def test_every_figure_is_listed() -> None:
    assert set(NAMES) <= {entry.name for entry in figures()}


# What is played.


def test_the_instances_are_the_papers() -> None:
    a = np.arange(1, 6)
    assert tao2022.instance(1, 0.5).means == pytest.approx(1.1 - 0.2 * a)
    assert tao2022.instance(2, 0.5).means == pytest.approx(0.05 * (a - 5) ** 2 + 0.1)
    assert tao2022.instance(3, 0.5).means == pytest.approx(0.9 - 0.05 * (a - 1) ** 2)
    for v, u in ((0.5, 5.594637409335428), (0.9, 8.142063093163385)):
        for number in (1, 2, 3):
            told = tao2022.TaoSetting(number, 1.0, v).offered(1000)
            assert told["moment_bound"] == pytest.approx(u)
            assert told["moment_order"] == 1.0 + v
    assert tao2022.PROVED["paper"].repetitions == 90


def test_the_horizon_is_the_first_power_of_ten_at_which_an_arm_can_go() -> None:
    horizon = tao2022.PROVED["paper"].horizon
    for epsilon in (0.5, 1.0):
        told = tao2022.TaoSetting(1, epsilon, 0.9).offered(horizon)
        first = 5 * bl.policy("dpr-se", **told).first_epoch  # type: ignore[attr-defined]
        assert horizon / 10 < first < horizon
        told = tao2022.TaoSetting(1, epsilon, 0.5).offered(horizon)
        assert 5 * bl.policy("dpr-se", **told).first_epoch > 1e8  # type: ignore[attr-defined]


def test_calibration_uses_other_instances() -> None:
    assert not set(tao2022.LEARNED) & set(tao2022.INSTANCES.values())
    assert wu2023.GAP not in wu2023.LEARNED


def test_the_arms_of_wu() -> None:
    arms = wu2023.StudentArms(5.0, contamination=0.04)
    assert arms.raw == pytest.approx(1.0)  # 0.6^2 + 0.64
    assert arms.central == pytest.approx(wu2023.VARIANCE)
    world = arms.world()
    assert world.gaps.tolist() == pytest.approx([0.0, *[wu2023.GAP] * 4])
    assert world.parameters["outliers"]["values"] == pytest.approx(
        [-4.95, *[4.95] * 4]
    )  # 0.99 / sqrt(0.04)
    shifted = wu2023.StudentArms(5.0, shift=99.0)
    assert shifted.central == pytest.approx(wu2023.VARIANCE)
    assert shifted.raw == pytest.approx(99.6**2 + wu2023.VARIANCE)
    assert wu2023.OURS_CENTRAL.label == "dpr-batch-ucb central"


def test_outliers_of_each_arm() -> None:
    inner = bl.environment("gaussian", means=[0.0, 1.0])
    values = [7.0, -9.0]
    outliers = {"kind": "points", "values": values}
    world = bl.environment("contaminated", inner=inner, fraction=0.5, outliers=outliers)
    params, rng = world.constants(), np.random.default_rng(1)
    for arm, value in enumerate(values):
        drawn = [world.draw(params, 1, arm, rng) for _ in range(200)]
        # 200 draws of which half are outliers: outside 60 to 140 once in 10^8 times.
        assert 60 < drawn.count(value) < 140
        assert drawn.count(-9.0 if value == 7.0 else 7.0) == 0
    assert hash(world) == hash(bl.environment("contaminated", **world.parameters))
    bounded = bl.environment("bernoulli", means=[0.2, 0.4])
    world = bl.environment("contaminated", inner=bounded, fraction=0.5, outliers=outliers)
    assert world.reward_range == (-9.0, 7.0)
    with pytest.raises(ParameterError, match="has 1 values for 2 arms; give one for each"):
        bl.environment(
            "contaminated", inner=inner, fraction=0.5, outliers={"kind": "points", "values": [1.0]}
        )


# Tao et al.


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
    assert f"dpr-se can drop no arm before round {5 * se.first_epoch:,}" in text  # type: ignore[attr-defined]
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
    told = tao2022.TaoSetting(1, 1.0, 0.9).offered(10**6)
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
    slopes = {what: tao2022.fitted(tao2022.BOUND_GAPS, values) for what, values in bounds.items()}
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


# Wu et al.


@pytest.mark.slow
def test_contamination_figure(tmp_path: Path, fixed_scales: None) -> None:
    made = bl.reproduce("wu2023-alpha", scale="tiny", out=tmp_path)
    check(made, tmp_path, [""])
    text = squeezed(made)
    for letter, alpha in zip(("a1", "a2", "a3"), (1e-4, 3e-3, 0.03), strict=True):
        results = made.results[letter]
        assert results.environment.parameters["fraction"] == alpha
        assert results.policies["prae-raw"].parameters["contamination"] == alpha
    policy = made.results["a3"].policies["prae-raw"]
    least = min(radius for _, radius in policy.batches(120))  # type: ignore[attr-defined]
    assert f"{2 * least:.2f} at α=0.03" in text
    assert made.results["b1"].labels == [
        "prae-raw × 0.125",
        "prae-central × 0.125",
        "dpr-batch-ucb × 0.125",
    ]
    rows = read(tmp_path / "wu2023-alpha.csv")
    assert len(rows) == 2 * 3 * 3
    row = next(
        r for r in rows if (r["panel"], r["value"], r["policy"]) == ("a", "0.03", "prae-raw")
    )
    mean, error = mean_of_regret(made.results["a3"], "prae-raw")
    assert (float(row["mean_regret"]), float(row["plus_minus"])) == (mean, error)
    assert row["guarantee"] == "ε=0.5 per trajectory"


def test_prae_removes_no_arm_under_contamination() -> None:
    """With the constants of the proofs, by ten million rounds, from a share of 3 % on."""
    arms = wu2023.StudentArms(5.0, contamination=0.03)
    policy = wu2023.RAW.make(arms, 10**7, 0.5, 10.0, 1.0)
    assert min(radius for _, radius in policy.batches(10**7)) > wu2023.GAP / 2
    central = wu2023.CENTRAL.make(arms, 10**7, 0.5, 10.0, 1.0)
    assert min(radius for _, radius in central.batches(10**7)) > wu2023.GAP / 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wu2023-epsilon", "wu2023-moment", "wu2023-range"])
def test_other_figures_after_wu(name: str, tmp_path: Path, fixed_scales: None) -> None:
    made = bl.reproduce(name, scale="tiny", out=tmp_path)
    check(made, tmp_path, [""])
    for results in made.results.values():
        scopes = {policy.guarantee.scope for policy in results.policies.values()}
        assert scopes == {"trajectory"}


# The pieces.


def test_a_curve_and_its_verdicts() -> None:
    values = np.array([1.0, 2.0, 4.0])
    curve = FinalRegretCurve(
        values, 8 * values**-2, np.ones(3), np.full(3, 10.0), np.zeros(3), "ε=1"
    )
    assert curve.slope() == pytest.approx(-2)
    assert curve.at(-1) == (0.5, 1.0)
    assert wu2023.idle(curve._replace(means=np.array([9.9, 9.0, 12.0]))) == [1.0, 4.0]
    assert compare_means((1.0, 0.1), (2.0, 0.1)) == "agrees"
    assert compare_means((2.0, 0.1), (1.0, 0.1)) == "differs"
    assert compare_means((1.0, 0.8), (2.0, 0.8)) == "unclear"


def test_scales_are_searched_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []

    def counted(search: ScaleSearch, *given: object) -> object:
        searched.append(search.horizon)
        return choose_scale(search, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(figure_calibration, "choose_scale", counted)
    policy = bl.policy("ucb1", arms=2)
    worlds = tuple(bl.environment("bernoulli", means=[0.2, high]) for high in (0.5, 0.9))
    question = figure_calibration.ScaleQuestion(policy, worlds, RunSize(400, 2))
    scales = [figure_calibration.find_scales({"a": question, "b": question}, 1) for _ in range(3)]
    assert searched == [400]
    done = calibrate(
        policy,
        list(worlds),
        horizon=400,
        repetitions=2,
        seed=figure_calibration.CALIBRATION_SEED,
        scales=figure_calibration.RADIUS_SCALES,
    )
    assert scales == 3 * [{"a": done.scale, "b": done.scale}]  # as bl.calibrate chooses
    assert (
        figure_calibration.unscaled_label(figure_calibration.scaled_label("dpr-se", 0.25))
        == "dpr-se"
    )


def test_panels_of_a_sweep() -> None:
    sweep = RegretStudy(
        "x",
        [0.1, 0.2],
        lambda gap: bl.environment("bernoulli", means=[0.5, 0.5 + gap]),
        lambda _: {"p": bl.policy("ucb1", arms=2)},
        "",
        RunSize(10, 1),
    )
    panels = sweep.panels("a")
    assert list(panels) == ["a1", "a2"]
    assert panels["a2"].environment.gaps.tolist() == pytest.approx([0.2, 0.0])
    run = FigureRun("name", "tiny", Path())
    assert wu2023.regret_against(
        run,
        wu2023.FigurePlan(
            "α", [1.0, 2.0, 3.0], lambda _: wu2023.WuSetting(wu2023.StudentArms(5.0)), (), 1.0, ""
        ),
        wu2023.PROVED,
        {},
    ).values == [1.0, 3.0]
