"""What is checked of an epsilon and a delta is checked in one place, for every constructor."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import balaclava as bl
from balaclava._core.declared import LARGEST_EPSILON, SMALLEST_EPSILON
from balaclava.errors import ParameterError
from balaclava.policies.base import POLICIES
from balaclava.privacy.accounting import smallest_interval
from balaclava.privacy.composition import (
    AnyMechanism,
    GaussianNoise,
    LaplaceNoise,
    RandomizedResponse,
)
from balaclava.privacy.device_report import truncated_report
from balaclava.testing.examples import completed

BASE = bl.policy("exp3", arms=2, horizon=9)
NO_EPSILON = [5e-324, 1e-310, 1e-160, -1.0, 1e308, 10**400, math.inf, -math.inf, math.nan]
NO_EPSILON += [True, np.True_, "1", None, 1j, [1.0], np.array([1.0])]
PRIVATE = {n: cls for n, cls in POLICIES.classes().items() if "epsilon" in cls.annotations}

CONSTRUCTORS: dict[str, Callable[[Any], Any]] = {
    "Guarantee": lambda epsilon: bl.Guarantee(epsilon=epsilon),
    "AnyMechanism": AnyMechanism,
    "RandomizedResponse": RandomizedResponse,
    "LaplaceNoise": LaplaceNoise,
    "GaussianNoise": GaussianNoise,
    "smallest_interval": lambda epsilon: smallest_interval(epsilon, 0.01, 1.5),
    "truncated_report": lambda epsilon: truncated_report(0.5, level=1.0, epsilon=epsilon),
    "minimax": lambda epsilon: bl.bounds.minimax(arms=2, horizon=100, epsilon=epsilon),
    "privatise": lambda epsilon: bl.privatise(
        bl.policy("exp3", arms=2, horizon=9), epsilon=epsilon
    ),
}


@pytest.mark.parametrize("epsilon", NO_EPSILON, ids=repr)
@pytest.mark.parametrize("name", CONSTRUCTORS)
def test_no_constructor_takes_what_is_no_epsilon(name: str, epsilon: Any) -> None:
    with pytest.raises(ParameterError, match=r"(epsilon|shift) = .* is not allowed; give a number"):
        CONSTRUCTORS[name](epsilon)


@pytest.mark.parametrize("name", PRIVATE)
def test_no_policy_takes_what_is_no_epsilon(name: str) -> None:
    for epsilon in NO_EPSILON:
        parameters = completed(PRIVATE[name], PRIVATE[name].examples[0]) | {"epsilon": epsilon}
        with pytest.raises(ParameterError, match=r"epsilon = .* is not allowed; give a number"):
            PRIVATE[name].create(parameters)


@pytest.mark.parametrize(  # dp-even looks for the size that an answer would take, for seconds
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name == "dp-even")) for name in PRIVATE]
)
@pytest.mark.parametrize("epsilon", [SMALLEST_EPSILON, LARGEST_EPSILON, np.float32(0.5)])
def test_every_policy_computes_with_the_ends_or_says_why_not(name: str, epsilon: Any) -> None:
    parameters = completed(PRIVATE[name], PRIVATE[name].examples[0]) | {"epsilon": epsilon}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            policy = PRIVATE[name].create(parameters)
        except ParameterError as refusal:
            assert "epsilon = " in str(refusal) or "horizon = " in str(refusal)  # noqa: PT017
            return
        agent = policy.agent(seed=1)
        for _ in range(5):
            agent.tell(agent.ask(policy.practice_context), 0.5)
        assert type(policy.guarantee.epsilon) is float
        assert policy.guarantee.epsilon <= epsilon
        decisions = 2 if epsilon < 1 else 1  # together, more than can be claimed
        assert policy.guarantee.over(decisions).epsilon <= decisions * epsilon * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [SMALLEST_EPSILON, 1e-9, 699.0, 1000.0, 1e9, 1e99])
@pytest.mark.parametrize("law", [AnyMechanism, LaplaceNoise])
def test_composition_holds_from_end_to_end(law: Any, epsilon: float) -> None:
    each = bl.Guarantee(epsilon=epsilon, scope="decision")
    pure = each.over(2, law=law(epsilon))
    assert pure.epsilon == pytest.approx(2 * epsilon, rel=1e-9)
    spent = each.over(2, delta=1e-6, law=law(epsilon)).epsilon
    assert (0.99 * epsilon if epsilon > 1 else 0.0) <= spent <= pure.epsilon * (1 + 1e-9)


def test_a_guarantee_takes_numpy_numbers_and_keeps_plain_ones() -> None:
    guarantee = bl.Guarantee(epsilon=np.float64(0.5), delta=np.float32(0.25))
    assert (type(guarantee.epsilon), type(guarantee.delta)) == (float, float)
    assert guarantee == bl.Guarantee(epsilon=0.5, delta=0.25)


def test_reports_and_the_local_model_go_together() -> None:
    for model, scope in (("central", "report"), ("local", "trajectory"), ("local", "decision")):
        with pytest.raises(ParameterError, match=r"'local' goes with scope 'report', and only"):
            bl.Guarantee(epsilon=1.0, model=model, scope=scope)  # type: ignore[arg-type]
