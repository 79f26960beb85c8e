"""Games on a GPU: agreement in law with the CPU, and determinism. Run with `make test-gpu`.

Means are compared at 5 standard errors: each of the comparisons fails by chance once in 10^6.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import balaclava as bl
from balaclava.errors import DeviceError
from balaclava.simulation.gpu.device import gpu_fault
from balaclava.testing.examples import examples, matching_environment

needs_gpu = pytest.mark.skipif(bool(gpu_fault()), reason=gpu_fault() or "there is a GPU")
# Contexts are drawn on the CPU alone.
POLICIES = {e.name: e.policy for e in bl.list_policies() if "features" not in e.policy.annotations}
NINE = bl.environment("bernoulli", means=np.linspace(0.3, 0.7, 9))


def regrets(policy, world, games, device, **options):
    results = bl.simulate(
        {"it": policy},
        world,
        horizon=600,
        repetitions=games,
        seed=5,
        checkpoints=3,
        device=device,
        **options,
    )
    return results.regret("it")


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_agrees_with_the_cpu(name):
    policy = examples(POLICIES[name])[0]
    world = matching_environment(policy)
    here, there = (regrets(policy, world, 2_000, device) for device in ("cpu", "cuda"))
    error = np.sqrt((here.var(axis=0) + there.var(axis=0)) / 2_000)
    assert (abs(here.mean(axis=0) - there.mean(axis=0)) <= 5 * error + 1e-9).all()


@needs_gpu
@pytest.mark.gpu
def test_results_depend_on_the_seed_alone(monkeypatch):
    """Not on how many games are played at once, nor on how long a launch lasts."""
    from balaclava.simulation.gpu import engine

    policy = bl.policy("dp-imed", arms=9, epsilon=1.0)
    expected = regrets(policy, NINE, 500, "cuda")
    monkeypatch.setattr(engine, "_MOST_GAMES", 77)
    monkeypatch.setattr(engine, "_SECONDS", 1e-5)
    monkeypatch.setattr(engine, "THREADS", 32)
    assert np.array_equal(regrets(policy, NINE, 500, "cuda"), expected)


@needs_gpu
@pytest.mark.gpu
def test_quantiles_agree_with_the_cpu():
    policy = bl.policy("ucb1", arms=9)
    here, there = (regrets(policy, NINE, 5_000, device)[:, -1] for device in ("cpu", "cuda"))
    for level in (0.05, 0.5, 0.95):
        share = (there <= np.quantile(here, level)).mean()
        assert abs(share - level) <= 7 * math.sqrt(level * (1 - level) / 5_000)


@pytest.mark.skipif(not gpu_fault(), reason="there is a GPU")
def test_without_a_gpu_it_says_so():
    policy = bl.policy("ucb1", arms=9)
    with pytest.raises(DeviceError, match="device = 'cpu' plays the same"):
        regrets(policy, NINE, 2, "cuda")
    assert np.array_equal(regrets(policy, NINE, 2, "auto"), regrets(policy, NINE, 2, "cpu"))


def test_delays_are_refused():
    with pytest.raises(DeviceError, match="delays"):
        regrets(bl.policy("ucb1", arms=9), NINE, 2, "cuda", delay=bl.Delay(mean=5, law="fixed"))


def test_an_unknown_device_is_refused():
    with pytest.raises(bl.errors.ParameterError, match="device"):
        regrets(bl.policy("ucb1", arms=9), NINE, 2, "tpu")
