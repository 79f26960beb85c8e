"""The engine's steps a second on a GPU against loops written by hand in CUDA, in one run.

    python benchmarks/gpu_by_hand.py          # needs a GPU and nvcc; a minute

hand_loops.cu has the loops: nine Bernoulli arms, one thread a game, everything in registers. The
aim is a ratio of at most 1.3. The table has both mean regrets, because both play the same rule.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import balaclava as bl
from gpu import NINE, compiled, timed, write

GAMES, ROUNDS = 270_336, 100_000
HEADS = ("policy", "engine, steps/s", "by hand, steps/s", "by hand over engine", "mean regrets")


def by_hand() -> dict[str, tuple[float, float]]:
    """Steps a second and the mean regret of each loop."""
    source = Path(__file__).with_name("hand_loops.cu")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "hand_loops"
        subprocess.run(["nvcc", "-O3", "-arch=native", "-o", program, source], check=True)
        command = [program, str(GAMES), str(ROUNDS)]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = (line.split() for line in lines.splitlines())
    return {name: (float(rate), float(regret)) for name, rate, regret in rows}


def main() -> int:
    policies = {
        "ucb1": bl.policy("ucb1", arms=9),
        "dp-ftpl-gauss": bl.policy("dp-ftpl-gauss", arms=9, epsilon=1.0, delta=0.01),
        "dp-imed": bl.policy("dp-imed", arms=9, epsilon=1.0, index="paper", batches="ratio"),
    }
    loops = by_hand()
    write("by_hand.md", f"| {' | '.join(HEADS)} |\n{'|---' * len(HEADS)}|")
    for name, policy in policies.items():
        rate, regret = timed(compiled(policy, NINE, GAMES, ROUNDS))
        hand, lost = loops[name]
        cells = name, f"{rate:.2e}", f"{hand:.2e}", f"{hand / rate:.2f}"
        write("by_hand.md", f"| {' | '.join(cells)} | {regret.mean():,.1f}, {lost:,.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
