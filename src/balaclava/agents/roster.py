"""The arms of an agent, which may come, rest and leave."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any

import numpy as np

from balaclava._core.declared import MOST_ROUNDS, Range, brief, check
from balaclava.agents.saving import (
    DamageError,
    checked_list,
    exact_keys,
    finite_number,
    whole_number,
)
from balaclava.errors import ParameterError, UnknownNameError, nearest
from balaclava.policies.base import NamedArms, Policy

Share = Annotated[float, Range(0, 1, "least chance of the arm in each decision")]
SAVED_KEYS = ("start", "slots", "retired", "archived", "releases", "masked")
NOT_IN_EARLIER_SAVES: dict[str, Any] = {
    **{"open": [], "shares": [], "rests": []},
    **{"contradiction": None, "with_prior": False, "in_play": None},
    **{"counted": [], "counted_if": None, "had_shares": False, "added_after": []},
}
Released = tuple[int, float, float]  # rewards, mean and noise, as `Estimation.read` gives them


class CheckedArms(frozenset[int]):
    """Numbers of live arms, at least one, from `ArmRoster.checked_available`."""


class ArmRoster:
    """Arms by number, each with its slot in the policy's state.

    Numbers and labels are never reused. A retired arm keeps its slot until its batches are
    settled and an arm that comes needs the slot; its releases are then archived here.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy  # at the start: its constants stay, but for the number of arms
        self.labels = [policy.arm_label(arm) for arm in range(policy.arms)]
        self.arm_in_slot = list(range(policy.arms))
        self.added_after: dict[int, int] = {}  # decisions before each arm that came later
        self.retired: set[int] = set()
        self.archived: dict[int, Released] = {}
        self.archived_releases = 0  # of all archived arms
        self.masked = False  # whether a decision did not offer all arms
        self.open: dict[int, int] = {}  # open decisions of retired arms
        self.shares: dict[int, float] = {}  # least chances of arms
        self.had_shares = False  # whether an arm ever had one
        self.rests: dict[int, int] = {}  # the round before which a prior lets an arm rest
        self.contradiction: tuple[int, float] | None = None  # a prior's best arm, least mean
        self.doubted: Released | None = None  # releases of that arm that were compared with it
        self.with_prior = False
        self.counted: dict[int, Released] = {}  # a prior's releases, if means are the same
        self.counted_if: str | None = None  # what they assume
        self.in_play: list[int] | None = None  # slots that offered the batch in play; None: all

    @property
    def changed(self) -> bool:
        """Whether the rule ever decided otherwise than among all arms at the start, alike."""
        return self.masked or self.sets_changed or self.with_prior or self.had_shares

    @property
    def sets_changed(self) -> bool:
        """Whether an arm came or left."""
        return bool(self.retired) or len(self.labels) > self.policy.arms

    def arm_weight(self, arm: int) -> float:
        """The arm's part of a failure probability, among all arms, past and future.

        Without changes it is even. Otherwise the K arms at the start have 1/(K + 1) each and the
        j-th arm 1/(j (j + 1)): 1 in all, also if sets are chosen by the releases.
        """
        first, ordinal = self.policy.arms, arm + 1
        if not self.sets_changed:
            return 1.0 / first
        return 1.0 / (first + 1.0) if ordinal <= first else 1.0 / (ordinal * (ordinal + 1.0))

    def pair_weight(self, a: int, b: int) -> float:
        """The same for a pair: an arm's weight is divided among the pairs with earlier arms."""
        first, ordinal = self.policy.arms, max(a, b) + 1
        if ordinal <= first:  # these pairs have first / (first + 1) in all
            return 2.0 / (first * first - 1.0)
        return self.arm_weight(ordinal - 1) / (ordinal - 1.0)

    def constants(self, params: Any) -> Any:
        """The policy's constants for the arms in the slots.

        A claim is 1/`pair_weight` of an arm with an earlier one; infinite if it was retired.
        """
        claims = [
            math.inf if arm in self.retired else 1.0 / self.pair_weight(arm, 0 if arm else 1)
            for arm in self.arm_in_slot
        ]
        added_after = [self.added_after.get(arm, 0) for arm in self.arm_in_slot]
        return self.policy.with_arms(params, claims, added_after)

    @property
    def live(self) -> list[int]:
        """The arms that were not retired."""
        return [arm for arm in range(len(self.labels)) if arm not in self.retired]

    def number_of(self, arm: Any) -> int:
        """The number of an arm that was not retired, by number or label."""
        number = self.labels.index(arm) if isinstance(arm, str) and arm in self.labels else arm
        if isinstance(number, np.integer):  # of an array that masks arms
            number = int(number)
        if isinstance(number, bool) or not isinstance(number, int):
            known = [self.labels[other] for other in self.live]
            hint = nearest(arm, known) if isinstance(arm, str) else f"known: {', '.join(known)}"
            raise UnknownNameError(f"there is no arm {brief(arm)}; {hint}")
        if not 0 <= number < len(self.labels):
            raise UnknownNameError(f"there is no arm {number}; known: 0 to {len(self.labels) - 1}")
        if number in self.retired:
            raise ParameterError(f"arm {self.labels[number]!r} was retired; name another arm")
        return number

    def slot_of(self, arm: int) -> int:
        """The arm's slot; any slot for an archived arm, whose open decisions are not learned."""
        return 0 if arm in self.archived else self.arm_in_slot.index(arm)

    def set_shares(self, shares: Any) -> None:
        """Give arms a least chance in each decision, and all others none."""
        self.shares = self.checked_shares(shares)
        self.had_shares |= bool(self.shares)

    def offered_slots(self, available: CheckedArms | None, round: int) -> list[int] | None:
        """The slots of the arms that a decision may have; None if these are all slots.

        `available` comes from `checked_available`.
        """
        if self.rests and not self.resting(round):
            self.rests = {}
        if available is None and not self.rests and self.retired.isdisjoint(self.arm_in_slot):
            return None
        offered = set(self.arm_in_slot) - self.retired
        if available is not None:
            self.masked |= available < offered
            offered = set(available)
        if self.rests:
            awake = {a for a in offered if a in self.shares or self.rests.get(a, 0) <= round}
            offered = awake or offered
        slots = [slot for slot, arm in enumerate(self.arm_in_slot) if arm in offered]
        return None if len(slots) == len(self.arm_in_slot) else slots

    def checked_available(self, available: Any) -> CheckedArms:
        """The numbers of live arms, by label or number."""
        if isinstance(available, CheckedArms):
            return available
        if isinstance(available, str) or not isinstance(available, Iterable):
            raise ParameterError(
                f"available = {brief(available)} is not a list; give labels or numbers of arms"
            )
        known = {self.labels[arm]: arm for arm in self.live}  # a look-up by number_of is slow
        chosen = CheckedArms(
            known[arm] if isinstance(arm, str) and arm in known else self.number_of(arm)
            for arm in available
        )
        if not chosen:
            raise ParameterError("available is empty; a decision needs at least one arm")
        return chosen

    def checked_shares(self, shares: Any) -> dict[int, float]:
        """Least chances of arms, by label or number."""
        if not isinstance(shares, Mapping):
            raise ParameterError(
                f"shares = {brief(shares)} must be a mapping, as {{'control': 0.1}}"
            )
        checked = {}
        for arm, share in shares.items():
            number = self.number_of(arm)
            if number in checked:
                raise ParameterError(
                    f"shares name arm {self.labels[number]!r} twice; give each its share once"
                )
            checked[number] = check(f"shares[{self.labels[number]!r}]", share, Share)
        if math.fsum(checked.values()) > 1.0:
            raise ParameterError(
                f"shares add up to {math.fsum(checked.values()):.12g}; lower them to at most 1 in "
                "all"
            )
        return {arm: share for arm, share in checked.items() if share > 0.0}

    def resting(self, round: int) -> bool:
        """Whether some arm rests in this round."""
        return any(until > round for until in self.rests.values())

    def retire(self, arm: int, open: int) -> None:
        """Stop offering an arm; it has so many open decisions."""
        self.retired.add(arm)
        self.open[arm] = open
        self.shares.pop(arm, None)
        self.rests.pop(arm, None)

    def may_reuse(self, arm: int) -> bool:
        """Whether the arm was retired, and no decision of it is open."""
        return arm in self.retired and not self.open.get(arm)

    def shares_of_slots(self, slots: Iterable[int] | None) -> dict[int, float]:
        """The shares of the arms in these slots; None: of all."""
        if not self.shares:
            return {}
        offered = range(len(self.arm_in_slot)) if slots is None else slots
        chances = {slot: self.shares.get(self.arm_in_slot[slot], 0.0) for slot in offered}
        return {slot: share for slot, share in chances.items() if share}

    def close_decision(self, arm: int) -> None:
        """Note that a decision has its reward or was given up."""
        if arm in self.open:
            self.open[arm] -= 1

    def checked_new(self, label: Any) -> str:
        """A label for an arm that comes."""
        if not isinstance(label, str) or not label.strip():
            raise ParameterError(f"label = {brief(label)} is not allowed; give the arm a name")
        if label in self.labels:
            how = "was retired" if self.labels.index(label) in self.retired else "exists"
            raise ParameterError(f"arm {label!r} {how}; labels are never reused: give another")
        return label

    def released(self, read: Callable[[int], Released]) -> list[Released]:
        """The releases of every arm; `read` has those of a slot."""
        return [
            self.archived[arm] if arm in self.archived else read(self.slot_of(arm))
            for arm in range(len(self.labels))
        ]

    def save(self) -> dict[str, Any]:
        return {
            "start": int(self.policy.arms),
            "slots": list(self.arm_in_slot),
            "retired": sorted(self.retired),
            "archived": [
                [arm, int(rewards), float(mean), float(noise)]
                for arm, (rewards, mean, noise) in sorted(self.archived.items())
            ],
            "releases": self.archived_releases,
            "masked": self.masked,
            "open": [list(item) for item in sorted(self.open.items()) if item[1]],
            "shares": [list(item) for item in sorted(self.shares.items())],
            "rests": [list(item) for item in sorted(self.rests.items())],
            "contradiction": list(self.contradiction) if self.contradiction else None,
            "with_prior": self.with_prior,
            "in_play": self.in_play,
            "counted": [[arm, *numbers] for arm, numbers in sorted(self.counted.items())],
            "counted_if": self.counted_if,
            "had_shares": self.had_shares,
            "added_after": [list(item) for item in sorted(self.added_after.items())],
        }

    def load(self, saved: Any, clock: int) -> None:
        """Restore `save` into the roster of a policy with all arms, with checks."""
        saved = NOT_IN_EARLIER_SAVES | saved
        exact_keys(saved, *NOT_IN_EARLIER_SAVES, *SAVED_KEYS)
        arms = len(self.labels)
        first = NamedArms(self.labels[: whole_number(saved["start"], 1, arms)])
        self.policy = replace(self.policy, arms=first)
        self.arm_in_slot = [whole_number(arm, 0, arms - 1) for arm in checked_list(saved["slots"])]
        self.retired = {whole_number(arm, 0, arms - 1) for arm in checked_list(saved["retired"])}
        for arm, rewards, mean, noise in checked_list(saved["archived"]):
            numbers = whole_number(rewards, 0, clock), finite_number(mean), finite_number(noise)
            self.archived[whole_number(arm, 0, arms - 1)] = numbers
        self.archived_releases = whole_number(saved["releases"], 0, clock)
        homes = [*self.arm_in_slot, *self.archived]
        if type(saved["masked"]) is not bool or sorted(homes) != list(range(arms)):
            raise DamageError("the arms have no slots, or several")
        if not set(self.archived) <= self.retired or len(self.retired) >= arms:
            raise DamageError("the retired arms are not valid")
        self.masked = saved["masked"]
        for arm, round in checked_list(saved["added_after"]):
            self.added_after[whole_number(arm, 0, arms - 1)] = whole_number(round, 0, clock)
        for arm, count in checked_list(saved["open"]):
            self.open[whole_number(arm, 0, arms - 1)] = whole_number(count, 1, clock)
        self._load_terms(saved, arms)
        if not set(self.open) <= self.retired - set(self.archived):
            raise DamageError("the open decisions of retired arms are not valid")

    def _load_terms(self, saved: dict[str, Any], arms: int) -> None:
        """Restore shares, rests, and what is counted of a prior."""
        self.set_shares({arm: finite_number(share) for arm, share in checked_list(saved["shares"])})
        if type(saved["had_shares"]) is not bool:
            raise DamageError("the shares are not valid")
        self.had_shares |= saved["had_shares"]
        self.rests, self.contradiction, self.counted = {}, None, {}
        self.counted_if = saved["counted_if"]
        if not isinstance(self.counted_if, str | None):
            raise DamageError("the condition of a prior is not valid")
        for arm, rewards, mean, draws in checked_list(saved["counted"]):
            numbers = whole_number(rewards, 1, MOST_ROUNDS), finite_number(mean)
            number = whole_number(arm, 0, arms - 1)
            self.counted[number] = *numbers, whole_number(draws, 0, MOST_ROUNDS)
        for arm, round in checked_list(saved["rests"]):
            self.rests[whole_number(arm, 0, arms - 1)] = whole_number(round, 1, MOST_ROUNDS)
        if type(saved["with_prior"]) is not bool:
            raise DamageError("a prior is not valid")
        self.with_prior = saved["with_prior"]
        if saved["in_play"] is not None:
            last = len(self.arm_in_slot) - 1
            self.in_play = [whole_number(slot, 0, last) for slot in checked_list(saved["in_play"])]
        if saved["contradiction"] is not None:
            arm, limit = checked_list(saved["contradiction"])
            self.contradiction = whole_number(arm, 0, arms - 1), finite_number(limit)
