"""Small instances of registered classes, for checks that run over all of them."""

import dataclasses
from typing import Any, TypeVar

import numpy as np

from balaclava._core.declared import Declared, is_required
from balaclava.environments.base import Environment
from balaclava.environments.base import environment as make_environment
from balaclava.errors import ParameterError
from balaclava.policies.base import Policy

Registered = TypeVar("Registered", bound=Declared)

# Values of parameters that several classes share; a class adds its own in `examples`.
USUAL_PARAMETERS: dict[str, Any] = {
    "arms": 3,
    "horizon": 600,
    "epsilon": 1.0,
    "delta": 0.01,
    "moment_order": 1.9,
    "moment_bound": 2.0,
    "mean_range": 5.0,
    "contamination": 0.05,
    "experts": 4,
    "features": 2,
    "means": [0.3, 0.5, 0.8],
}


def examples(cls: type[Registered]) -> list[Registered]:
    """Instances of a policy or environment class, one for each entry of its `examples`.

    Args:
        cls: The class.

    Returns:
        Its instances; parameters that an entry leaves out have the usual values.

    Raises:
        ParameterError: If a required parameter has no usual value.
    """
    return [cls.create(completed(cls, parameters)) for parameters in cls.examples]


def completed(cls: type[Declared], parameters: dict[str, Any]) -> dict[str, Any]:
    """Add the usual value of every required parameter that is missing."""
    complete = dict(parameters)
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        if is_required(field) and field.name not in complete:
            if field.name not in USUAL_PARAMETERS:
                raise ParameterError(
                    f"{cls.name}: there is no usual value for {field.name!r}; "
                    "add one to the `examples` of the class"
                )
            complete[field.name] = USUAL_PARAMETERS[field.name]
    return complete


def matching_environment(policy: Policy) -> Environment:
    """An environment whose rewards the policy accepts.

    Args:
        policy: The policy.

    Returns:
        An environment with as many arms, and with contexts or advice if the policy needs them.
    """
    means = np.linspace(0.2, 0.8, policy.arms)
    if policy.features is not None:
        return matching_contexts(policy, policy.features)
    if policy.rewards == "bounded":
        low, high = policy.accepts
        if (low, high) == (0.0, 1.0):
            return make_environment("bernoulli", means=means)
        values = np.stack([np.full(policy.arms, low), np.full(policy.arms, high)])
        samples = [
            np.append(np.full(9 - arm % 8, values[0, arm]), np.full(1 + arm % 8, values[1, arm]))
            for arm in range(policy.arms)
        ]
        return make_environment("empirical", samples=samples)
    if policy.rewards == "loss":
        world = make_environment("stochastic-losses", means=means)
        advice = policy.practice_context
        return world if advice is None else make_environment("advice", losses=world, advice=advice)
    return make_environment("gaussian", means=means)


def matching_contexts(policy: Policy, d: int) -> Environment:
    """Contexts of the policy's shape, with d features, and means that are linear in them."""
    if not policy.disjoint:
        if d == 1:  # drawn contexts have an intercept and at least one feature
            table = np.linspace(0.2, 0.8, policy.arms).reshape(1, -1, 1)
            return make_environment("linear", theta=[1.0], contexts="list", table=table)
        theta = np.append(0.7, np.full(d - 1, 0.6 / np.sqrt(d - 1)))
        return make_environment("linear", theta=theta, arms=policy.arms)
    participants = np.abs(np.sin(np.arange(6.0 * d) + 1.0)).reshape(6, d) / np.sqrt(d)
    theta = np.abs(np.cos(np.arange(1.0 * policy.arms * d))) / np.sqrt(d)
    return make_environment(
        "linear", theta=theta, arms=policy.arms, contexts="disjoint", table=participants
    )
