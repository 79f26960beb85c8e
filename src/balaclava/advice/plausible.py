"""Problems on which policies are tried where nothing better is known."""

from __future__ import annotations

import numpy as np

from balaclava.environments.base import Environment
from balaclava.environments.base import environment as make_environment
from balaclava.policies.base import Policy

_BEYOND = 1.05  # shape of the tail of the instance, as a multiple of the known moment's order


def plausible(rewards: str, policy: Policy, rounds: int) -> tuple[Environment, str]:
    """The problem on which regret is judged, and what it is, in words."""
    return problems(rewards, policy, rounds)[0]


def problems(rewards: str, policy: Policy, rounds: int) -> list[tuple[Environment, str]]:
    """Problems that are plausible for such rewards; the first is the one that is reported."""
    arms = policy.arms
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
    percentages = [round(100 * mean) for mean in means]
    world = make_environment(
        "empirical", samples=[[high] * n + [low] * (100 - n) for n in percentages]
    )
    return world, f"rewards {low:g} and {high:g}, {means.size} arms: the larger in {shares}"


def _unbounded(
    rewards: str, policy: Policy, rounds: int, means: np.ndarray
) -> tuple[Environment, str]:
    arms = means.size
    spread = f"{arms} arms with means from 0.3 to 0.7"
    if rewards in ("adversarial", "experts"):
        losses = 1.0 - means
        if rewards == "adversarial":
            world = make_environment("stochastic-losses", means=losses)
            return world, f"losses 0 and 1, {spread}, the same chances in every round"
        return _advised(policy, losses, rounds)
    order = getattr(policy, "moment_order", None) or 1.5
    shape = _BEYOND * order
    plain = make_environment("pareto", means=means, shape=shape)
    bound = getattr(policy, "moment_bound", None)
    if bound is not None:
        # The largest arms that the bound allows: for smaller ones there is more noise than need be.
        means = means * (bound / plain.moment(order)) ** (1 / order)
    world = make_environment("pareto", means=means, shape=shape)
    words = f"Pareto rewards of shape {shape:.3g}, {arms} arms with means from {means[0]:.3g} to "
    words += f"{means[-1]:.3g}"
    if rewards == "outliers":
        share = float(getattr(policy, "contamination", 0.0))
        wrong = {"kind": "point", "value": -10 * float(means[-1])}
        world = make_environment("contaminated", inner=world, fraction=share, outliers=wrong)
        words += f", {share:.3g} of the rewards replaced by one far below"
    return world, words


def _advised(policy: Policy, losses: np.ndarray, rounds: int) -> tuple[Environment, str]:
    count = int(getattr(policy, "experts", 1))
    draws = np.random.default_rng(1).random((rounds, losses.size)) < losses
    advice = np.full((count, losses.size), 0.1 / losses.size)
    advice[np.arange(count), np.arange(count) % losses.size] += 0.9
    world = make_environment("advice", losses=draws.astype(np.float64), advice=advice)
    return world, f"losses 0 and 1, {losses.size} arms, {count} experts that each like one arm"
