"""Arms that come and go: a state has a slot for each arm, the rows of its arrays.

An arm that comes gets a new slot, or that of an arm that left and has no open batch. A decision
that offers some arms only is made on a part of the state: the slots of those arms. The kernels
see the part as a state with fewer arms.

Privacy is that of the whole state: slots move released values and open batches unchanged, and
each reward stays in its batch. Which slots are moved must not depend on unreleased rewards.

The state must be pools, or contain pools and further arrays by arm.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from balaclava.frames.blocks import Blocks
from balaclava.frames.pools import Pools, leave_batch

Begin = Callable[..., Any]
_QUEUE = ("queued_arms", "queued_rewards", "queued_sums")


def resized(begin: Begin, params: Any, arms: int) -> Any:
    """A fresh state for so many arms."""
    return begin(params._replace(arms=arms))


def with_new_slot(begin: Begin, params: Any, state: Any) -> Any:
    """The state with one slot more, for an arm without decisions."""
    pools = find_pools(state)
    leave_batch(pools)  # the arm is tried at once
    more = resized(begin, params, pools.number.size + 1)
    _copy_into(more, state)
    grown = find_pools(more)
    grown.arms_untried[0] += bool(pools.first_pulls[0])
    for name in _QUEUE:
        before, after = getattr(pools, name), getattr(grown, name)
        after[:] = 0
        for place in queued_places(pools):
            after[place % after.size] = before[place % before.size]
    return more


def clear_slot(begin: Begin, params: Any, state: Any, slot: int) -> None:
    """Make a slot that `is_free` that of an arm without decisions."""
    pools = find_pools(state)
    leave_batch(pools)  # the arm is tried at once
    pools.arms_with_release[0] -= bool(pools.weights[slot] > 0)
    untried = pools.settled[slot] + pools.empty[slot] == 0
    if pools.first_pulls[0] and not untried:
        pools.arms_untried[0] += 1
    arms = pools.number.size
    fresh, larger = resized(begin, params, arms), resized(begin, params, arms + 1)
    for array, own, other in zip(*map(_arrays, (state, fresh, larger)), strict=True):
        if own.shape != other.shape and array.shape[0] == arms:
            array[slot] = own[slot]
    pools.blocks.order[:], pools.blocks.members[:] = np.arange(arms), np.arange(arms)
    pools.blocks.size[0] = pools.blocks.place[0] = pools.blocks.full_size[0] = 0
    pools.lead[0] = leading_slot(pools, range(arms))


def is_free(state: Any, slot: int) -> bool:
    """Whether no open batch, and no batch that does not count yet, needs the slot."""
    pools = find_pools(state)
    queued = (pools.queued_arms[place % pools.queued_arms.size] for place in queued_places(pools))
    return not pools.numbers[slot].any() and slot not in queued


def choose_among(
    begin: Begin, choose: Callable[..., Any], params: Any, state: Any, slots: Sequence[int],
    *arguments: Any,
) -> tuple[int, int]:  # fmt: skip
    """Let `choose` decide among some slots of the state: the slot and the phase.

    `arguments` are those of `choose` after the state.
    """
    whole, chosen = find_pools(state), np.asarray(slots)
    if whole.current[0] not in chosen:
        leave_batch(whole)
    part = _taken(state, resized(begin, params, chosen.size), chosen)
    last_place, room = int(whole.placed_batches[0]), whole.queued_arms.size
    arm, phase = choose(params._replace(arms=chosen.size), part, *arguments)
    _put_back(state, part, chosen)
    for place in range(last_place + 1, int(whole.placed_batches[0]) + 1):
        whole.queued_arms[place % room] = chosen[whole.queued_arms[place % room]]
    current = int(find_pools(part).current[0])
    whole.current[0] = chosen[current] if current >= 0 else -1
    leave_batch(whole)  # the next decision may have other arms
    return int(chosen[arm]), int(phase)


def find_pools(state: Any) -> Pools:
    """The pools of a state."""
    if isinstance(state, Pools):
        return state
    return next(find_pools(part) for part in state if hasattr(part, "_fields"))


def queued_places(pools: Pools) -> range:
    """The places of batches that do not count yet."""
    return range(int(pools.counted[0]) + 1, int(pools.placed_batches[0]) + 1)


def leading_slot(pools: Pools, slots: Sequence[int]) -> int:
    """The position in `slots` of the highest released mean; 0 if there is none."""
    means = [pools.means[slot] if pools.weights[slot] > 0 else -np.inf for slot in slots]
    return int(np.argmax(means))


def _arrays(state: Any) -> list[np.ndarray]:
    parts = ([part] if isinstance(part, np.ndarray) else _arrays(part) for part in state)
    return [array for part in parts for array in part]


def _copy_into(larger: Any, state: Any) -> None:
    for array, own in zip(_arrays(larger), _arrays(state), strict=True):
        array[tuple(map(slice, own.shape))] = own


def _taken(state: Any, part: Any, slots: np.ndarray) -> Any:
    """The part of a state; arrays that are not by arm are shared with the whole."""
    if isinstance(state, Blocks):
        return _taken_block(state, part, slots)
    fields = {}
    for name, whole, own in zip(state._fields, state, part, strict=True):
        if not isinstance(whole, np.ndarray):
            fields[name] = _taken(whole, own, slots)
        elif own.shape == whole.shape or name in _QUEUE:
            fields[name] = whole
        else:
            own[...] = whole[slots]
            fields[name] = own
    if isinstance(state, Pools):
        fields |= _summary(state, slots)
    return part._replace(**fields)


def _taken_block(block: Blocks, part: Blocks, slots: np.ndarray) -> Blocks:
    """The rest of a block, without the other slots."""
    position = {int(slot): i for i, slot in enumerate(slots)}
    due = [position[arm] for arm in block.order[block.place[0] : block.size[0]] if arm in position]
    part.order[: len(due)], part.size[0] = due, len(due)
    return part


def _summary(pools: Pools, slots: np.ndarray) -> dict[str, np.ndarray]:
    """What the part does not share with the whole: facts about its own arms."""
    tried = pools.settled[slots] + pools.empty[slots] > 0
    with_release = np.count_nonzero(pools.weights[slots])
    current = np.flatnonzero(slots == pools.current[0])
    return {
        "arms_untried": np.array([np.count_nonzero(~tried)]),
        "arms_with_release": np.array([with_release]),
        "first_pulls": np.array([with_release == 0 or (pools.first_pulls[0] and not tried.all())]),
        "lead": np.array([leading_slot(pools, slots.tolist())]),
        "current": np.array([current[0] if current.size else -1]),
    }


def _put_back(state: Any, part: Any, slots: np.ndarray) -> None:
    """Write the rows of the part into the whole."""
    if isinstance(state, Blocks):
        for name in ("order", "members"):
            getattr(state, name)[: slots.size] = slots[getattr(part, name)]
        state.size[0], state.place[0], state.full_size[0] = (
            part.size[0],
            part.place[0],
            part.full_size[0],
        )
        return
    for whole, own in zip(state, part, strict=True):
        if not isinstance(whole, np.ndarray):
            _put_back(whole, own, slots)
        elif own.shape != whole.shape:
            whole[slots] = own
