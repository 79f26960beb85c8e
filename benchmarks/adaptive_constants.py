"""How sensitive dpr-adaptive-ucb is to its constants: `python benchmarks/adaptive_constants.py`.

Mean regret on the Pareto arms S1 and S3 of Tao et al. (v = 0.9) at epsilon 1, with one constant
changed at a time. Kernels freeze constants, so each setting runs in a separate process with an
empty code cache. Ten minutes on one core; `--quick` takes three.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile

SETTINGS = (
    *(("", 0.0),),
    *(("BIAS_SHARE", value) for value in (0.15, 0.6)),
    *(("BIAS_DECAY", value) for value in (0.9, 0.98)),
    *(("LEADER_PRECISION", value) for value in (1.5, 6.0)),
    *(("FIRST_BATCH_EPSILON", value) for value in (40.0, 160.0)),
)
ARMS = {"S1": (0.9, 0.7, 0.5, 0.3, 0.1), "S3": (0.9, 0.85, 0.7, 0.45, 0.1)}
PLAY = """
import sys
import balaclava as bl
from balaclava.policies.heavy_tailed import dpr_adaptive_ucb
name, value, horizon, runs = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
if name:
    setattr(dpr_adaptive_ucb, name, value)
for means in (sys.argv[5], sys.argv[6]):
    means = [float(mean) for mean in means.split()]
    policy = bl.policy("dpr-adaptive-ucb", arms=len(means), epsilon=1.0)
    world = bl.environment("pareto", means=means, shape=1.95)
    results = bl.simulate(policy, world, horizon=horizon, repetitions=runs, seed=2026)
    regret = results.final_regret("dpr-adaptive-ucb")
    print(f"{regret.mean():.0f} ± {1.96 * regret.std() / runs**0.5:.0f}", end=" | ")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    horizon, runs = (100_000, 200) if quick else (1_000_000, 400)
    print(f"| constant | {' | '.join(ARMS)} |\n|{'---|' * (1 + len(ARMS))}")
    means = [" ".join(map(str, row)) for row in ARMS.values()]
    for name, value in SETTINGS:
        with tempfile.TemporaryDirectory() as folder:
            played = subprocess.run(
                [sys.executable, "-c", PLAY, name, str(value), str(horizon), str(runs), *means],
                env=os.environ | {"BALACLAVA_CACHE_DIR": folder},
                capture_output=True,
                text=True,
                check=True,
            )
        label = f"{name} = {value:g}" if name else "default"
        print(f"| {label} | {played.stdout}".rstrip(), flush=True)


if __name__ == "__main__":
    main()
