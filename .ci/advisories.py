"""Look up known vulnerabilities of every version in the lock files.

    make advisories

pip-audit reports success even if its database knew no package that it was asked for. This script
counts what was looked up, and says which packages were not. Exit status: 0 no known vulnerability,
1 a vulnerability, 3 not all looked up (with --strict; otherwise 0, and it says so).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NOT_LOOKED_UP = 3


def look_up(lock: Path) -> dict[str, Any]:
    """The report of pip-audit; without one, its last line as the reason."""
    command = [str(ROOT / ".venv-release/bin/pip-audit"), "--require-hashes", "--disable-pip"]
    command += ["--format", "json", "--progress-spinner", "off", "--timeout", "30", "-r", str(lock)]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except json.JSONDecodeError:
        reason = (done.stderr.strip().splitlines() or ["pip-audit gave no reason"])[-1]
        return {"dependencies": [], "reason": reason}
    return report


def judge(reports: dict[str, dict[str, Any]]) -> tuple[int, list[str]]:
    """Exit status of a strict run, and what to print, from the report of each lock file."""
    lines, vulnerable, missing = [], False, False
    for name, report in reports.items():
        packages = report["dependencies"]
        skipped = [each["name"] for each in packages if "skip_reason" in each]
        known = [each for each in packages if each.get("vulns")]
        for each in known:
            ids = ", ".join(
                f"{one['id']} (fixed in {', '.join(one['fix_versions']) or 'no version'})"
                for one in each["vulns"]
            )
            lines.append(f"{name}: {each['name']} {each['version']}: {ids}")
        if not packages or skipped:
            names = ", ".join(skipped[:5]) + (", ..." if skipped[5:] else "")
            reason = report.get("reason") or f"the database does not know {names}"
            lines.append(
                f"NOT LOOKED UP in {name}: {len(skipped) or 'all'} of {len(packages) or 'its'} "
                f"packages: {reason}"
            )
        looked_up = len(packages) - len(skipped)
        lines.append(f"{name}: {looked_up} looked up, {len(known)} with a known vulnerability")
        vulnerable, missing = vulnerable or bool(known), missing or not packages or bool(skipped)
    return (1 if vulnerable else NOT_LOOKED_UP if missing else 0), lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--strict", action="store_true", help="fail if a package is unknown")
    strict = parser.parse_args().strict
    locks = sorted(ROOT.glob("requirements*.lock"))
    oldest = ROOT / "requirements-oldest.lock"  # never installed by users
    status, lines = judge({lock.name: look_up(lock) for lock in locks if lock != oldest})
    print("\n".join(lines))
    return 0 if status == NOT_LOOKED_UP and not strict else status


if __name__ == "__main__":
    sys.exit(main())
