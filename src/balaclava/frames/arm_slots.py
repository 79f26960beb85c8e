"""Arms that come and go: a state has a slot for each arm, the rows of its arrays.

An arm that comes gets a new slot, or that of an arm that left and has no open batch. A decision
that offers some arms only is made on a part of the state: the slots of those arms. The kernels
see the part as a state with fewer arms.

Privacy is that of the whole state: slots move released values and open batches unchanged, and
each reward stays in its batch. Which slots are moved must not depend on unreleased rewards.

The state must be pools or a tally, or contain one of them and further arrays by arm.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from balaclava.frames.blocks import Blocks, is_still_due
from balaclava.frames.epochs import Epochs
from balaclava.frames.pools import NO_PLACE, Pools, count_settled, in_batch, leave_batch

Begin = Callable[..., Any]
_BY_ARM = ("needed", "added_after")  # constants by arm
_QUEUE = ("queued_arms", "queued_rewards", "queued_sums")


def resized(begin: Begin, params: Any, arms: int) -> Any:
    """A fresh state for so many arms."""
    return begin(params._replace(arms=arms))


def with_new_slot(begin: Begin, params: Any, state: Any) -> Any:
    """The state with one slot more, for an arm without decisions."""
    leave(state)  # the arm is tried at once
    more = resized(begin, params, params.arms + 1)
    _copy_into(more, state)
    for tally in _tallies(more):
        tally.unknown[0] += 1
    pools = find_pools(state)
    if pools is not None:
        grown = find_pools(more)
        grown.arms_untried[0] += bool(pools.first_pulls[0])
        for name in _QUEUE:
            before, after = getattr(pools, name), getattr(grown, name)
            after[:] = 0
            for place in queued_places(pools):
                after[place % after.size] = before[place % before.size]
    return more


def kept_slots(begin: Begin, params: Any, state: Any, slots: Sequence[int]) -> Any:
    """The state with these slots alone; late rewards of the others must not be learned."""
    fresh = resized(begin, params, len(slots))
    kept = _taken(state, resized(begin, params, len(slots)), np.asarray(slots), _needed(params))
    pools = find_pools(kept)
    if pools is None:
        return kept
    return _with_pools(kept, _kept_queue(find_pools(state), pools, find_pools(fresh), slots))


def _kept_queue(whole: Pools, part: Pools, fresh: Pools, slots: Sequence[int]) -> Pools:
    """The part with the batches of its arms in the order of the whole; others no longer wait."""
    part = part._replace(**{name: getattr(fresh, name) for name in _QUEUE})
    places, room = queued_places(whole), part.queued_arms.size
    part.placed_batches[0] = part.counted[0]
    before, position = part.place.copy(), {slot: i for i, slot in enumerate(slots)}
    part.place[before > 0] = NO_PLACE  # without room it never counts in order
    for place in places:
        old = place % whole.queued_arms.size
        arm = position.get(int(whole.queued_arms[old]))
        if arm is None or part.placed_batches[0] - part.counted[0] == room:
            continue
        part.placed_batches[0] += 1
        new = part.placed_batches[0] % room
        part.queued_arms[new] = arm
        part.queued_rewards[new] = whole.queued_rewards[old]
        part.queued_sums[new] = whole.queued_sums[old]
        part.place[before == place] = part.placed_batches[0]
    count_settled(part)  # a batch that left may have been the first to wait for
    return part


def _with_pools(state: Any, pools: Pools) -> Any:
    """The state with other pools in it."""
    if isinstance(state, Pools):
        return pools
    parts = (_with_pools(part, pools) if hasattr(part, "_fields") else part for part in state)
    return type(state)(*parts)


def clear_slot(begin: Begin, params: Any, state: Any, slot: int) -> None:
    """Make a slot that `is_free` that of an arm without decisions."""
    leave(state)  # the arm is tried at once
    arms = params.arms
    for tally in _tallies(state):
        tally.unknown[0] += bool(tally.pulls[slot] >= _needed(params))
    pools = find_pools(state)
    if pools is not None:
        pools.arms_with_release[0] -= bool(pools.weights[slot] > 0)
        pools.arms_untried[0] += bool(pools.first_pulls[0] and _tried(pools, slot))
    fresh, larger = resized(begin, params, arms), resized(begin, params, arms + 1)
    for array, own, other in zip(*map(_arrays, (state, fresh, larger)), strict=True):
        if own.shape != other.shape and array.shape[0] == arms:
            array[slot] = own[slot]
    if pools is not None:
        pools.blocks.order[:], pools.blocks.members[:] = np.arange(arms), np.arange(arms)
        pools.blocks.size[0] = pools.blocks.place[0] = pools.blocks.full_size[0] = 0
        pools.lead[0] = leading_slot(pools, range(arms))
        if pools.arms_with_release[0] == 0:  # no arm can be played while others wait
            pools.first_pulls[0] = True
            pools.arms_untried[0] = np.count_nonzero(~_tried(pools, np.arange(arms)))


def is_free(state: Any, slot: int) -> bool:
    """Whether no open batch, and no batch that does not count yet, needs the slot."""
    pools = find_pools(state)
    if pools is None:
        return True
    queued = (pools.queued_arms[place % pools.queued_arms.size] for place in queued_places(pools))
    return not pools.numbers[slot].any() and slot not in queued


def leave(state: Any) -> None:
    """Let the policy choose the arm in play again."""
    pools = find_pools(state)
    if pools is not None:
        leave_batch(pools)


def leave_unless_offered(
    state: Any, slots: Sequence[int] | None, chosen_among: Sequence[int] | None
) -> None:
    """Leave the batch in play if the decision does not offer it, or offers further arms.

    The rule has chosen it among some slots; None: all. Among fewer of them it is still the choice.
    """
    pools = find_pools(state)
    if pools is None or pools.current[0] < 0:
        return
    if slots == chosen_among or (
        slots is not None
        and pools.current[0] in slots
        and (chosen_among is None or set(slots) <= set(chosen_among))
    ):
        return
    leave_batch(pools)


def continues_batch(state: Any) -> bool:
    """Whether the next decision is of the batch in play, by any rule."""
    pools = find_pools(state)
    return pools is not None and bool(in_batch(pools))


def choose_among(
    begin: Begin, choose: Callable[..., Any], params: Any, state: Any, slots: Sequence[int],
    *arguments: Any,
) -> tuple[int, int]:  # fmt: skip
    """Let `choose` decide among some slots of the state: the slot and the phase.

    `arguments` are those of `choose` after the state. The batch in play is among the slots
    (`leave_unless_offered`).
    """
    whole, chosen = find_pools(state), np.asarray(slots)
    part = _taken(state, resized(begin, params, chosen.size), chosen, _needed(params))
    last_place = 0 if whole is None else int(whole.placed_batches[0])
    arm, phase = choose(_part_of_params(params, chosen), part, *arguments)
    _put_back(state, part, chosen)
    if whole is not None:
        room = whole.queued_arms.size
        for place in range(last_place + 1, int(whole.placed_batches[0]) + 1):
            whole.queued_arms[place % room] = chosen[whole.queued_arms[place % room]]
        current = int(find_pools(part).current[0])
        whole.current[0] = chosen[current] if current >= 0 else -1
        # A memory may have forgotten releases of the part.
        whole.arms_with_release[0] = np.count_nonzero(whole.weights)
        whole.lead[0] = leading_slot(whole, range(params.arms))
    return int(chosen[arm]), int(phase)


def rule_chance(
    begin: Begin, choose: Callable[..., Any], params: Any, state: Any, slots: Sequence[int],
    slot: int, t: int, context: Any,
) -> float:  # fmt: skip
    """The chance that `choose` gives a slot among others, for pools whose rule is not random.

    `choose` decides on a copy of the state, without an even draw.
    """
    even = params.holdout + (1.0 - params.holdout) * params.explore
    if even == 1.0:
        return 1.0 / len(slots)
    first = bool(_summary(find_pools(state), np.asarray(slots))["first_pulls"][0])
    copy = copied(state)
    chosen, _ = choose_among(begin, choose, params, copy, slots, t, context, _NoEvenDraw())
    pools = find_pools(copy)
    same = chosen == slot or (
        first and (pools.blocks.size[0] == 0 or is_still_due(pools.blocks, slot))
    )
    return pools.last_chance if same else even / len(slots)


class _NoEvenDraw:
    """Draws of a rule that is not random but for even draws and the order of first pulls."""

    def random(self) -> float:
        return math.nextafter(1.0, 0.0)


def copied(state: Any) -> Any:
    """A deep copy of a state."""
    parts = (part.copy() if isinstance(part, np.ndarray) else copied(part) for part in state)
    return type(state)(*parts)


def settled_batches(state: Any, slot: int) -> int:
    """The releases of a slot; 0 for a tally, which has no batches."""
    pools = find_pools(state)
    return 0 if pools is None else int(pools.settled[slot])


def find_pools(state: Any) -> Any:
    """The pools of a state; None if it has none."""
    return next((part for part in _parts(state) if isinstance(part, Pools)), None)


def find_epochs(state: Any) -> Any:
    """The epochs of a state; None if it has none."""
    return next((part for part in _parts(state) if isinstance(part, Epochs)), None)


def _parts(state: Any) -> Iterator[Any]:
    """The state and the states in it."""
    yield state
    for part in state:
        if hasattr(part, "_fields"):
            yield from _parts(part)


def _tallies(state: Any) -> Iterator[Any]:
    """The parts that count the arms without enough rewards, as a tally does."""
    return (part for part in _parts(state) if "unknown" in part._fields)


def _needed(params: Any) -> int:
    """The rewards with which an arm of a tally is known."""
    return params.start if "start" in params._fields else 1


def are_equal(state: Any, other: Any) -> bool:
    """Whether all arrays of two states of one policy are equal."""
    pairs = zip(_arrays(state), _arrays(other), strict=True)
    return all(np.array_equal(mine, theirs) for mine, theirs in pairs)


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


def _taken(state: Any, part: Any, slots: np.ndarray, needed: int) -> Any:
    """The part of a state; arrays that are not by arm are shared with the whole."""
    if isinstance(state, Blocks):
        return _taken_block(state, part, slots)
    fields = {}
    for name, whole, own in zip(state._fields, state, part, strict=True):
        if not isinstance(whole, np.ndarray):
            fields[name] = _taken(whole, own, slots, needed)
        elif own.shape == whole.shape or name in _QUEUE:
            fields[name] = whole
        else:
            own[...] = whole[slots]
            fields[name] = own
    if isinstance(state, Pools):
        fields |= _summary(state, slots)
    if "unknown" in state._fields:
        fields["unknown"] = np.array([np.count_nonzero(state.pulls[slots] < needed)])
    for name in getattr(type(state), "_slot_fields", ()):
        fields[name] = _place(getattr(state, name), slots)
    if "indices" in state._fields and "best" in state._fields:
        fields["best"] = np.array([np.argmax(state.indices[slots])])
    return part._replace(**fields)


def _place(slot: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """The place of a slot in the part, or -1."""
    places = np.flatnonzero(slots == slot[0])
    return np.array([places[0] if places.size else -1])


def _part_of_params(params: Any, slots: np.ndarray) -> Any:
    """The constants for a part of the slots."""
    by_arm = {name: getattr(params, name)[slots] for name in _BY_ARM if name in params._fields}
    return params._replace(arms=slots.size, **by_arm)


def _taken_block(block: Blocks, part: Blocks, slots: np.ndarray) -> Blocks:
    """The rest of a block, without the other slots."""
    position = {int(slot): i for i, slot in enumerate(slots)}
    due = [position[arm] for arm in block.order[block.place[0] : block.size[0]] if arm in position]
    part.order[: len(due)], part.size[0] = due, len(due)
    return part


def _tried(pools: Pools, slots: Any) -> Any:
    """Whether a batch of the slot has settled."""
    return pools.settled[slots] + pools.empty[slots] > 0


def _summary(pools: Pools, slots: np.ndarray) -> dict[str, np.ndarray]:
    """What the part does not share with the whole: facts about its own arms."""
    tried = _tried(pools, slots)
    with_release = np.count_nonzero(pools.weights[slots])
    return {
        # After the first pulls an arm that comes is tried by the rule: it does not count here.
        "arms_untried": np.array([np.count_nonzero(~tried) if pools.first_pulls[0] else 0]),
        "arms_with_release": np.array([with_release]),
        "first_pulls": np.array([with_release == 0 or (pools.first_pulls[0] and not tried.all())]),
        "lead": np.array([leading_slot(pools, slots.tolist())]),
        "current": _place(pools.current, slots),
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
