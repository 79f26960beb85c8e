"""Audit every private policy at the full setting; write docs/audit.md.

python benchmarks/full_audit.py [NAME ...] [--trials 2000000] [--device cuda] [--out docs/audit.md]
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import balaclava as bl
from balaclava.auditing.report import AuditReport
from balaclava.policies.contextual.features import ContextualPolicy
from balaclava.simulation.engine import Device, available_cores
from balaclava.testing.examples import USUAL, completed

ROOT = Path(__file__).parent.parent
HEADER = (
    "| policy | claims | verdict | replayed pairs, largest loss | declared | true delta "
    "| epsilon at least | tight |\n"
    "|---|---|---|---|---|---|---|---|"
)


def policy_of(name: str) -> bl.Policy:
    """Two arms, epsilon 1, and a horizon that lets phases end.

    Policies for unbounded rewards and for losses are taken as in their first example.
    """
    cls = type_of(name)
    if name == "privatised":
        return bl.privatise(bl.policy("exp3", arms=2), epsilon=1.0)
    if name == "privatised-experts":
        return bl.privatise(bl.policy("exp3", arms=2), epsilon=1.0, experts=3)
    usual = {"arms": 2, "epsilon": 1.0, "delta": 0.01, "horizon": 3_000}
    if cls.rewards == "bounded":
        parameters = {**USUAL, **usual}
    else:
        parameters = completed(
            cls, {"horizon": 3_000, **cls.examples[0], "arms": 2, "epsilon": 1.0}
        )
    return cls.create({key: value for key, value in parameters.items() if key in cls.annotations})


def type_of(name: str) -> type[bl.Policy]:
    return next(entry.policy for entry in bl.list_policies() if entry.name == name)


def row(report: AuditReport) -> str:
    """One line of the table."""
    replay, exact = report.replay, report.exact
    assert replay is not None
    delta = f", delta {replay.delta:.2g}" if replay.delta else ""
    return (
        f"| {report.policy} | {report.claimed} | {report.verdict} | {replay.pairs:,}, epsilon "
        f"{replay.epsilon:.3g}{delta} | {replay.declared:.3g} | "
        f"{'-' if exact is None else f'{exact.delta:.2g}'} | "
        f"{report.epsilon_lower:.2f} | {'yes' if report.tight else 'no'} |"
    )


def audit(name: str, trials: int, device: Device = "cpu") -> AuditReport:
    """The report on one policy."""
    policy = policy_of(name)
    if isinstance(policy, ContextualPolicy):  # played on the CPU alone
        trials, device = min(trials, 2_000_000), "cpu"
    # A step on losses draws from a distribution over the arms, and shows little of one loss.
    games = trials if policy.rewards != "loss" else trials // 10
    return bl.audit(policy, trials=games, pairs=1_000, seed=1, device=device)


def page(reports: list[AuditReport], trials: int) -> str:
    """The table, and each report in full."""
    table = "\n".join([HEADER, *map(row, reports)])
    details = [f"## {report.policy}\n\n```text\n{report}\n```\n" for report in reports]
    return (
        "# The audit\n\nEvery private policy at two arms, put to the test by `make audit`: "
        f"{trials:,} games (a tenth for policies on losses), 1,000 replayed pairs, "
        "confidence 0.95. A claim is tight when "
        "the lower bound on epsilon reaches 0.8 of it; where it does not, the games cannot see "
        "all that is protected, and the replay and the proof carry the claim. *Largest loss* is "
        "what the moved mechanisms cost, *declared* what they said they would cost at most, "
        "Gaussian noise apart.\n\n"
        f"{table}\n\n" + "\n".join(details)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2_000_000)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "audit.md")
    parser.add_argument("--device", choices=("cpu", "cuda", "auto"), default="cpu")
    parser.add_argument("--processes", type=int, default=available_cores())
    parser.add_argument("names", nargs="*", help="of policies; by default all private ones")
    options = parser.parse_args()
    names = [entry.name for entry in bl.list_policies() if entry.policy.model != "none"]
    names.remove("random")  # it reads no reward: there is nothing to examine
    reports: dict[str, AuditReport] = {}
    faults, start = 0, time.perf_counter()
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        jobs = {
            pool.submit(audit, n, options.trials, options.device): n for n in options.names or names
        }
        for job in as_completed(jobs):
            if error := job.exception():  # one that fails does not stop the others
                faults += 1
                print(f"{jobs[job]}: {error!r}", file=sys.stderr, flush=True)
                continue
            report = reports[jobs[job]] = job.result()
            faults += report.verdict != "consistent"
            print(f"{row(report)}  {time.perf_counter() - start:.0f} s", flush=True)
            # After each: whatever ends a run, what it measured is kept.
            options.out.write_text(page([reports[n] for n in sorted(reports)], options.trials))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
