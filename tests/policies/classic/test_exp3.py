"""EXP3: rates, bounds, and how much it leaks."""

from __future__ import annotations

import math

import pytest

import balaclava as bl
from balaclava.authoring import compiled
from balaclava.errors import ParameterError
from balaclava.policies.classic import exp3
from balaclava.privacy.randomness import seeded

# The setting of the golden values: K = 5, T = 10^6, epsilon = 0.1, so n = 10^5 and lam = 1.
GOLDEN = {"arms": 5, "horizon": 10**6, "epsilon": 0.1}


class Forced:
    """Randomness that makes exp3 draw the last arm or the first."""

    def __init__(self) -> None:
        self.last = True

    def random(self) -> float:
        return 1.0 - 1e-12 if self.last else 0.0


def test_exp3_leaks_more_and_more() -> None:
    """Figure 1 of Asi et al.: one loss differs, the actions are the same, the chances part."""
    policy = bl.policy("exp3", arms=2, eta=1e-4, gamma=1e-4)
    params = policy.constants()

    def chances(first_loss: float, rounds: int) -> dict[int, float]:
        state, rng, seen = exp3.begin(params), Forced(), {}
        for t in range(rounds + 1):
            rng.last = t % 2 == 0
            arm, phase = exp3.choose(params, state, t + 1, None, rng)
            assert arm == (1 if rng.last else 0)
            seen[t] = float(state.chances[1])
            loss = first_loss if t == 0 else 1.0
            exp3.learn(params, state, t + 1, arm, loss, phase, rng)
        return seen

    a, b = chances(0.0, 10_000), chances(1.0, 10_000)
    assert a[2] == pytest.approx(0.5000499949998334, rel=1e-12)
    assert a[10] == pytest.approx(0.500050015001832, rel=1e-12)
    assert a[10_000] == pytest.approx(0.5000929193315523, rel=1e-10)
    assert b[1] == pytest.approx(0.4999500050001666, rel=1e-12)
    assert b[2] == pytest.approx(0.49999999500149983, rel=1e-12)
    assert b[10_000] == pytest.approx(0.4999570663782057, rel=1e-10)


def test_exp3_ends_at_opposite_chances() -> None:
    """The same at t = 10^5, compiled: 1 - gamma/2 against gamma/2."""

    def make(choose, learn, begin):
        def run(params, first_loss, rounds, rng):
            state = begin(params)
            for t in range(rounds + 1):
                _, phase = choose(params, state, t + 1, None, rng)
                arm = 1 if t % 2 == 0 else 0  # the forced action, with the chance it had
                state.pending.notes[phase % state.pending.numbers.size, 0] = state.chances[arm]
                learn(params, state, t + 1, arm, first_loss if t == 0 else 1.0, phase, rng)
            return state.chances[1]

        return run

    run = compiled(make, exp3.choose, exp3.learn, exp3.begin)
    params = bl.policy("exp3", arms=2, eta=1e-4, gamma=1e-4).constants()
    assert run(params, 0.0, 100_000, seeded(0)) == pytest.approx(0.99995, rel=1e-9)
    assert run(params, 1.0, 100_000, seeded(0)) == pytest.approx(5e-5, rel=1e-9)


def test_rates_of_exp3() -> None:
    base = bl.policy("dp-exp3", **GOLDEN).base_policy()
    assert (base.horizon, base.loss_noise) == (100_000, 1.0)
    rates, log = base.constants(), math.log(5 * 10**5)
    assert rates.eta == pytest.approx(math.sqrt(math.log(5) / (10**6 * (1 + 10 * log**2))))
    assert rates.gamma == pytest.approx(4 * rates.eta * 5 * log)
    assert bl.policy("exp3", arms=5, horizon=10**5).constants().gamma == 0.0  # no noise
    # The printed form of Corollary E.1 has 22 where the general line has 20 and a little.
    printed = math.sqrt(math.log(5) / (22 * 0.1 * 5 * 10**6 * log**2))
    assert printed == pytest.approx(2.9149339022021433e-05, rel=1e-12)
    assert 4 * printed * 5 * log == pytest.approx(0.00765016437716234, rel=1e-12)
    assert rates.eta / printed == pytest.approx(math.sqrt(1.1), rel=1e-3)


def test_mixing_follows_the_learning_rate() -> None:
    one = bl.policy("exp3", arms=5, horizon=10**5, loss_noise=1.0)
    three = bl.policy("exp3", arms=5, horizon=10**5, loss_noise=1.0, learning_rate_scale=3)
    for name in ("eta", "gamma"):
        assert getattr(three.constants(), name) == pytest.approx(3 * getattr(one.constants(), name))
    assert bl.policy("exp3", arms=50, horizon=2, loss_noise=1.0).constants().gamma <= 1.0
    with pytest.raises(ParameterError, match="horizon"):
        bl.policy("exp3", arms=5, loss_noise=1.0)


def test_bound_of_exp3_is_below_the_printed_one() -> None:
    n, K, lam = 10**5, 5, 1.0
    base = bl.policy("exp3", arms=K, horizon=n, loss_noise=lam)
    world = bl.environment("stochastic-losses", means=[0.5] * K)
    size = 1 + 10 * lam**2 * math.log(K * n) ** 2
    printed = 2 * math.sqrt(2 * n * K * math.log(K) * size) + 1
    assert 0.5 * printed < base.proved_bound(world, n) <= printed
    # Mixing that is too small for the noise proves nothing.
    bare = bl.policy("exp3", arms=K, horizon=n, loss_noise=lam, gamma=0.0)
    assert bare.proved_bound(world, n) is None
    advised = bl.environment("advice", losses=world, advice=[[0.2] * K])
    assert base.proved_bound(advised, n) is None


@pytest.mark.slow
@pytest.mark.statistical
def test_audit_says_that_exp3_is_not_private() -> None:
    report = bl.audit(bl.policy("exp3", arms=3), trials=4_000, pairs=50, seed=1)
    assert report.verdict == "not private"
    assert report.replay.verdict in ("unproved", "violated")
    assert report.epsilon_lower > 1.0
