"""The numbers and charts of one environment and one horizon, for templates/panel.html."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import numpy as np

from balaclava._core.number_format import percent, rounded_up, significant
from balaclava.policies.base import Policy
from balaclava.privacy.guarantee import Scope
from balaclava.reporting import report_charts
from balaclava.reporting.report_charts import (
    ArmGroup,
    ChartCurve,
    ChartLevel,
    IntervalRow,
    LineLook,
    SharesRow,
)
from balaclava.reporting.report_data import (
    CURVE_QUANTILES,
    FINAL_QUANTILES,
    FinalRegret,
    ResultsPanel,
)
from balaclava.simulation.analysis.regret_tails import tail_cells
from balaclava.simulation.analysis.statistics import CONFIDENCE
from balaclava.simulation.analysis.winners import Winners, has_releases

MOST_BANDS = 12  # curves whose bands a reader can still distinguish; a guess
_ARM_GROUPS = 10  # groups of arms below the best in the chart of pulls; a guess
TABLE_HEADER = (
    *("policy", "guarantee", "repetitions", "mean regret", f"± ({CONFIDENCE:.0%})"),
    *(f"{share:.0%}" for share in FINAL_QUANTILES),
    *("pulls of the best arm", "proved bound"),
)


@dataclass(frozen=True)
class PanelSection:
    """A panel as the template needs it."""

    panel: ResultsPanel
    key: str  # the id of the section
    looks: Mapping[str, LineLook]
    points: int  # at most, on a curve

    @property
    def few_curves(self) -> bool:
        return len(self.panel.labels) <= MOST_BANDS

    @property
    def late_rewards(self) -> bool:
        """Whether bounds are missing because rewards were delayed."""
        return not self.panel.results.feedback.prompt and not self.panel.worlds

    @cached_property
    def curves(self) -> list[ChartCurve]:
        """Mean regret over the rounds, the highest final regret first."""
        results = self.panel.results
        places = spaced_places(results.checkpoints.size, self.points)
        scopes = {row.label: row.scope for row in reversed(self.panel.final)}
        return [
            regret_curve(results, label, scope, self.looks[label], places)
            for label, scope in scopes.items()
        ]

    @cached_property
    def bounds(self) -> list[ChartLevel]:
        """The proved bounds; none over several worlds, which have different bounds."""
        return [
            ChartLevel(row.label, row.scope, self.looks[row.label], row.bound)
            for row in self.panel.final
            if row.bound is not None and not self.panel.worlds
        ]

    def hover_data(self) -> dict[str, Any]:
        """The numbers that the page's script displays on hovering."""
        return {
            "rounds": self.curves[0].x.tolist(),
            "curves": [
                {
                    "policy": curve.look.index,
                    "label": curve.label,
                    "scope": curve.scope,
                    "mean": [float(f"{value:.4g}") for value in curve.mean],
                }
                for curve in self.curves
            ],
        }

    def price_rows(self) -> list[tuple[str, ...]]:
        """For each guarantee the policy with the lowest regret, and its cost."""
        best: dict[str, FinalRegret] = {}
        for row in self.panel.final:  # the lowest first
            best.setdefault(row.scope, row)
        policies = self.panel.results.policies
        best = dict(sorted(best.items(), key=lambda pair: _strength(policies[pair[1].label])))
        baseline = best.get("not private")
        rows: list[tuple[str, ...]] = []
        for scope, row in best.items():
            price = "–"
            if baseline is not None and baseline.mean > 0:
                price = "1" if row is baseline else significant(row.mean / baseline.mean)
            rows.append((scope, row.label, self._interval(row).value, price))
        return rows

    @property
    def interval_rows(self) -> list[IntervalRow]:
        return [self._interval(row) for row in self.panel.final]

    def _interval(self, row: FinalRegret) -> IntervalRow:
        look = self.looks[row.label]
        return IntervalRow(row.label, row.scope, look, row.mean, row.low, row.high, row.quantiles)

    def epsilon_curves(self) -> tuple[list[ChartCurve], list[ChartLevel]]:
        """Policies that differ in epsilon alone, and those that are not private."""
        families = self._epsilon_families()
        curves = [self._epsilon_curve(family, families) for family in families]
        curves.sort(key=lambda curve: -curve.mean[0])
        levels = [
            ChartLevel(row.label, row.scope, self.looks[row.label], row.mean)
            for row in self.panel.final
            if row.scope == "not private"
        ]
        return curves, levels

    def _epsilon_families(self) -> list[list[FinalRegret]]:
        families: dict[str, list[FinalRegret]] = {}
        policies = self.panel.results.policies
        for row in self.panel.final:
            policy = policies[row.label]
            others = {k: v for k, v in policy.parameters.items() if k != "epsilon"}
            if policy.guarantee.private and "epsilon" in policy.annotations:
                name = json.dumps([policy.name, others], sort_keys=True, default=str)
                families.setdefault(name, []).append(row)

        def epsilon(row: FinalRegret) -> float:
            return float(policies[row.label].guarantee.epsilon)

        ordered = [sorted(family, key=epsilon) for family in families.values()]
        return [family for family in ordered if len(set(map(epsilon, family))) > 1]

    def _epsilon_curve(
        self, rows: Sequence[FinalRegret], families: Iterable[Sequence[FinalRegret]]
    ) -> ChartCurve:
        policies = self.panel.results.policies
        policy = policies[rows[0].label]
        known = not any(np.isnan(row.high) for row in rows)
        rivals = [policies[family[0].label] for family in families]
        return ChartCurve(
            _family_name(policy, rivals),
            policy.guarantee.covered,
            self.looks[rows[0].label],
            np.array([policies[row.label].guarantee.epsilon for row in rows]),
            np.array([row.mean for row in rows]),
            np.array([row.low for row in rows]) if known else None,
            np.array([row.high for row in rows]) if known else None,
            dots=True,
        )

    def pulls(self) -> tuple[list[SharesRow], list[ArmGroup]]:
        """The share of pulls of each group of arms; empty for a single arm, or with contexts."""
        results = self.panel.results
        gaps = results.environment.gaps
        if gaps.size < 2 or results.environment.dimension is not None:
            return [], []
        order = np.argsort(gaps, kind="stable")
        best, others = order[gaps[order] == 0], order[gaps[order] > 0]
        groups = [group for group in (best, *np.array_split(others, _ARM_GROUPS)) if group.size]
        rows = []
        for row in self.panel.final:
            pulls = results.pulls(row.label).sum(axis=0)
            shares = [float(pulls[group].sum() / pulls.sum()) for group in groups]
            rows.append(SharesRow(row.label, row.scope, self.looks[row.label], shares))
        names = [_group_name(results, group, i == 0) for i, group in enumerate(groups)]
        return rows, report_charts.arm_groups(names)

    def winners(self) -> Winners | None:
        """How many runs name the right arm, if that was recorded."""
        return self.panel.results.winners() if has_releases(self.panel.results) else None

    def tails(self) -> list[tuple[str, ...]]:
        """High quantiles of the final regret; empty after too few runs."""
        return tail_cells(self.panel.results)

    def table_rows(self) -> list[tuple[str, ...]]:
        return [
            (
                *(row.label, row.scope, str(row.repetitions), significant(row.mean)),
                *map(significant, (row.high - row.mean, *row.quantiles)),
                *(percent(row.best_arm_share), significant(row.bound, write=rounded_up)),
            )
            for row in self.panel.final
        ]


