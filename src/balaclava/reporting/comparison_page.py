"""The page of `balaclava compare`: what a log says, and how the policies that fit it did."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from balaclava._core.number_format import significant
from balaclava.advice.choose.recommend import code_of
from balaclava.advice.log.arm_estimates import is_binary
from balaclava.advice.log.off_policy import OFF_POLICY_METHODS
from balaclava.advice.log.worlds import WORLD_LAWS
from balaclava.advice.trial.compare import Comparison
from balaclava.advice.trial.feature_trial import FeatureGain
from balaclava.advice.trial.standings import AT_RANDOM, RADIUS_SCALE
from balaclava.reporting.html_tables import wide_table
from balaclava.reporting.report_data import PageData, ResultsPanel
from balaclava.reporting.report_page import write_page
from balaclava.reporting.svg_charts import escape


def write_comparison(
    comparison: Comparison, out: str | os.PathLike[str], *, command: str = ""
) -> Path:
    """The page, as one HTML file; `command` is what gives it again."""
    title = f"Policies for {Path(comparison.log.path).name}"
    panel = ResultsPanel(title, comparison.results, worlds=True)
    story = PageData(title, [panel], {}, {}, [], command or "balaclava compare")
    return write_page(story, out, opening=_opening(comparison))


def arm_table(comparison: Comparison) -> list[tuple[str, ...]]:
    """Rows, mean and interval of each arm, as text; the header first."""
    log = comparison.log
    header = ["arm", "rows", "mean", "95 % interval"]
    cells = [
        [row.label, f"{row.rows:,}", f"{row.mean:.4g}", f"{row.low:.4g} to {row.high:.4g}"]
        for row in log.arms
    ]
    if log.weighted:
        header[2:] = ["plain mean", "SNIPS", "95 % interval", "IPS", "95 % interval", "worth rows"]
        for row, weighted, samples in zip(cells, log.weighted, log.samples, strict=True):
            row[2:] = [
                f"{samples.mean():.4g}",
                f"{weighted.snips:.4g}",
                f"{weighted.snips_low:.4g} to {weighted.snips_high:.4g}",
                f"{weighted.ips:.4g}",
                f"{weighted.ips_low:.4g} to {weighted.ips_high:.4g}",
                f"{weighted.effective:,.0f}",
            ]
    return [tuple(header), *map(tuple, cells)]


def standing_table(comparison: Comparison) -> list[tuple[str, ...]]:
    """The policies, best first, as text; the header first."""
    header = ("policy", "privacy", "regret", "± (95 %)", "5 % to 95 %", "of random", "fits")
    rows = []
    for row in comparison.standings:
        share = f"{row.share:.0%} ± {row.share_plus_minus:.0%}" if row.share == row.share else "-"
        private = row.label in comparison.candidates
        rows.append(
            (
                *(row.label, row.guarantee, significant(row.mean), significant(row.plus_minus)),
                f"{significant(row.low)} to {significant(row.high)}",
                share,
                ("yes" if row.beats_random else "no") if private else "-",
            )
        )
    return [header, *rows]


def value_table(context: FeatureGain) -> list[tuple[str, ...]]:
    """What policies would have earned a decision, as text; the header first."""
    header = ["policy"]
    for method in OFF_POLICY_METHODS:
        header += [method, "95 % interval"]
    rows = []
    for value in context.off_policy.values:
        cells = [value.policy]
        for method in OFF_POLICY_METHODS:
            each = value.estimates[method]
            cells += [f"{each.value:.4g}", f"{each.low:.4g} to {each.high:.4g}"]
        rows.append((*cells, f"{value.effective:,.0f}"))
    return [(*header, "worth rows"), *rows]


def context_table(context: FeatureGain) -> list[tuple[str, ...]]:
    """Policies with features and without, best first, as text; the header first."""
    header = ("policy", "privacy", "regret", "± (95 %)", "of random")
    rows = () if context.extra is None else context.extra.standings
    return [
        header,
        *(
            (
                *(row.label, row.guarantee, significant(row.mean), significant(row.plus_minus)),
                f"{row.share:.0%} ± {row.share_plus_minus:.0%}",
            )
            for row in rows
        ),
    ]


def cap_table(comparison: Comparison) -> list[tuple[str, ...]]:
    """What a cap on the rewards of a person does, as text; the header first."""
    caps = () if comparison.people is None else comparison.people.caps
    header = ("rewards used", "a person's guarantee", "rows kept", "people cut", "best arm")
    return [
        header,
        *(
            (
                *(f"at most {cap.rewards}", cap.guarantee, f"{cap.rows_kept:.1%}"),
                *(f"{cap.people_cut:.1%}", cap.best),
            )
            for cap in caps
        ),
    ]


def price_sentences(comparison: Comparison) -> list[str]:
    """What privacy costs, where that can be said."""
    if not comparison.prices:
        return [
            "The price of privacy is not stated: a private policy or its baseline learns nothing."
        ]
    tuned = f"{RADIUS_SCALE}="
    return [
        f"{price.label} has {price.times:.3g} ± {price.plus_minus:.2g} times the regret of "
        f"{price.baseline}, which is not private"
        + (
            f" and whose {RADIUS_SCALE} was chosen the same way."
            if tuned in price.baseline
            else "."
        )
        for price in comparison.prices
    ]


def next_steps(comparison: Comparison) -> list[tuple[str, str]]:
    """What to do with it, in lines that begin with a word; nothing where no policy fits."""
    best = comparison.best
    if best is None:
        return []
    rows = {row.label: row for row in comparison.standings}
    row, at_random = rows[best], rows[AT_RANDOM]
    name = comparison.candidates[best].policy.name
    asked = "who may see rewards, and whether an observer sees one decision or all of them"
    drift = "averages drift in this log, and what was simulated does not: expect more regret"
    return [
        *([("warning", drift)] if comparison.log.drifts else []),
        ("use", code_of(comparison.named(best))),
        ("promise", comparison.candidates[best].policy.guarantee.explain()),
        (
            "risk",
            f"it loses {significant(row.mean)} on average, and up to {significant(row.high)} in "
            f"95 % of the worlds; playing at random loses {significant(at_random.mean)}",
        ),
        (
            "next",
            f"`balaclava choose` asks what no log can say: {asked}; `balaclava audit {name}` tests "
            "the promise; --assessment FILE.toml, added to this command, begins the page for a "
            "review board; `balaclava serve` runs the policy",
        ),
    ]


def how_played(comparison: Comparison) -> str:
    """Where policies were played, in a sentence or two."""
    binary = is_binary(comparison.results.environment.constants().rewards)
    count = len(next(iter(comparison.results.runs.values())))
    feedback = str(comparison.results.feedback)
    late = f", with rewards that come late ({feedback})," if feedback else ""
    return (
        f"Played for {comparison.results.horizon:,} rounds{late} in {count} worlds that the log "
        f"leaves possible: {WORLD_LAWS[binary]}. Regret is what a policy loses, in rewards, "
        "against always playing the best arm of the world that was drawn; 5 % to 95 % is its "
        "spread over worlds."
    )


def _opening(comparison: Comparison) -> str:
    log = comparison.log
    verdict = f'<p class="notice strong">{escape(log.telling.sentence)}</p>'
    verdict = verdict if not log.telling.told else f"<p>{escape(log.telling.sentence)}</p>"
    people = ""
    if comparison.people is not None:
        people = f"<h3>Rewards per person</h3>{_paragraphs(comparison.people.findings())}" + _table(
            "What a cap on the rewards of a person does", cap_table(comparison)
        )
    fitting = "".join(
        f'<li><span class="name">{escape(label)}</span> '
        f'<span class="scope">{escape(comparison.results.guarantee(label))}</span>: '
        f"{escape(why)}</li>"
        for label, why in comparison.fitting.items()
    )
    return (
        f'<section id="log"><h2>What the log says</h2>{verdict}'
        f"{_table('The arms', arm_table(comparison))}{_paragraphs(log.findings())}"
        f"{people}</section>{_gain(comparison.context)}"
        f'<section id="fitting"><h2>Which policies fit, and why</h2>'
        f"{_paragraphs(comparison.findings())}<ul>{fitting}</ul>"
        "<p>A policy fits if it takes such rewards and clearly beats playing at random. "
        f"{escape(how_played(comparison))}</p>"
        f"{_table('Policies', standing_table(comparison))}"
        f"{_paragraphs(price_sentences(comparison))}"
        f"{_with_features(comparison.context)}</section>{_next(comparison)}"
    )


def _next(comparison: Comparison) -> str:
    rows = "".join(
        f"<dt>{escape(word)}</dt><dd>{escape(text)}</dd>"
        for word, text in next_steps(comparison)
        if word != "promise"  # which stands below, for every policy
    )
    return f'<section id="next"><h2>What to do next</h2><dl>{rows}</dl></section>' if rows else ""


def _gain(context: FeatureGain | None) -> str:
    """What features are worth, before any policy."""
    if context is None:
        return ""
    first, *others = context.findings()
    return (
        f'<section id="features"><h2>Deciding by features</h2>'
        f'<p class="notice strong">{escape(first)}</p>'
        f"{_table('What policies would have earned a decision', value_table(context))}"
        f"{_paragraphs(others)}</section>"
    )


def _with_features(context: FeatureGain | None) -> str:
    """How private policies with features did, where features help."""
    if context is None or context.extra is None:
        return ""
    return (
        f"<h3>With features</h3>{_paragraphs(context.advice())}"
        f"{_table('With features and without, on drawn worlds', context_table(context))}"
        "<p>Regret is counted against the best arm for each person's features.</p>"
    )


def _paragraphs(sentences: Iterable[str]) -> str:
    return "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)


def _table(label: str, cells: Sequence[tuple[str, ...]]) -> str:
    header, *rows = cells
    return wide_table(label, header, rows)
