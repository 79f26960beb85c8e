"""What the policies on pools and epochs share: even draws, propensities, and what was released."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar

from balaclava._core.declared import Range
from balaclava._core.states import range_faults
from balaclava.policies.base import ArmRelease, Policy

Holdout = Annotated[float, Range(0, 1, "share of decisions drawn evenly and never learned from")]
Explore = Annotated[float, Range(0, 1, "share of decisions whose arm is drawn evenly")]


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


class PooledPolicy(HoldoutPolicy):
    """A policy that releases an arm's rewards in batches.

    With chance `explore` the arm of a decision that is not held out is drawn evenly, and learned
    from as usual: every arm keeps a share. That depends on no data.

    `lost_reward` says what one that never comes does. A batch that brought none is asked again.
    """

    lost_reward: ClassVar[str] = (
        "counts nowhere: its batch or epoch settles without it when the decision is given up, and "
        "weighs as many rewards as came"
    )

    pools: ClassVar[str] = ""  # where the state keeps its pools; "" if it is nothing else
    estimates: ClassVar[str] = "pooled"  # which of the pools' means stands for all releases

    explore: Explore = 0.0

    def pools_of(self, state: Any) -> Any:
        """The pools, or epochs, of a state."""
        for name in filter(None, self.pools.split(".")):
            state = getattr(state, name)
        return state

    def propensity(self, state: Any, arm: int) -> float | None:
        """The chance that the arm had, given what was public before the last decision."""
        return float(self.pools_of(state).last_chance)

    @property
    def draws_evenly(self) -> bool:
        """Whether some decisions are drawn evenly, which no theorem counts the cost of."""
        return self.explore > 0.0 or self.holdout > 0.0

    def regret_bound(self, environment: Any, horizon: int) -> float | None:
        """None with even draws: no theorem counts what they cost."""
        return None if self.draws_evenly else super().regret_bound(environment, horizon)

    def faults(self, state: Any, decisions: int) -> Iterator[str]:
        """Raw sums of rewards in [0, 1] are neither below 0 nor above the number of decisions."""
        if self.rewards == "bounded":
            yield from range_faults(0.0, decisions, sums=self.pools_of(state).sums)

    def released(self, state: Any) -> Sequence[ArmRelease]:
        """All that was released of each arm's rewards."""
        pools = self.pools_of(state)
        means = getattr(pools, self.estimates)
        return [
            ArmRelease(
                arm=arm,
                rewards=int(pools.rewards[arm]),
                mean=float(means[arm]),
                draws=int(pools.draws[arm]),
                batches=int(pools.settled[arm]),
            )
            for arm in range(self.arms)
        ]
