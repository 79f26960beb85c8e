"""Declared parameters: attributes with a default that a subclass may replace."""

import pickle

import pytest

import balaclava as bl
from balaclava._core.declared import Horizon
from balaclava.errors import ParameterError
from balaclava.policies.base import Policy
from balaclava.testing import examples


class Required(Policy):
    name = "required"
    horizon: Horizon


class Optional(Policy):
    name = "optional"
    horizon: Horizon | None = None


class Computed(Policy):
    name = "computed"

    @property
    def horizon(self) -> int:
        return 7 * self.arms


def test_a_parameter_replaces_a_declared_attribute_and_stays_required():
    assert bl.policy("ucb1", arms=2).horizon is None
    assert Required(arms=2, horizon=9).horizon == 9
    assert Optional(arms=2).horizon is None
    assert Computed(arms=2).horizon == 14
    assert list(Required.annotations) == ["arms", "horizon"]
    with pytest.raises(ParameterError, match="'horizon' is missing"):
        Required.create({"arms": 2})
    with pytest.raises(ParameterError, match="horizon = 0 is not allowed"):
        Required(arms=2, horizon=0)


def test_the_type_of_constants_is_found_by_its_name():
    """Otherwise cached code is loaded again, and kept, in every repetition: gigabytes."""
    for entry in bl.list_policies():
        for policy in examples(entry.policy):
            kind = type(policy.constants())
            assert pickle.loads(pickle.dumps(kind)) is kind
