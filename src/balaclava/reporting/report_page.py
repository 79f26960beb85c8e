"""`balaclava report`: one HTML file with the results of a simulation or a sweep."""

import base64
import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import balaclava
from balaclava._core.atomic_files import atomically
from balaclava._core.html_templates import render_template, template_source
from balaclava.policies.base import Policy
from balaclava.reporting import report_charts, report_data
from balaclava.reporting.quick_audits import AuditSummary
from balaclava.reporting.report_sections import TABLE_HEADER, PanelSection
from balaclava.simulation.analysis.regret_tails import TAIL_HEADER
from balaclava.simulation.analysis.statistics import CONFIDENCE

REPORTING = "balaclava.reporting"  # the package whose templates these are
_PAGE_POINTS = 30_000  # on all curves of a page; keeps the file at a few megabytes
_FEWEST_CURVE_POINTS = 40  # on each curve: enough to look smooth
_WIDE_RATIO = 20.0  # of regrets: beyond it, a linear scale hides all curves but the worst

LOG_NOTICE = (
    "This page was computed from logged rewards, and that computation is not private: the curves, "
    "the tables and the order of the arms reveal something about the participants. No single "
    "reward is displayed, but the page is as confidential as the log. If you choose a policy, a "
    "range or a scale by this page, that choice used those rewards and is outside epsilon. The "
    "guarantees below hold for the policies once they run, on new rewards."
)


def write_page(
    source: str | os.PathLike[str] | report_data.PageData,
    out: str | os.PathLike[str],
    *,
    audits: Mapping[str, AuditSummary] | None = None,
    template: str = "report.html",
    **values: Any,
) -> Path:
    """Write the report of a results file, of a folder that holds one, or of a sweep.

    Args:
        source: the file or folder, or its data.
        out: the HTML file, written completely or not at all.
        audits: the answer of `run_audits`, by label; if None, the page says how to audit.
        template: "report.html", or a template that extends it.
        values: what that template needs beyond the report.

    Returns:
        The path of the page.

    Raises:
        ResultsFileError: `source` cannot be read, or `out` cannot be written.

    Example:
        >>> import balaclava as bl, tempfile
        >>> from balaclava.reporting.report_page import write_page
        >>> world = bl.environment("bernoulli", means=[0.3, 0.5, 0.7])
        >>> results = bl.simulate(bl.policy("ucb1", arms=3), world,
        ...                       horizon=1_000, repetitions=10, seed=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     results.save(f"{folder}/first.parquet")
        ...     page = write_page(f"{folder}/first.parquet", f"{folder}/first.html")
        ...     page.read_text().startswith("<!doctype html>")
        True
    """
    data = (
        source if isinstance(source, report_data.PageData) else report_data.read_page_data(source)
    )
    text = render_page(data, audits, template, **values)
    with atomically(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(out)


def render_page(
    data: report_data.PageData,
    audits: Mapping[str, AuditSummary] | None = None,
    template: str = "report.html",
    scripts: Sequence[str] = ("report.js",),
    **values: Any,
) -> str:
    """The page. Equal results give equal pages: it has no date."""
    looks = {label: report_charts.LineLook(i) for i, label in enumerate(data.policies)}
    curves = max(sum(len(panel.labels) for panel in data.panels), 1)
    points = max(_PAGE_POINTS // curves, _FEWEST_CURVE_POINTS)
    sections = [
        PanelSection(panel, f"panel-{i}", looks, points) for i, panel in enumerate(data.panels)
    ]
    private = {label: policy for label, policy in data.policies.items() if policy.guarantee.private}
    script = "".join(template_source(REPORTING, name) for name in scripts)
    return render_template(
        REPORTING,
        template,
        data=data,
        sections=sections,
        alone=len(data.panels) == 1,
        log_notice=LOG_NOTICE,
        log_regret=_spread_wide(data),
        draw_bands=all(section.few_curves for section in sections),
        guarantees=_guarantees(data.policies),
        private=private,
        audits=audits,
        audit_commands=list(dict.fromkeys(map(audit_command, private.values()))),
        curve_quantiles=report_data.CURVE_QUANTILES,
        final_quantiles=report_data.FINAL_QUANTILES,
        confidence=CONFIDENCE,
        tail_header=TAIL_HEADER,
        table_header=TABLE_HEADER,
        script=script,
        script_digest=source_digest(script),
        curve_views=report_charts.curve_views,
        epsilon_views=report_charts.epsilon_views,
        interval_scales=report_charts.interval_scales,
        version=balaclava.__version__,
        **values,
    )


def source_digest(text: str) -> str:
    """The digest of a script or a style sheet, as a content security policy names it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _spread_wide(data: report_data.PageData) -> bool:
    """Whether a linear scale would hide most curves at the bottom."""
    means = ([row.mean for row in panel.final if row.mean > 0] for panel in data.panels)
    return any(each and max(each) > _WIDE_RATIO * min(each) for each in means)


def _guarantees(policies: Mapping[str, Policy]) -> dict[tuple[str, str], list[str]]:
    labels: dict[tuple[str, str], list[str]] = {}
    for label, policy in policies.items():
        labels.setdefault((str(policy.guarantee), _in_words(policy)), []).append(label)
    return labels


def _in_words(policy: Policy) -> str:
    """The guarantee. The reason for none would name one policy, and is omitted."""
    if policy.guarantee.private:
        return policy.guarantee.explain()
    return dataclasses.replace(policy.guarantee, assumptions=()).explain()


def audit_command(policy: Policy) -> str:
    words = ["balaclava", "audit", policy.name]
    defaults = {field.name: field.default for field in dataclasses.fields(policy)}
    for name, value in policy.parameters.items():
        default = defaults[name]
        if value is None:
            continue
        if name in ("epsilon", "delta", "arms", "horizon"):  # each has its own option
            words += [f"--{name}", f"{value}"]
        elif value != (list(default) if isinstance(default, tuple) else default):
            words += ["--set", f"'{name}={json.dumps(value)}'"]
    return " ".join(words)
