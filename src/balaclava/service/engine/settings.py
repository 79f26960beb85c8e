"""What may change in a running experiment, by PATCH, and the job that changes it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from balaclava.service.problems import Problem

if TYPE_CHECKING:
    from balaclava.service.engine.definition import ExperimentDefinition

RETENTION_MARGIN = 30 * 86_400.0  # seconds beyond the reward window, by default
LONGEST_RETENTION = 20 * 366 * 86_400.0  # seconds


@dataclass(frozen=True)
class ExperimentSettings:
    """Changes of an experiment's definition; None leaves the definition's value."""

    owner: str | None = None
    purpose: str | None = None
    retention: float | None = None
    archived: bool | None = None
    guardrail_limits: dict[str, float] | None = None  # by metric
    served_arm: str | None = None  # chosen by the request that finished the experiment

    @classmethod
    def from_json(cls, text: str | None) -> ExperimentSettings:
        known = {field.name for field in fields(cls)}
        stored = json.loads(text) if text else {}
        return cls(**{name: value for name, value in stored.items() if name in known})

    @cached_property
    def json(self) -> str | None:
        """The changed values; None without any."""
        changed = {name: value for name, value in asdict(self).items() if value is not None}
        return json.dumps(changed, sort_keys=True) if changed else None

    def changed(
        self, definition: ExperimentDefinition, changes: dict[str, Any]
    ) -> ExperimentSettings:
        """The settings after `changes`; raises a `Problem` if one is not possible."""
        if (retention := changes.get("retention")) is not None:
            check_retention(retention, definition.reward_window)
        return replace(self, **changes)


def check_retention(retention: float, reward_window: float) -> None:
    """Raise if decisions would be deleted while their reward may still come."""
    if not reward_window <= retention <= LONGEST_RETENTION:
        raise Problem(
            422,
            f"retention must be between reward_window ({reward_window:g}) and "
            f"{LONGEST_RETENTION:g} seconds",
        )


def retention_of(definition: ExperimentDefinition, settings: ExperimentSettings) -> float:
    """Seconds for which the experiment keeps a decision."""
    for chosen in (settings.retention, definition.retention):
        if chosen is not None:
            return chosen
    return definition.reward_window + RETENTION_MARGIN
