"""The parts of a page about one environment and one horizon."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from balaclava._core.number_format import rounded_up, significant
from balaclava.reporting.html_tables import NUMBER, wide_table
from balaclava.reporting.report_data import (
    CURVE_QUANTILES,
    FINAL_QUANTILES,
    FinalRegret,
    ResultsPanel,
)
from balaclava.reporting.svg_charts import (
    ChartCurve,
    ChartLevel,
    IntervalRow,
    LineLook,
    SharesRow,
    curves_chart,
    escape,
    intervals_chart,
    legend,
    points_chart,
    shares_chart,
)
from balaclava.simulation.analysis.regret_tails import TAIL_HEADER, tail_cells
from balaclava.simulation.analysis.statistics import CONFIDENCE
from balaclava.simulation.analysis.winners import recorded

if TYPE_CHECKING:
    from balaclava.policies.base import Policy

MOST_BANDS = 12  # curves of which bands can still be told apart
_GROUPS = 10  # of arms, in the chart of pulls


def panel_section(
    panel: ResultsPanel, key: str, looks: Mapping[str, LineLook], points: int, *, alone: bool
) -> str:
    """Everything about one panel; its heading only where there are others."""
    title = f"<p class='facts'>{escape(panel.facts)}</p>"
    if not alone:
        title = f"<h2>{escape(panel.heading)}</h2>{title}"
    if not panel.labels:
        return f'<section id="{key}">{title}<p>No repetition was finished.</p></section>'
    level = "h2" if alone else "h3"
    parts = {
        "Regret over the rounds": _curves(panel, key, looks, points),
        "Final regret": _intervals(panel, looks),
    }
    if not panel.worlds:  # one environment, of which more can be said
        parts = {
            "Regret over the rounds": parts["Regret over the rounds"],
            "The price of privacy": _price(panel.final, panel.results.policies),
            "Final regret": parts["Final regret"],
            "Regret against epsilon": _against_epsilon(panel, looks),
            "Which arms were pulled": _pulls(panel, looks),
            "Winners": _winners(panel),
            "Tails": _tails(panel),
            "Table": _table(panel),
        }
    charts = "".join(
        f'<section class="part"><{level}>{name}</{level}>{content}</section>'
        for name, content in parts.items()
        if content
    )
    return f'<section id="{key}" class="panel">{"" if alone else title}{charts}</section>'


def _price(rows: Sequence[FinalRegret], policies: Mapping[str, Policy]) -> str:
    """For each promise the policy with the lowest regret, and what the promise costs."""
    best: dict[str, FinalRegret] = {}
    for row in rows:  # the lowest first
        best.setdefault(row.scope, row)
    best = dict(sorted(best.items(), key=lambda pair: _promise(policies[pair[1].label])))
    baseline = best.get("not private")
    lines = []
    for scope, row in best.items():
        price = "–"
        if baseline is not None and baseline.mean > 0:
            price = "1" if row is baseline else f"{significant(row.mean / baseline.mean)}"
        lines.append((scope, row.label, f"{significant(row.mean)}{_plus_minus(row)}", price))
    header = ("promise", "lowest regret", "mean regret", "times the baseline")
    return (
        "<p>Of the policies that make the same promise, the one with the lowest mean regret, and "
        "how many times the regret of the baseline it has: of the best policy here that is not "
        "private. Promises of different scope are not alike: compare within a scope first.</p>"
        + wide_table("Price of privacy", header, lines, ("name", NUMBER, NUMBER))
    )


def _winners(panel: ResultsPanel) -> str:
    """How many runs name the right arm, where that was recorded."""
    if not recorded(panel.results):
        return ""
    winners = panel.results.winners()
    header, *rows = winners.cells
    return (
        f"<p>Share of runs whose releases tell, at {winners.confidence:.0%} confidence, which arm "
        "is the best: the right one, a wrong one or none by the horizon. A run stops at the first "
        "checkpoint at which it can be told.</p>"
        + wide_table("Winners", header, rows, [NUMBER] * (len(header) - 1))
    )


def _tails(panel: ResultsPanel) -> str:
    """High quantiles, where there are runs enough."""
    rows = tail_cells(panel.results)
    if not rows:
        return ""
    return (
        "<p>Quantiles of the final regret: what one run in 100, 1,000 or 10,000 exceeds. Each lies "
        f"between the two numbers beside it with {CONFIDENCE:.0%} confidence; those of which the "
        "runs say nothing are left out.</p>"
        + wide_table("Tails", TAIL_HEADER, rows, [NUMBER] * (len(TAIL_HEADER) - 1))
    )


def _promise(policy: Policy) -> tuple[int, float, float]:
    """Promises in order: none, then by scope, each from the weakest to the strongest."""
    guarantee = policy.guarantee
    scopes = ("none", "decision", "trajectory", "report")
    return scopes.index(guarantee.scope), -guarantee.epsilon, -guarantee.delta


def _plus_minus(row: FinalRegret) -> str:
    return "" if row.high != row.high else f" ± {significant(row.high - row.mean)}"


def _curves(panel: ResultsPanel, key: str, looks: Mapping[str, LineLook], points: int) -> str:
    results = panel.results
    size = results.checkpoints.size
    places = np.unique(np.linspace(0, size - 1, min(points, size)).round().astype(int))
    rounds = results.checkpoints[places]
    curves = []
    for row in reversed(panel.final):  # the highest first, as the curves end
        regret = results.regret(row.label)[:, places]
        low, high = (
            np.quantile(regret, CURVE_QUANTILES, axis=0) if len(regret) > 1 else (None, None)
        )
        mean = regret.mean(axis=0)
        curves.append(ChartCurve(row.label, row.scope, looks[row.label], rounds, mean, low, high))
    bounds = (
        []
        if panel.worlds
        else [
            ChartLevel(row.label, row.scope, looks[row.label], row.bound)
            for row in panel.final
            if row.bound is not None
        ]
    )
    title = f"Mean regret over {results.horizon:,} rounds of {len(curves)} policies"
    chart = curves_chart(curves, bounds, title=f"{title}; the numbers are in the table", key=key)
    low_share, high_share = CURVE_QUANTILES
    caption = f"Mean of the repetitions; bands: {low_share:.0%} to {high_share:.0%} of them."
    if bounds:
        caption += (
            " Dotted levels: the proved bound on the expected regret at the horizon, where it fits "
            "into the picture; all are in the table."
        )
    elif not results.feedback.prompt and not panel.worlds:
        caption += " No proved bounds: they are for rewards that come at once."
    many = " many" if len(curves) > MOST_BANDS else ""
    data = json.dumps(_hover_data(curves), separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<figure class="chart{many}"><div class="views">{chart}</div>{legend(curves)}'
        f"<figcaption>{caption}</figcaption></figure>"
        f'<script type="application/json" id="{key}-data">{data}</script>'
    )


def _hover_data(curves: Sequence[ChartCurve]) -> dict[str, Any]:
    return {
        "rounds": curves[0].x.tolist(),
        "curves": [
            {
                "policy": curve.look.index,
                "label": curve.label,
                "scope": curve.scope,
                "mean": [float(f"{value:.4g}") for value in curve.mean],
            }
            for curve in curves
        ],
    }


def _intervals(panel: ResultsPanel, looks: Mapping[str, LineLook]) -> str:
    rows = [
        IntervalRow(
            row.label, row.scope, looks[row.label], row.mean, row.low, row.high, row.quantiles
        )
        for row in panel.final
    ]
    return (
        f'<figure class="chart rows">{intervals_chart(rows)}<figcaption>Dot: mean. Thick: '
        f"{CONFIDENCE:.0%} confidence interval of the mean. Thin: {FINAL_QUANTILES[0]:.0%} to "
        f"{FINAL_QUANTILES[1]:.0%} of the repetitions.</figcaption></figure>"
    )


def _against_epsilon(panel: ResultsPanel, looks: Mapping[str, LineLook]) -> str:
    """Where policies differ in epsilon and in nothing else."""
    families: dict[str, list[tuple[float, FinalRegret]]] = {}
    for row in panel.final:
        policy = panel.results.policies[row.label]
        others = {k: v for k, v in policy.parameters.items() if k != "epsilon"}
        if policy.guarantee.private and "epsilon" in policy.annotations:
            name = json.dumps([policy.name, others], sort_keys=True, default=str)
            families.setdefault(name, []).append((policy.guarantee.epsilon, row))
    varied = [sorted(f, key=lambda pair: pair[0]) for f in families.values()]
    varied = [f for f in varied if len({epsilon for epsilon, _ in f}) > 1]
    if not varied:
        return ""
    curves = []
    for family in varied:
        first = family[0][1].label
        policy = panel.results.policies[first]
        rows = [row for _, row in family]
        known = all(row.high == row.high for row in rows)
        curves.append(
            ChartCurve(
                _family_name(policy, varied, panel),
                f"per {policy.guarantee.scope}",
                looks[first],
                np.array([epsilon for epsilon, _ in family]),
                np.array([row.mean for row in rows]),
                np.array([row.low for row in rows]) if known else None,
                np.array([row.high for row in rows]) if known else None,
            )
        )
    curves.sort(key=lambda curve: -curve.mean[0])
    levels = [
        ChartLevel(row.label, row.scope, looks[row.label], row.mean)
        for row in panel.final
        if row.scope == "not private"
    ]
    chart = points_chart(curves, levels, title="Final regret against epsilon")
    caption = "Mean regret at the horizon, with its confidence interval."
    if levels:
        caption += " Levels: policies that are not private."
    return (
        f'<figure class="chart"><div class="views">{chart}</div>'
        f"{legend([*curves, *levels], dots=True)}<figcaption>{caption}</figcaption></figure>"
    )


def _family_name(policy: Policy, varied: Sequence[Any], panel: ResultsPanel) -> str:
    """The policy's name, with what sets it apart from a namesake."""
    firsts = [panel.results.policies[family[0][1].label] for family in varied]
    rivals = [other.parameters for other in firsts if other.name == policy.name]
    mine = policy.parameters
    differing = [
        f"{k}={v}" for k, v in mine.items() if k != "epsilon" and any(r[k] != v for r in rivals)
    ]
    return f"{policy.name}({', '.join(differing)})" if differing else policy.name


