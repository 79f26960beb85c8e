"""Policies with one release a batch that may forget: `memory=W` and `memory="detect"`."""

import functools
import math
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, NoReturn

from balaclava._core.declared import MOST_ROUNDS, Range
from balaclava._core.kernels import kernel
from balaclava._core.states import MOST_PLANNED
from balaclava.errors import EstimateError
from balaclava.frames import memory as frame
from balaclava.frames import pools as pool_frame
from balaclava.policies.base import Estimation, Kernels, WinnerOutlook
from balaclava.policies.bounded import batched
from balaclava.policies.intervals import FROM_NOISY_SUMS, read_noisy_sums
from balaclava.theory.change_test import (
    FALSE_ALARMS,
    MOST_BATCHES_BACK,
    change_evidence,
    change_threshold,
)

DETECT = "detect"
MemoryLength = Annotated[
    int | Literal["detect"],
    Range(1, MOST_ROUNDS, "rounds after which a release is forgotten, or 'detect'"),
]
# With memory="detect" a batch takes at most this many first batches: 240/epsilon pulls. A fall of
# the leader by .2 is then seen after about two batches. Flat below it, not above (docs/figures.md,
# Means that change).
_LONGEST_BATCH = 6.0


@kernel
def begin(params: Any) -> frame.Memory:
    return frame.begin_memory(params.arms, pool_frame.OPEN_BATCHES_PER_ARM)


@kernel(borrows=True)
def has_changed(params: Any, memory: frame.Memory, arm: int) -> bool:
    """Whether the arm's releases show that its mean changed (`theory.change_test`)."""
    pools, back = memory.pools, 1
    draws, total = pools.draws[arm], pools.pooled[arm] * pools.rewards[arm]
    kept = memory.newest[arm] - memory.oldest[arm] + 1
    while back < draws and back <= min(kept, MOST_BATCHES_BACK):
        late, more = frame.newest_releases(memory, arm, back)
        n = pools.rewards[arm] - more
        noises = params.noises
        before = (total - late) / n, n, noises * (draws - back)
        after = late / more, more, noises * back
        evidence = change_evidence(before, after, params.epsilon)
        if evidence >= change_threshold(draws - back, FALSE_ALARMS):
            return True
        back *= 2
    return False


@functools.cache
def _learning(detects: bool) -> tuple[Callable[..., None], Callable[..., None]]:
    @kernel(borrows=True)
    def release(params: Any, memory: frame.Memory, arm: int, row: int, rng: Any) -> None:
        if row == pool_frame.NO_ROW or frame.drop_if_forgotten(memory, arm, row):
            return
        pools = memory.pools
        rewards, opened = pool_frame.rewards_in_batch(pools, arm, row), memory.rounds[arm, row]
        released = batched.release_sum(params, pools, arm, row, rng)
        frame.keep_release(memory, arm, rewards, released, opened, not detects)
        pool_frame.use_mean(pools, arm, pools.pooled[arm], pools.rewards[arm])
        if detects and has_changed(params, memory, arm):
            memory.restarts[0] += 1
            frame.forget_before(memory, memory.clock[0] + 1)

    @kernel(borrows=True)
    def learn(
        params: Any, memory: frame.Memory, t: int, arm: int, reward: float, phase: int, rng: Any
    ) -> None:
        row = pool_frame.find_row(memory.pools, arm, phase)
        release(params, memory, arm, pool_frame.add_reward(memory.pools, arm, row, reward), rng)

    @kernel(borrows=True)
    def forget(params: Any, memory: frame.Memory, t: int, arm: int, phase: int, rng: Any) -> None:
        row = pool_frame.find_row(memory.pools, arm, phase)
        release(params, memory, arm, pool_frame.give_up(memory.pools, arm, row), rng)

    return learn, forget


@kernel(borrows=True)
def grow_listed(params: Any, state: pool_frame.Pools, arm: int, t: int) -> None:
    """Open batches after which the arm has the next listed number of pulls that count."""
    if pool_frame.needs_batch(state, arm):
        before = state.planned[arm]
        after = batched.numbered_size(params, batched.size_number(params, before))
        pool_frame.open_batch(state, arm, max(after - before, 1))


@kernel(borrows=True)
def read_memory(params: Any, memory: frame.Memory, arm: int) -> tuple[int, float, float]:
    """The releases in order of the whole run."""
    return read_noisy_sums(params, memory.pools, arm)


