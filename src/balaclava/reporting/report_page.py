"""`balaclava report`: one HTML file that shows a simulation or a sweep, and asks for nothing."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import balaclava
from balaclava._core.atomic_files import atomically
from balaclava.reporting.quick_audits import AuditSummary
from balaclava.reporting.report_data import PageData, read_page_data
from balaclava.reporting.report_sections import MOST_BANDS, panel_section
from balaclava.reporting.svg_charts import LineLook, escape

if TYPE_CHECKING:
    from balaclava.policies.base import Policy

_POINTS = 30_000  # on all curves of a page together; beyond, each is drawn with fewer
_FEWEST = 40
_WIDE = 20.0  # ratio of regrets beyond which a linear scale shows only the worst

NOT_PRIVATE_TO_LOOK = (
    "This page was computed from logged rewards, and looking at a log is not itself private: "
    "the curves, the tables and the order of the arms tell something about the people in it. "
    "No single reward is shown, but this page is as confidential as the log. A policy, a range or "
    "a scale that is chosen by it was chosen by looking at those rewards, outside epsilon: the "
    "guarantees below are those of the policies once they run, with rewards they have not seen."
)


def write_page(
    source: str | os.PathLike[str] | PageData,
    out: str | os.PathLike[str],
    *,
    audits: Mapping[str, AuditSummary] | None = None,
    opening: str = "",
) -> Path:
    """Write the page of a results file, of a folder that holds one, or of a sweep.

    Args:
        source: the file or folder.
        out: the HTML file to write, whole or not at all.
        audits: what `run_audits` found, by label; left out, the page says how to audit.
        opening: HTML to stand before the results, already escaped.

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
    story = source if isinstance(source, PageData) else read_page_data(source)
    target = Path(out)
    text = render(story, audits=audits, opening=opening)
    with atomically(target) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return target


