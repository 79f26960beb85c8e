"""Write the hashes of every file of each version into the lock files.

    make lock

Edit the versions in a lock file, or in the lists below, then run it. Hashes come from the package
index that uv is configured with; no file names it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PINNED = re.compile(r"^([A-Za-z0-9._-]+==[^ \\;]+)", re.MULTILINE)
MAIN, OLDEST = "requirements.lock", "requirements-oldest.lock"
# Lock files, their first line, and what is resolved for them within requirements.lock. Without
# that, their own versions are kept.
FILES: dict[str, tuple[str, list[str]]] = {
    MAIN: ("What tests and development need: `make test`.", []),
    OLDEST: ("For `make test-oldest`: the oldest versions that pyproject.toml allows.", []),
    "requirements-lab.lock": ("For `make demo`: the package with [lab].", ["--extra", "lab"]),
    "requirements-service.lock": (
        "For the container: the package with [postgres,edge].",
        ["--extra", "postgres", "--extra", "edge"],
    ),
    "requirements-build.lock": (
        "What builds the wheel, beside the packages that the package itself needs.",
        ["hatchling==1.27.0", "editables"],
    ),
    "requirements-examples.lock": ("For `make examples`, on top of requirements.lock.", []),
    "requirements-gpu.lock": (
        "For `make test-gpu` and `make test-all`, on top of requirements.lock.",
        ["numba-cuda[cu12]==0.30.4"],
    ),
    "requirements-bench.lock": ("For `make bench`, on top of requirements.lock.", []),
    "requirements-release.lock": (
        "For `make release` and audits of dependencies, in an environment of their own.",
        ["pip-audit==2.10.1", "cyclonedx-bom==7.5.0"],
    ),
}
APART = {"requirements-release.lock"}  # whose versions are independent of requirements.lock


def compiled(arguments: list[str], text: str) -> str:
    command = ["uv", "pip", "compile", *arguments, "--python-version", "3.11.14"]
    command += ["--generate-hashes", "--no-header", "--no-annotate", "--no-emit-index-url", "-q"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def lock(name: str) -> str:
    """The text of a lock file: its first line, versions and hashes."""
    title, wanted = FILES[name]
    path = ROOT / name
    pins = "\n".join(PINNED.findall(path.read_text(encoding="utf-8"))) if path.is_file() else ""
    if wanted:
        constraints = [] if name in APART else ["--constraint", MAIN]
        if wanted[0] == "--extra":
            found = compiled(["pyproject.toml", *wanted, *constraints], "")
        else:
            found = compiled(["-", *constraints], "\n".join(wanted))
        pins = "\n".join(PINNED.findall(found))
    return f"# {title}\n{compiled(['-', '--no-deps'], pins)}"


if __name__ == "__main__":
    for each in sys.argv[1:] or FILES:
        (ROOT / each).write_text(lock(each), encoding="utf-8")
        print(each)
