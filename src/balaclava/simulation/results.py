"""What a simulation found: regret at checkpoints and pulls, for each policy and repetition."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np

from balaclava._core.declared import Range, check
from balaclava._core.extras import require_extra
from balaclava.environments.base import Environment
from balaclava.errors import UnknownNameError, nearest
from balaclava.policies.base import Policy
from balaclava.simulation.feedback import PROMPT, Feedback

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from balaclava.simulation.analysis.regret_tails import BadRuns, RegretQuantile
    from balaclava.simulation.analysis.summary import Summary
    from balaclava.simulation.analysis.winners import Winners


class Run(NamedTuple):
    """One repetition of one policy."""

    label: str
    repetition: int
    regret: np.ndarray  # at each checkpoint
    pulls: np.ndarray  # of each arm, at the end
    released: np.ndarray | None = None  # [checkpoint, arm]: rewards, mean, noise; where recorded


@dataclass
class Results:
    """Regret and pulls of every repetition.

    After an interrupted simulation some policies have fewer repetitions than others, or none.

    Example:
        >>> import balaclava as bl
        >>> world = bl.environment("bernoulli", means=[0.3, 0.5, 0.7])
        >>> results = bl.simulate(bl.policy("ucb1", arms=3), world,
        ...                       horizon=1_000, repetitions=10, seed=1)
        >>> results.regret("ucb1").shape
        (10, 200)
        >>> results.summary()[0].guarantee
        'not private'
    """

    policies: dict[str, Policy]
    environment: Environment
    horizon: int
    seed: int
    checkpoints: np.ndarray
    runs: dict[str, dict[int, Run]] = field(default_factory=dict)
    feedback: Feedback = PROMPT
    versions: dict[str, str] | None = None  # of the software that ran; None: this one
    device: Literal["cpu", "cuda"] = "cpu"  # numbers of a GPU are others, of the same law

    @classmethod
    def empty(
        cls,
        policies: Mapping[str, Policy],
        environment: Environment,
        *,
        horizon: int,
        seed: int,
        checkpoints: np.ndarray,
        feedback: Feedback = PROMPT,
    ) -> Results:
        """Results of nothing yet."""
        runs: dict[str, dict[int, Run]] = {label: {} for label in policies}
        return cls(dict(policies), environment, horizon, seed, checkpoints, runs, feedback)

    @property
    def circumstances(self) -> str:
        """How late rewards came, and whether a GPU played; nothing of what is usual."""
        return ", ".join(filter(None, [str(self.feedback), "on a GPU" * (self.device == "cuda")]))

    def add(self, run: Run) -> None:
        """Take in one finished repetition."""
        self.runs[run.label][run.repetition] = run

    @property
    def labels(self) -> list[str]:
        """The policies, in the order given."""
        return list(self.policies)

    @property
    def arm_labels(self) -> tuple[str, ...]:
        """The names of the arms: the policies' where they agree, the environment's, or numbers."""
        labels = {policy.arm_labels for policy in self.policies.values()} - {None}
        if len(labels) == 1:
            return tuple(labels.pop() or ())
        own = self.environment.arm_labels
        return tuple(map(str, range(self.environment.arms) if own is None else own))

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

    def guarantee(self, label: str) -> str:
        """What the policy promises, in a few words: "ε=1 per trajectory", "not private"."""
        self._of(label)
        return str(self.policies[label].guarantee)

    def summary(self) -> Summary:
        """The final regret of each policy in a table: print it, or take its rows."""
        from balaclava.simulation.analysis.summary import summarise

        return summarise(self)

    def tails(self, label: str) -> tuple[RegretQuantile, ...]:
        """The 99, 99.9 and 99.99 % quantiles of the final regret, where the runs allow for them.

        Each with the two runs between which it lies with 95 % confidence.
        """
        from balaclava.simulation.analysis.regret_tails import tails_of

        return tails_of(self.final_regret(label))

    def bad_runs(
        self, factor: float = 5.0, medians: Mapping[str, float] | None = None
    ) -> dict[str, BadRuns]:
        """For each policy the share of runs that cost more than `factor` medians.

        The median is the policy's own, unless `medians` has another for its label: that of what it
        is compared with. The interval is exact, at 95 %. Where the median is below 0, as losses may
        have it, the share is NaN.
        """
        from balaclava.simulation.analysis.regret_tails import bad_runs

        factor = check("factor", factor, Annotated[float, Range(0, open_low=True)])
        medians = {} if medians is None else medians
        for label in medians:
            self._of(label)
        return bad_runs(self, factor, medians)

    def winners(self, confidence: float = 0.95) -> Winners:
        """How many runs name the right arm, the wrong one or none, and when: print it.

        A run stops at the first checkpoint at which `agent.winner(confidence)` would name an arm.
        For simulations with `winners=True`.
        """
        from balaclava.simulation.analysis.winners import find_winners

        return find_winners(self, confidence)

    def plot(self, path: str | os.PathLike[str] | None = None, **options: Any) -> Figure:
        """Draw the mean regret of each policy; options as in `regret_plots.plot`."""
        from balaclava.simulation.analysis.regret_plots import plot

        return plot(self, path, **options)

    def to_arrow(self) -> Any:
        """A pyarrow table in long form: one row for each run and checkpoint.

        Its columns: policy (the label), privacy, repetition, round, regret.
        """
        from balaclava.simulation.analysis.long_form import to_arrow

        return to_arrow(self)

    def to_pandas(self) -> Any:
        """The same as a pandas frame."""
        require_extra("pandas", "a pandas frame")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """The same as a polars frame."""
        require_extra("polars", "a polars frame")
        import polars

        return polars.from_arrow(self.to_arrow())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything into one Parquet file, whole or not at all; `bl.load` reads it.

        Parameters are part of it, but never the rewards that an environment was made from.
        """
        from balaclava.simulation.results_file import save

        save(self, path)

    def _of(self, label: str) -> list[Run]:
        if label not in self.runs:
            raise UnknownNameError(f"no policy is labelled {label!r}; {nearest(label, self.runs)}")
        return [run for _, run in sorted(self.runs[label].items())]

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def __repr__(self) -> str:
        counts = ", ".join(f"{label}: {len(runs)}" for label, runs in self.runs.items())
        return (
            f"<Results on {self.environment.name}, horizon {self.horizon}; repetitions: {counts}>"
        )


def load(path: str | os.PathLike[str]) -> Results:
    """The results in a file that `results.save(path)` wrote."""
    from balaclava.simulation.results_file import load

    return load(path)
