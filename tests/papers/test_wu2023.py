"""Figures after Wu et al. 2023: text and results agree, and the setting is the paper's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import balaclava as bl
from balaclava.errors import ParameterError
from balaclava.papers import wu2023
from balaclava.simulation.analysis.statistics import mean_of_regret
from tests.papers.figures import check, read, squeezed


def test_the_arms_of_wu() -> None:
    arms = wu2023.StudentArms(5.0, contamination=0.04)
    assert arms.raw == pytest.approx(1.0)  # 0.6^2 + 0.64
    assert arms.central == pytest.approx(wu2023.VARIANCE)
    world = arms.world()
    assert world.gaps.tolist() == pytest.approx([0.0, *[wu2023.STUDENT_GAP] * 4])
    assert world.parameters["outliers"]["values"] == pytest.approx(
        [-4.95, *[4.95] * 4]
    )  # 0.99 / sqrt(0.04)
    shifted = wu2023.StudentArms(5.0, shift=99.0)
    assert shifted.central == pytest.approx(wu2023.VARIANCE)
    assert shifted.raw == pytest.approx(99.6**2 + wu2023.VARIANCE)
    assert wu2023.BATCH_CENTRAL.label == "dpr-batch-ucb central"


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
    with pytest.raises(ParameterError, match="has 1 values; give one for each arm"):
        bl.environment(
            "contaminated", inner=inner, fraction=0.5, outliers={"kind": "points", "values": [1.0]}
        )


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
    policy = wu2023.PRAE_RAW.make(wu2023.WuSetting(arms), 10**7)
    assert min(radius for _, radius in policy.batches(10**7)) > wu2023.STUDENT_GAP / 2
    central = wu2023.PRAE_CENTRAL.make(wu2023.WuSetting(arms), 10**7)
    assert min(radius for _, radius in central.batches(10**7)) > wu2023.STUDENT_GAP / 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wu2023-epsilon", "wu2023-moment", "wu2023-range"])
def test_other_figures_after_wu(name: str, tmp_path: Path, fixed_scales: None) -> None:
    made = bl.reproduce(name, scale="tiny", out=tmp_path)
    check(made, tmp_path, [""])
    for results in made.results.values():
        scopes = {policy.guarantee.scope for policy in results.policies.values()}
        assert scopes == {"trajectory"}
