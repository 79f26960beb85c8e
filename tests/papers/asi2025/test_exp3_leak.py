"""EXP3's leak: its chances are those that the paper prints."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from balaclava.papers.asi2025 import exp3_leak
from tests.papers.asi2025.reproduced import make


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
