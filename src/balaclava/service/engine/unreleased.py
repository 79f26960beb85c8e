"""Batches that are not released yet: whether a decision's is, its early end, and its rewards."""

import copy
from collections.abc import Callable
from typing import Any

from balaclava.agents.policy_runner import PolicyRunner
from balaclava.errors import PrivacyError
from balaclava.frames import arm_slots
from balaclava.frames.epochs import Epochs, epoch_row, is_learned
from balaclava.frames.pools import NO_ROW, Pools, closing_decision, find_row, in_batch
from balaclava.privacy.randomness import SystemRandomness


def awaits_release(runner: PolicyRunner, arm: int, phase: int) -> bool:
    """Whether a decision's batch is open; False if the policy keeps none that can be read."""
    epochs = _epochs(runner)
    if epochs is not None:
        return phase > 0 and bool(is_learned(epochs, arm, phase))
    return is_in_open_pool(runner, arm, phase)


def is_in_open_pool(runner: PolicyRunner, arm: int, phase: int) -> bool:
    """Whether a decision's batch is open and a clock may end it; False without pools."""
    return _row(runner, arm, phase)[1] != NO_ROW


def has_open_batches(runner: PolicyRunner) -> bool:
    """Whether any batch of the policy's pools is open."""
    pools = arm_slots.find_pools(runner.state)
    return pools is not None and bool(pools.numbers.any())


def next_batches(runner: PolicyRunner) -> set[tuple[int, int]]:
    """Arm and phase of the batches that the next decision may be in; of all arms in first pulls."""
    pools = arm_slots.find_pools(runner.state)
    in_play = int(pools.current[0])
    slots = [in_play] if in_play >= 0 and not pools.first_pulls[0] else range(pools.number.size)
    arms = range(pools.number.size) if runner.roster is None else runner.roster.arm_in_slot
    full = pools.placed == pools.size
    if in_batch(pools):  # all its decisions count as asked
        full[in_play] = False
    return {(arms[slot], int(pools.number[slot] + full[slot])) for slot in slots}


def end_batch(runner: PolicyRunner, arm: int, phase: int, round: int) -> None:
    """End a batch with the decisions that it has; it is released when their windows are over.

    Only a clock, decisions and releases may decide this: never a reward that is not released.
    """
    pools, row = _row(runner, arm, phase)
    slot = runner.slot_of(arm)
    if pools is None or row == NO_ROW or pools.number[slot] != phase:
        return
    last = closing_decision(pools, slot)
    if last is not None:
        runner.forget_slot(round, slot, last)


class OutsideRelease(SystemRandomness):
    """Answers the one mechanism of a release with a sum to which others have added the noise."""

    def __init__(self, noisy_sum: float) -> None:
        self._answers = [noisy_sum]

    def release(self, body: Callable[..., Any], *arguments: Any) -> Any:
        """The noisy sum, once."""
        if not self._answers:
            raise PrivacyError("the policy draws noise twice for a batch: it cannot be split")
        return self._answers.pop()


def unsettled_decisions(runner: PolicyRunner, arm: int, phase: int) -> int:
    """Decisions of an open batch, those to come included, that are not settled; 0 if it is not."""
    pools, row = _row(runner, arm, phase)
    return 0 if pools is None or row == NO_ROW else int(pools.left[runner.slot_of(arm), row])


def settle_with_release(
    runner: PolicyRunner, arm: int, phase: int, round: int, lost: int, noisy_sum: float
) -> None:
    """Settle all decisions of an open batch at once, with a release that was made elsewhere.

    `lost` of them have no reward. The rewards of the others are in the noisy sum, and nowhere here.
    """
    pools, row = _row(runner, arm, phase)
    assert pools is not None
    slot = runner.slot_of(arm)
    decisions = int(pools.left[slot, row])
    none_came = lost == decisions
    pools.left[slot, row], pools.lost[slot, row] = 1, pools.lost[slot, row] + lost - none_came
    terms, kernels = (runner.params, runner.state, round, slot), runner.policy.kernels
    rng = OutsideRelease(noisy_sum)
    if none_came:
        kernels.forget(*terms, phase, rng)
    else:
        kernels.learn(*terms, 0.0, phase, rng)
    if runner.roster is not None:
        for _ in range(decisions):
            runner.roster.close_decision(arm)


def replace_reward(
    runner: PolicyRunner, arm: int, phase: int, round: int, before: float, after: float
) -> bool:
    """Replace a reward in the sum of its open batch; False if that is not possible.

    It is possible while the batch is open, if learning does nothing but add to its sum. That is
    tried on a copy. Sums of private policies are exact, so nothing of the reward remains.
    """
    if not awaits_release(runner, arm, phase):
        return False
    slot, prepare = runner.slot_of(arm), runner.policy.prepare()
    old, new = prepare(runner.params, before), prepare(runner.params, after)
    trial = copy.deepcopy(runner.state)
    epochs = _epochs(runner)
    if epochs is None:
        sums, row = arm_slots.find_pools(runner.state).sums, _row(runner, arm, phase)[1]
        tried = arm_slots.find_pools(trial)
        tried.left[slot, row] += 1  # so that the trial does not release
    else:
        sums, row = epochs.sums, epoch_row(epochs, phase)
        tried = arm_slots.find_epochs(trial)
        tried.left[row] += 1
        tried.rewards_in_epoch[slot, row] -= 1
    runner.policy.kernels.learn(runner.params, trial, round, slot, old, phase, runner.rng)
    added = tried.sums[slot, row] == sums[slot, row] + old
    tried.sums[slot, row] = sums[slot, row]
    if not added or not arm_slots.are_equal(trial, runner.state):
        return False
    sums[slot, row] += new - old
    return True


def _epochs(runner: PolicyRunner) -> Epochs | None:
    """The epochs of a policy without pools."""
    if arm_slots.find_pools(runner.state) is not None:
        return None
    return arm_slots.find_epochs(runner.state)


def _row(runner: PolicyRunner, arm: int, phase: int) -> tuple[Pools | None, Any]:
    """The pools and the row of an open batch; NO_ROW if it is not open."""
    pools = arm_slots.find_pools(runner.state)
    if pools is None or (runner.roster is not None and arm not in runner.roster.arm_in_slot):
        return None, NO_ROW
    return pools, find_row(pools, runner.slot_of(arm), phase)
