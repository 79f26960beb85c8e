"""Choose one of two follow-ups by a patient's measurements, without revealing who was ill.

The Wisconsin breast cancer table has 30 measurements of 569 tumours, with their diagnoses. Here
each patient gets one of two follow-ups, for a benign or for a malignant tumour, by her
measurements. Whether it was the right one must not leak. The measurements count as public:
decisions reveal them.

Run it: python examples/screening.py --help
"""

from __future__ import annotations

import argparse
from pathlib import Path

from sklearn.datasets import load_breast_cancer

import balaclava as bl


def main() -> None:
    arguments = argparse.ArgumentParser(description="Private decisions by features.")
    arguments.add_argument("--horizon", type=int, default=100_000, help="patients")
    arguments.add_argument("--repetitions", type=int, default=4)
    arguments.add_argument("--epsilon", type=float, default=1.0)
    arguments.add_argument("--out", type=Path, default=Path("out/examples"))
    options = arguments.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    table = load_breast_cancer()
    names = [str(table.target_names[label]) for label in (0, 1)]
    world = bl.environment("labelled", features=table.data, labels=table.target)
    shape = {"arms": names, "features": world.dimension, "disjoint": True}
    policies = {
        "linucb": bl.policy("linucb", radius_scale=0.3, **shape),
        "dp-kernel-ucb": bl.policy("dp-kernel-ucb", epsilon=options.epsilon, **shape),
        "dp-imed, no features": bl.policy("dp-imed", arms=names, epsilon=options.epsilon),
    }
    results = bl.simulate(
        policies, world, horizon=options.horizon, repetitions=options.repetitions, seed=3
    )
    print(f"Follow-ups: {', '.join(names)}. Regret counts the wrong ones.")
    print(results.summary())
    results.plot(options.out / "screening.png")
    print(policies["dp-kernel-ucb"].guarantee.explain())


if __name__ == "__main__":
    main()
