"""Base classes of policies with even draws, and of those on pools and epochs."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar

from balaclava._core.declared import Range
from balaclava._core.states import range_faults
from balaclava.frames.epochs import Epochs, closing_turns
from balaclava.frames.pools import Pools, closing_decisions, fill_order
from balaclava.policies.base import ArmRelease, Estimation, Policy, WinnerOutlook
from balaclava.policies.intervals import POOL_READERS, laplace_law, reader_inside
from balaclava.theory.change_test import latest_change

Holdout = Annotated[float, Range(0, 1, "share of decisions drawn evenly and never learned from")]
Explore = Annotated[float, Range(0, 1, "share of decisions whose arm is drawn evenly")]


# `fixed_arms` of policies that eliminate arms.
SAME_EPOCHS = (
    "its epochs pull all arms equally often and grow, so an arm that came late would take a whole "
    "long epoch"
)


def latest_releases(state: Pools, arm: int) -> list[tuple[float, int]]:
    """Sum and rewards of the arm's latest batches that count in order, the newest first.

    The queue still holds them until their places are used again.
    """
    room, releases = state.queued_arms.size, list[tuple[float, int]]()
    newest, last = int(state.counted[0]), int(state.placed_batches[0])
    for place in range(newest, max(last - room, 0), -1):
        rewards = int(state.queued_rewards[place % room])
        if state.queued_arms[place % room] == arm and rewards > 0:
            releases.append((float(state.queued_sums[place % room]), rewards))
    return releases[: int(state.draws_in_order[arm])]  # none of an arm that left the slot


class HoldoutPolicy(Policy):
    """A policy that holds out some decisions.

    With chance `holdout` the arm of a decision is drawn evenly, and the policy never learns from
    its reward. Held-out decisions are a sample of all arms that does not depend on data.
    """

    holdout: Holdout = 0.0

    def with_holdout(self, chance: float | None) -> float | None:
        """The chance of an arm, given its chance by the rule alone; None if that is unknown."""
        if chance is None:
            return None
        return self.holdout / self.arms + (1.0 - self.holdout) * chance

    @property
    def draws_evenly(self) -> bool:
        """Whether some decisions are drawn evenly."""
        return self.holdout > 0.0

    def regret_bound(self, environment: Any, horizon: int) -> float | None:
        """None with even draws: no theorem counts their cost."""
        return None if self.draws_evenly else super().regret_bound(environment, horizon)

    def tail_bound(self, environment: Any, horizon: int, x: float) -> float | None:
        """None with even draws: no theorem counts their cost."""
        return None if self.draws_evenly else super().tail_bound(environment, horizon, x)


class PooledPolicy(HoldoutPolicy):
    """A policy that releases an arm's rewards in batches.

    Its state is the pools or epochs, or has them at the path `pools`, as "pools" or "batch.epochs";
    `FROM_BATCHES`, `FROM_POOLS` and `FROM_EPOCHS` follow that path.

    With chance `explore` the arm of a decision that is not held out is drawn evenly, and the policy
    learns from it: every arm keeps a share. The draw does not depend on data. A batch that received
    no reward is repeated.
    """

    lost_reward: ClassVar[str] = (
        "does not count: its batch or epoch settles when the decision is given up, weighted by the "
        "rewards that arrived"
    )

    pools: ClassVar[str] = ""  # path of the pools in the state; "" if they are the state
    estimates: ClassVar[str] = "pooled"  # the field of the pools with the mean of all releases

    noises: ClassVar[int] = 1  # draws of noise in a release

    explore: Explore = 0.0

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Let estimates that read pools follow the path `pools`."""
        super().__init_subclass__(**keywords)
        own, path = cls.__dict__.get("estimation", cls.estimation), cls.pools
        if isinstance(own, Estimation) and own.read in POOL_READERS and path:
            reader = reader_inside(own.read, path)
            cls.estimation = own._replace(read=reader)

    def pools_of(self, state: Any) -> Any:
        """The pools, or epochs, of a state."""
        for name in filter(None, self.pools.split(".")):
            state = getattr(state, name)
        return state

    def propensity(self, state: Any, arm: int) -> float | None:
        return float(self.pools_of(state).last_chance)

    @property
    def draws_evenly(self) -> bool:
        return self.explore > 0.0 or self.holdout > 0.0

    @property
    def names_winners(self) -> WinnerOutlook:
        if self.estimation is not None and self.explore > 0.0 and not self.winner_reason:
            return WinnerOutlook(True, "explore gives every arm a share")
        return super().names_winners

    def closing_decisions(self, state: Any, rng: Any) -> Iterator[tuple[int, int]]:
        pools = self.pools_of(state)
        if isinstance(pools, Epochs):
            return closing_turns(pools, rng)
        return closing_decisions(pools)

    def faults(self, state: Any, decisions: int) -> Iterator[str]:
        """Sums of rewards in [0, 1] must be at least 0 and at most the number of decisions."""
        if self.rewards == "bounded":
            yield from range_faults(0.0, decisions, sums=self.pools_of(state).sums)

    def fill_added(self, state: Any) -> None:
        if isinstance(pools := self.pools_of(state), Pools):
            fill_order(pools)

    def changed_arms(self, state: Any) -> Sequence[int] | None:
        pools = self.pools_of(state)
        law = None if self.estimation is None else self.estimation.law
        if law is not laplace_law or not isinstance(pools, Pools):
            return None
        return [
            arm
            for arm in range(pools.number.size)
            if latest_change(
                latest_releases(pools, arm),
                (
                    float(pools.in_order[arm]),
                    int(pools.rewards_in_order[arm]),
                    int(pools.draws_in_order[arm]),
                ),
                self.epsilon,
                self.noises,
            )
        ]

    def released(self, state: Any) -> Sequence[ArmRelease]:
        pools = self.pools_of(state)
        means = getattr(pools, self.estimates)
        return [
            ArmRelease(
                arm=arm,
                rewards=int(pools.rewards[arm]),
                mean=float(means[arm]),
                draws=self.noises * int(pools.draws[arm]),
                batches=int(pools.settled[arm]),
            )
            for arm in range(pools.rewards.size)
        ]
