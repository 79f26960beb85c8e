"""Every registered policy and environment keeps the contract."""

from __future__ import annotations

import pytest

import balaclava as bl
from balaclava.testing import ENVIRONMENT_CHECKS, POLICY_CHECKS, examples

# A second loop is compiled for this check; `make test` tries one policy of each way to keep books,
# `make test-all` tries every example of every policy. The same loop is interpreted for all of them.
# What plays longest `make test` tries with the first example of each policy.
LATE = "compiles_to_what_it_says_with_delays"
LONG = {
    "does_not_depend_on_workers",
    "survives_save_and_restore",
    "repeats_with_the_seed",
    "does_without_missing_rewards",
    "learns_without_some_rewards",
    "keeps_its_claim_in_small_worlds",
}
QUICK = {"ucb1", "dp-imed", "dp-se", "ldp-ucb-bernoulli"}
POLICIES = [
    pytest.param(
        policy,
        check,
        id=f"{entry.name}-{number}-{check.__name__}",
        marks=[pytest.mark.slow]
        if (check.__name__ == LATE and (number > 0 or entry.name not in QUICK))
        or (check.__name__ in LONG and number > 0)
        else [],
    )
    for entry in bl.list_policies()
    for number, policy in enumerate(examples(entry.policy))
    for check in POLICY_CHECKS
]
ENVIRONMENTS = [
    pytest.param(environment, id=f"{entry.name}-{number}")
    for entry in bl.list_environments()
    for number, environment in enumerate(examples(entry.environment))
]


@pytest.mark.parametrize(("policy", "check"), POLICIES)
def test_policy(policy, check):
    check(policy)


@pytest.mark.parametrize("check", ENVIRONMENT_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_environment(environment, check):
    check(environment)
