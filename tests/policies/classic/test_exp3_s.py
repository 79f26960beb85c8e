"""EXP3.S: the paper's step, and what it is for."""

import math

import numpy as np
import pytest

import balaclava as bl
from balaclava.errors import ParameterError
from balaclava.privacy.randomness import seeded


def test_weights_are_those_of_the_paper_up_to_scale():
    """w_i exp(-eta y / P) + (e alpha / K) (sum of w), with alpha = 1/horizon."""
    policy = bl.policy("exp3-s", arms=3, horizon=50, eta=0.3, gamma=0.1)
    params, rng, luck = policy.constants(), seeded(1), np.random.default_rng(2)
    state, weights = policy.kernels.begin(params), np.ones(3)
    for t in range(1, 51):
        arm, phase = policy.kernels.choose(params, state, t, None, rng)
        chances = 0.9 * weights / weights.sum() + 0.1 / 3
        assert state.chances == pytest.approx(chances)
        loss = luck.random()
        policy.kernels.learn(params, state, t, arm, loss, phase, rng)
        weights[arm] *= math.exp(-0.3 * loss / chances[arm])
        weights += math.e / 50 / 3 * weights.sum()
        assert state.weights == pytest.approx(weights / weights.sum())


def test_it_follows_a_change_that_exp3_does_not_also_when_private():
    world = bl.environment(
        "switching", horizon=4_000, switch=2_000, before=[0.2, 0.8], after=[0.8, 0.2]
    )
    bases = [bl.policy(name, arms=2, horizon=4_000) for name in ("exp3", "exp3-s")]
    noisy = bl.policy("exp3-s", arms=2, horizon=4_000, loss_noise=1.0, learning_rate_scale=5.0)
    policies = [*bases, bl.privatise(noisy, epsilon=1.0)]
    results = bl.simulate(policies, world, horizon=4_000, repetitions=20, seed=1)
    exp3, shared, private = (results.final_regret(label).mean() for label in results.labels)
    assert shared < -800  # the best arm of each half has -1,200
    assert exp3 > -400
    assert private < -200


def test_a_lost_loss_changes_no_weight_and_large_losses_stay_finite():
    policy = bl.policy("exp3-s", arms=2, horizon=9)
    params, rng = policy.constants(), seeded(1)
    state = policy.kernels.begin(params)
    arm, phase = policy.kernels.choose(params, state, 1, None, rng)
    policy.kernels.forget(params, state, 1, arm, phase, rng)
    policy.kernels.learn(params, state, 1, arm, 1.0, phase, rng)
    assert state.weights.tolist() == [0.5, 0.5]
    for loss in (1e300, -1e300, 1e308):
        arm, phase = policy.kernels.choose(params, state, 2, None, rng)
        policy.kernels.learn(params, state, 2, arm, loss, phase, rng)
        assert np.isfinite(state.weights).all()
        assert state.weights.sum() == pytest.approx(1.0)
        assert state.weights.min() >= params.share / 2


@pytest.mark.parametrize("wrong", [{"segments": 0}, {"horizon": None}, {"gamma": 1.5}])
def test_bad_parameters_are_refused(wrong):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        bl.policy("exp3-s", **({"arms": 2, "horizon": 100} | wrong))
