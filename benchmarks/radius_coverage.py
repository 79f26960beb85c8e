"""How often the estimates of prae-raw and prae-central miss their radius.

Each line is one law and one setting, with many estimates by the policy's own kernels. It shows the
share further from the clean mean than beta, beside the promised delta, and the (1 - delta) quantile
of the error in units of beta.

    python benchmarks/radius_coverage.py          # 100,000 estimates a line: a quarter of an hour
    python benchmarks/radius_coverage.py --quick
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import balaclava as bl
from balaclava.authoring import compiled, kernel
from balaclava.policies.contaminated.prae import level_of, radius_of
from balaclava.privacy.randomness import seeded

DELTA = 0.05
LONGEST = 6_000  # pulls; longer batches have fewer runs
ORDERS, EPSILONS, SHARES = (2.0, 3.0, 8.0), (0.1, 1.0), (0.0, 0.05, 0.2)
LAWS = ("pareto", "student-t", "two-point")
# Of batches; None: the first that the proof allows.
SIZES: dict[str, tuple[int | None, ...]] = {"prae-raw": (16, 1024), "prae-central": (None,)}


class Coverage(NamedTuple):
    """The measured coverage of one setting."""

    missed: float  # share of the estimates beyond beta
    error: float  # the 1 - delta quantile of |estimate - mean| / beta
    runs: int


@kernel
def whole_state(state: Any) -> Any:
    return state


@kernel
def batch_part(state: Any) -> Any:
    return state.batch


def make_estimates(
    begin: Callable[..., Any],
    choose: Callable[..., Any],
    learn: Callable[..., Any],
    draw: Callable[..., Any],
    batch_of: Callable[..., Any],
) -> Callable[..., Any]:
    """Close a loop that fills `first` with estimates from a batch of `size` pulls."""

    def estimates(
        params: Any, world: Any, size: int, first: np.ndarray, policy_rng: Any, rng: Any
    ) -> None:
        for run in range(first.size):
            state, t = begin(params), 0
            batch = batch_of(state)
            batch.size[0] = size // 2  # of the batch before
            while batch.means[0] == np.inf:
                t += 1
                arm, phase = choose(params, state, t, None, policy_rng)
                learn(params, state, t, arm, draw(world, t, arm, rng), phase, policy_rng)
            first[run] = batch.means[0]

    return estimates


def estimates_of(
    policy: bl.Policy, world: bl.Environment, size: int, runs: int, seed: int
) -> np.ndarray:
    """Independent estimates of the mean of the first arm, each from a batch of `size` pulls."""
    batch_of = batch_part if policy.name == "prae-central" else whole_state
    loop = compiled(make_estimates, *policy.kernels[:3], world.draw, batch_of)
    estimates = np.empty(runs)
    loop(policy.constants(), world.constants(), size, estimates, seeded(seed, 0), seeded(seed, 1))
    return estimates


def coverage(policy: Any, world: bl.Environment, size: int, runs: int, seed: int = 1) -> Coverage:
    """Compare the estimates of a batch of `size` pulls with their radius."""
    errors = np.abs(estimates_of(policy, world, size, runs, seed) - world.means[0])
    beta = radius_of(policy.constants(), size)
    return Coverage(
        float((errors > beta).mean()), float(np.quantile(errors, 1 - DELTA)) / beta, runs
    )


def clean_parameters(law: str, order: float, centre: float, level: float) -> dict[str, Any]:
    """A law with hardly any moment above the given order, and its mean at `centre`."""
    if law == "pareto":
        return {"means": [centre or 1.0] * 2, "shape": order + 0.3}
    if law == "student-t":
        return {"means": [centre] * 2, "degrees": order + 0.3}
    # The whole mean lies just beyond the truncation level, as rarely as the moment allows.
    value = max(1.001 * level, 1.0)
    return {"values": [value] * 2, "probabilities": [value**-order] * 2}


def setting(
    name: str, law: str, order: float, epsilon: float, share: float, size: int | None
) -> tuple[Any, bl.Environment, int]:
    """The policy, the contaminated law, and the batch size, by default the first of the proof.

    The outliers are just inside the truncation, on the side of the bias.
    """
    central = name == "prae-central"
    make = partial(
        bl.policy,
        name,
        arms=2,
        epsilon=epsilon,
        moment_order=order,
        contamination=share,
        failure_probability=DELTA,
    )
    if central:
        make = partial(make, mean_range=500.0)
    if size is None:
        needed = make(moment_bound=1.0).needed_threshold
        size = max(2 ** int(np.ceil(np.log2(needed))), 2)
    level = level_of(make(moment_bound=1.0).constants(), size)
    clean = bl.environment(law, **clean_parameters(law, order, 7.7 if central else 0.0, level))
    moment = clean.moment(order, central=central)
    policy = make(moment_bound=1.0 if law == "two-point" else moment, threshold=0)
    params = policy.constants()
    edge = level_of(params, size)
    if central:  # about the left end of the bin in which the mean lies
        edge += params.low + params.width * ((clean.means[0] - params.low) // params.width)
    outliers = {"kind": "point", "value": -edge if law == "two-point" else edge}
    world = bl.environment("contaminated", inner=clean, fraction=share, outliers=outliers)
    return policy, world, size


def lines(names: Sequence[str], runs: int) -> Iterator[str]:
    """The table."""
    yield "| policy | law | k | epsilon | alpha | B | estimates | missed | promised | error/beta |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for name, law, order, epsilon, share in itertools.product(
        names, LAWS, ORDERS, EPSILONS, SHARES
    ):
        for size in SIZES[name]:
            policy, world, used = setting(name, law, order, epsilon, share, size)
            attempts = max(min(runs, runs * LONGEST // used), 1000)
            rates = coverage(policy, world, used, attempts)
            yield (
                f"| {name} | {law} | {order:g} | {epsilon:g} | {share:g} | {used} | {rates.runs} "
                f"| {rates.missed:.5f} | {DELTA:g} | {rates.error:.3f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2,000 estimates a line")
    parser.add_argument("--policy", choices=SIZES, action="append", help="only this one")
    options = parser.parse_args()
    for line in lines(options.policy or list(SIZES), 2_000 if options.quick else 100_000):
        print(line, flush=True)


if __name__ == "__main__":
    main()
