"""Every registered policy and environment compiles for a GPU, on a machine that has none.

Needs numba-cuda with its compiler (`pip install "numba-cuda[cu12]"`, 430 MB), and is left out where
that is not installed; `make test-all` installs it.
"""

from __future__ import annotations

import pytest

import balaclava as bl
from balaclava.simulation.feedback import PROMPT
from balaclava.simulation.gpu.device import refusal
from balaclava.testing.examples import examples, matching_environment
from tests.simulation.gpu.ptx import audit_to_ptx, to_ptx

pytest.importorskip("numba_cuda")
pytest.importorskip("cuda.bindings")

POLICIES = {
    entry.name: entry.policy
    for entry in bl.list_policies()
    if not refusal(matching_environment(examples(entry.policy)[0]), PROMPT)
}
ENVIRONMENTS = {
    entry.name: entry.environment
    for entry in bl.list_environments()
    if not refusal(examples(entry.environment)[0], PROMPT)
}


def player(environment: bl.Environment) -> bl.Policy:
    """A small policy that the environment can be played by."""
    if environment.experts is not None:
        return bl.policy("exp4", arms=environment.arms, experts=environment.experts, horizon=600)
    return bl.policy("exp3" if environment.feedback == "loss" else "ucb1", arms=environment.arms)


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_compiles(name):
    policy = examples(POLICIES[name])[0]
    assert ".entry" in to_ptx(policy, matching_environment(policy))


@pytest.mark.slow
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environment_compiles(name):
    environment = examples(ENVIRONMENTS[name])[0]
    assert ".entry" in to_ptx(player(environment), environment)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dp-imed", "dp-ftpl-gauss", "dp-exp3-experts"])
def test_the_games_of_an_audit_compile(name):
    assert ".entry" in audit_to_ptx(examples(POLICIES[name])[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_several_pairs_compile(name):
    policy = examples(POLICIES[name])[0]
    assert ".entry" in to_ptx(policy, matching_environment(policy), 2)


def test_one_pair_compiles():
    policy = bl.policy("dp-imed", arms=3, epsilon=1.0)
    assert ".entry" in to_ptx(policy, matching_environment(policy))
