"""A policy whose decisions several deciders make, from leased slots: for simulations and audits."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from balaclava._core.declared import MOST_ROUNDS, Range
from balaclava._core.kernels import kernel
from balaclava.errors import IncompatibleError
from balaclava.frames import arm_slots
from balaclava.frames import leases as frame
from balaclava.policies.base import POLICIES, ArmRelease, Kernels, Policy, RewardKind
from balaclava.policies.pooled_policies import PooledPolicy
from balaclava.privacy.guarantee import Guarantee

REQUESTS_ARE_PUBLIC = (
    "whether, when and at which decider a request is made does not depend on a reward that is not "
    "released"
)
Deciders = Annotated[int, Range(1, 4_096, "deciders of one experiment")]
LeaseRounds = Annotated[int | None, Range(1, MOST_ROUNDS, "rounds after which a lease ends")]


class LeaseConstants(NamedTuple):
    base: Any  # parameters of the base's kernels
    arms: int
    deciders: int
    longest: int  # slots of a lease
    lease_rounds: int  # 0: by the length of the lease


class LeasedState(NamedTuple):
    base: Any
    leases: frame.Leases

    def faults(self, decisions: int) -> Iterator[str]:
        yield from self.base.faults(int(self.leases.opened[0]))
        yield from self.leases.faults(decisions)


@functools.cache
def leased_kernels(
    base: Kernels, reads: frame.PoolReads, prepare: Callable[..., float]
) -> tuple[Kernels, Callable[..., float]]:
    """Wrap the kernels of a policy on pools, and its `prepare`."""
    begin_base, choose_base, learn_base, forget_base = base
    batch_size, continues, draws, chance = reads

    @kernel
    def begin(params: Any) -> LeasedState:
        return LeasedState(
            begin_base(params.base), frame.begin_leases(params.deciders, params.longest)
        )

    @kernel(borrows=True)
    def expire(params: Any, state: LeasedState, t: int, rng: Any) -> None:
        """Let the policy forget the unused slots of leases that ended before round t."""
        leases = state.leases
        if leases.next_end[0] >= t:
            return
        for decider in range(params.deciders):
            while frame.is_over(leases, decider, t):
                arm, phase = frame.expire_slot(leases, decider)
                forget_base(params.base, state.base, leases.opened[0], arm, phase, rng)
        frame.find_next_end(leases)

    @kernel(borrows=True)
    def grant(
        params: Any, state: LeasedState, decider: int, t: int, context: Any, rng: Any
    ) -> None:
        """Lease a run of the policy's next decisions, at most to the end of the batch in play."""
        leases, granted, length = state.leases, 0, 1
        frame.begin_lease(leases, decider)
        while granted < length:
            leases.opened[0] += 1
            arm, phase = choose_base(params.base, state.base, leases.opened[0], context, rng)
            if granted == 0:
                size = batch_size(state.base, arm)
                length = min(frame.lease_length(size, params.deciders), params.longest)
            granted = frame.add_slot(leases, decider, arm, phase, chance(state.base))
            if not (continues(state.base) or draws(state.base)):
                break
        expected = frame.TERM_FACTOR * params.deciders * granted
        rounds = expected if params.lease_rounds == 0 else params.lease_rounds
        frame.set_term(leases, decider, t + rounds)

    @kernel(borrows=True)
    def choose(params: Any, state: LeasedState, t: int, context: Any, rng: Any) -> tuple[int, int]:
        expire(params, state, t, rng)
        decider = int(rng.random() * params.deciders) if params.deciders > 1 else 0
        if not frame.has_slot(state.leases, decider):
            grant(params, state, decider, t, context, rng)
        return frame.take_slot(state.leases, decider)

    @kernel(borrows=True)
    def learn(
        params: Any, state: LeasedState, t: int, arm: int, reward: float, phase: int, rng: Any
    ) -> None:
        learn_base(params.base, state.base, t, arm, reward, phase, rng)

    @kernel(borrows=True)
    def forget(params: Any, state: LeasedState, t: int, arm: int, phase: int, rng: Any) -> None:
        forget_base(params.base, state.base, t, arm, phase, rng)

    @kernel(borrows=True)
    def prepare_reward(params: Any, reward: float) -> float:
        return prepare(params.base, reward)

    return Kernels(begin, choose, learn, forget), prepare_reward


