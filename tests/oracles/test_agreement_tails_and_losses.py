"""Policies for tails, outliers, losses and experts play as a second implementation does."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.optimize

import balaclava as bl
from tests.oracles.agreement import compare
from tests.oracles.agreement_tails_and_losses import (
    ABOUT_0,
    ABOUT_2,
    CASES,
    LOOPS,
    THREE,
    U9,
    Case,
    advised,
    case,
    dirty,
    pareto,
    same_spread,
)

EXPERTS = advised(THREE, [[1.0, 0.0, 0.0], [0.2, 0.3, 0.5], [0.0, 0.0, 1.0]])
# The horizon is the shortest at which the rule decides.
SMALL = [
    case("dpr-ucb", 2_000, 100, pareto(0.9), epsilon=1.0, order=1.9, u=U9, c=0.1),
    case("dpr-se", 20_000, 100, pareto(0.9), epsilon=3.0, order=1.9, u=U9, c=0.05),
    case("ldpr-se", 20_000, 200, pareto(0.9), epsilon=10.0, order=1.9, u=2.0, c=0.05),
    case(
        "prae-raw",
        5_000,
        200,
        dirty(ABOUT_0, 1.0),
        epsilon=1.0,
        order=2,
        u=2.4,
        c=0.05,
        contamination=0.1,
        radius="paper",
        threshold=64,
    ),
    case(
        "prae-central",
        5_000,
        200,
        ABOUT_2,
        epsilon=1.0,
        order=2,
        u=1.7,
        c=0.1,
        mean_range=50,
        threshold=64,
    ),
    case("exp3", 2_000, 100, THREE, horizon=2_000),
    case("dp-exp3", 2_000, 100, THREE, epsilon=0.5, rate=10.0),
    case("ldp-exp3", 2_000, 100, THREE, epsilon=1.0, rate=10.0),
    case("dp-exp3-experts", 2_000, 100, EXPERTS, epsilon=0.5, rate=20.0),
    case("ftpl", 1_000, 100, THREE),
    case("dp-ftpl", 2_000, 100, THREE, epsilon=0.5, rate=20.0),
    case("dp-ftpl-experts", 2_000, 100, EXPERTS, epsilon=0.5, rate=20.0),
    case("htinf", 2_000, 100, THREE, order=1.5, sigma=1.0),
    case("dp-htinf", 2_000, 100, THREE, epsilon=0.3, batch=7),
    case("dp-htinf-experts", 2_000, 100, EXPERTS, epsilon=0.5),
    case("tsallis-inf", 2_000, 100, THREE),
    case("dp-tsallis-inf", 2_000, 100, THREE, epsilon=0.5),
    case("exp4", 2_000, 100, EXPERTS, rate=3.0),
    case("ldp-exp4", 2_000, 100, EXPERTS, epsilon=1.0, rate=5.0),
    case("dp-exp4", 20_000, 60, EXPERTS, epsilon=1.0, delta=0.01, rate=0.5),
]


def agree(one: Case) -> None:
    ours, theirs = one.ours(), one.independent()
    found = compare(ours, theirs)
    # Fixed seeds. If both play alike, each of the four is beyond its limit in less than one case
    # in 10,000 (|z|: 6e-5; the p-values: 1e-5 each).
    assert abs(found.z) <= 4, found
    assert min(found.kolmogorov_smirnov, found.mann_whitney) >= 1e-5, found
    assert same_spread(ours, theirs) >= 1e-5


def test_every_second_implementation_is_compared() -> None:
    assert set(LOOPS) <= {e.name for e in bl.list_policies()}
    assert set(LOOPS) == {one.policy for one in SMALL} == {one.policy for one in CASES}


QUICK = ("dpr-batch-ucb", "robust-ucb")


@pytest.mark.filterwarnings("ignore::UserWarning")  # moment bounds that are wrong on purpose
@pytest.mark.parametrize(
    "one",
    [
        pytest.param(one, id=one.policy, marks=[] if one.policy in QUICK else [pytest.mark.slow])
        for one in SMALL
    ],
)
def test_a_policy_agrees_with_its_second_implementation(one: Case) -> None:
    agree(one)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # moment bounds that are wrong on purpose
@pytest.mark.parametrize("one", CASES, ids=[f"{one.policy} {one.setting}" for one in CASES])
def test_a_policy_agrees_at_every_setting(one: Case) -> None:
    agree(replace(one, runs=min(one.runs, 200)))


def least_radius(p: float, u: float, epsilon: float, n: int, log: float, *, local: bool) -> float:
    """The least of (B/n) (n u B^-p max(1, (e^x - 1 - x)/x) + (log + noise)/x) over B and x."""

    def radius(at: np.ndarray) -> float:
        B, x = math.exp(at[0]), 0.4999 * epsilon / (1 + math.exp(-at[1]))
        noise = -math.log1p(-4 * x**2 / epsilon**2)
        bias = u * B**-p * max(1.0, (math.expm1(x) - x) / x)
        return B * bias + B / (n * x) * (log + (n if local else 1) * noise)

    starts = [(math.log(u) / p + b, s) for b in (0.0, 2.0, 4.0, 8.0) for s in (-6.0, -2.0, 1.0)]
    options = {"xatol": 1e-9, "fatol": 1e-13, "maxiter": 2000}
    found = (
        scipy.optimize.minimize(radius, start, method="Nelder-Mead", options=options)
        for start in starts
    )
    return float(min(one.fun for one in found))


@pytest.mark.parametrize("local", [False, True], ids=["central", "local"])
@pytest.mark.parametrize(
    ("p", "u", "epsilon", "n", "horizon"),
    [(1.9, U9, 1.0, 128, 10**6), (1.2, 2.0, 0.5, 4096, 10**6), (2.0, 0.01, 3.0, 16, 10**5)],
)
def test_the_radius_of_one_batch_is_the_least_that_the_rule_gives(
    p: float, u: float, epsilon: float, n: int, horizon: int, local: bool
) -> None:
    name = "ldpr-batch-ucb" if local else "dpr-batch-ucb"
    policy = bl.policy(
        name, arms=3, epsilon=epsilon, moment_order=p, moment_bound=u, horizon=horizon,
        first_batch=n,
    )  # fmt: skip
    radii = policy.schedule.radii
    least = least_radius(p, u, epsilon, n, math.log(radii.size * horizon), local=local)
    assert least <= radii[0] <= 1.001 * least


def rates_of(policy: Any) -> dict[str, float]:
    """The rates of a policy for losses, also inside a conversion."""
    constants = policy.constants()
    constants = getattr(constants, "inner", constants)
    rates = dict(getattr(constants, "base", constants)._asdict())
    if hasattr(constants, "base"):
        rates |= {"batch": constants.batch, "noise": 1 / (constants.batch * constants.epsilon)}
    if hasattr(constants, "noise_scale"):
        rates["noise"] = constants.noise_scale
    return rates


OF_LOSSES = {entry.name for entry in bl.list_policies() if entry.rewards == "loss"}
LOSSES = [one for one in CASES if one.policy in OF_LOSSES]


@pytest.mark.parametrize("one", LOSSES, ids=[f"{one.policy} {one.setting}" for one in LOSSES])
def test_the_rates_are_those_of_the_second_implementation(one: Case) -> None:
    """Regret hardly depends on some: noise half as large, or gamma 10 % larger."""
    rates, given = rates_of(one.made()), one.arguments()
    match LOOPS[one.policy].__name__:
        case "exp3":
            wanted = dict(zip(("batch", "noise", "eta", "gamma"), given[4:8], strict=True))
        case "ftpl":
            wanted = {"batch": given[4], "noise": given[5], "spread": 1 / given[6]}
            wanted["resamples"] = given[7]
        case "htinf" if "tsallis" in one.policy:
            wanted = {"batch": given[4], "noise": given[5], "rate": given[8] / given[7]}
        case "htinf":
            wanted = {"batch": given[4], "noise": given[5], "share": 1 / given[6]}
            wanted |= {"sigma": given[7], "scale": given[8]}
        case "exp4":
            wanted = {"learning_rate": given[4], "mixing": given[5]}
        case _:
            wanted = {"batch": given[3], "noise": given[4], "learning_rate": given[5]}
            wanted["mixing"] = given[6]
    if not one.policy.startswith("dp-"):  # one round a batch, and the report's own noise
        wanted = {name: x for name, x in wanted.items() if name not in ("batch", "noise")}
    assert {name: rates[name] for name in wanted} == pytest.approx(wanted, rel=1e-12)


def test_the_comparison_detects_noise_of_half_the_size() -> None:
    right = case("ldp-exp3", 2_000, 200, THREE, epsilon=0.5, rate=10.0)
    *start, noise, eta, gamma, anytime = right.arguments()
    wrong = (*start, noise / 2, eta, gamma, anytime)
    theirs = right.independent()
    assert same_spread(right.ours(), theirs) > 1e-4
    assert same_spread(right.independent(wrong), theirs) < 1e-4
