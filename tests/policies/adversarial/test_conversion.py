"""Policies for losses: exp3, ftpl, htinf, tsallis-inf, and their conversion into private ones."""

from __future__ import annotations

import json
import math
import re
from typing import ClassVar, NamedTuple

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.replay.replay_audit import audit_by_replay
from balaclava.authoring import Epsilon
from balaclava.environments.hard_losses import fast_commit, hidden_best
from balaclava.errors import ParameterError, RewardError
from balaclava.policies.adversarial.conversion import least_batch
from balaclava.privacy.randomness import seeded
from balaclava.testing import check_policy
from tests.effort import looks

BASES = {
    "exp3": bl.policy("exp3", arms=3),
    "ftpl": bl.policy("ftpl", arms=3, horizon=600),
    "htinf": bl.policy("htinf", arms=3),
    "tsallis-inf": bl.policy("tsallis-inf", arms=3),
}
CONVERSIONS = ["dp-exp3", "dp-ftpl", "dp-htinf", "dp-tsallis-inf"]
PROVED = ["dp-exp3", "dp-ftpl", "dp-htinf"]
EASY = bl.environment("stochastic-losses", means=[0.5, 0.5, 0.2])
# The setting of the golden values: K = 5, T = 10^6, epsilon = 0.1, so n = 10^5 and lam = 1.
GOLDEN = {"arms": 5, "horizon": 10**6, "epsilon": 0.1}


# The bases


@pytest.mark.parametrize("name", BASES)
def test_bases_survive_huge_losses(name) -> None:
    agent = BASES[name].agent(seed=1)
    for t in range(60):
        decision = agent.ask()
        agent.tell(decision, reward=(1e300, -1e300, 3.0)[t % 3])
    assert all(np.isfinite(agent._runner.state.losses))


@pytest.mark.parametrize("name", BASES)
def test_a_late_loss_is_weighed_by_the_chance_it_had(name) -> None:
    """Two decisions are open while a third moves the chances; the order of telling is free."""
    one, other = (BASES[name].agent(seed=3) for _ in range(2))
    first, second = [[agent.ask() for _ in range(3)] for agent in (one, other)]
    for decision in first:
        one.tell(decision, reward=0.1)
    for decision in reversed(second):
        other.tell(decision, reward=0.1)
    np.testing.assert_allclose(one._runner.state.losses, other._runner.state.losses, rtol=1e-12)


@pytest.mark.statistical
@pytest.mark.parametrize("name", BASES)
def test_bases_learn_and_keep_their_bounds(name) -> None:
    T = 4_000
    policy = BASES[name] if name != "ftpl" else bl.policy("ftpl", arms=3, horizon=T)
    regret = bl.simulate(policy, EASY, horizon=T, repetitions=10, seed=1).final_regret(name)
    blind = T * EASY.gaps.mean()
    assert regret.mean() < 0.25 * blind
    assert regret.max() < policy.regret_bound(EASY, T)


# The conversion


class Last(NamedTuple):
    """The loss told last and the arm played last."""

    told: np.ndarray
    arm: np.ndarray


@bl.kernel
def begin_switching(params):
    return Last(np.zeros(2), np.zeros(1, np.int64))


@bl.kernel
def choose_by_mean(params, state, t, context, rng):
    """The other arm if the last loss was above 1/2; allocates, as a user's kernel may."""
    if (state.told * 2.0).sum() > params.limit * 2.0:
        state.arm[0] = params.arms - 1 - state.arm[0]
    return state.arm[0], 7


@bl.kernel
def learn_last(params, state, t, arm, reward, phase, rng):
    state.told[0] = reward if phase == 7 else math.nan


@bl.register
class WinStay(bl.Policy):
    """A user's base: stay with an arm as long as its last loss was small."""

    name = "win-stay"
    rewards = "loss"
    limit: float = 0.5
    kernels: ClassVar = bl.Kernels(begin_switching, choose_by_mean, learn_last)


def test_a_base_of_ones_own_becomes_private() -> None:
    private = bl.privatise(WinStay(arms=2), epsilon=1.0, batch=8)
    check_policy(private)
    assert str(private.guarantee) == "ε=1 per trajectory"
    found = audit_by_replay(private, private.guarantee, rounds=64, pairs=200, seed=1)
    assert (found.verdict, found.epsilon) == ("consistent", pytest.approx(1.0))
    world = bl.environment("stochastic-losses", means=[0.9, 0.1])
    pulls = bl.simulate(private, world, horizon=4_000, repetitions=5, seed=1).pulls("privatised")
    assert (pulls[:, 1] > 3_500).all()
    assert private.regret_bound(world, 4_000) is None


