"""The page of `balaclava explore`: sliders, and the comparison at their settings."""

from pathlib import Path
from typing import NamedTuple

from balaclava._core.html_templates import template_source
from balaclava._core.number_format import significant
from balaclava.advice.trial.compare import Comparison
from balaclava.advice.trial.standings import AT_RANDOM
from balaclava.advice.trial.what_if import Explorer, WhatIf, WhatIfAnswer
from balaclava.reporting import comparison_page
from balaclava.reporting.report_charts import LineLook
from balaclava.reporting.report_data import PageData, ResultsPanel
from balaclava.reporting.report_page import REPORTING, render_page, source_digest
from balaclava.reporting.report_sections import PanelSection

_SCRIPTS = ("report.js", "explore.js")
_TITLES = {"epsilon": "Epsilon", "horizon": "Participants", "delay": "Delay", "arms": "Arms"}
_HIDDEN_CURVE_POINTS = 2  # of a curve over rounds that the chart over epsilon does not draw


class Slider(NamedTuple):
    """A setting as a slider over its stops."""

    name: str
    title: str
    texts: list[str]  # of the stops
    value: int  # the stop at which it is

    @property
    def text(self) -> str:
        return self.texts[self.value]


def sliders(explorer: Explorer, settings: WhatIf) -> list[Slider]:
    """The settings that can be changed."""
    rows = []
    for name, title in _TITLES.items():
        stops, value = explorer.stops[name], getattr(settings, name)
        if len(stops) > 1:
            texts = [_stop_text(name, stop) for stop in stops]
            rows.append(Slider(name, title, texts, stops.index(value)))
    return rows


def _stop_text(name: str, stop: float) -> str:
    if name == "epsilon":
        return f"{stop:g}"
    if name == "delay":
        return f"{stop:,} rounds" if stop else "none"
    return f"{stop:,}"


def render_explorer(
    explorer: Explorer, settings: WhatIf, answer: WhatIfAnswer, command: str
) -> str:
    """The page at some settings; `command` gives the same numbers."""
    comparison = answer.comparison
    title = f"Policies for {Path(comparison.log.path).name}"
    panel = ResultsPanel(title, comparison.results, worlds=True)
    return render_page(
        PageData(title, [panel], {}, {}, [], command),
        template="explore.html",
        scripts=_SCRIPTS,
        style=_style(),
        sliders=sliders(explorer, settings),
        summary=_summary(comparison),
        epsilon_section=_epsilon_section(answer),
        best_arm=comparison.log.best_arm_test,
        arms=comparison_page.arm_table(comparison),
        log_findings=comparison.log.findings(),
        findings=comparison.findings(),
        how_played=comparison_page.how_played(comparison),
        standings=comparison_page.standing_table(comparison),
        prices=comparison_page.price_sentences(comparison),
        drift=comparison.drift_trial and comparison_page.drift_table(comparison.drift_trial),
        drift_findings=comparison.drift_trial.findings() if comparison.drift_trial else [],
        steps=comparison_page.next_steps(comparison),
    )


def security_policy() -> str:
    """The content security policy of the page: its own style, its own script, its own address."""
    script = "".join(template_source(REPORTING, name) for name in _SCRIPTS)
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'sha256-{source_digest(script)}'",
            f"style-src-elem 'sha256-{source_digest(_style())}'",
            "style-src-attr 'unsafe-inline'",  # places of ticks
            "connect-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        )
    )


def _style() -> str:
    return "".join(template_source(REPORTING, name) for name in ("report.css", "explore.css"))


def _summary(comparison: Comparison) -> str:
    """What the best policy loses, in a sentence."""
    trial = comparison.drift_trial
    rows = {row.label: row for row in (trial or comparison).standings}
    at_random, best = rows[AT_RANDOM], comparison.best
    if best is None:
        least = next(
            row for row in (trial or comparison).standings if row.label in comparison.candidates
        )
        return (
            f"No private policy clearly beats playing at random. {least.label} loses "
            f"{significant(least.mean)} rewards on average, playing at random "
            f"{significant(at_random.mean)}."
        )
    row = rows[best]
    return (
        f"{best} ({row.guarantee}) loses {significant(row.mean)} ± {significant(row.plus_minus)} "
        f"rewards; playing at random loses {significant(at_random.mean)}."
    )


def _epsilon_section(answer: WhatIfAnswer) -> PanelSection:
    """The chart over epsilon, in the looks that the same policies have elsewhere on the page."""
    panel = ResultsPanel("Regret against epsilon", answer.by_epsilon, worlds=True)
    labels = answer.comparison.results.labels
    looks = {
        label: LineLook(labels.index(label if label in labels else answer.best))
        for label in answer.by_epsilon.labels
    }
    return PanelSection(panel, "by-epsilon", looks, _HIDDEN_CURVE_POINTS)
