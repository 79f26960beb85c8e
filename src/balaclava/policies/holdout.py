"""A holdout: decisions that are drawn evenly, and that nothing is learned from."""

from __future__ import annotations

from typing import Annotated, Any

from balaclava._core.declared import Range
from balaclava.policies.base import Policy

Holdout = Annotated[float, Range(0, 1, "share of decisions drawn evenly and never learned from")]


class HoldoutPolicy(Policy):
    """A policy of which some decisions are held out.

    With chance `holdout` the arm of a decision is drawn evenly and its reward is never learned
    from: a sample of all arms that no adaptive choice has touched. That depends on no data.
    """

    holdout: Holdout = 0.0

    def with_holdout(self, chance: float | None) -> float | None:
        """The chance of an arm that has this one by the rule alone; None where that is unknown."""
        if chance is None:
            return None
        return self.holdout / self.arms + (1.0 - self.holdout) * chance

    def regret_bound(self, environment: Any, horizon: int) -> float | None:
        """None with a holdout: no theorem counts what it costs."""
        return None if self.holdout > 0.0 else super().regret_bound(environment, horizon)