def test_the_base_is_told_noisy_means_of_whole_batches() -> None:
    private = bl.privatise(WinStay(arms=2, limit=2.0), epsilon=1e9, batch=4)
    agent = private.agent(seed=1)
    told = []
    for loss in (0.0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0):
        agent.tell(agent.ask(), loss)
        told.append(float(agent._runner.state.base.told[0]))
    # The last three losses belong to a batch that is not complete, and are not told.
    assert told == pytest.approx([0.0] * 3 + [0.375] * 4, abs=1e-6)


@pytest.mark.statistical
def test_noise_has_the_scale_of_the_batch() -> None:
    """E(y - mean)^2 = 2 / (tau epsilon)^2."""
    private = bl.privatise(WinStay(arms=2, limit=1e9), epsilon=0.5, batch=4)
    params, (begin, choose, learn, _) = private.constants(), private.kernels
    state, rng, told = begin(params), seeded(1), []
    for t in range(1, 40_001):
        arm, phase = choose(params, state, t, None, rng)
        learn(params, state, t, arm, 0.5, phase, rng)
        if t % 4 == 0:
            told.append(float(state.base.told[0]))
    # 10,000 Laplace draws: five standard errors of their variance are 11% (chance below 1e-5).
    assert np.var(told) == pytest.approx(2 / (4 * 0.5) ** 2, rel=0.11)
    assert np.mean(told) == pytest.approx(0.5, abs=5 * math.sqrt(0.5 / 10_000))


def test_while_a_batch_waits_the_next_one_opens() -> None:
    policy = bl.policy("dp-htinf", arms=3, horizon=600, epsilon=0.25)
    agent = policy.agent(seed=1)
    asked = [agent.ask() for _ in range(9)]
    assert [d.phase for d in asked] == [1, 1, 1, 1, 2, 2, 2, 2, 3]
    for decision in reversed(asked):
        agent.tell(decision, 0.5)
    assert np.flatnonzero(agent._runner.state.numbers).tolist() == [3]  # both others have settled


def test_a_loss_that_never_comes_does_not_count_as_none() -> None:
    """The mean is that of the losses that came, if at least half did."""
    told = []
    for lost in (0, 2, 3):
        agent = bl.privatise(WinStay(arms=2, limit=2.0), epsilon=1e9, batch=4).agent(seed=1)
        for i in range(4):
            decision = agent.ask()
            if i < lost:
                agent.cancel(decision)
            else:
                agent.tell(decision, 0.5)
        told.append(float(agent._runner.state.base.told[0]))
    assert told[:2] == [pytest.approx(0.5)] * 2
    assert told[2] == 0.0


