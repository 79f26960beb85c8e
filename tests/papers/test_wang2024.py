"""The figures of the papers, at a scale that only shows that they work."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from scipy import stats

import balaclava as bl
from balaclava.cli import main
from balaclava.errors import ParameterError, ResultsFileError, UnknownNameError
from balaclava.papers.harness.claims import compare_regret, misled_runs, subset
from balaclava.papers.harness.curves import CurveFamily
from balaclava.papers.harness.figure_policies import decision_budget, trajectory_policies
from balaclava.papers.harness.figure_registry import figures
from balaclava.papers.wang2024 import bernoulli_instances, regret_over_rounds
from balaclava.papers.wang2024.regions import allowed_range, index_pair

pytestmark = pytest.mark.xdist_group("bounded")  # their policies are compiled there

NAMES = [f"wang2024-fig{i}" for i in range(1, 8)]
PNG = b"\x89PNG\r\n"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_every_figure_is_listed() -> None:
    assert set(NAMES) <= {entry.name for entry in figures()}
    for arguments in (["--list"], []):
        answer = invoke("reproduce", *arguments)
        assert answer.exit_code == 0
        assert all(name in answer.output for name in NAMES)


def test_the_instances() -> None:
    one, two = (
        bernoulli_instances.WangSetting(1, 1.0).world,
        bernoulli_instances.WangSetting(2, 1.0).world,
    )
    assert one.means.tolist() == [0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7]
    assert (two.arms, two.means[0], two.means[1], two.means[-1]) == (101, 0.3, 0.304, 0.7)
    assert bernoulli_instances.SIZES["paper"] == (1_000_000, 100)


# Figures 1 to 3.


def test_the_region_is_that_of_the_four_inequalities() -> None:
    # F = 0.2, e^epsilon = 2, delta = 0.1: F <= 2 F' + 0.1 binds below; above,
    # 0.8 <= 2 (1 - F') + 0.1 gives 0.65, but F' <= 2 F + 0.1 is 0.5.
    low, high = allowed_range(0.2, 0.8, math.log(2), 0.1)
    assert (float(low), float(high)) == (pytest.approx(0.05), pytest.approx(0.5))
    # F = 0.9: F' >= 0.7 from the exchanged pair is what binds below.
    low, high = allowed_range(0.9, 0.1, math.log(2), 0.1)
    assert (float(low), float(high)) == (pytest.approx(0.7), pytest.approx(1.0))


def test_needed_delta_of_two_gaussians_is_the_closed_form() -> None:
    # Laws a distance m apart in standard deviations need
    # Phi(m/2 - epsilon/m) - e^epsilon Phi(-m/2 - epsilon/m).
    m, epsilon = 0.5, 1.0
    phi = stats.norm.cdf
    exact = phi(m / 2 - epsilon / m) - math.exp(epsilon) * phi(-m / 2 - epsilon / m)
    found = index_pair("", epsilon, 0.0, stats.norm(0, 1), stats.norm(m, 1))
    assert found.needed_delta == pytest.approx(exact, rel=1e-3)
    assert not found.inside
    assert found._replace(delta=1.01 * exact).inside


def read(path: Path) -> dict[str, list[dict[str, float]]]:
    panels: dict[str, list[dict[str, float]]] = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            panel = row.pop("panel")
            panels.setdefault(panel, []).append({key: float(value) for key, value in row.items()})
    return panels


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("wang2024-fig1", "bc", "a"),
        pytest.param("wang2024-fig2", "bc", "adef", marks=pytest.mark.slow),
        ("wang2024-fig3", "abc", ""),
    ],
)
def test_the_drawn_laws_keep_the_inequalities(
    name: str, inside: str, outside: str, tmp_path: Path
) -> None:
    made = bl.reproduce(name, out=tmp_path)
    panels = read(tmp_path / f"{name}.csv")
    assert sorted(panels) == sorted(inside + outside)
    for letter, rows in panels.items():
        columns = {key: np.array([row[key] for row in rows]) for key in rows[0]}
        grow, delta = np.exp(columns["epsilon"]), columns["delta"]
        f, g = columns["F"], columns["F_changed"]
        assert f[0] < 1e-6
        assert f[-1] > 1 - 1e-6
        worst = np.max(
            [f - grow * g, g - grow * f, (1 - f) - grow * (1 - g), (1 - g) - grow * (1 - f)], axis=0
        )
        held = np.all(worst <= delta + 1e-11)
        assert held == (letter in inside), letter
        assert np.all(columns["lowest_allowed"] <= columns["highest_allowed"])
    check_files(made, ["csv", "png", "txt"])


def check_files(made: bl.Reproduction, endings: list[str]) -> None:
    assert [path.suffix[1:] for path in made.files] == endings
    for path in made.files:
        content = path.read_bytes()
        assert content
        if path.suffix == ".png":
            assert content.startswith(PNG)
    assert made.files[-1].read_text() == f"{made}\n"
    for title in ("What the paper shows", "What we see", "Where they differ, and why"):
        assert title in made.text


def test_what_the_first_figures_find(tmp_path: Path) -> None:
    # By the closed form above with m = 1 / sqrt(2 N): 0.0396 for N = 1, 0.0069 for N = 2.
    made = bl.reproduce("wang2024-fig1", out=tmp_path)
    assert "N = 1: outside, needs δ = 0.0396 and has 0.01" in made.text
    assert "N = 8: inside, needs δ = 2.9" in made.text
    # The centres are 1/N apart: all but (1 - e^-epsilon) / 2 of the mass is on the edge.
    made = bl.reproduce("wang2024-fig3", out=tmp_path)
    share = 1 - (1 - math.exp(-0.1)) / 2
    assert made.text.count(f"on the edge for {share:.1%} of the mass") == 3


# Figures 4 to 7.


def test_curves_against_delta(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    made = bl.reproduce(
        "wang2024-fig6",
        scale="tiny",
        out=tmp_path,
        progress=lambda played, total: told.append((played, total)),
    )
    check_files(made, ["parquet", "parquet", "png", "txt"])
    assert sorted(made.results) == ["a", "b"]
    assert bl.load(tmp_path / "wang2024-fig6a.parquet").labels == made.results["a"].labels
    assert made.results["a"].labels[0] == "dp-ftpl-gauss δ=0.9"
    # One count for both panels: 2 policies, 3 values, 2 repetitions of 300 rounds each.
    assert told[-1] == (7200, 7200)
    assert [played for played, _ in told] == sorted(played for played, _ in told)
    assert "smaller than the paper's: 2 repetitions of 300 rounds" in " ".join(made.text.split())
    again = bl.reproduce("wang2024-fig6", scale="tiny", out=tmp_path / "again", workers=1)
    assert again.text == made.text


@pytest.mark.slow
def test_regret_with_its_companion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def few(**offered: float) -> dict[str, bl.Policy]:
        return {"dp-se": trajectory_policies(**offered)["dp-se"]}

    monkeypatch.setattr(
        regret_over_rounds, "whole_run_policies", few
    )  # one policy to compile, not twelve
    made = bl.reproduce("wang2024-fig4", scale="tiny", out=tmp_path)
    check_files(made, ["parquet"] * 4 + ["png", "png", "txt"])
    assert (tmp_path / "wang2024-fig4-equal-scope.png") in made.files
    results = made.results["d"]
    assert results.environment.arms == 101
    assert set(results.labels) == {
        *(
            "dp-ftpl-gauss",
            "dp-ftpl-beta",
            "dp-ftpl-new",
            "dp-ucb-int",
            "dp-se",
            regret_over_rounds.SPLIT,
        )
    }
    assert results.policies["dp-ftpl-new"].guarantee.delta == math.exp(-10)
    # Played in panel (c) and not again, as delta is nothing to it; that changes nothing.
    assert results.runs["dp-se"] is made.results["c"].runs["dp-se"]
    alone = bl.simulate(
        results.policies["dp-se"],
        results.environment,
        horizon=300,
        repetitions=2,
        seed=results.seed,
    )
    assert np.array_equal(alone.regret("dp-se"), results.regret("dp-se"))
    for letter, panel in made.results.items():
        saved = bl.load(tmp_path / f"wang2024-fig4{letter}.parquet")
        for label in panel.labels:
            assert np.array_equal(saved.regret(label), panel.regret(label))
    split = results.policies[regret_over_rounds.SPLIT].guarantee.over(300, delta=math.exp(-10))
    assert 0.9 < split.epsilon <= 1.0
    text = " ".join(made.text.split())
    assert "for dp-ftpl-gauss, dp-ftpl-beta, dp-ftpl-new ε=1, δ=0.01 per decision is" in text
    assert "77 pulls in (a) and (c)" in text
    assert "dp-ftpl-beta, 7,443 rounds, does not end" in text


@pytest.mark.slow
def test_pure_regret_with_every_companion(tmp_path: Path) -> None:
    made = bl.reproduce("wang2024-fig5", scale="tiny", out=tmp_path)
    check_files(made, ["parquet"] * 4 + ["png", "png", "txt"])
    for results in made.results.values():
        companions = set(results.labels) - {"dp-ftpl-new", regret_over_rounds.SPLIT}
        assert {"dp-se", "dp-ucb", "gdp-elim-new"} <= companions
        assert all(results.policies[c].guarantee.scope == "trajectory" for c in companions)
    assert "ε=0.1 per decision is ε=30 per trajectory" in " ".join(made.text.split())


def test_the_companion_takes_only_what_protects_the_whole_run() -> None:
    common = {"arms": 3, "horizon": 1000, "epsilon": 1.0}
    pure = trajectory_policies(**common, delta=0.0)
    assert {policy.guarantee.scope for policy in pure.values()} == {"trajectory"}
    assert {policy.guarantee.delta for policy in pure.values()} == {0.0}
    both = trajectory_policies(**common, delta=0.01)
    assert "dp-ucb-int" in set(both) - set(pure)
    assert "dp-ftpl-new" not in both


def test_shares_add_up() -> None:
    assert decision_budget(1.0, 0.0, 4) == (0.25, 0.0)
    epsilon, delta = decision_budget(1.0, 1e-3, 50)
    one = bl.Guarantee(epsilon=epsilon, delta=delta, scope="decision")
    assert one.over(50, delta=1e-3).epsilon <= 1.0
    more = bl.Guarantee(epsilon=1.03 * epsilon, delta=delta, scope="decision")
    assert more.over(50, delta=1e-3).epsilon > 1.0


def made_up(**finals: list[float]) -> bl.Results:
    """Results with these final regrets, of two arms a gap of 1 apart."""
    from balaclava.simulation.results import Run

    world = bl.environment("bernoulli", means=[0.0, 1.0])
    policies = {label: bl.policy("ucb1", arms=2) for label in finals}
    results = bl.Results.empty(
        policies, world, horizon=100, seed=0, checkpoints=np.array([100], np.int64)
    )
    for label, values in finals.items():
        for i, value in enumerate(values):
            pulls = np.array([value, 100 - value], np.int64)
            results.add(Run(label, i, np.array([value]), pulls))
    return results


def test_verdicts_on_claims() -> None:
    results = made_up(low=[10, 11, 12], high=[50, 51, 52], wild=[1, 5, 90])
    assert compare_regret(results, "low", ["high"]) == "agrees"
    assert compare_regret(results, "high", ["low"]) == "differs"
    assert compare_regret(results, "low", ["wild"]) == "unclear"
    assert compare_regret(results, "low", ["wild", "high"]) == "unclear"
    assert compare_regret(results, "high", ["wild", "low"]) == "differs"
    assert "wild 1 of 3; low 0 of 3" in misled_runs(results, ["wild", "low"])
    assert subset(results, ["wild"]).labels == ["wild"]


def test_the_steepest_slope() -> None:
    family = CurveFamily("delta", [0.1, 0.01, 0.001], {"epsilon": 0.0}, ("p",))
    labels = [family.label("p", value) for value in family.values]
    results = made_up(**dict(zip(labels, ([1, 1], [10, 10], [30, 30]), strict=True)))
    assert family.steepest(results, "p") == pytest.approx(1.0)
    assert "regret from p 1 to 30. Steepest growth: p 1/δ^1.0" in family.describe(results)


# What is refused.


def test_an_unknown_figure() -> None:
    with pytest.raises(UnknownNameError, match=r"'wang2024-fig9'; did you mean 'wang2024-fig"):
        bl.reproduce("wang2024-fig9")
    answer = invoke("reproduce", "wang2024-fig1", "wang2024-fgi2")
    assert answer.exit_code == 2
    assert answer.output == (
        "balaclava: no figure is called 'wang2024-fgi2'; did you mean 'wang2024-fig2'?\n"
    )


def test_an_unknown_scale(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="scale = 'huge' is not allowed; give one of quick"):
        bl.reproduce("wang2024-fig1", scale="huge", out=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    for out in (blocked, blocked / "inside"):
        with pytest.raises(ResultsFileError, match=r"made or written to: .*; choose another"):
            bl.reproduce("wang2024-fig4", out=out)
    answer = invoke("reproduce", "wang2024-fig4", "--out", str(blocked))
    assert answer.exit_code == 2
    assert answer.output.startswith("balaclava: out = ")


def test_the_folder_is_named_after_the_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = invoke("reproduce", "wang2024-fig3")
    assert answer.exit_code == 0
    assert "wrote wang2024-fig3.csv, wang2024-fig3.png, wang2024-fig3.txt" in answer.output
    assert (tmp_path / "wang2024-fig3" / "wang2024-fig3.png").exists()
