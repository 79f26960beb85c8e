"""Environments to try policies on when nothing is known but the kind of rewards."""

from typing import Any, NamedTuple

import numpy as np

from balaclava.environments.base import Environment
from balaclava.environments.base import environment as make_environment
from balaclava.errors import ParameterError
from balaclava.policies.base import Policy

_TAIL_PER_MOMENT_ORDER = 1.05  # tail index: just above 1 it is as heavy as the moment allows


class Around(NamedTuple):
    """What is known of bounded rewards: a usual arm's average, and how far ahead the best is."""

    average: float
    difference: float


def plausible_problems(
    rewards: str, policy: Policy, rounds: int, around: Around | None = None
) -> list[tuple[Environment, str]]:
    """Environments for such rewards, each with a description; the first is the one reported."""
    arms = policy.arms
    if around is not None:
        low, high = policy.accepts
        worlds = problems_around(arms, *around, reward_range=(low, high)).worlds
        words = f"rewards {low:g} and {high:g}, {arms} arms with averages of {around.average:g}, "
        ahead = f"{words}one {around.difference:g} ahead"
        return [(worlds["one ahead"], ahead), (worlds["spread"], f"{words}spread")]
    spread = np.linspace(0.3, 0.7, arms) if arms > 1 else np.array([0.7])
    if rewards != "bounded":
        return [_unbounded(rewards, policy, rounds, spread)]
    alike = np.full(arms, 0.5)
    alike[-1] = 0.7
    return [
        _bounded(policy, spread, f"{arms} arms with means from 0.3 to 0.7", "30 % to 70 %"),
        _bounded(policy, alike, f"{arms} arms, one with mean 0.7, others 0.5", "70 % or 50 %"),
    ]


def _bounded(policy: Policy, means: np.ndarray, words: str, shares: str) -> tuple[Environment, str]:
    low, high = policy.accepts
    if (low, high) == (0.0, 1.0):
        return make_environment("bernoulli", means=means), f"rewards 0 and 1, {words}"
    counts = [round(100 * mean) for mean in means]
    samples = [[high] * n + [low] * (100 - n) for n in counts]
    world = make_environment("empirical", samples=samples)
    return world, f"rewards {low:g} and {high:g}, {means.size} arms: the larger in {shares}"


def _unbounded(
    rewards: str, policy: Policy, rounds: int, means: np.ndarray
) -> tuple[Environment, str]:
    arms = means.size
    if rewards == "adversarial":
        words = f"losses 0 and 1, {arms} arms with means from 0.3 to 0.7, the same in every round"
        return make_environment("stochastic-losses", means=1.0 - means), words
    if rewards == "experts":
        return _expert_problem(policy, 1.0 - means, rounds)
    order = policy.moment_order or 1.5
    shape = _TAIL_PER_MOMENT_ORDER * order
    plain = make_environment("pareto", means=means, shape=shape)
    bound = policy.moment_bound
    if bound is not None:
        # The largest means that the bound allows: smaller ones would drown in the noise.
        means = means * (bound / plain.moment(order)) ** (1 / order)
    world = make_environment("pareto", means=means, shape=shape)
    words = f"Pareto rewards of shape {shape:.3g}, {arms} arms with means from {means[0]:.3g} to "
    words += f"{means[-1]:.3g}"
    if rewards == "outliers":
        share = policy.contamination or 0.0
        wrong = {"kind": "point", "value": -10 * float(means[-1])}
        world = make_environment("contaminated", inner=world, fraction=share, outliers=wrong)
        words += f", {share:.3g} of the rewards replaced by one far below"
    return world, words


def _expert_problem(policy: Policy, losses: np.ndarray, rounds: int) -> tuple[Environment, str]:
    count = policy.experts or 1
    draws = np.random.default_rng(1).random((rounds, losses.size)) < losses
    advice = np.full((count, losses.size), 0.1 / losses.size)
    advice[np.arange(count), np.arange(count) % losses.size] += 0.9
    world = make_environment("advice", losses=draws.astype(np.float64), advice=advice)
    return world, f"losses 0 and 1, {losses.size} arms, {count} experts that each like one arm"


class CalibrationProblems(NamedTuple):
    """Environments to calibrate on."""

    worlds: dict[str, Environment]
    held_out: dict[str, Environment]  # harder ones, to report on only
    derivation: str


def problems_around(
    arms: int,
    average: float,
    difference: float,
    *,
    reward_range: tuple[float, float] = (0.0, 1.0),
    index: float | None = None,
) -> CalibrationProblems:
    """Problems in which a usual arm earns `average` and the best is `difference` ahead.

    With a tail `index` rewards are Pareto and the best arm has the average, so that a moment
    derived for it holds for all arms. Otherwise rewards are the ends of `reward_range`, which has
    the largest variance for a given average.

    Example:
        >>> around = problems_around(3, average=0.05, difference=0.02)
        >>> {name: world.means.round(3).tolist() for name, world in around.worlds.items()}
        {'one ahead': [0.05, 0.05, 0.07], 'spread': [0.03, 0.05, 0.07]}
        >>> around.held_out["closer"].means.round(3).tolist()
        [0.05, 0.05, 0.06]
    """
    top = average if index is not None else average + difference
    low, high = (0.0, np.inf) if index is not None else reward_range
    if difference <= 0 or not low <= top - difference < top <= high:
        raise ParameterError(
            f"average = {average:g} with a difference of {difference:g} leaves [{low:g}, {high:g}];"
            " give an average in it, and a difference above 0 that keeps both arms in it"
        )

    def world(rest: Any, gap: float) -> Environment:
        means = np.append(np.broadcast_to(rest, arms - 1), top - difference + gap)
        if index is not None:
            return make_environment("pareto", means=means + (difference - gap), shape=index)
        if (low, high) == (0.0, 1.0):
            return make_environment("bernoulli", means=means)
        chances = (means - low) / (high - low)
        return make_environment(
            "three-point",
            values=np.full(arms, high),
            probabilities=chances,
            other_values=np.full(arms, low),
            other_probabilities=1 - chances,
        )

    usual = top - difference
    least = max(usual - difference, low if index is None else usual / 2)
    law = "rewards at the ends of the range"
    law = law if index is None else f"Pareto tails of index {index:.3g}"
    derivation = (
        f"one ahead: all arms at {usual:.3g} but one at {top:.3g}; spread: arms from {least:.3g} "
        f"to {top:.3g}; held out, closer: one ahead by {difference / 2:.3g} only; {law}"
    )
    spread = np.linspace(least, top, arms)[:-1]
    worlds = {"one ahead": world(usual, difference), "spread": world(spread, difference)}
    return CalibrationProblems(worlds, {"closer": world(usual, difference / 2)}, derivation)
