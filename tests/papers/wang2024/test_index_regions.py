"""The region of Lemma 8, and the distributions inside it."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import balaclava as bl
from balaclava.papers.wang2024.index_regions import allowed_range, index_pair
from tests.papers.wang2024.saved_files import check_files


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


def test_what_the_first_figures_find(tmp_path: Path) -> None:
    # By the closed form above with m = 1 / sqrt(2 N): 0.0396 for N = 1, 0.0069 for N = 2.
    made = bl.reproduce("wang2024-fig1", out=tmp_path)
    assert "N = 1: outside, needs δ = 0.0396 and has 0.01" in made.text
    assert "N = 8: inside, needs δ = 2.9" in made.text
    # The centres are 1/N apart: all but (1 - e^-epsilon) / 2 of the mass is on the edge.
    made = bl.reproduce("wang2024-fig3", out=tmp_path)
    share = 1 - (1 - math.exp(-0.1)) / 2
    assert made.text.count(f"on the edge for {share:.1%} of the mass") == 3
