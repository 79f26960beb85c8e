"""Audit every private policy at the full setting; write docs/audit.md.

python benchmarks/full_audit.py [--trials 2000000] [--out docs/audit.md]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import balaclava as bl
from balaclava.auditing.report import AuditReport
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=2_000_000)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "audit.md")
    options = parser.parse_args()
    names = [entry.name for entry in bl.list_policies() if entry.policy.model != "none"]
    rows, details, faults = [], [], 0
    for name in sorted(names):
        start = time.perf_counter()
        policy = policy_of(name)
        # A step on losses draws from a distribution over the arms, and shows little of one loss.
        trials = options.trials if policy.rewards != "loss" else options.trials // 10
        report = bl.audit(policy, trials=trials, pairs=1_000, seed=1)
        faults += report.verdict != "consistent"
        rows.append(row(report))
        details.append(f"## {name}\n\n```text\n{report}\n```\n")
        print(f"{rows[-1]}  {time.perf_counter() - start:.0f} s", flush=True)
    table = "\n".join([HEADER, *rows])
    options.out.write_text(
        "# The audit\n\nEvery private policy at two arms, put to the test by `make audit`: "
        f"{options.trials:,} games (a tenth for policies on losses), 1,000 replayed pairs, "
        "confidence 0.95. A claim is tight when "
        "the lower bound on epsilon reaches 0.8 of it; where it does not, the games cannot see "
        "all that is protected, and the replay and the proof carry the claim. *Largest loss* is "
        "what the moved mechanisms cost, *declared* what they said they would cost at most.\n\n"
        f"{table}\n\n" + "\n".join(details)
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