def render(
    story: PageData, *, audits: Mapping[str, AuditSummary] | None = None, opening: str = ""
) -> str:
    """The page. Equal results give equal pages: it holds no date."""
    looks = {label: LineLook(i) for i, label in enumerate(story.policies)}
    points = max(_POINTS // max(sum(len(panel.labels) for panel in story.panels), 1), _FEWEST)
    sections = [
        panel_section(panel, f"panel-{i}", looks, points, alone=len(story.panels) == 1)
        for i, panel in enumerate(story.panels)
    ]
    script = asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Template(asset("page.html")).substitute(
        title=escape(story.title),
        policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        style=asset("page.css"),
        script=script,
        log_checked="checked" if _spread_wide(story) else "",
        linear_checked="" if _spread_wide(story) else "checked",
        bands_checked="checked" if _is_calm(story) else "",
        lead=_lead(story),
        notices=_notices(story),
        opening=opening,
        contents=_contents(story),
        panels="".join(sections),
        guarantees=_guarantees(story.policies),
        audits=_audits(story.policies, audits),
        again=_again(story),
        version=escape(balaclava.__version__),
    )


def asset(name: str) -> str:
    """A file beside this one."""
    return (resources.files("balaclava.reporting") / name).read_text(encoding="utf-8")


def _spread_wide(story: PageData) -> bool:
    """Whether a linear scale would hide most curves at the bottom."""
    for panel in story.panels:
        means = [row.mean for row in panel.final if row.mean > 0]
        if means and max(means) > _WIDE * min(means):
            return True
    return False


def _is_calm(story: PageData) -> bool:
    return all(len(panel.labels) <= MOST_BANDS for panel in story.panels)


def _lead(story: PageData) -> str:
    if len(story.panels) == 1:
        return escape(story.panels[0].facts)
    return f"{len(story.panels)} settings, {len(story.policies)} policies"


def _notices(story: PageData) -> str:
    notices = [f'<p class="notice">{escape(remark)}</p>' for remark in story.remarks]
    if story.holds_data:
        notices.insert(
            0,
            f'<p class="notice strong" role="note"><strong>Looking is not private.</strong> '
            f"{escape(NOT_PRIVATE_TO_LOOK)}</p>",
        )
    return "".join(notices)


def _contents(story: PageData) -> str:
    if len(story.panels) == 1:
        return ""
    links = "".join(
        f'<li><a href="#panel-{i}">{escape(panel.heading)}</a></li>'
        for i, panel in enumerate(story.panels)
    )
    return f'<nav aria-label="Settings"><ul class="contents">{links}</ul></nav>'


def _guarantees(policies: Mapping[str, Policy]) -> str:
    """Each promise once, with the policies that make it."""
    by_text: dict[tuple[str, str], list[str]] = {}
    for label, policy in policies.items():
        by_text.setdefault((str(policy.guarantee), _in_words(policy)), []).append(label)
    return "".join(
        f'<section class="card"><h3>{escape(short)}</h3><p class="names">{_names(labels)}</p>'
        f"<p>{escape(words)}</p></section>"
        for (short, words), labels in by_text.items()
    )


def _in_words(policy: Policy) -> str:
    """What is promised. Why nothing is would name one policy, and is left out."""
    if policy.guarantee.private:
        return policy.guarantee.explain()
    return dataclasses.replace(policy.guarantee, assumptions=()).explain()


def _names(labels: Sequence[str]) -> str:
    return " ".join(f'<span class="name">{escape(label)}</span>' for label in labels)


def _audits(policies: Mapping[str, Policy], audits: Mapping[str, AuditSummary] | None) -> str:
    private = {label: policy for label, policy in policies.items() if policy.guarantee.private}
    if not private:
        return "<p>No policy here promises anything, so that there is nothing to refute.</p>"
    if not audits:
        commands = "\n".join(dict.fromkeys(audit_command(p) for p in private.values()))
        return (
            "<p>Not audited for this page. An audit tries to refute a promise in four ways; to see "
            "its verdicts here, write the page again with <code>--audit</code>. The full audit of "
            f"each:</p><pre><code>{escape(commands)}</code></pre>"
        )
    lines = []
    for label in private:
        verdict = audits.get(label)
        if verdict is not None:
            mark = "good" if verdict.verdict in ("consistent", "not private") else "bad"
            lines.append(
                f'<tr><th scope="row">{escape(label)}</th><td>{escape(verdict.claimed)}</td>'
                f'<td class="verdict-{mark}">{escape(verdict.verdict)}</td>'
                f"<td>{escape(verdict.replay)}</td><td>{escape(verdict.laws)}</td>"
                f"<td>{escape(verdict.exact)}</td><td>{escape(verdict.statistical)}</td></tr>"
            )
    heads = ("policy", "claims", "verdict", "replay", "laws", "exact", "statistical")
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    return (
        "<p>A quick audit: an attempt to refute each promise. It can refute, not "
        "prove; the proof stands in the policy's documentation. A policy that is in several "
        "settings was audited as in the first of them.</p>"
        '<div class="wide" tabindex="0" role="region" aria-label="Audits"><table class="audit">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def audit_command(policy: Policy) -> str:
    """What to type for the full audit of a policy."""
    flags = {"epsilon", "delta", "arms", "horizon"}
    words = ["balaclava", "audit", policy.name]
    for name, value in policy.parameters.items():
        if value is None:
            continue
        if name in flags:
            words += [f"--{name}", f"{value}"]
        elif value != _default(policy, name):
            words += ["--set", f"'{name}={json.dumps(value)}'"]
    return " ".join(words)


def _default(policy: Policy, name: str) -> Any:
    defaults = {field.name: field.default for field in dataclasses.fields(policy)}
    default = defaults[name]
    return list(default) if isinstance(default, tuple) else default


def _again(story: PageData) -> str:
    if story.command:
        return (
            "<p>The same log, options and seed give the same numbers.</p>"
            f"<pre><code>{escape(story.command)}</code></pre>"
        )
    recipes = "".join(
        f"<details{' open' if len(story.recipes) == 1 else ''}><summary>experiment.toml for "
        f"{escape(heading)}</summary><pre><code>{escape(text)}</code></pre></details>"
        for heading, text in story.recipes.items()
    )
    if len(story.recipes) < len(story.panels):
        recipes += (
            "<p>Where rewards were given to the environment itself, they are not in the results: "
            "make it again from the data, with the seed, the rounds and the policies above.</p>"
        )
    packages = ", ".join(f"{escape(name)} {escape(what)}" for name, what in story.versions.items())
    ran = f"<p>It ran with {packages}.</p>" if packages else ""
    return (
        "<p>The same seed gives the same numbers, whatever the number of threads. Save the file "
        "below, then:</p><pre><code>balaclava simulate experiment.toml</code></pre>"
        f"{recipes}{ran}"
    )
