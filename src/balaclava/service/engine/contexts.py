"""Features of a decision: the context of a contextual policy, checked and stored with the decision.

Features are public by contract, unless the policy protects them: then they are not stored.
"""

import copy
from typing import Any

import numpy as np

from balaclava.agents.policy_runner import Choice, PolicyRunner
from balaclava.errors import BalaclavaError, PolicyError
from balaclava.policies.base import Policy
from balaclava.policies.contextual.linear_context import CONTEXT_IS_PUBLIC
from balaclava.service.problems import Problem

PUBLIC_FEATURES = (
    "Features are public: they are stored with each decision and exported, and no noise hides them."
)
_LONGEST_FAULT = 300  # characters of an error, which may name unknown features
_MOST_STORED = 20_000_000  # bytes of features of one request, with a copy for each decision


class _NoReleases:
    """Randomness that refuses releases: noise must be drawn in the stored state only."""

    def __init__(self, rng: Any) -> None:
        self._rng = rng

    def release(self, *arguments: Any) -> Any:
        raise PolicyError("a decision that does not learn must not release anything")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rng, name)


def takes_features(policy: Policy) -> bool:
    return policy.features is not None


def are_public(policy: Policy) -> bool:
    """Whether features may be stored and displayed: the guarantee does not protect them."""
    return policy.model == "none" or CONTEXT_IS_PUBLIC in policy.assumptions


def stores_features(policy: Policy) -> bool:
    """Whether they are stored with each decision; those of a catalogue are in the definition."""
    return are_public(policy) and policy.catalogue is None


def checked_features(policy: Policy, features: Any, count: int) -> np.ndarray | None:
    """The context of decisions; raises a `Problem` unless the features fit the policy."""
    if not takes_features(policy):
        if features is not None:
            raise Problem(422, f"features: {policy.name} takes none; leave them out")
        return None
    try:
        context: np.ndarray = policy.checked_context(features)
    except BalaclavaError as error:
        raise Problem(422, f"features: {str(error)[:_LONGEST_FAULT]}") from None
    if stores_features(policy) and context.nbytes * count > _MOST_STORED:
        raise Problem(422, "features: too many numbers for so many decisions; lower count")
    return context


def choose_without_learning(
    runner: PolicyRunner, round: int, context: np.ndarray, otherwise: int
) -> Choice:
    """Choose as the policy would now, on a copy of its state that is then discarded.

    Such a choice depends on releases and contexts only. A policy that releases in order to choose
    cannot do so here: noise drawn for the copy would be drawn again. It gets the arm `otherwise`.
    """
    apart = copy.copy(runner)
    apart.state, apart.rng = copy.deepcopy(runner.state), _NoReleases(runner.rng)
    try:
        choice = apart.choose(max(round, 1), context)
    except PolicyError:
        choice = Choice(otherwise, -1, 1.0)
    return choice._replace(phase=-1)


def features_document(policy: Policy) -> dict[str, Any] | None:
    """What a decision's features must be; None for a policy without contexts."""
    if not takes_features(policy):
        return None
    return {
        "number": policy.features,
        "names": None if policy.feature_names is None else list(policy.feature_names),
        "of": "the participant" if policy.disjoint else "each arm",
        "catalogue": policy.catalogue is not None,
        "public": are_public(policy),
        "notice": PUBLIC_FEATURES if are_public(policy) else None,
    }
