"""The page of `balaclava compare`: what a log says, and how the policies that fit it did."""

from __future__ import annotations

import os
from pathlib import Path

from balaclava.advice.compare import Comparison
from balaclava.reporting.charts import escape
from balaclava.reporting.page import write_page
from balaclava.reporting.panels import story_of


def write_comparison(comparison: Comparison, out: str | os.PathLike[str]) -> Path:
    """The page, as one HTML file."""
    story = story_of(comparison.results, f"Policies for {Path(comparison.log.path).name}")
    return write_page(story, out, opening=_opening(comparison))


def _opening(comparison: Comparison) -> str:
    findings = "".join(f"<p>{escape(sentence)}</p>" for sentence in comparison.log.findings())
    promise = comparison.results.guarantee
    reasons = "".join(
        f'<li><span class="name">{escape(label)}</span> '
        f'<span class="scope">{escape(promise(label))}</span>: {escape(why)}</li>'
        for label, why in comparison.why().items()
    )
    labels = {advice.baseline_label: advice.baseline.name for advice in comparison.advice.values()}
    baselines = "".join(
        f"<p>{escape(label)} is no recommendation: it is the baseline, with settings "
        "chosen by trying ten on two problems. The private policies were not tuned, except "
        "where a label says so.</p>"
        for label, name in labels.items()
        if label != name
    )
    return (
        f'<section id="log"><h2>What the log says</h2>{findings}'
        f"<h3>Which policies fit, and why</h3><ul>{reasons}</ul>"
        "<p>Each arm was played by drawing from its logged rewards at random. If the log was "
        "made by a policy that looked at rewards or at people, its averages may be biased, and "
        f"so is what is shown here.</p>{baselines}</section>"
    )
