"""How often simulated runs name the right arm, and when."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from balaclava._core.declared import check
from balaclava._core.kernels import compiled
from balaclava._core.markup import text_lines
from balaclava.agents.estimates import Confidence
from balaclava.errors import EstimateError

if TYPE_CHECKING:
    from balaclava.policies.base import Policy
    from balaclava.simulation.results import Results, Run

NOBODY = -1
HEADER = ("policy", "right", "wrong", "none", "median round")


class WinnersRow(NamedTuple):
    """One policy: shares of its runs. NaN where it offers no estimates, or no run was finished."""

    label: str
    right: float  # an arm with the highest mean was named first
    wrong: float  # another one was
    none: float  # none was by the horizon
    median_round: float  # of the checkpoints at which runs first named an arm; NaN if none did


class Winners(Sequence[WinnersRow]):
    """The rows, and a table of them as text."""

    def __init__(self, confidence: float, rows: Sequence[WinnersRow]) -> None:
        self.confidence = confidence
        self._rows = tuple(rows)

    @overload
    def __getitem__(self, index: int) -> WinnersRow: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[WinnersRow, ...]: ...
    def __getitem__(self, index: int | slice) -> WinnersRow | tuple[WinnersRow, ...]:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[WinnersRow]:
        return iter(self._rows)

    @property
    def cells(self) -> list[tuple[str, ...]]:
        """The table as text, its header first."""
        return [HEADER, *map(_cells, self._rows)]

    @property
    def title(self) -> str:
        """What the table shows."""
        return f"winners named at {self.confidence:.6g} confidence, stopping at the first"

    def __str__(self) -> str:
        return "\n".join([self.title, "", *text_lines(self.cells)])

    __repr__ = __str__


def _cells(row: WinnersRow) -> tuple[str, ...]:
    label, *shares, median = row
    percentages = ("-" if math.isnan(share) else f"{100 * share:.1f} %" for share in shares)
    return (label, *percentages, "-" if math.isnan(median) else f"{median:,.0f}")


def recorded(results: Results) -> bool:
    """Whether any run has what `find_winners` needs."""
    return any(run.released is not None for runs in results.runs.values() for run in runs.values())


def find_winners(results: Results, confidence: float) -> Winners:
    """A row for each policy."""
    confidence = check("confidence", confidence, Confidence)
    if not recorded(results):
        raise EstimateError(
            "nothing was recorded that could name a winner; simulate with winners=True, and a "
            "policy that offers estimates, such as dp-imed"
        )
    rows = [_row(results, label, confidence) for label in results.labels]
    return Winners(confidence, rows)


def _row(results: Results, label: str, confidence: float) -> WinnersRow:
    runs = [run for run in results._of(label) if run.released is not None]
    policy = results.policies[label]
    try:
        policy.require_estimates((1.0 - confidence) / policy.arms)
    except EstimateError:
        runs = []
    if not runs:
        return WinnersRow(label, *[math.nan] * 4)
    first = first_winners(policy, runs, confidence)
    has_winner = first[:, 1] != NOBODY
    best = results.environment.gaps[first[:, 1]] <= 0.0
    rounds = results.checkpoints[first[has_winner, 0]]
    return WinnersRow(
        label,
        float((has_winner & best).mean()),
        float((has_winner & ~best).mean()),
        float((~has_winner).mean()),
        float(np.median(rounds)) if rounds.size else math.nan,
    )


def first_winners(policy: Policy, runs: Sequence[Run], confidence: float) -> np.ndarray:
    """For each run the first checkpoint with a winner, and the winner; NOBODY where none is."""
    failure = (1.0 - confidence) / policy.arms
    search = compiled(make_search, policy.require_estimates(failure).limits)
    params = policy.constants()
    return np.array([search(params, run.released, failure) for run in runs])


def make_search(limits: Callable[..., tuple[float, float]]) -> Callable[..., tuple[int, int]]:
    """What finds the first winner of a run, closed over the limits of a policy."""

    def search(params: Any, released: np.ndarray, failure: float) -> tuple[int, int]:
        rounds, arms, _ = released.shape
        low, high = np.zeros(arms), np.zeros(arms)
        for c in range(rounds):
            for arm in range(arms):
                rewards, mean, noise = released[c, arm]
                if c == 0 or rewards != released[c - 1, arm, 0] or mean != released[c - 1, arm, 1]:
                    low[arm], high[arm] = limits(params, int(rewards), mean, noise, failure)
            best = int(np.argmax(low))
            alone = True
            for arm in range(arms):
                if arm != best and high[arm] >= low[best]:
                    alone = False
            if alone:
                return c, best
        return 0, NOBODY

    return search
