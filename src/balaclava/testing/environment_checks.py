"""The contract of an environment, as a list of checks."""

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from balaclava._core.kernels import compiled
from balaclava.environments.base import Environment, reward_itself
from balaclava.errors import IncompatibleError, ParameterError
from balaclava.policies.base import policy as make_policy
from balaclava.privacy.randomness import seeded
from balaclava.simulation.engine import simulate
from balaclava.testing.conformance import require, require_error, require_named

ENVIRONMENT_SEED = 20_241  # any fixed number: a check must not fail by chance
CHECK_DRAWS = 200  # of an arm, in most checks
_MEAN_DRAWS = 20_000  # of an arm, for its mean


def check_environment(environment: Environment) -> None:
    """Run every check of an environment's contract.

    Args:
        environment: An instance of the environment.

    Raises:
        ConformanceError: If a check fails; the message says which promise is broken.
    """
    for check in ENVIRONMENT_CHECKS:
        check(environment)


def describes_itself(environment: Environment) -> None:
    """It has a docstring, parameters that survive JSON, and finite means."""
    cls = type(environment)
    require(environment, bool((cls.__doc__ or "").strip()), "has no docstring")
    again = cls.create(json.loads(json.dumps(environment.parameters)))
    require(environment, again == environment, "parameters do not survive JSON")
    require(environment, environment.arms == environment.means.size >= 1, "arms and means disagree")
    require(environment, bool(np.isfinite(environment.means).all()), "a mean is not finite")
    require(environment, float(environment.gaps.min()) == 0.0, "the smallest gap is not 0")


def refuses_bad_parameters(environment: Environment) -> None:
    """It refuses unknown parameters and means that are not finite, with errors that name them."""
    good = environment.parameters
    require_named(environment, "meanz", "an unknown parameter", {**good, "meanz": 1})
    if "means" in good:
        for absurd in ([], [math.nan], ["a"], 0.5, None, [[0.5]], [0.5, math.inf]):
            require_named(environment, "means", f"means = {absurd!r}", {**good, "means": absurd})


def draws_within_its_range(environment: Environment) -> None:
    """Every draw is a finite number in `reward_range`."""
    low, high = environment.reward_range
    for arm in range(environment.arms):
        rewards = interpreted_draws(environment, arm)
        require(environment, bool(np.isfinite(rewards).all()), "a reward is not finite")
        inside = bool((rewards >= low).all() and (rewards <= high).all())
        require(environment, inside, f"arm {arm} draws outside [{low:g}, {high:g}]")


def compiles_to_what_it_says(environment: Environment) -> None:
    """Interpreted and compiled draws on the same random stream are equal."""
    sample = compiled(make_sample, environment.draw, *environment.scene[:2])
    for arm in range(environment.arms):
        rewards = sample(environment.constants(), arm, rounds(environment), *streams())
        alike = np.allclose(rewards, interpreted_draws(environment, arm), rtol=1e-12, atol=0.0)
        require(environment, alike, "compiled draws differ from interpreted ones")


def keeps_streams_in_step(environment: Environment) -> None:
    """Every arm consumes the same random numbers."""
    ends = set()
    for arm in range(environment.arms):
        scene, (rng, context_rng) = environment.scene.open(environment.constants()), streams()
        for t in range(1, rounds(environment) + 1):
            environment.scene.renew(scene, t, context_rng)
            environment.draw(scene, t, arm, rng)
        ends.add(rng.random())
    require(
        environment,
        len(ends) == 1,
        "the arms consume different random numbers; draw one "
        "uniform and invert the distribution function, or draw the same numbers for every arm",
    )


def independent_rounds_are_equal(environment: Environment) -> None:
    """If draws are independent, the same random numbers give the same reward in every round."""
    if not environment.independent:
        return
    world = environment.scene.open(environment.constants())
    for arm in range(environment.arms):
        times = (1, 2, CHECK_DRAWS, 10**6)
        rewards = {environment.draw(world, t, arm, streams()[0]) for t in times}
        require(environment, len(rewards) == 1, "it is `independent`, but its rounds differ")


