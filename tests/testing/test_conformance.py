"""Every registered policy and environment keeps the contract."""

from __future__ import annotations

import pytest

import balaclava as bl
from balaclava.testing import ENVIRONMENT_CHECKS, POLICY_CHECKS, examples

POLICIES = [
    pytest.param(policy, id=f"{entry.name}-{number}")
    for entry in bl.list_policies()
    for number, policy in enumerate(examples(entry.policy))
]
ENVIRONMENTS = [
    pytest.param(environment, id=f"{entry.name}-{number}")
    for entry in bl.list_environments()
    for number, environment in enumerate(examples(entry.environment))
]


@pytest.mark.parametrize("check", POLICY_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("policy", POLICIES)
def test_policy(policy, check):
    check(policy)


@pytest.mark.parametrize("check", ENVIRONMENT_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_environment(environment, check):
    check(environment)