def _pulls(panel: ResultsPanel, looks: Mapping[str, LineLook]) -> str:
    results = panel.results
    gaps = results.environment.gaps
    if gaps.size < 2:
        return ""
    order = np.argsort(gaps, kind="stable")
    best = order[gaps[order] == 0]
    others = order[gaps[order] > 0]
    groups = [group for group in (best, *np.array_split(others, _GROUPS)) if group.size]
    names = [_group_name(results, group, i == 0) for i, group in enumerate(groups)]
    rows = []
    for final in panel.final:
        pulls = results.pulls(final.label).sum(axis=0)
        shares = [float(pulls[group].sum() / pulls.sum()) for group in groups]
        rows.append(SharesRow(final.label, final.scope, looks[final.label], shares))
    return (
        f'<figure class="chart rows">{shares_chart(rows, names)}<figcaption>Shares of all pulls, '
        "from the best arm to the worst; the number is the share of the best.</figcaption></figure>"
    )


def _group_name(results: Any, group: np.ndarray, is_best: bool) -> str:
    called = results.arm_labels
    arms = f"arm {called[group[0]]}" if group.size == 1 else f"{group.size} arms"
    if is_best:
        return f"best ({arms})"
    if results.environment.holds_data:
        return arms  # how far it is behind is computed from somebody's rewards
    gaps = results.environment.gaps[group]
    low, high = significant(float(gaps.min())), significant(float(gaps.max()))
    return f"{arms}, {low if low == high else f'{low} to {high}'} below"


_COLUMNS = (
    *("policy", "promise", "repetitions", "mean regret", f"± ({CONFIDENCE:.0%})"),
    *(
        f"{FINAL_QUANTILES[0]:.0%}",
        f"{FINAL_QUANTILES[1]:.0%}",
        "pulls of the best arm",
        "proved bound",
    ),
)


def _table(panel: ResultsPanel) -> str:
    rows = [
        (
            *(row.label, row.scope, str(row.repetitions)),
            *map(significant, (row.mean, row.high - row.mean, *row.quantiles)),
            *(f"{row.best_arm_share:.1%}", significant(row.bound, write=rounded_up)),
        )
        for row in panel.final
    ]
    return wide_table("Table of results", _COLUMNS, rows, ["", *[NUMBER] * (len(_COLUMNS) - 2)])
