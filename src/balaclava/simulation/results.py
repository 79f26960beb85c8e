"""Results of a simulation: regret and pulls of each repetition of each policy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import numpy as np

from balaclava._core.declared import Range, check
from balaclava._core.extras import import_extra
from balaclava.environments.base import Environment
from balaclava.errors import UnknownNameError, nearest
from balaclava.policies.base import Policy
from balaclava.simulation.feedback import PROMPT, Feedback

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from balaclava.simulation.analysis.regret_plots import Band
    from balaclava.simulation.analysis.regret_tails import BadRuns, RegretQuantile
    from balaclava.simulation.analysis.summary import Summary
    from balaclava.simulation.analysis.winners import Winners


class Run(NamedTuple):
    """One repetition of one policy."""

    label: str
    repetition: int
    regret: np.ndarray  # at each checkpoint
    pulls: np.ndarray  # of each arm, at the horizon
    released: np.ndarray | None = None  # [checkpoint, arm]: rewards, mean, noise; if recorded


@dataclass
class Results:
    """Regret and pulls of every repetition, as `bl.simulate` returns them.

    After an interrupted simulation some policies have fewer repetitions than others, or none.
    Methods raise `UnknownNameError` if no policy has the label.

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
    versions: dict[str, str] | None = None  # of the software that computed it; None: this one
    device: Literal["cpu", "cuda"] = "cpu"

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
        """Results without a repetition yet."""
        runs: dict[str, dict[int, Run]] = {label: {} for label in policies}
        return cls(dict(policies), environment, horizon, seed, checkpoints, runs, feedback)

    @property
    def circumstances(self) -> str:
        """Delays and the device in a few words; empty for the defaults."""
        return ", ".join(filter(None, [str(self.feedback), "on a GPU" * (self.device == "cuda")]))

    def add(self, run: Run) -> None:
        """Add one finished repetition."""
        self.runs[run.label][run.repetition] = run

    @property
    def labels(self) -> list[str]:
        """The labels of the policies, in the order given."""
        return list(self.policies)

    @property
    def arm_labels(self) -> tuple[str, ...]:
        """The arms' names: the policies' if they agree, else the environment's, else numbers."""
        labels = {policy.arm_labels for policy in self.policies.values()} - {None}
        if len(labels) == 1:
            return tuple(labels.pop() or ())
        own = self.environment.arm_labels
        return tuple(map(str, range(self.environment.arms) if own is None else own))

    def regret(self, label: str) -> np.ndarray:
        """The regret of each repetition at each checkpoint.

        Args:
            label: the label of a policy.

        Returns:
            An array of shape (repetitions, checkpoints).
        """
        rows = [run.regret for run in self._finished_runs(label)]
        return np.array(rows).reshape(-1, self.checkpoints.size)

    def final_regret(self, label: str) -> np.ndarray:
        """The regret of each repetition at the horizon.

        Args:
            label: the label of a policy.

        Returns:
            An array with one number per repetition.
        """
        return self.regret(label)[:, -1]

    def pulls(self, label: str) -> np.ndarray:
        """How often each repetition pulled each arm.

        Args:
            label: the label of a policy.

        Returns:
            An array of shape (repetitions, arms).
        """
        rows = [run.pulls for run in self._finished_runs(label)]
        return np.array(rows, dtype=np.int64).reshape(-1, self.environment.arms)

    def guarantee(self, label: str) -> str:
        """The policy's guarantee in a few words: "ε=1 per trajectory", "not private".

        Args:
            label: the label of a policy.
        """
        self._finished_runs(label)
        return str(self.policies[label].guarantee)

    def summary(self) -> Summary:
        """Summarise the final regret of each policy.

        Returns:
            A sequence of rows that prints as a table, with tails and winners if there are any.
        """
        from balaclava.simulation.analysis.summary import summarise

        return summarise(self)

    def tails(self, label: str) -> tuple[RegretQuantile, ...]:
        """The 99, 99.9 and 99.99 % quantiles of the final regret, as far as the runs allow.

        Args:
            label: the label of a policy.

        Returns:
            The quantiles, each with the two runs between which it lies with 95 % confidence.
            That of 99 % needs 368 runs; with fewer there is none.
        """
        from balaclava.simulation.analysis.regret_tails import regret_quantiles

        return regret_quantiles(self.final_regret(label))

    def bad_runs(
        self, factor: float = 5.0, medians: Mapping[str, float] | None = None
    ) -> dict[str, BadRuns]:
        """The share of runs of each policy whose regret exceeds `factor` medians.

        Args:
            factor: how many medians; above 0.
            medians: medians to compare with, by label; by default each policy's own.

        Returns:
            By label the share with its exact 95 % interval; NaN if the median is negative, as with
            losses.

        Raises:
            ParameterError: if `factor` is not above 0.
            UnknownNameError: if a label in `medians` is unknown.
        """
        from balaclava.simulation.analysis.regret_tails import bad_runs

        factor = check("factor", factor, Annotated[float, Range(0, open_low=True)])
        medians = {} if medians is None else medians
        for label in medians:
            self._finished_runs(label)
        return bad_runs(self, factor, medians)

    def winners(self, confidence: float = 0.95) -> Winners:
        """How many runs name the right arm, a wrong one or none, and when.

        A run ends at the first checkpoint at which `agent.winner(confidence)` would name an arm.

        Args:
            confidence: the chance that all intervals hold, between 0 and 1.

        Returns:
            A sequence of rows that prints as a table.

        Raises:
            EstimateError: if the simulation was run without `winners=True`, or with policies
                that offer no estimates.
            ParameterError: if `confidence` is out of its range.
        """
        from balaclava.simulation.analysis.winners import find_winners

        return find_winners(self, confidence)

    def plot(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        band: Band = (0.1, 0.9),
        log_rounds: bool = False,
        log_regret: bool = False,
        bound: bool = False,
        theory: bool = False,
        paper: bool = False,
        ax: Axes | None = None,
    ) -> Figure:
        """Draw the mean regret of each policy over the rounds; the legend states its guarantee.

        Colours and line styles differ for any colour vision. Fonts are embedded. Policies without a
        finished repetition are left out.

        Args:
            path: where to save the figure, as .png, .pdf or .svg; None saves nothing.
            band: two quantiles of the repetitions, "interval" for the 95 % interval of the mean,
                or None.
            log_rounds: use a logarithmic axis of rounds: logarithmic regret becomes a straight
                line.
            log_regret: use a logarithmic axis of regret.
            bound: draw the proved bound at the horizon as a level, if there is one. There is none
                for late rewards.
            theory: draw the proved bound at every checkpoint as a dashed curve, if there is one.
                Most are far above the measured regret: combine with log_regret.
            paper: draw for one column of a paper: 3.4 inches wide, with 8 points, no title, markers
                that differ in grey and the legend below.
            ax: axes to draw on; by default those of a new figure.

        Returns:
            The matplotlib figure.

        Raises:
            ParameterError: if `band`, `ax` or the ending of `path` is not allowed.

        Example:
            >>> import balaclava as bl
            >>> world = bl.environment("bernoulli", means=[0.3, 0.5, 0.7])
            >>> results = bl.simulate(bl.policy("ucb1", arms=3), world,
            ...                       horizon=1_000, repetitions=10, seed=1)
            >>> [line.get_label() for line in results.plot().axes[0].lines]
            ['ucb1 [not private]']
        """
        from balaclava.simulation.analysis import regret_plots

        return regret_plots.plot(
            self, path, band=band, log_rounds=log_rounds, log_regret=log_regret, bound=bound,
            theory=theory, paper=paper, ax=ax,
        )  # fmt: skip

    def to_arrow(self) -> Any:
        """The results in long form.

        Returns:
            A pyarrow table with one row per repetition and checkpoint and the columns policy (the
            label), privacy, repetition, round and regret.
        """
        pa = import_extra("pyarrow", "a table of results")
        runs = [run for label in self.labels for run in self._finished_runs(label)]
        rounds, count = self.checkpoints, self.checkpoints.size
        guarantees = {label: self.guarantee(label) for label in self.labels}
        labels = [label for run in runs for label in [run.label] * count]
        privacy = [guarantees[label] for label in labels]
        columns = {
            "policy": pa.array(labels, pa.string()).dictionary_encode(),
            "privacy": pa.array(privacy, pa.string()).dictionary_encode(),
            "repetition": np.repeat([run.repetition for run in runs], count).astype(np.int64),
            "round": np.tile(rounds, len(runs)).astype(np.int64),
            "regret": np.concatenate([np.empty(0), *(run.regret for run in runs)]),
        }
        return pa.table(columns)

    def to_pandas(self) -> Any:
        """The table of `to_arrow` as a pandas frame."""
        import_extra("pandas", "a pandas frame")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """The table of `to_arrow` as a polars frame."""
        return import_extra("polars", "a polars frame").from_arrow(self.to_arrow())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the results to one Parquet file, which `bl.load` reads.

        The file contains all parameters, but never the rewards of an environment made from data.

        Args:
            path: the file. It is replaced as a whole, or left as it was.

        Raises:
            ResultsFileError: if the file cannot be written.
        """
        from balaclava.simulation.results_file import save

        save(self, path)

    def _finished_runs(self, label: str) -> list[Run]:
        if label not in self.runs:
            raise UnknownNameError(f"no policy is labelled {label!r}; {nearest(label, self.runs)}")
        return [run for _, run in sorted(self.runs[label].items())]

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def __repr__(self) -> str:
        counts = ", ".join(f"{label}: {len(runs)}" for label, runs in self.runs.items())
        where = f"{self.environment.name}, horizon {self.horizon}"
        return f"<Results on {where}; repetitions: {counts}>"
