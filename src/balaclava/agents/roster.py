"""The arms of an agent, which may come, rest and leave."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from balaclava._core.declared import brief
from balaclava.agents.saving import (
    DamageError,
    checked_list,
    exact_keys,
    finite_number,
    whole_number,
)
from balaclava.errors import ParameterError, UnknownNameError, nearest
from balaclava.policies.base import NamedArms, Policy

Released = tuple[int, float, float]  # rewards, mean and noise, as `Estimation.read` gives them


class ArmRoster:
    """Arms by number, each with its slot in the policy's state.

    Numbers and labels are never reused. A retired arm keeps its slot until its batches are
    settled and an arm that comes needs the slot; its releases are then archived here.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy  # at the start: its constants stay, but for the number of arms
        self.labels = [policy.arm_label(arm) for arm in range(policy.arms)]
        self.arm_in_slot = list(range(policy.arms))
        self.retired: set[int] = set()
        self.archived: dict[int, Released] = {}
        self.archived_releases = 0  # of all archived arms
        self.masked = False  # whether a decision did not offer all arms

    @property
    def changed(self) -> bool:
        """Whether the arms are no longer those at the start, or were not all offered."""
        return self.masked or bool(self.retired) or len(self.labels) > self.policy.arms

    @property
    def live(self) -> list[int]:
        """The arms that were not retired."""
        return [arm for arm in range(len(self.labels)) if arm not in self.retired]

    def number_of(self, arm: Any) -> int:
        """The number of an arm that was not retired, by number or label."""
        number = self.labels.index(arm) if isinstance(arm, str) and arm in self.labels else arm
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

    def offered_slots(self, available: Any) -> list[int] | None:
        """The slots of the arms that a decision may have; None if these are all slots."""
        offered = set(self.arm_in_slot) - self.retired
        if available is not None:
            if isinstance(available, str) or not isinstance(available, Iterable):
                raise ParameterError(
                    f"available = {brief(available)} is not a list; give labels or numbers of arms"
                )
            chosen = {self.number_of(arm) for arm in available}
            if not chosen:
                raise ParameterError("available is empty; a decision needs at least one arm")
            self.masked |= chosen < offered
            offered = chosen
        slots = [slot for slot, arm in enumerate(self.arm_in_slot) if arm in offered]
        return None if len(slots) == len(self.arm_in_slot) else slots

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
        }

    def load(self, saved: Any, clock: int) -> None:
        """Restore `save` into the roster of a policy with all arms, with checks."""
        exact_keys(saved, "start", "slots", "retired", "archived", "releases", "masked")
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