def pools_path(policy: Policy) -> str | None:
    """The place of the pools in the policy's state; None if it cannot be leased."""
    if not isinstance(policy, PooledPolicy) or policy.pools not in frame.POOL_READS:
        return None
    if (policy.model, policy.scope) != (LeasedPolicy.model, LeasedPolicy.scope):
        return None
    state = policy.kernels.begin(policy.constants())
    return None if arm_slots.find_pools(state) is None else policy.pools


def require_leasable(policy: Policy) -> str:
    """The place of the pools in the policy's state; raises if it cannot be leased."""
    path = pools_path(policy)
    if path is None:
        raise IncompatibleError(
            f"{policy.name} cannot be leased to several deciders: an expired slot must make a "
            "batch of one arm smaller, and it keeps no such batches in pools; choose dp-imed, "
            "dp-klucb or another policy with batches by arm"
        )
    return path


class LeasedPolicy(Policy):
    """Several deciders that decide for one policy, by leases (`frames.leases`).

    Each request goes to a decider drawn at random. The propensity is that of the slot.

    Parameters:
        base: the policy of the owner.
        deciders: number of deciders.
        lease_rounds: the term of a lease in rounds; by default four times the rounds in which its
            decider is expected to use it.
    """

    name = "leased"
    model = "central"
    scope = "trajectory"
    base: Annotated[Policy, Range(meaning="the policy of the owner")]
    deciders: Deciders = 1
    lease_rounds: LeaseRounds = None

    def __post_init__(self) -> None:
        base: Any = self.base
        if isinstance(base, Mapping):
            object.__setattr__(self, "base", POLICIES.from_mapping(self._label("base"), base))
        super().__post_init__()
        if self.arms != self.base.arms:
            raise self.refuse("arms", f"differs from the base; give its number, {self.base.arms}")
        require_leasable(self.base)

    @functools.cached_property
    def _wrapped(self) -> tuple[Kernels, Callable[..., float]]:
        base = self.base
        return leased_kernels(
            base.kernels, frame.POOL_READS[require_leasable(base)], base.prepare()
        )

    @property
    def kernels(self) -> Kernels:  # type: ignore[override]
        return self._wrapped[0]

    def prepare(self) -> Callable[..., float]:
        return self._wrapped[1]

    def constants(self) -> LeaseConstants:
        return LeaseConstants(
            self.base.constants(),
            int(self.arms),
            self.deciders,
            frame.LONGEST_LEASE,
            self.lease_rounds or 0,
        )

    @property
    def guarantee(self) -> Guarantee:
        """That of the base (`frames/leases.proof.md`), and what it assumes."""
        own = self.base.guarantee
        if not own.private:
            return own
        return dataclasses.replace(own, assumptions=(*own.assumptions, REQUESTS_ARE_PUBLIC))

    # What the rest of the package asks of a policy is that of the base.

    @property
    def rewards(self) -> RewardKind:  # type: ignore[override]
        return self.base.rewards

    @property
    def epsilon(self) -> float:
        return self.base.epsilon

    @property
    def delta(self) -> float:
        return self.base.delta

    @property
    def outside(self) -> Literal["refuse", "clip"]:
        return self.base.outside

    @property
    def accepts(self) -> tuple[float, float]:
        return self.base.accepts

    @property
    def horizon(self) -> int | None:
        return self.base.horizon

    @property
    def plays_beyond_horizon(self) -> bool:  # type: ignore[override]
        return self.base.plays_beyond_horizon

    @property
    def lost_reward(self) -> str:  # type: ignore[override]
        return self.base.lost_reward

    @property
    def moment_order(self) -> float | None:
        return self.base.moment_order

    @property
    def moment_bound(self) -> float | None:
        return self.base.moment_bound

    def propensity(self, state: Any, arm: int) -> float | None:
        return float(state.leases.chance[0])

    def released(self, state: Any) -> Sequence[ArmRelease] | None:
        return self.base.released(state.base)

    def faults(self, state: Any, decisions: int) -> Iterator[str]:
        yield from self.base.faults(state.base, int(state.leases.opened[0]))

    def closing_decisions(self, state: Any, rng: Any) -> Iterator[tuple[int, int]]:
        yield from frame.unused_slots(state.leases)
        yield from self.base.closing_decisions(state.base, rng)
