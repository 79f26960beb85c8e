"""A definition names every parameter, so that no later default can change a running experiment."""

from __future__ import annotations

from typing import Any

import pytest

import balaclava as bl
from balaclava.service.engine.definition import ExperimentDefinition
from balaclava.service.problems import Problem

SHOP = {"name": "shop", "policy": "dp-imed", "arms": ["plain", "map"], "reward_window": 60.0}


def definition(**parameters: Any) -> ExperimentDefinition:
    return ExperimentDefinition.checked(**SHOP, parameters=parameters)


def test_a_stored_definition_names_what_was_left_to_defaults():
    stored = ExperimentDefinition.from_json(definition(epsilon=1.0).with_defaults().json)
    policy = bl.policy("dp-imed", arms=["plain", "map"], epsilon=1.0)
    assert stored.parameters | {"arms": ["plain", "map"]} == policy.parameters
    assert stored.make_policy() == policy
    assert stored.with_defaults() == stored


def test_a_request_is_for_the_experiment_that_has_all_that_it_names():
    """Under an earlier version the default may have been the paper's rule."""
    stored = definition(epsilon=1.0, index="paper", batches="ratio").with_defaults()
    assert definition(epsilon=1).matches(stored)
    assert definition(epsilon=1.0, index="paper").matches(stored)
    assert not definition(epsilon=1.0, index="rechecking").matches(stored)
    assert not definition(epsilon=2.0).matches(stored)
    other = ExperimentDefinition.checked(
        **SHOP | {"arms": ["plain", "list"]}, parameters={"epsilon": 1.0}
    )
    assert not other.matches(stored)
    other = ExperimentDefinition.checked(
        **SHOP | {"policy": "dp-klucb"}, parameters={"epsilon": 1.0}
    )
    assert not other.matches(stored)


def test_a_policy_with_confidential_features_is_refused():
    """The dashboard and the exports display decisions, which depend on features."""
    given = {"features": 2, "epsilon": 1.0, "delta": 1e-5}
    with pytest.raises(Problem, match="hides features from all but their participant"):
        ExperimentDefinition.checked(**{**SHOP, "policy": "dp-squarecb"}, parameters=given)
