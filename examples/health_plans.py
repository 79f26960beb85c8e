"""Which insurance plan leads to most visits to a doctor, without revealing anyone's visits.

The RAND health insurance experiment gave families one of several plans and counted their visits.
Here an adaptive trial gives each person a plan. The outcome, the number of outpatient visits in a
year, must not leak. Most people go twice or not at all, a few go 70 times: the tail is heavy, and
no largest value is known.

Run it: make examples, or python examples/health_plans.py --help
"""

from __future__ import annotations

import argparse
from pathlib import Path

from packaged import doctor_visits

import balaclava as bl

# Two or three visits a year with a spread of about five: known from earlier surveys, not from the
# participants of this trial.
MOMENT = {"moment_order": 2.0, "moment_bound": 50.0}


def plausible(gap: float) -> bl.Environment:
    """Plausible outcomes before the trial: one plan better than five equal ones."""
    return bl.environment("lognormal", means=[3.0 + gap, 3.0, 3.0, 3.0, 3.0, 3.0], sigma=1.0)


def main() -> None:
    arguments = argparse.ArgumentParser(description="A private adaptive trial of insurance plans.")
    arguments.add_argument("--horizon", type=int, default=200_000, help="people enrolled")
    arguments.add_argument("--repetitions", type=int, default=40)
    arguments.add_argument("--epsilon", type=float, default=1.0)
    arguments.add_argument("--out", type=Path, default=Path("out/examples"))
    options = arguments.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    world = bl.environment("empirical", samples=doctor_visits())
    known = {**MOMENT, "arms": world.arms, "horizon": options.horizon}
    private = {**known, "epsilon": options.epsilon}
    calibrated = {
        name: bl.calibrate(
            bl.policy(name, **private),
            [plausible(0.5), plausible(1.0)],
            horizon=options.horizon,
            repetitions=options.repetitions,
            seed=1,
        )
        for name in ("dpr-batch-ucb", "ldpr-batch-ucb")
    }
    policies = {
        "robust-ucb": bl.policy("robust-ucb", **known),
        "dpr-batch-ucb, proved": bl.policy("dpr-batch-ucb", **private),
        **{f"{name}, calibrated": calibration.policy for name, calibration in calibrated.items()},
        "dpr-adaptive-ucb": bl.policy("dpr-adaptive-ucb", arms=world.arms, epsilon=options.epsilon),
    }
    results = bl.simulate(
        policies, world, horizon=options.horizon, repetitions=options.repetitions, seed=3
    )
    print(results.summary(), "\n")
    width = max(map(len, world.arm_labels))
    print("share of people on each plan:", "; ".join(results.labels))
    for arm, plan in enumerate(world.arm_labels):
        shares = [results.pulls(label)[:, arm].mean() / options.horizon for label in results.labels]
        print(f"  {plan:{width}}", "  ".join(f"{share:6.1%}" for share in shares))
    print()
    print(policies["dpr-batch-ucb, proved"].guarantee.explain())
    results.plot(options.out / "health_plans.png")
    print(f"\npicture: {options.out / 'health_plans.png'}")


if __name__ == "__main__":
    main()
