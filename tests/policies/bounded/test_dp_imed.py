"""dp-imed with Gaussian noise; tests of its rule are in `test_batched`."""

from __future__ import annotations

import math

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.replay.replay_audit import audit_by_replay
from balaclava.errors import ParameterError
from balaclava.policies.bounded.batched import release_with_gaussian
from balaclava.privacy.accounting import gaussian_epsilon
from balaclava.privacy.mechanisms.analytic_gaussian import gaussian_shift
from balaclava.privacy.randomness import SystemRandomness
from balaclava.theory.confidence_sequences import mean_interval

GAUSSIAN = {"noise": "gaussian", "delta": 1e-6}


def test_gaussian_noise_keeps_its_claim_on_replay() -> None:
    policy = bl.policy("dp-imed", arms=2, epsilon=1.0, first_batch=6, **GAUSSIAN)
    assert policy.guarantee.delta == 1e-6
    audit = audit_by_replay(policy, policy.guarantee, rounds=60, pairs=20, seed=1)
    assert audit.verdict == "consistent", str(audit)
    assert audit.moved > 0
    assert audit.epsilon == pytest.approx(1.0, rel=1e-3)


@pytest.mark.statistical
def test_released_noise_has_the_declared_deviation() -> None:
    """Four thousand releases of empty sums; fails by chance with probability below 1e-4."""
    policy = bl.policy("dp-imed", arms=1, epsilon=1.0, first_batch=1, **GAUSSIAN)
    params, begin = policy.constants(), policy.kernels.begin
    assert params.deviation == pytest.approx(1.0 / gaussian_shift(1.0, 1e-6), rel=1e-4)
    assert params.deviation >= 1.0 / gaussian_shift(1.0, 1e-6)
    noises = []
    for _ in range(4_000):
        state = begin(params)
        state.sizes[0, 1], state.numbers[0, 1], state.number[0] = 1, 1, 1
        release_with_gaussian(params, state, 0, 1, SystemRandomness())
        noises.append(state.pooled[0])
    assert np.std(noises) == pytest.approx(params.deviation, rel=4.0 / math.sqrt(2 * 4_000))
    assert abs(np.mean(noises)) < 4.0 * params.deviation / math.sqrt(4_000)


@pytest.mark.statistical
def test_intervals_hold_at_all_times() -> None:
    """Runs that ever fail at 80 %: 25 or more of 60 have probability below 1e-4 at most."""
    policy = bl.policy("dp-imed", arms=2, epsilon=2.0, first_batch=10, explore=0.5, **GAUSSIAN)
    params, (begin, choose, learn, _) = policy.constants(), policy.kernels
    limits, means, failed = policy.estimation.limits, (0.3, 0.6), 0
    for seed in range(60):
        rng, state = np.random.default_rng(seed), begin(params)
        seen, missed = 0, False
        for t in range(1, 301):
            arm, phase = choose(params, state, t, None, rng)
            learn(params, state, t, arm, float(rng.random() < means[arm]), phase, rng)
            if state.settled.sum() > seen:
                seen = int(state.settled.sum())
                for a, mean in enumerate(means):
                    low, high = limits(
                        params, state.rewards_in_order[a], state.in_order[a],
                        state.draws_in_order[a], 0.1,
                    )  # fmt: skip
                    missed = missed or not low <= mean <= high
        failed += missed
    assert failed < 25
    wide = mean_interval(0.5, 100, 3, -params.deviation, 0.1)
    narrow = mean_interval(0.5, 100, 3, -0.5 * params.deviation, 0.1)
    assert wide[0] < narrow[0] < 0.5 < narrow[1] < wide[1]  # the noise is in the interval


def test_it_finds_the_best_arm_and_names_it() -> None:
    policy = bl.policy("dp-imed", arms=3, epsilon=1.0, horizon=20_000, **GAUSSIAN)
    world = bl.environment("bernoulli", means=[0.2, 0.8, 0.3])
    results = bl.simulate(policy, world, horizon=20_000, repetitions=5, seed=1)
    shares = results.pulls("dp-imed").mean(axis=0) / 20_000
    assert shares.argmax() == 1
    assert shares[1] > 0.9
    agent = bl.policy("dp-imed", arms=2, epsilon=1.0, explore=0.2, **GAUSSIAN).agent(seed=1)
    for _ in range(6_000):
        decision = agent.ask()
        agent.tell(decision, (0.1, 0.9)[decision.arm])
    assert agent.winner() is not None
    assert policy.regret_bound(world, 20_000) is None  # proved for Laplace noise only


@pytest.mark.statistical
@pytest.mark.slow
def test_with_25_rewards_regret_is_half_of_that_with_laplace_noise() -> None:
    world = bl.environment("bernoulli", means=[0.75, 0.65, 0.6, 0.55, 0.5, 0.45, 0.4, 0.35, 0.3])
    one = gaussian_epsilon(gaussian_shift(1.0, 1e-6) / 5.0, 1e-6)
    played = [
        bl.simulate(
            bl.policy("dp-imed", arms=9, horizon=100_000, **noise),
            world, horizon=100_000, repetitions=20, seed=1,
        ).final_regret("dp-imed")
        for noise in ({"epsilon": one, **GAUSSIAN}, {"epsilon": 1.0 / 25.0})
    ]  # fmt: skip
    assert played[0].mean() < 0.5 * played[1].mean()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"delta": 1e-6}, "delta"),
        ({"noise": "gaussian"}, "delta"),
        ({"noise": "gaussian", "index": "paper"}, "delta"),
        ({**GAUSSIAN, "index": "paper"}, "index"),
        ({**GAUSSIAN, "index": "rechecking"}, "index"),
        ({**GAUSSIAN, "memory": "detect"}, "memory"),
        ({"noise": "gaussian", "memory": 10_000}, "delta"),
        ({**GAUSSIAN, "epsilon": 1e-6}, "epsilon"),
        ({**GAUSSIAN, "epsilon": 800.0}, "epsilon"),
        ({"noise": "cauchy"}, "noise"),
    ],
)
def test_settings_that_do_not_fit_are_refused(given: dict[str, object], named: str) -> None:
    with pytest.raises(ParameterError, match=named):
        bl.policy("dp-imed", **{"arms": 2, "epsilon": 1.0, **given})
