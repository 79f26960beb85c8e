"""`balaclava demo`: everything once, in under a minute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from balaclava._core.number_format import rounded_down
from balaclava.cli.terminal import print_table, progress_bar, waiting

if TYPE_CHECKING:
    from balaclava.auditing.audit_report import AuditReport
    from balaclava.policies.base import Policy
    from balaclava.simulation.results import Results

_MEANS = (0.3, 0.4, 0.5, 0.6, 0.75)
_HORIZON = 20_000
_REPETITIONS = 40
_TRIALS, _PAIRS = 4_000, 30
# A baseline, then epsilon = 1 six times: for all that it can cover, and not for bounded rewards
# only (0 and 1 have a second moment of at most 1).
_POLICIES: dict[str, dict[str, Any]] = {
    "imed": {},
    "dp-imed": {"epsilon": 1.0},
    "lazy-dp-ucb": {"epsilon": 1.0},
    "dp-se": {"epsilon": 1.0, "horizon": _HORIZON},
    "dpr-batch-ucb": {
        "epsilon": 1.0,
        "horizon": _HORIZON,
        "moment_order": 2.0,
        "moment_bound": 1.0,
    },
    "dp-ftpl-new": {"epsilon": 1.0, "delta": 1e-6, "horizon": _HORIZON},
    "ldp-ucb-bernoulli": {"epsilon": 1.0},
}


@click.command(short_help="Play and audit a few policies; a table, a picture, a page.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("."), help="Where to write.")
def demo(out: Path) -> None:
    """Play a few policies against each other, and try to refute what they promise.

    \b
    Five arms that pay 0 or 1. Prints tables, writes demo.png and report.html.
    Example: balaclava demo --out pictures
    """
    from balaclava._core.atomic_files import require_folder
    from balaclava.environments.base import environment
    from balaclava.simulation.engine import simulate

    require_folder(out)
    with progress_bar() as progress:
        results = simulate(
            _demo_policies(),
            environment("bernoulli", means=_MEANS),
            horizon=_HORIZON,
            repetitions=_REPETITIONS,
            seed=1,
            progress=progress,
        )
    click.echo(str(results.summary()))
    results.plot(out / "demo.png", log_regret=True)  # private and not: orders of magnitude apart
    audits = _audit(results)
    click.echo("\nAn attempt to refute each promise, from games that differ in one reward:")
    print_table(
        ("policy", "promises", "verdict", "epsilon is at least"),
        [
            (label, str(report.claimed), report.verdict, rounded_down(report.epsilon_lower, ".2f"))
            for label, report in audits.items()
        ],
    )
    _write_page(results, audits, out / "report.html")
    click.echo(f"\nwrote {out / 'demo.png'}")
    click.echo(f"wrote {out / 'report.html'}: open it in a browser")


def _demo_policies() -> list[Policy]:
    from balaclava.policies.base import policy

    return [policy(name, arms=len(_MEANS), **parameters) for name, parameters in _POLICIES.items()]


def _audit(results: Results) -> dict[str, AuditReport]:
    """A quick audit of every policy that promises something."""

    from balaclava.auditing.audit import audit

    reports = {}
    with waiting("auditing ...") as status:
        for label, policy in results.policies.items():
            if policy.guarantee.private:
                status.update(f"trying to refute {label} ...")
                reports[label] = audit(policy, trials=_TRIALS, pairs=_PAIRS, seed=1)
    return reports


def _write_page(results: Results, audits: dict[str, AuditReport], page: Path) -> None:
    from balaclava.reporting.quick_audits import summarise_audit
    from balaclava.reporting.report_data import results_page_data
    from balaclava.reporting.report_page import write_page

    verdicts = {label: summarise_audit(report) for label, report in audits.items()}
    write_page(results_page_data(results, "demo"), page, audits=verdicts)
