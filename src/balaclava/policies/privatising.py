"""`bl.privatise`: make a private policy from one without privacy."""

import dataclasses
from typing import Any

from balaclava._core.declared import Outside
from balaclava.errors import ParameterError
from balaclava.policies.adversarial.conversion import Privatised
from balaclava.policies.base import Policy
from balaclava.policies.experts.converted_experts import PrivatisedExperts


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
    """Make a policy private by the conversion of Asi, Raman and Talwar (2025).

    The base chooses an arm for each batch of rounds and learns the batch's mean loss with Laplace
    noise. All decisions together are then epsilon-private; see `Privatised`.

    With `experts` the base has an arm for each expert and chooses one for each batch; its advice
    then draws the arms (Algorithm 5, `PrivatisedExperts`). Losses are protected, advice is public.

    Args:
        base: Any policy that learns from losses of any size.
        epsilon: Privacy loss.
        batch: Rounds in a batch; ceil(1/epsilon) by default.
        horizon: Number of rounds that will be played, if it is known.
        experts: Number of experts; None without advice.
        outside: "refuse" or "clip": what happens to a loss outside [0, 1].
        holdout: Share of decisions drawn evenly and never learned from.

    Returns:
        The private policy.

    Raises:
        ParameterError: If the base is not a policy, or does not learn from such losses.

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
    shared: dict[str, Any] = {
        "arms": base.parameters["arms"],
        "epsilon": epsilon,
        "batch": batch,
        "horizon": horizon,
        "outside": outside,
        "holdout": holdout,
    }
    if experts is None:
        return Privatised(base=base, **shared)
    return PrivatisedExperts(
        experts=experts, base=dataclasses.replace(base, arms=experts), **shared
    )
