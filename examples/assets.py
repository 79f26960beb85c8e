"""Choose among shares by their daily returns, without revealing any customer's return.

A broker offers one of five shares to each customer, and learns its return the next day. A
customer's return is private, so the next offers must not reveal it. Daily returns have heavy tails:
on their worst day these shares lost half their value, a hundred times a usual day. Clipping to a
range would either bias the mean, or need so much noise that nothing can be learned.

Run it: make examples, or python examples/assets.py --help
"""

from __future__ import annotations

import argparse
from pathlib import Path

from packaged import daily_returns

import balaclava as bl

SHARES = ("AAPL", "GE", "JPM", "KO", "MSFT")

# Prior knowledge about the shares of large companies: on a usual day they move by 1 to 3 percent,
# so the mean of the squared return is at most about 10.
MOMENT = {"moment_order": 2.0, "moment_bound": 10.0}


def plausible(gap: float) -> bl.Environment:
    """A plausible market: t-distributed returns, one share better than the rest."""
    means = [0.05, 0.05 + gap, 0.05, 0.05, 0.05 + 0.75 * gap]
    return bl.environment("student-t", means=means, degrees=3.0, scale=1.2)


def main() -> None:
    arguments = argparse.ArgumentParser(description="Private choice among shares.")
    arguments.add_argument("--horizon", type=int, default=3_000_000, help="customers served")
    arguments.add_argument("--repetitions", type=int, default=20)
    arguments.add_argument("--epsilon", type=float, default=1.0)
    arguments.add_argument("--out", type=Path, default=Path("out/examples"))
    options = arguments.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    world = bl.environment("empirical", samples=daily_returns(*SHARES))
    private = {"arms": len(SHARES), "epsilon": options.epsilon}
    known = {**private, **MOMENT, "horizon": options.horizon}
    calibrated = bl.calibrate(
        bl.policy("dpr-batch-ucb", **known),
        [plausible(0.06), plausible(0.12)],
        horizon=options.horizon,
        repetitions=options.repetitions,
        seed=1,
    )
    print(calibrated, "\n")
    policies = {
        "robust-ucb": bl.policy("robust-ucb", arms=len(SHARES), horizon=options.horizon, **MOMENT),
        "dpr-se": bl.policy("dpr-se", **known),
        "dpr-batch-ucb, proved": bl.policy("dpr-batch-ucb", **known),
        "dpr-batch-ucb, calibrated": calibrated.policy,
        "dpr-adaptive-ucb": bl.policy("dpr-adaptive-ucb", **private),
    }
    results = bl.simulate(
        policies, world, horizon=options.horizon, repetitions=options.repetitions, seed=2
    )
    print(results.summary(), "\n")
    print(f"share of customers who were offered each of {', '.join(world.arm_labels)}:")
    for label in results.labels:
        shares = results.pulls(label).mean(axis=0) / options.horizon
        print(f"  {label:26}", "  ".join(f"{share:5.1%}" for share in shares))
    results.plot(options.out / "assets.png")
    print(f"\npicture: {options.out / 'assets.png'}")


if __name__ == "__main__":
    main()
