"""From how many rounds on features pay, as measured on real tables (docs/contextual.md)."""

import math
from typing import NamedTuple

from balaclava.errors import ParameterError

# Rounds times epsilon^2 after which dp-kernel-ucb and ldp-kernel-ucb have less regret than dp-imed
# on all tables played at epsilon 1 and 5, and on 15 of 17 at 0.3. Coarse: at 1 it is 100 on all.
_ROUNDS_WITH_PUBLIC_FEATURES = 300.0
# Rounds a feature, times epsilon, after which dp-squarecb has, on all of them. Coarse as well.
_ROUNDS_A_HIDDEN_FEATURE = 1_000.0


class ContextAdvice(NamedTuple):
    """The policy for features, and from when on it is worth its noise."""

    policy: str
    break_even: int  # rounds
    why: str
    note: str


def advise_features(
    features: int, hidden: bool, trust: str, rewards: str, scope: str, epsilon: float
) -> ContextAdvice:
    """The policy that decides by features.

    Args:
        features: Number of features of a participant, a constant included.
        hidden: Whether they are confidential, as are rewards.
        trust: "central" if the operator may see rewards, "local" if devices add the noise.
        rewards: The kind of rewards.
        scope: What an observer sees.
        epsilon: Privacy loss.

    Returns:
        The policy and its break-even.

    Raises:
        ParameterError: If no policy with features fits.
    """
    if rewards != "bounded" or scope != "trajectory":
        raise ParameterError(
            f"features = {features} fit rewards='bounded' and scope='trajectory' only, not "
            f"rewards={rewards!r} and scope={scope!r}; leave features out"
        )
    if trust == "split":
        raise ParameterError(
            "features need trust='central' or 'local': no policy with features plays on shares"
        )
    if hidden and trust == "local":
        raise ParameterError(
            "hidden_features=True needs trust='central': no policy hides features from the operator"
        )
    if hidden:
        rounds = max(_ROUNDS_A_HIDDEN_FEATURE * features / epsilon, _ROUNDS_WITH_PUBLIC_FEATURES)
        why = "it hides features from all but their participant, with noise on their moments"
        note = "show a decision to its participant only: it may show the features"
    else:
        rounds = _ROUNDS_WITH_PUBLIC_FEATURES * max(1.0, epsilon**-2)
        why = "features of participants often tell the best arm; it learns from each reward at once"
        note = "features count as public, and decisions may show them"
    local = "ldp-kernel-ucb" if trust == "local" else "dp-kernel-ucb"
    name = "dp-squarecb" if hidden else local
    return ContextAdvice(name, math.ceil(min(rounds, 1e15)), why, note)
