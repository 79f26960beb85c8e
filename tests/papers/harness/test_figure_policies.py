"""Policies and budgets of equal scope."""

from __future__ import annotations

import balaclava as bl
from balaclava.papers.harness.figure_policies import (
    FOR_AN_ANSWER,
    decision_budget,
    trajectory_policies,
)


def test_the_companion_takes_only_what_protects_the_whole_run() -> None:
    common = {"arms": 3, "horizon": 1000, "epsilon": 1.0}
    pure = trajectory_policies(**common, delta=0.0)
    assert {policy.guarantee.scope for policy in pure.values()} == {"trajectory"}
    assert {policy.guarantee.delta for policy in pure.values()} == {0.0}
    both = trajectory_policies(**common, delta=0.01)
    assert "dp-ucb-int" in set(both) - set(pure)
    assert "dp-ftpl-new" not in both
    assert pure["dp-imed"] == bl.policy("dp-imed", **common)  # as it is used today
    published = pure["dp-imed, as published"].parameters
    assert (published["index"], published["batches"]) == ("paper", "ratio")
    # Few rounds and many arms, as in a digest of a figure: dp-even would refuse them.
    assert not set(FOR_AN_ANSWER) & set(
        trajectory_policies(**common | {"arms": 9, "horizon": 300}, delta=0.0)
    )


def test_shares_add_up() -> None:
    assert decision_budget(1.0, 0.0, 4) == (0.25, 0.0)
    epsilon, delta = decision_budget(1.0, 1e-3, 50)
    one = bl.Guarantee(epsilon=epsilon, delta=delta, scope="decision")
    assert one.over(50, delta=1e-3).epsilon <= 1.0
    more = bl.Guarantee(epsilon=1.03 * epsilon, delta=delta, scope="decision")
    assert more.over(50, delta=1e-3).epsilon > 1.0
