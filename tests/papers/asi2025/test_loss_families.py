"""Hard losses, tuned policies and proved powers."""

from __future__ import annotations

import math
from typing import Any

import pytest

import balaclava as bl
from balaclava.papers.asi2025 import bandit_rates, loss_families
from balaclava.papers.harness.figure_registry import figures

NAMES = ("fig1", "table1", "table2", "lemma51", "learning-rate")


def test_every_figure_is_listed() -> None:
    listed = {entry.name: entry for entry in figures()}
    assert {f"asi2025-{name}" for name in NAMES} <= set(listed)
    assert all("ICML 2025" in listed[f"asi2025-{name}"].reference for name in NAMES)


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


def test_proved_powers() -> None:
    assert (
        loss_families.proved_power("dp-htinf", "d") == 0.75
    )  # sqrt(T / epsilon), epsilon = T^(-1/2)
    assert loss_families.proved_power("ldp-exp3, tuned", "d") == 1.0
    assert loss_families.proved_power("dp-tsallis-inf", "a") is None
    # They are those of the bounds that the policies state, where these have no logarithms.
    for panel, settings in {
        "a": [bandit_rates.bandit_setting("a", e, ("dp-htinf",), 3, 10**6, e) for e in (0.5, 0.05)],
        "b": [bandit_rates.bandit_setting("b", K, ("dp-htinf",), K, 10**6, 0.5) for K in (2, 20)],
        "c": [
            bandit_rates.bandit_setting("c", T, ("dp-htinf",), 2, T, 0.5) for T in (10**4, 10**6)
        ],
    }.items():
        bounds = [
            one.policies["dp-htinf"].regret_bound(one.worlds[0], one.horizon) or math.nan
            for one in settings
        ]
        power = math.log(bounds[1] / bounds[0]) / math.log(settings[1].x / settings[0].x)
        assert power == pytest.approx(loss_families.proved_power("dp-htinf", panel), abs=0.01)