FROM_MEMORY = FROM_NOISY_SUMS._replace(read=read_memory)  # of no single mean: never displayed


class KernelsByMemory(NamedTuple):
    """The kernels of a policy without a memory, with one of some rounds, and with "detect"."""

    whole: Kernels
    forgetting: Kernels
    detecting: Kernels


def kernels_by_memory(
    best_arm: Callable[..., int],
    prepare_batch: Callable[..., None],
    prepare_remembered: Callable[..., None] = grow_listed,
) -> KernelsByMemory:
    """Make the kernels of a policy from its kernels on pools.

    `prepare_remembered` opens batches by the pulls that count, not by the number of the batch.
    """
    whole = pool_frame.choose_in_batches(best_arm, prepare_batch)
    choose = frame.remembering_driver(best_arm, prepare_remembered)
    return KernelsByMemory(
        Kernels(batched.begin, whole, batched.learn_growing, batched.forget_growing),
        Kernels(begin, choose, *_learning(False)),
        Kernels(begin, choose, *_learning(True)),
    )


class RememberingPolicy(batched.GrowingBatchPolicy):
    """A policy on pools that may forget.

    With `memory=W` only batches that were opened in the last W rounds count. A batch takes at most
    W/8 rounds. An arm without a batch that counts is examined again, for a first batch, which is at
    most W/(8 arms). So each arm costs about its first batch and its own regret once a memory; the
    rule sees the round of the memory in place of t.

    With `memory="detect"` nothing is forgotten until the releases of an arm show that its mean
    changed, beyond what noise and chance explain (`theory.change_test`). Then everything is
    forgotten, and the policy starts again. Between two changes an arm causes a false alarm with
    probability at most 1 %. A batch takes at most 6 first batches. Only arms that are played can
    be seen to change: a weak arm that rises takes `explore`, or a memory of W rounds.

    Rewards of the forgotten rounds stay protected as before, and released as before: an observer
    remembers. No bound on regret is proved for a memory.
    """

    by_memory: ClassVar[KernelsByMemory]
    memory: MemoryLength | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory is None or self.memory == DETECT:
            return
        first = math.ceil(self.constants().first_batch)
        least = frame.BATCHES_PER_MEMORY * first
        if self.memory < least:  # arms are not counted: those that left are among them
            raise self.refuse(
                "memory",
                f"is too short: a batch takes at most an eighth of it, but a first batch takes "
                f"{first}; give at least {least} rounds, a shorter first_batch, or 'detect'",
            )

    @property
    def kernels(self) -> Kernels:  # type: ignore[override]
        if self.memory is None:
            return self.by_memory.whole
        return self.by_memory.detecting if self.memory == DETECT else self.by_memory.forgetting

    @property
    def pools(self) -> str:  # type: ignore[override]
        return "" if self.memory is None else "pools"

    @property
    def estimation(self) -> Estimation | None:  # type: ignore[override]
        return FROM_NOISY_SUMS if self.memory is None else None

    @property
    def doubt(self) -> Estimation:
        """With a memory too: a prior is about the means at the start, as the releases are."""
        return FROM_NOISY_SUMS if self.memory is None else FROM_MEMORY

    def require_estimates(self, failure: float) -> Estimation:
        if self.memory is not None:
            self._refuse_estimates()
        return super().require_estimates(failure)

    def _refuse_estimates(self) -> NoReturn:
        raise EstimateError(
            f"{self.name} offers no estimates and names no winner with memory = {self.memory!r}: "
            "its means may change, so there is no single mean to estimate; for estimates use "
            "memory=None"
        )

    @property
    def names_winners(self) -> WinnerOutlook:
        if self.memory is not None:
            return WinnerOutlook(False, "its means may change, and it forgets")
        return super().names_winners

    def restarts(self, state: Any) -> int | None:
        return int(state.restarts[0]) if self.memory == DETECT else None

    @property
    def remembered(self) -> float:
        """Rounds in which releases count."""
        return math.inf if self.memory in (None, DETECT) else float(self.memory)

    def constants(self) -> Any:
        params = super().constants()
        drawn = math.ceil(params.first_batch)
        rounds, longest = MOST_PLANNED, math.ceil(_LONGEST_BATCH * params.first_batch)
        if self.remembered < math.inf:
            rounds = int(self.remembered)
            longest = rounds // frame.BATCHES_PER_MEMORY
        return params._replace(memory=(rounds, longest, drawn))