def spaced_places(size: int, most: int) -> np.ndarray:
    """Evenly spaced indices of an array of `size`, the first and the last included."""
    return np.unique(np.linspace(0, size - 1, min(most, size)).round().astype(int))


def regret_curve(
    results: Any, label: str, scope: str, look: LineLook, places: np.ndarray
) -> ChartCurve:
    """The mean regret of a policy, with quantiles of its repetitions."""
    regret = results.regret(label)[:, places]
    low, high = np.quantile(regret, CURVE_QUANTILES, axis=0) if len(regret) > 1 else (None, None)
    rounds = results.checkpoints[places]
    return ChartCurve(label, scope, look, rounds, regret.mean(axis=0), low, high)


def _strength(policy: Policy) -> tuple[int, float, float]:
    """Sort key of guarantees: none, then by scope, each from the weakest to the strongest."""
    guarantee = policy.guarantee
    return get_args(Scope).index(guarantee.scope), -guarantee.epsilon, -guarantee.delta


def _family_name(policy: Policy, rivals: Iterable[Policy]) -> str:
    """The policy's name, with the parameters that distinguish it from a namesake."""
    others = [rival.parameters for rival in rivals if rival.name == policy.name]
    differing = [
        f"{key}={value}"
        for key, value in policy.parameters.items()
        if key != "epsilon" and any(other[key] != value for other in others)
    ]
    return f"{policy.name}({', '.join(differing)})" if differing else policy.name


def _group_name(results: Any, group: np.ndarray, is_best: bool) -> str:
    arms = f"arm {results.arm_labels[group[0]]}" if group.size == 1 else f"{group.size} arms"
    if is_best:
        return f"best ({arms})"
    if results.environment.holds_data:
        return arms  # its gap was computed from logged rewards
    gaps = results.environment.gaps[group]
    low, high = significant(float(gaps.min())), significant(float(gaps.max()))
    return f"{arms}, {low if low == high else f'{low} to {high}'} below"
