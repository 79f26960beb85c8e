"""What a simulation found: regret at checkpoints and pulls, for each policy and repetition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from balaclava.environments.base import Environment
from balaclava.errors import UnknownNameError, nearest
from balaclava.policies.base import Policy


class Run(NamedTuple):
    """One repetition of one policy."""

    label: str
    repetition: int
    regret: np.ndarray  # at each checkpoint
    pulls: np.ndarray  # of each arm, at the end


@dataclass
class Results:
    """Regret and pulls of every repetition."""

    policies: dict[str, Policy]
    environment: Environment
    horizon: int
    seed: int
    checkpoints: np.ndarray
    runs: dict[str, dict[int, Run]] = field(default_factory=dict)

    @classmethod
    def empty(
        cls,
        policies: Mapping[str, Policy],
        environment: Environment,
        *,
        horizon: int,
        seed: int,
        checkpoints: np.ndarray,
    ) -> Results:
        """Results of nothing yet."""
        runs: dict[str, dict[int, Run]] = {label: {} for label in policies}
        return cls(dict(policies), environment, horizon, seed, checkpoints, runs)

    def add(self, run: Run) -> None:
        """Take in one finished repetition."""
        self.runs[run.label][run.repetition] = run

    @property
    def labels(self) -> list[str]:
        """The policies, in the order given."""
        return list(self.policies)

    def regret(self, label: str) -> np.ndarray:
        """The regret of each repetition at each checkpoint."""
        return np.array([run.regret for run in self._of(label)]).reshape(-1, self.checkpoints.size)

    def final_regret(self, label: str) -> np.ndarray:
        """The regret of each repetition at the horizon."""
        return self.regret(label)[:, -1]

    def pulls(self, label: str) -> np.ndarray:
        """How often each repetition pulled each arm."""
        rows = [run.pulls for run in self._of(label)]
        return np.array(rows, dtype=np.int64).reshape(-1, self.environment.arms)

    def _of(self, label: str) -> list[Run]:
        if label not in self.runs:
            raise UnknownNameError(f"no policy is labelled {label!r}; {nearest(label, self.runs)}")
        return [run for _, run in sorted(self.runs[label].items())]
