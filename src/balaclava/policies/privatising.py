"""`bl.privatise`: a private policy from one that is not."""

from __future__ import annotations

import dataclasses

from balaclava._core.declared import Outside
from balaclava.errors import ParameterError
from balaclava.policies.adversarial.conversion import Privatised
from balaclava.policies.base import Policy
from balaclava.policies.experts.privatised_experts import PrivatisedExperts


def privatise(
    base: Policy,
    *,
    epsilon: float,
    batch: int | None = None,
    horizon: int | None = None,
    experts: int | None = None,
    outside: Outside = "refuse",
    holdout: float = 0.0,
) -> Privatised | PrivatisedExperts:
    """A private policy from one that is not: the conversion of Asi, Raman and Talwar (2025).

    `base` is any policy that learns from losses of any size, your own included. It chooses an arm
    for each batch of `batch` rounds, by default ceil(1/epsilon), and is told the batch's mean loss
    with Laplace noise. All decisions together are then epsilon-private. `Privatised` has the rest.

    With `experts`, N of them, the base is made anew with N arms, its other parameters as they are,
    and chooses an expert for each batch; arms are drawn from that expert's advice (Algorithm 5,
    `PrivatisedExperts`). Losses are protected, advice is public.

    With chance `holdout` an arm is drawn evenly and its loss is never learned from.

    Example:
        >>> import balaclava as bl
        >>> private = bl.privatise(bl.policy("exp3", arms=9), epsilon=0.1)
        >>> str(private.guarantee), private.batch_length
        ('ε=0.1 per trajectory', 10)
        >>> bl.privatise(bl.policy("exp3", arms=9), epsilon=0.1, experts=20).base.arms
        20
    """
    if not isinstance(base, Policy):
        raise ParameterError(
            f"a {type(base).__name__} is not a policy; make one with bl.policy(name, ...)"
        )
    if experts is None:
        return Privatised(
            arms=base.parameters["arms"],
            base=base,
            epsilon=epsilon,
            batch=batch,
            horizon=horizon,
            outside=outside,
            holdout=holdout,
        )
    return PrivatisedExperts(
        arms=base.parameters["arms"],
        experts=experts,
        base=dataclasses.replace(base, arms=experts),
        epsilon=epsilon,
        batch=batch,
        horizon=horizon,
        outside=outside,
        holdout=holdout,
    )
