"""Regret with one trusted server, with two that are not trusted alone, and with local reports.

    python benchmarks/split_trust.py [--runs 400] [--setting "9 arms"] [--policy "two servers"]

Shuffled reports are on paper: of n devices, N send a fair coin in place of their bit, and a
shuffler hides which. An observer who knows all others' bits sees the count: a bit plus a binomial
B of N coins. Two values of the bit are (epsilon, delta)-indistinguishable if

    P(B >= k - 1) - e^epsilon P(B >= k) <= delta,
    k = floor((N + 1) e^epsilon / (1 + e^epsilon)) + 1,

since P(B = k - 1) / P(B = k) = k / (N - k + 1). The count of a batch then has the noise of the
least such N: deviation sqrt(N)/2, over 1 - N/n. It is played as Gaussian noise, with first batches
of n = 4 N.
"""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Callable
from typing import Any

import balaclava as bl
from balaclava.privacy.mechanisms.analytic_gaussian import released_deviation

DELTA = 1e-6
FIRST_OVER_COINS = 4
SETTINGS: dict[str, dict[str, Any]] = {
    "9 arms": {"means": [0.3 + 0.05 * arm for arm in range(9)], "horizon": 10**6},
    "recommender": {"means": [0.10, 0.16, 0.22, 0.12], "horizon": 10**5},
}


def coins(epsilon: float, delta: float) -> int:
    """The least number of fair coins that hide a bit among them."""
    from scipy import stats

    n = 1
    while True:
        k = math.floor((n + 1) * math.exp(epsilon) / (1.0 + math.exp(epsilon))) + 1
        beyond = stats.binom(n, 0.5).sf([k - 2, k - 1])
        if beyond[0] - math.exp(epsilon) * beyond[1] <= delta:
            return n
        n += 1


def shuffled(epsilon: float, arms: int) -> bl.Policy:
    """dp-imed with the deviation of shuffled reports, found by bisection over epsilon."""
    hidden = coins(epsilon, DELTA)
    deviation = 0.5 * math.sqrt(hidden) / (1.0 - 1.0 / FIRST_OVER_COINS)
    low, high = 1e-3 * epsilon, epsilon
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (
            (middle, high) if released_deviation(middle, DELTA) > deviation else (low, middle)
        )
    return bl.policy(
        "dp-imed", arms=arms, epsilon=low, delta=DELTA, noise="gaussian",
        first_batch=FIRST_OVER_COINS * hidden,
    )  # fmt: skip


def policies(arms: int, epsilon: float) -> dict[str, Callable[[], bl.Policy]]:
    how = {"arms": arms, "epsilon": epsilon}
    two = functools.partial(bl.policy, "dp-imed", trust="split", **how)
    return {
        "not private (imed)": lambda: bl.policy("imed", arms=arms),
        "one trusted server": lambda: bl.policy("dp-imed", **how),
        "two servers": two,
        "two servers, first_batch 57": lambda: two(first_batch=57.0 / epsilon),
        "two servers, first_batch 80": lambda: two(first_batch=80.0 / epsilon),
        "shuffled reports, on paper": lambda: shuffled(epsilon, arms),
        "local reports": lambda: bl.policy("ldp-ucb-bernoulli", **how),
        "local reports, radius_scale .3": lambda: bl.policy(
            "ldp-ucb-bernoulli", radius_scale=0.3, **how
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--setting", choices=SETTINGS, action="append")
    parser.add_argument("--policy", action="append", help="by default all")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    for name in options.setting or SETTINGS:
        means, horizon = SETTINGS[name]["means"], SETTINGS[name]["horizon"]
        world = bl.environment("bernoulli", means=means)
        print(
            f"\n| {name}, {options.runs} runs | mean regret | median | worst |\n|---|---|---|---|"
        )
        for label, make in policies(len(means), options.epsilon).items():
            if options.policy and label not in options.policy:
                continue
            played = bl.simulate(
                make(), world, horizon=horizon, repetitions=options.runs, seed=1,
                workers=options.workers,
            )  # fmt: skip
            final = played.final_regret(played.labels[0])
            error = 1.96 * final.std(ddof=1) / math.sqrt(options.runs)
            cells = f"{final.mean():,.0f} ± {error:,.0f} | {sorted(final)[options.runs // 2]:,.0f}"
            print(f"| {label} | {cells} | {final.max():,.0f} |", flush=True)


if __name__ == "__main__":
    main()
