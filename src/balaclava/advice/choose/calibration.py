"""The result of `bl.calibrate`: the chosen scale, and the runs behind the choice."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from balaclava._core.number_format import percent, significant
from balaclava._core.text_tables import text_lines
from balaclava.policies.base import Policy


class ScaleTrial(NamedTuple):
    """The cost of a scale; 1 is the least cost in every environment."""

    scale: float
    cost: float
    repetitions: int


class CalibrationRow(NamedTuple):
    """The regret in an environment before and after, on runs that took no part in the choice."""

    environment: str
    held_out: bool
    before: float  # mean regret of the policy as given
    worst_before: float
    mean: float
    plus_minus: float  # half the width of the 95 % interval for the mean
    worst: float
    risk_before: float | None = None  # quantile that the scale was chosen by, if any
    risk: float | None = None


class ScaleFinalist(NamedTuple):
    """The regret of a finalist in an environment, on the runs of the final."""

    scale: float
    environment: str
    mean: float
    plus_minus: float  # half the width of the 95 % interval for the mean
    median: float
    high: float  # the 95 % quantile
    worst: float
    risk: float | None = None  # quantile that the scale was chosen by, if any


@dataclass(frozen=True)
class Calibration:
    """A policy with its calibrated scale. Printing it displays the whole report.

    Attributes:
        policy: the policy with the chosen scale.
        parameter: the parameter that was chosen, such as "radius_scale".
        scale: the chosen scale.
        scale_before: the scale as given.
        horizon: rounds of a run.
        repetitions: runs of each finalist.
        seed: the seed of the search.
        trials: the cost of every scale that was tried.
        finalists: the regret of each finalist in each environment.
        rows: the regret before and after, in all environments.
        notes: warnings and remarks, in sentences.
        risk: the quantile that the scale was chosen by; None if by mean and worst run.
    """

    policy: Policy
    parameter: str
    scale: float
    scale_before: float
    horizon: int
    repetitions: int
    seed: int
    trials: tuple[ScaleTrial, ...]
    finalists: tuple[ScaleFinalist, ...]
    rows: tuple[CalibrationRow, ...]
    notes: tuple[str, ...]
    risk: float | None = None

    @property
    def table(self) -> str:
        """The rows as a text table."""
        quantile = [] if self.risk is None else [percent(self.risk, ".8g")]
        before, after = ("before", *quantile, "worst run"), ("after", "± (95 %)", *quantile)
        cells: list[tuple[str, ...]] = [("environment", *before, *after, "worst run")]
        for row in self.rows:
            name = f"{row.environment} (held out)" if row.held_out else row.environment
            numbers_before = (row.before, row.risk_before, row.worst_before)
            numbers = (row.mean, row.plus_minus, row.risk, row.worst)
            cells.append((name, *_figures([*numbers_before, *numbers])))
        return "\n".join(text_lines(cells))

    @property
    def final_table(self) -> str:
        """The finalists as a text table."""
        header = ("scale", "environment", "mean", "± (95 %)", "median", "95 %", "worst run")
        cells: list[tuple[str, ...]] = [header]
        if self.risk is not None:
            cells = [(*header, percent(self.risk, ".8g"))]
        for scale, environment, *numbers in self.finalists:
            cells.append((f"{scale:.3g}", environment, *_figures(numbers)))
        return "\n".join(text_lines(cells))

    def __str__(self) -> str:
        costs = ", ".join(f"{trial.scale:.3g}: {trial.cost:.3g}" for trial in self.trials)
        return "\n".join(
            [
                f"{self.policy.name}: {self.parameter} = {self.scale:.4g} instead of "
                f"{self.scale_before:.4g}",
                "",
                f"Regret after {self.horizon} rounds, {self.repetitions} fresh runs, before "
                "(as given) and after:",
                self.table,
                "",
                f"The final, {self.repetitions} other runs of each:",
                self.final_table,
                "",
                f"Tried (scale: cost, 1 is the best in every environment): {costs}",
                *(f"- {note}" for note in self.notes),
            ]
        )

    __repr__ = __str__


def _figures(numbers: Iterable[float | None]) -> list[str]:
    return [significant(number, 4) for number in numbers if number is not None]