def draws_around_its_means(environment: Environment) -> None:
    """If variances are known, averages of many draws are within 8 standard errors of the means.

    A correct environment fails with probability at most 1/64 per arm (Chebyshev), far less with
    light tails. The seed is fixed.
    """
    if environment.rounds is not None or environment.share_of_outliers > 0.0:
        return
    try:
        variances = environment.moments(2.0, central=True)
    except IncompatibleError:
        return
    sample = compiled(make_sample, environment.draw, *environment.scene[:2])
    for arm in np.flatnonzero(np.isfinite(variances)):
        average = sample(environment.constants(), int(arm), _MEAN_DRAWS, *streams()).mean()
        error = math.sqrt(variances[arm] / _MEAN_DRAWS) + 1e-9 * abs(environment.means[arm])
        near = abs(average - environment.means[arm]) <= 8.0 * error
        require(environment, near, f"the draws of arm {arm} do not average to its mean")


def knows_its_moments(environment: Environment) -> None:
    """Moments agree with variances and means, and an order must be positive."""
    try:
        second = environment.moments(2.0, central=True)
    except IncompatibleError:
        return
    raw = environment.moments(2.0)
    shaped = second.shape == raw.shape == (environment.arms,)
    require(environment, shaped, "moments() does not have a value for each arm")
    finite, expected = np.isfinite(raw), second + environment.means**2
    alike = np.allclose(raw[finite], expected[finite], rtol=1e-6, atol=1e-9)
    require(environment, alike, "E X^2 is not the variance plus the squared mean")
    require(environment, environment.moment(2.0) == float(raw.max()), "moment() is not the largest")
    for order in (0.0, -1.0, math.nan):
        what = f"the moment of order {order}"
        require_error(environment, ParameterError, what, environment.moment, order)


def can_be_simulated(environment: Environment) -> None:
    """A policy without assumptions plays it, and the regret is that of the pulls."""
    name = "exp3" if environment.feedback == "loss" else "ucb1"
    policy = make_policy(name, arms=environment.arms)
    results = simulate(
        policy, environment, horizon=rounds(environment), repetitions=2, seed=ENVIRONMENT_SEED,
        workers=1,
    )  # fmt: skip
    if environment.feedback == "reward" and environment.scene.score is reward_itself:
        regret = results.pulls(name) @ environment.gaps
        alike = np.allclose(results.final_regret(name), regret)
        require(environment, alike, "its regret is not that of the pulls")


ENVIRONMENT_CHECKS: list[Callable[[Environment], None]] = [
    describes_itself,
    refuses_bad_parameters,
    draws_within_its_range,
    compiles_to_what_it_says,
    keeps_streams_in_step,
    independent_rounds_are_equal,
    draws_around_its_means,
    knows_its_moments,
    can_be_simulated,
]


def rounds(environment: Environment) -> int:
    """Rounds to draw: fewer than `CHECK_DRAWS` if the environment ends before."""
    return CHECK_DRAWS if environment.rounds is None else min(CHECK_DRAWS, environment.rounds)


def streams() -> tuple[np.random.Generator, np.random.Generator]:
    """New random streams for rewards and for contexts."""
    return seeded(ENVIRONMENT_SEED), seeded(ENVIRONMENT_SEED, 1)


def interpreted_draws(environment: Environment, arm: int) -> np.ndarray:
    sample = make_sample(environment.draw, *environment.scene[:2])
    drawn: np.ndarray = sample(environment.constants(), arm, rounds(environment), *streams())
    return drawn


def make_sample(
    draw: Callable[..., Any], open_scene: Callable[..., Any], renew: Callable[..., Any]
) -> Callable[..., Any]:
    def sample(world: Any, arm: int, count: int, rng: Any, context_rng: Any) -> np.ndarray:
        scene, rewards = open_scene(world), np.empty(count)
        for i in range(count):
            renew(scene, i + 1, context_rng)
            rewards[i] = draw(scene, i + 1, arm, rng)
        return rewards

    return sample
