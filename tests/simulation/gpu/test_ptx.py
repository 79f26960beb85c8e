"""Every registered pair compiles for a GPU, on a machine that has none.

Needs numba-cuda with its compiler (`pip install "numba-cuda[cu12]"`, 430 MB), and is left out where
that is not installed; `make test-all` installs it.
"""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import balaclava as bl
from balaclava._core.kernels import compiling
from balaclava.authoring import begin_tally, learn_tally
from balaclava.errors import IncompatibleError, ParameterError, PolicyError
from balaclava.simulation.engine import require_compatible
from balaclava.simulation.feedback import PROMPT
from balaclava.simulation.gpu.device import gpu_refusal
from balaclava.simulation.gpu.device_states import map_arrays
from balaclava.simulation.gpu.philox_draws import new_stream
from balaclava.testing.examples import examples, matching_environment
from tests.simulation.gpu.ptx import audit_to_ptx, compiled_to_ptx, counter_of_tails, to_ptx

pytest.importorskip("numba_cuda")
pytest.importorskip("cuda.bindings")

POLICIES = {
    entry.name: entry.policy
    for entry in bl.list_policies()
    if not gpu_refusal(matching_environment(examples(entry.policy)[0]), PROMPT)
}
ENVIRONMENTS = {
    entry.name: world
    for entry in bl.list_environments()
    for world in examples(entry.environment)
    if not gpu_refusal(world, PROMPT)
}


def fitted(policy: bl.Policy, environment: bl.Environment) -> bl.Policy:
    """The policy with as many arms and experts as the environment has."""
    parameters = {**policy.parameters, "arms": environment.arms}
    if "experts" in parameters:
        parameters["experts"] = environment.experts
    return type(policy).create(parameters)


def pairs() -> dict[str, tuple[bl.Policy, bl.Environment]]:
    """Every policy with every environment that takes it, an example of each."""
    together = {}
    for name, kind in POLICIES.items():
        policy = examples(kind)[0]
        worlds = {"its own": matching_environment(policy), **ENVIRONMENTS}
        for title, world in worlds.items():
            with contextlib.suppress(ParameterError, IncompatibleError):
                player = policy if title == "its own" else fitted(policy, world)
                require_compatible(name, player, world, horizon=2)
                together[f"{name} on {title}"] = player, world
    return together


PAIRS = pairs()


def test_every_policy_and_every_environment_is_in_a_pair():
    policies, worlds = zip(*(name.split(" on ") for name in PAIRS), strict=True)
    assert {*policies} == {*POLICIES}
    assert {*worlds} == {*ENVIRONMENTS, "its own"}


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_a_pair_compiles(name):
    assert ".entry" in to_ptx(*PAIRS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dp-imed", "dp-ftpl-gauss", "dp-exp3-experts"])
def test_the_games_of_an_audit_compile(name):
    assert ".entry" in audit_to_ptx(examples(POLICIES[name])[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_several_pairs_compile(name):
    policy = examples(POLICIES[name])[0]
    assert ".entry" in to_ptx(policy, matching_environment(policy), 2)


@bl.kernel
def choose_by_an_array(params, state, t, context, rng):
    return np.argmax(state.sums / (state.pulls + 1)), 0


@bl.kernel
def choose_by_another_draw(params, state, t, context, rng):
    return int(rng.poisson(1.0)) % params.arms, 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("choose", "reason"),
    [(choose_by_an_array, "creates an array"), (choose_by_another_draw, "attribute 'poisson'")],
)
def test_a_policy_that_cannot_be_compiled_is_refused_with_the_reason(choose, reason):
    kernels = bl.Kernels(begin_tally, choose, learn_tally)
    own = type("Own", (bl.Policy,), {"__doc__": "Of a user.", "name": "own", "kernels": kernels})
    policy = own(arms=3)
    with pytest.raises(PolicyError, match=f"own cannot be compiled: .*{reason}"), compiling("own"):
        to_ptx(policy, matching_environment(policy))


@pytest.mark.slow
@pytest.mark.parametrize("law", ["laplace", "normal", "beta"])
def test_what_counts_tails_compiles(law):
    memories = map_arrays(new_stream(), lambda array: np.zeros((1, 2), array.dtype))
    limits, counts = np.zeros(3), np.zeros(3, np.uint64)
    loop = counter_of_tails(law)
    assert ".entry" in compiled_to_ptx(loop, 2, limits, limits, memories, counts)


def test_one_pair_compiles():
    policy = bl.policy("dp-imed", arms=3, epsilon=1.0)
    assert ".entry" in to_ptx(policy, matching_environment(policy))
