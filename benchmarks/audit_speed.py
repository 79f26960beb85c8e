"""How long the default audit of every private policy takes, in seconds of processor time.

python benchmarks/audit_speed.py [NAME ...]

The second figure leaves compiling out: machine code is kept on disk between runs.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.full_audit import policy_of

import balaclava as bl


def main() -> None:
    """Print a line for each policy."""
    every = sorted(entry.name for entry in bl.list_policies() if entry.policy.model != "none")
    print("| policy | first audit, processor seconds | second | verdict | pairs | games |")
    print("|---|---|---|---|---|---|")
    for name in sys.argv[1:] or every:
        policy, seconds = policy_of(name), []
        for _ in range(2):
            start = time.process_time()
            report = bl.audit(policy, seed=1)
            seconds.append(time.process_time() - start)
        assert report.replay is not None
        games = getattr(report.statistical, "games", 0)
        print(
            f"| {name} | {seconds[0]:.1f} | {seconds[1]:.1f} | {report.verdict} | "
            f"{report.replay.pairs:,} | {games:,} |",
            flush=True,
        )
        if report.verdict != "consistent":
            print(report)


if __name__ == "__main__":
    main()
