"""The contract of an environment, as checks."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from balaclava._core.kernels import compiled
from balaclava.environments.base import Environment
from balaclava.errors import IncompatibleError, ParameterError
from balaclava.policies.base import policy as make_policy
from balaclava.privacy.randomness import seeded
from balaclava.simulation.engine import simulate
from balaclava.testing.conformance import require, require_error

SEED = 20_241
DRAWS = 200
MANY_DRAWS = 20_000


def check_environment(environment: Environment) -> None:
    """Run every check; the first that fails raises `ConformanceError`."""
    for check in ENVIRONMENT_CHECKS:
        check(environment)


def describes_itself(environment: Environment) -> None:
    """A title, parameters that survive JSON, finite clean means."""
    cls = type(environment)
    require(bool((cls.__doc__ or "").strip()), f"{environment.name} has no docstring")
    again = cls.create(json.loads(json.dumps(environment.parameters)))
    require(again == environment, f"{environment.name}: parameters do not survive JSON")
    require(environment.arms == environment.means.size >= 1, f"{environment.name}: arms")
    require(bool(np.isfinite(environment.means).all()), f"{environment.name}: a mean is not finite")
    require(float(environment.gaps.min()) == 0.0, f"{environment.name}: no arm is the best")


def refuses_bad_parameters(environment: Environment) -> None:
    """Unknown parameters are named; a mean that is not a number is refused."""
    create, good = type(environment).create, environment.parameters
    error = require_error(
        ParameterError, lambda: create({**good, "meanz": 1}), f"{environment.name}: unknown"
    )
    require("meanz" in str(error), "the error does not name the unknown parameter")
    if "means" in good:
        for absurd in ([], [math.nan], ["a"], 0.5, None, [[0.5]], [0.5, math.inf]):
            error = require_error(
                ParameterError,
                lambda absurd=absurd: create({**good, "means": absurd}),  # type: ignore[misc]
                f"{environment.name}: means = {absurd!r}",
            )
            require("means" in str(error), f"the error for means = {absurd!r} does not name them")


def draws_within_its_range(environment: Environment) -> None:
    """Every draw is a finite number in `reward_range`."""
    low, high = environment.reward_range
    for arm in range(environment.arms):
        rewards = interpreted_draws(environment, arm)
        require(bool(np.isfinite(rewards).all()), f"{environment.name}: a reward is not finite")
        require(
            bool((rewards >= low).all() and (rewards <= high).all()),
            f"{environment.name}: arm {arm} draws outside [{low:g}, {high:g}]",
        )


def compiles_to_what_it_says(environment: Environment) -> None:
    """Interpreted and compiled draws on the same stream are the same."""
    sample = compiled(make_sample, environment.draw, *environment.scene[:2])
    for arm in range(environment.arms):
        rewards = sample(environment.constants(), arm, rounds(environment), *streams())
        require(
            np.allclose(rewards, interpreted_draws(environment, arm), rtol=1e-12, atol=0.0),
            f"{environment.name}: compiled draws differ from interpreted ones",
        )


def keeps_streams_in_step(environment: Environment) -> None:
    """Whichever arm is pulled, the same random numbers are used up."""
    ends = set()
    for arm in range(environment.arms):
        scene, (rng, context_rng) = environment.scene.open(environment.constants()), streams()
        for t in range(1, rounds(environment) + 1):
            environment.scene.renew(scene, t, context_rng)
            environment.draw(scene, t, arm, rng)
        ends.add(rng.random())
    require(len(ends) == 1, f"{environment.name}: the arms use up different random numbers")


def says_where_rounds_differ(environment: Environment) -> None:
    """Of independent draws the same random numbers make the same reward in every round."""
    if not environment.independent:
        return
    world = environment.scene.open(environment.constants())
    for arm in range(environment.arms):
        rewards = {environment.draw(world, t, arm, streams()[0]) for t in (1, 2, DRAWS, 10**6)}
        require(len(rewards) == 1, f"{environment.name}: `independent`, but its rounds differ")


def draws_around_its_means(environment: Environment) -> None:
    """Where variances are known, many draws average to the clean means: within 8 of their errors.

    A correct environment fails with a chance of at most 1/64 an arm (Chebyshev), far less where
    tails are light; the seed is fixed.
    """
    if environment.rounds is not None or environment.share_of_outliers > 0.0:
        return
    try:
        variances = environment.moments(2.0, central=True)
    except IncompatibleError:
        return
    sample = compiled(make_sample, environment.draw, *environment.scene[:2])
    for arm in np.flatnonzero(np.isfinite(variances)):
        average = sample(environment.constants(), int(arm), MANY_DRAWS, *streams()).mean()
        error = math.sqrt(variances[arm] / MANY_DRAWS) + 1e-9 * abs(environment.means[arm])
        require(
            abs(average - environment.means[arm]) <= 8.0 * error,
            f"{environment.name}: what arm {arm} draws does not average to its mean",
        )


def knows_its_moments(environment: Environment) -> None:
    """Moments are positive, grow as they should, and refuse an order that is not positive."""
    try:
        second = environment.moments(2.0, central=True)
    except IncompatibleError:
        return
    raw = environment.moments(2.0)
    require(second.shape == raw.shape == (environment.arms,), f"{environment.name}: moment shapes")
    finite = np.isfinite(raw)
    require(
        np.allclose(raw[finite], (second + environment.means**2)[finite], rtol=1e-6, atol=1e-9),
        f"{environment.name}: E X^2 is not the variance plus the squared mean",
    )
    require(environment.moment(2.0) == float(raw.max()), f"{environment.name}: moment()")
    for order in (0.0, -1.0, math.nan):
        require_error(
            ParameterError,
            lambda order=order: environment.moment(order),  # type: ignore[misc]
            f"{environment.name}: the moment of order {order}",
        )


def can_be_simulated(environment: Environment) -> None:
    """A policy for any rewards or losses plays it, and the regret is what it should be."""
    name = "exp3" if environment.feedback == "loss" else "ucb1"
    policy = make_policy(name, arms=environment.arms)
    results = simulate(
        policy, environment, horizon=rounds(environment), repetitions=2, seed=SEED, workers=1
    )
    if environment.feedback == "reward" and environment.dimension is None:
        regret = results.pulls(name) @ environment.gaps
        require(np.allclose(results.final_regret(name), regret), f"{environment.name}: regret")


ENVIRONMENT_CHECKS: list[Callable[[Environment], None]] = [
    describes_itself,
    refuses_bad_parameters,
    draws_within_its_range,
    compiles_to_what_it_says,
    keeps_streams_in_step,
    says_where_rounds_differ,
    draws_around_its_means,
    knows_its_moments,
    can_be_simulated,
]


def rounds(environment: Environment) -> int:
    """As many draws as there can be, up to a few hundred."""
    return DRAWS if environment.rounds is None else min(DRAWS, environment.rounds)


def streams() -> tuple[np.random.Generator, np.random.Generator]:
    """Fresh ones for rewards and for contexts."""
    return seeded(SEED), seeded(SEED, 1)


def interpreted_draws(environment: Environment, arm: int) -> np.ndarray:
    """Draws of one arm without the compiler."""
    sample = make_sample(environment.draw, *environment.scene[:2])
    drawn: np.ndarray = sample(environment.constants(), arm, rounds(environment), *streams())
    return drawn


def make_sample(
    draw: Callable[..., Any], open_scene: Callable[..., Any], renew: Callable[..., Any]
) -> Callable[..., Any]:
    """A loop that draws one arm again and again."""

    def sample(world: Any, arm: int, count: int, rng: Any, context_rng: Any) -> np.ndarray:
        scene, rewards = open_scene(world), np.empty(count)
        for i in range(count):
            renew(scene, i + 1, context_rng)
            rewards[i] = draw(scene, i + 1, arm, rng)
        return rewards

    return sample
