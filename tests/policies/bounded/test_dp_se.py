"""dp-se: constants, elimination, limits, and an independent implementation."""

from __future__ import annotations

import math

import numpy as np
import pytest

import balaclava as bl
from balaclava.errors import ParameterError
from balaclava.policies.bounded.dp_se import epoch_length, log_terms
from balaclava.privacy.randomness import seeded
from balaclava.testing.conformance import played


def make(**changes):
    return bl.policy("dp-se", **{"arms": 5, "epsilon": 1.0, "horizon": 10**6, **changes})


def length_by_hand(active, epoch, epsilon, beta):
    gap = 2.0**-epoch
    sampling, noise = math.log(8 * active * epoch**2 / beta), math.log(4 * active * epoch**2 / beta)
    return max(32 * sampling / gap**2, 8 * noise / (epsilon * gap)) + 1


def test_golden_length():
    assert length_by_hand(5, 1, 1.0, 1e-6) == pytest.approx(2241.561921546011, rel=1e-14)
    assert make().first_epoch == 2242


@pytest.mark.parametrize("active", [2, 5, 101])
@pytest.mark.parametrize("epoch", [1, 2, 7])
@pytest.mark.parametrize("epsilon", [0.01, 0.37, 1.0, 50.0])
def test_lengths(active, epoch, epsilon):
    params = make(epsilon=epsilon).constants()
    assert epoch_length(params, active, epoch) == math.ceil(
        length_by_hand(active, epoch, epsilon, 1e-6)
    )


def test_the_radius_fits_the_epoch():
    """2h + 2c is at most half the gap that the epoch is for, at every scale."""
    for scale in (0.1, 1.0, 3.0):
        for epsilon in (0.05, 1.0, 20.0):
            params = make(epsilon=epsilon, radius_scale=scale).constants()
            for epoch in (1, 3, 6):
                sampling, noise = log_terms(params, 5, epoch)
                pulls = epoch_length(params, 5, epoch)
                radius = math.sqrt(sampling / (2 * pulls)) + noise / (epsilon * pulls)
                assert 2 * scale * radius <= 2.0**-epoch / 2 * (1 + 1e-12)


def reference(means, horizon, epsilon, rng):
    """The paper's listing in plain numpy: pulls of each arm."""
    active = list(range(len(means)))
    pulls = np.zeros(len(means), np.int64)
    left, epoch = horizon, 0
    while len(active) > 1 and left > 0:
        epoch += 1
        length = math.ceil(length_by_hand(len(active), epoch, epsilon, 1 / horizon))
        if left < length * len(active):
            share, more = divmod(left, len(active))
            pulls[active] += share
            pulls[active[:more]] += 1
            return pulls
        pulls[active] += length
        left -= length * len(active)
        scores = rng.binomial(length, np.array(means)[active]) / length
        scores += rng.laplace(0, 1 / (epsilon * length), len(active))
        h = math.sqrt(math.log(8 * len(active) * epoch**2 * horizon) / (2 * length))
        c = math.log(4 * len(active) * epoch**2 * horizon) / (epsilon * length)
        best = scores.max()
        active = [arm for arm, s in zip(active, scores, strict=True) if best - s <= 2 * h + 2 * c]
    pulls[active[0]] += left
    return pulls


@pytest.mark.oracle
@pytest.mark.parametrize(("epsilon", "horizon"), [(1.0, 60_000), (0.05, 40_000), (7.3, 30_001)])
def test_regret_agrees_with_the_listing(epsilon, horizon):
    """Means of 200 runs each within 4 standard errors; seeds are fixed."""
    means = [0.1, 0.45, 0.5, 0.9]
    world = bl.environment("bernoulli", means=means)
    policy = make(arms=4, epsilon=epsilon, horizon=horizon)
    ours = bl.simulate(policy, world, horizon=horizon, repetitions=200, seed=1)
    rng = np.random.default_rng(2)
    theirs = np.array([reference(means, horizon, epsilon, rng) @ world.gaps for _ in range(200)])
    found = ours.final_regret("dp-se")
    error = math.hypot(found.std(), theirs.std()) / math.sqrt(200)
    assert abs(found.mean() - theirs.mean()) <= 4 * error + 1e-9 * theirs.mean()


def test_compiled_equals_interpreted_through_several_epochs():
    policy = make(arms=3, horizon=3_000, radius_scale=0.1, epsilon=0.5)
    world = bl.environment("bernoulli", means=[0.45, 0.5, 0.55])
    results = bl.simulate(policy, world, horizon=3_000, repetitions=1, seed=4, checkpoints=3_000)
    params, place = policy.constants(), world.constants()

    begin, choose, learn, _ = policy.kernels
    state, rng, env_rng = begin(params), seeded(4, 0, 0), seeded(4, 0, 1)
    regret, phases = [0.0], set()
    for t in range(1, 3_001):
        arm, phase = choose(params, state, t, None, rng)
        phases.add(int(phase))
        learn(params, state, t, arm, world.draw(place, t, arm, env_rng), phase, rng)
        regret.append(regret[-1] + world.gaps[arm])
    assert len(phases) >= 3
    np.testing.assert_allclose(results.regret("dp-se")[0], regret[1:], atol=1e-9)


def test_without_noise_the_best_arm_stays():
    policy = make(arms=3, epsilon=1e9, horizon=20_000)
    agent = policy.agent(seed=0)
    last = None
    for _ in range(12_000):
        last = agent.ask()
        agent.tell(last, (0.1, 0.9, 0.5)[last.arm])
    assert last.arm == 1
    assert last.phase == -1  # committed: nothing more is learned


def test_an_epoch_that_the_horizon_cuts_off_releases_nothing():
    policy = make(arms=2, horizon=100)
    arms = [decision.arm for decision, _ in played(policy, policy.agent(seed=0), 100)]
    assert all(sorted(arms[i : i + 2]) == [0, 1] for i in range(0, 100, 2))


def test_horizon_or_failure_probability_is_needed():
    with pytest.raises(ParameterError, match=r"horizon and failure_probability"):
        make(horizon=None)
    assert make(horizon=None, failure_probability=1e-6).first_epoch == 2242


@pytest.mark.parametrize("epsilon", [-1.0, 0.0, math.nan, math.inf, "1", None, True])
def test_bad_epsilon(epsilon):
    with pytest.raises(ParameterError, match="epsilon"):
        make(epsilon=epsilon)


def test_the_bound_of_dp_se_by_hand() -> None:
    world, T = bl.environment("bernoulli", means=[0.75, 0.25, 0.5]), 10**6
    policy = bl.policy("dp-se", arms=3, epsilon=1.0, horizon=T)
    log = [math.log(8 * 3 * e**2 * T) for e in (1, 2)]
    lengths = [math.ceil(32 * log[e - 1] * 4**e + 1) for e in (1, 2)]
    pulls = lengths[0] * 0.5 + sum(lengths) * 0.25  # gaps of 1/2 and 1/4
    assert policy.regret_bound(world, T) == pytest.approx(pulls + math.pi**2 / 12 * 0.5)
    assert (
        bl.policy("dp-se", arms=3, epsilon=1.0, horizon=T, radius_scale=0.5).regret_bound(world, T)
        is None
    )
    regret = bl.simulate(policy, world, horizon=50_000, repetitions=20, seed=1).final_regret(
        "dp-se"
    )
    assert 0 < regret.max() < policy.regret_bound(world, 50_000)
