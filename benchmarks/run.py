"""Speed, memory and start-up against references in the same run: `python benchmarks/run.py`.

One table. Values are medians of processor time over rounds in which the contenders take turns, or
the best of several wall-clock times. `--quick` takes about a minute; do not quote its numbers.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys

import processes
import steps
from measuring import Line, table

LIBRARIES = ("river", "mabwiser")


def libraries(quick: bool) -> list[Line]:
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"left out, because {' and '.join(missing)} cannot be imported: the comparison with "
            "other libraries; run `make bench`, which installs them",
            file=sys.stderr,
        )
        return []
    import libraries

    return libraries.lines(quick)


GROUPS = {
    "steps": steps.sequential,
    "phased": steps.phased,
    "libraries": libraries,
    "threads": processes.threads,
    "memory": processes.memory,
    "compilation": processes.compilation,
    "start-up": processes.start_up,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure balaclava beside its references.")
    parser.add_argument("--quick", action="store_true", help="short runs, rough numbers")
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS), metavar="GROUP")
    options = parser.parse_args()
    lines: list[Line] = []
    for name in options.only:
        print(f"measuring {name} ...", file=sys.stderr, flush=True)
        lines += GROUPS[name](options.quick)
    print(table(lines))


if __name__ == "__main__":
    main()
