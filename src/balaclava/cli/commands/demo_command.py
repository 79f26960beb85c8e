"""`balaclava demo`: simulation, audit and page of a few policies, in a minute or two."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from balaclava._core.number_format import rounded_down
from balaclava.cli.commands.summary_command import print_summary
from balaclava.cli.options import option
from balaclava.cli.terminal import print_table, progress_bar, waiting

if TYPE_CHECKING:
    from balaclava.auditing.audit_report import AuditReport
    from balaclava.policies.base import Policy
    from balaclava.simulation.results import Results

DEMO_MEANS = (0.03, 0.04, 0.05, 0.06, 0.09)  # share of visitors that buy: rates that shops have
DEMO_HORIZON = 50_000  # rounds: the best private policies have found the best arm by then
_DEMO_REPETITIONS = 40  # so that the demo takes a minute or two on two cores
_DEMO_TRIALS, _DEMO_PAIRS = 4_000, 30  # games and replayed pairs of an audit, for the same reason
# A baseline, and six policies at epsilon = 1: each scope, and bounded and unbounded rewards.
# Rewards 0 and 1 have a second moment of at most 1.
_DEMO_POLICIES: dict[str, dict[str, Any]] = {
    "imed": {},
    "dp-imed": {"epsilon": 1.0},
    "dp-top-two": {"epsilon": 1.0},
    "dp-se": {"epsilon": 1.0, "horizon": DEMO_HORIZON},
    "dpr-batch-ucb": {
        **{"epsilon": 1.0, "horizon": DEMO_HORIZON},
        **{"moment_order": 2.0, "moment_bound": 1.0},
    },
    "dp-ftpl-new": {"epsilon": 1.0, "delta": 1e-6, "horizon": DEMO_HORIZON},
    "ldp-ucb-bernoulli": {"epsilon": 1.0},
}


@click.command(short_help="Play and audit a few policies.")
@option("--out", Path, "Folder to write to.", default=Path("."))
def demo(out: Path) -> None:
    """Play a few policies on five pages of a shop, and audit their guarantees.

    3 to 9 in 100 visitors buy. Prints tables: regret, how often a winner is named and when, and
    audits. Writes demo.png and report.html.

    \b
    Example: balaclava demo --out pictures
    """
    from balaclava._core.atomic_files import require_writable_folder
    from balaclava.environments.base import environment
    from balaclava.simulation.engine import simulate

    require_writable_folder(out)
    with progress_bar() as progress:
        results = simulate(
            demo_policies(),
            environment("bernoulli", means=DEMO_MEANS),
            horizon=DEMO_HORIZON,
            repetitions=_DEMO_REPETITIONS,
            seed=1,
            winners=True,
            progress=progress,
        )
    print_summary(results, advice="report.html has them")
    click.echo(
        "\nTo find the best page takes less than to name it, and both depend on the rates. For "
        f"yours: balaclava plan --arms {len(DEMO_MEANS)} --rate 0.06 --difference 0.03"
    )
    results.plot(out / "demo.png", log_regret=True)  # regrets differ by orders of magnitude
    audits = _audit(results)
    click.echo("\nAudits of each guarantee, from games that differ in one reward:")
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


def demo_policies() -> list[Policy]:
    from balaclava.policies.base import policy

    arms = len(DEMO_MEANS)
    return [policy(name, arms=arms, **others) for name, others in _DEMO_POLICIES.items()]


def _audit(results: Results) -> dict[str, AuditReport]:
    from balaclava.auditing.audit import audit

    reports = {}
    with waiting("auditing ...") as status:
        for label, policy in results.policies.items():
            if policy.guarantee.private:
                status.update(f"trying to refute {label} ...")
                reports[label] = audit(policy, trials=_DEMO_TRIALS, pairs=_DEMO_PAIRS, seed=1)
    return reports


def _write_page(results: Results, audits: dict[str, AuditReport], page: Path) -> None:
    from balaclava.reporting.quick_audits import summarise_audit
    from balaclava.reporting.report_data import results_page_data
    from balaclava.reporting.report_page import write_page

    verdicts = {label: summarise_audit(report) for label, report in audits.items()}
    write_page(results_page_data(results, "demo"), page, audits=verdicts)