@pytest.mark.parametrize("name", ["exp3", "htinf", "tsallis-inf"])
def test_without_noise_and_batches_it_is_the_base(name) -> None:
    """At an epsilon beyond all noise, with batches of one round."""
    base = bl.policy(name, arms=3)
    private = bl.privatise(base, epsilon=1e12)
    (begin, choose, learn, _), params = private.kernels, private.constants()
    mine, theirs = begin(params), base.kernels.begin(base.constants())
    for t in range(1, 200):
        rng, twin = seeded(t), seeded(t)
        arm, phase = choose(params, mine, t, None, rng)
        again, number = base.kernels.choose(base.constants(), theirs, t, None, twin)
        assert arm == again
        loss = float(t % 2)
        learn(params, mine, t, arm, loss, phase, rng)
        base.kernels.learn(base.constants(), theirs, t, again, loss, number, twin)
    np.testing.assert_allclose(mine.base.losses, theirs.losses, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", [*CONVERSIONS, "dp-exp3-experts", "dp-htinf-experts"])
def test_shared_sections_are_in_the_docstring(name: str) -> None:
    text = next(entry.policy.__doc__ for entry in bl.list_policies() if entry.name == name) or ""
    assert not re.search(r"\{(rule|privacy|parameters|base)\}", text)
    for section in ("Privacy", "Parameters", "Example", "References", "See Also"):
        assert f"\n{section}:\n" in text


def test_lengths_of_batches() -> None:
    assert [least_batch(e) for e in (1.0, 2.0, 0.5, 0.3, 1 / 49, 1e-3)] == [1, 1, 2, 4, 49, 1000]
    assert least_batch(1e-320) == 10**18


def test_an_epsilon_below_one_over_the_horizon_is_refused() -> None:
    for name in CONVERSIONS:
        bl.policy(name, arms=3, horizon=1000, epsilon=0.001)
        with pytest.raises(ParameterError, match=r"epsilon.*1/horizon = 0\.001"):
            bl.policy(name, arms=3, horizon=1000, epsilon=0.0009)
    with pytest.raises(ParameterError, match=r"batch = 7 .*horizon of 6"):
        bl.privatise(WinStay(arms=2), epsilon=1.0, batch=7, horizon=6)


def test_bases_that_cannot_be_converted() -> None:
    with pytest.raises(ParameterError, match="ucb1 learns from rewards"):
        bl.privatise(bl.policy("ucb1", arms=2), epsilon=1.0)
    with pytest.raises(ParameterError, match="dp-exp3 takes only losses in a range"):
        bl.privatise(bl.policy("dp-exp3", arms=2, horizon=9, epsilon=1.0), epsilon=1.0)
    with pytest.raises(ParameterError, match="str is not a policy"):
        bl.privatise("exp3", epsilon=1.0)
    with pytest.raises(ParameterError, match="has no `name`; give the name of a policy"):
        bl.policy("privatised", arms=2, base={"arms": 2}, epsilon=1.0)
    with pytest.raises(ParameterError, match="arms = 3 differs from the base"):
        bl.policy("privatised", arms=3, base={"name": "exp3", "arms": 2}, epsilon=1.0)


def test_the_conversion_survives_json() -> None:
    private = bl.privatise(bl.policy("exp3", arms=3, eta=0.1), epsilon=0.5)
    again = bl.policy("privatised", **json.loads(json.dumps(private.parameters)))
    assert again == private
    agent = private.agent(seed=1)
    for _ in range(9):
        agent.tell(agent.ask(), 0.5)
    restored = bl.restore(json.loads(json.dumps(agent.save())))
    assert [restored.ask().arm for _ in range(40)] == [agent.ask().arm for _ in range(40)]


def test_losses_outside_the_unit_interval_are_refused_or_clipped() -> None:
    given = {"arms": 2, "horizon": 100, "epsilon": 1.0}
    strict = bl.policy("dp-htinf", **given).agent(seed=1)
    with pytest.raises(RewardError):
        strict.tell(strict.ask(), 1.5)
    for name in ("dp-htinf", "ldp-exp3"):
        lenient = bl.policy(name, **given, outside="clip")
        prepared = lenient.prepare()
        assert prepared(lenient.constants(), 1.5) == 1.0
        assert prepared(lenient.constants(), -1e300) == 0.0
        agent = lenient.agent(seed=1)
        agent.tell(agent.ask(), -7.0)


def test_bounds_of_the_conversions() -> None:
    T, K, epsilon = 10**6, 5, 0.1
    world = bl.environment("stochastic-losses", means=[0.5] * K)
    bound = {n: bl.policy(n, **GOLDEN).proved_bound(world, T) for n in PROVED}
    # Corollary 3.2 with sigma = sqrt(6) and twice the batch; ours has sqrt(3).
    sure = 208 * math.sqrt(K * T / epsilon) + 2 / epsilon
    assert bound["dp-htinf"] == pytest.approx(10 * 30 * math.sqrt(3 * K * (10**5 + 1)))
    assert bound["dp-htinf"] < 0.3 * sure
    size = math.sqrt(T * K * math.log(K) / epsilon) * math.log(epsilon * K * T)
    assert bound["dp-exp3"] <= 4 * math.sqrt(22) * size + 4 / epsilon
    base = bl.policy("dp-ftpl", **GOLDEN).base_policy()
    assert bound["dp-ftpl"] == pytest.approx(10 * base.proved_bound(world, 10**5))
    # What the horizon leaves of a last batch is added; a game within the first batch loses all.
    assert bl.policy("dp-htinf", **GOLDEN).proved_bound(world, 7) == 7.0
    assert bl.policy("dp-htinf", **GOLDEN).proved_bound(world, T - 1) == pytest.approx(
        10 * 30 * math.sqrt(3 * K * 10**5) + 9
    )
    # Above epsilon = 1 the theorem stops; a base that was not told of the noise proves nothing.
    assert bl.policy("dp-htinf", arms=K, horizon=T, epsilon=1.5).proved_bound(world, T) is None
    unaware = bl.privatise(bl.policy("exp3", arms=K, horizon=T), epsilon=0.5)
    assert unaware.proved_bound(world, T) is None
    aware = bl.policy("exp3", arms=K, horizon=T // 2, loss_noise=1.0)
    assert bl.privatise(aware, epsilon=0.5).proved_bound(world, T) is not None


@pytest.mark.statistical
@pytest.mark.parametrize("name", PROVED)
def test_regret_is_below_its_bound_on_hard_losses(name) -> None:
    T, epsilon = 4_000, 0.25
    world = fast_commit(T, epsilon)
    policy = bl.policy(name, arms=2, horizon=T, epsilon=epsilon)
    regret = bl.simulate(policy, world, horizon=T, repetitions=10, seed=1).final_regret(name)
    assert 0 < regret.mean() < policy.regret_bound(world, T)


@pytest.mark.statistical
def test_batches_beat_reports_at_a_small_epsilon() -> None:
    """At epsilon = 1/sqrt(T) reports teach nothing; batches do."""
    T = 250_000
    world = bl.environment("stochastic-losses", means=[0.9, 0.1, 0.9])
    policies = [bl.policy(n, arms=3, horizon=T, epsilon=0.002) for n in ("dp-htinf", "ldp-exp3")]
    results = bl.simulate(policies, world, horizon=T, repetitions=8, seed=1)
    blind = T * world.gaps.mean()
    # Regret over the blind one's: 0.32 with a standard error of 0.02, and 0.998.
    assert results.final_regret("dp-htinf").mean() < 0.5 * blind
    assert results.final_regret("ldp-exp3").mean() > 0.95 * blind


def test_hard_losses() -> None:
    assert hidden_best(4, 10_000, gap=0.125, best=1).means.tolist() == [0.5, 0.375, 0.5, 0.5]
    assert hidden_best(9, 10).gaps.max() == 0.5
    assert hidden_best(4, 10_000, epsilon=7.0).gaps.max() == pytest.approx(0.02)
    with pytest.raises(ParameterError, match="best = 4"):
        hidden_best(4, 100, best=4)
    world = fast_commit(10**6, 0.01)
    assert (world.arms, world.switch) == (2, int(math.sqrt(50 * 10**6) / 8))
    assert world.arm_losses(np.array([10**6]))[0, 1] == world.switch
    still = fast_commit(10**6, 0.01, switched=False)
    assert still.gaps.tolist() == [0.0, 0.5]
    assert fast_commit(10, 1e-9).switch == 4


# Audits


def claiming(base: type[bl.Policy]) -> type[bl.Policy]:
    """The base as it is, with a claim."""

    class Claims(base):
        """Claims what it does not keep."""

        name = f"claiming-{base.name}"
        model = "central"
        scope = "trajectory"
        epsilon: Epsilon = 1.0

    return Claims


@pytest.mark.parametrize("name", BASES)
def test_replay_catches_the_bases(name) -> None:
    """Alone they claim nothing and are shown to leak; with a claim they are not accounted for."""
    policy = claiming(type(BASES[name]))(**BASES[name].parameters)
    found = audit_by_replay(policy, policy.guarantee, rounds=64, pairs=200, seed=1)
    assert found.verdict in ("unproved", "violated")
    assert "though every mechanism answered alike" in found.fault


@pytest.mark.parametrize(
    "epsilon", [1.0, *(pytest.param(value, marks=pytest.mark.slow) for value in (0.25, 4.0))]
)
@pytest.mark.parametrize("name", CONVERSIONS)
@pytest.mark.parametrize("pairs", looks(15, 40))
def test_replay_clears_the_conversions(name, epsilon, pairs) -> None:
    policy = bl.policy(name, arms=3, horizon=600, epsilon=epsilon)
    found = audit_by_replay(policy, policy.guarantee, rounds=64, pairs=pairs, seed=1)
    assert (found.verdict, found.epsilon) == ("consistent", pytest.approx(epsilon))
    assert found.moved > pairs // 4
