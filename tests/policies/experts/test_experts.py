"""The policies that follow experts: golden values, transcriptions, late losses, privacy, limits."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.replay.replay_audit import audit_by_replay
from balaclava.auditing.tape import Recorder
from balaclava.errors import ContextError, ParameterError
from balaclava.estimators.expert_weights import draw_advised
from balaclava.policies.expert_policies import practice_advice
from balaclava.policies.experts.dp_exp4 import DPExp4
from balaclava.privacy.accounting import advanced_epsilon
from balaclava.privacy.mechanisms.analytic_gaussian import gaussian_shift
from balaclava.privacy.randomness import seeded
from tests.effort import but_slow, looks

PRIVATE = ["ldp-exp4", "dp-exp4", "dp-htinf-experts", "dp-exp3-experts", "dp-ftpl-experts"]
WRAPPED = PRIVATE[2:]
NAMES = ["exp4", *PRIVATE]
K, N = 3, 4


def make(name: str, **more: Any) -> Any:
    parameters: dict[str, Any] = {"arms": K, "experts": N, "horizon": 600}
    if name != "exp4":
        parameters["epsilon"] = 1.0
    if name == "dp-exp4":
        parameters |= {"delta": 0.01, "learning_rate_scale": 0.1}
    return bl.policy(name, **{**parameters, **more})


def some_advice(rounds: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(K), (rounds, N))


def mixed(shares: np.ndarray, advice: np.ndarray, gamma: float) -> np.ndarray:
    """Q, as the paper writes it."""
    return (1 - gamma) * shares @ advice + gamma / advice.shape[1]


# Golden values


def test_rates_of_ldp_exp4() -> None:
    params = bl.policy("ldp-exp4", arms=5, experts=20, horizon=10**6, epsilon=1.0).constants()
    assert params.learning_rate == pytest.approx(9.15990356178777e-06, rel=1e-13)
    assert params.mixing == pytest.approx(0.0028258208086878976, rel=1e-13)


def test_rates_of_dp_exp4() -> None:
    policy = bl.policy("dp-exp4", arms=5, experts=20, horizon=10**6, epsilon=1.0, delta=1e-5)
    params = policy.constants()
    assert params.learning_rate == pytest.approx(0.04088699744755052, rel=1e-13)
    assert params.batch == 2791
    assert params.mixing == pytest.approx(0.22428833699571551, rel=1e-13)
    assert params.noise_scale == pytest.approx(0.36360728516793506, rel=1e-13)


def test_the_printed_bounds_are_above_ours() -> None:
    T, k, n = 10**6, 5, 20
    for epsilon in (0.05, 0.3, 1.0):
        policy = bl.policy("ldp-exp4", arms=k, experts=n, horizon=T, epsilon=epsilon)
        printed = 16 * math.sqrt(T * k * math.log(n)) * math.log(k * T) / epsilon + 1
        assert 0 < policy.proved_bound(None, T) < printed
    policy = bl.policy("dp-exp4", arms=k, experts=n, horizon=T, epsilon=1.0, delta=1e-5)
    p, L = policy.constants(), math.log(n * T)
    printed = 3 * p.batch * math.log(n) / p.learning_rate + T * (
        p.mixing + p.learning_rate * (k + 10 * (p.noise_scale * L) ** 2)
    )
    assert 0 < policy.proved_bound(None, T) < printed
    wrapped = bl.policy("dp-htinf-experts", arms=k, experts=n, horizon=T, epsilon=0.1)
    inner = bl.policy("dp-htinf", arms=n, horizon=T, epsilon=0.1)
    losses = bl.environment("stochastic-losses", means=np.full(n, 0.5))
    assert wrapped.proved_bound(None, T) == inner.proved_bound(losses, T)
    assert wrapped.proved_bound(None, T) < 208 * math.sqrt(n * T / 0.1) + 2 / 0.1


def test_bounds_are_for_the_planned_horizon() -> None:
    for name in NAMES:
        world = bl.environment("advice", losses=[[0, 1, 0.5]], advice=practice_advice(N, K))
        assert make(name).regret_bound(world, 601) is None


# Advice


BAD_ADVICE: list[tuple[Any, str]] = [
    (None, "the advice is missing"),
    ("advice", "a str is not advice"),
    ([1.0, 0.0, 0.0], "a list of shape (3,) is not advice"),
    (np.full((2, N, K), 1 / K), "not advice"),
    (np.full((N + 1, K), 1 / K), "has 5 rows, not 4"),
    (np.full((N, K + 1), 1 / (K + 1)), "has 4 columns, not 3"),
    (np.full((N, K), 0.5), "of expert 0 does not sum to 1"),
    (
        np.vstack([np.eye(K), [[1.5, -0.5, 0.0]]]),
        "of expert 3 must hold probabilities",
    ),
    (
        np.vstack([np.eye(K), [[math.nan, 0.5, 0.5]]]),
        "of expert 3 must hold probabilities",
    ),
    (
        np.vstack([[[math.inf, 0, 0]], np.eye(K)]),
        "of expert 0 must hold probabilities",
    ),
]


@pytest.mark.parametrize("name", ["exp4", "dp-exp4", "dp-htinf-experts"])
@pytest.mark.parametrize(("advice", "said"), BAD_ADVICE, ids=[said for _, said in BAD_ADVICE])
def test_bad_advice_is_refused_and_changes_nothing(name: str, advice: Any, said: str) -> None:
    agent = make(name).agent(seed=1)
    before = json.dumps(agent.save())
    with pytest.raises(ContextError) as error:
        agent.ask(advice)
    assert said in str(error.value)
    assert f"give {name} advice of 4 rows" in str(error.value)
    assert json.dumps(agent.save()) == before


def test_practice_advice_has_every_arm_and_one_who_does_not_know() -> None:
    advice = practice_advice(6, 3)
    assert advice.argmax(axis=1).tolist() == [0, 1, 2, 0, 0, 1]
    assert advice[0].tolist() == [1, 0, 0]
    assert np.array_equal(advice[3], np.full(3, 1 / 3))
    assert (advice[1:] > 0).all()
    assert advice.sum(axis=1) == pytest.approx(1.0)


def test_advice_counts_as_public() -> None:
    for name in PRIVATE:
        assumptions = make(name).guarantee.assumptions
        (line,) = (line for line in assumptions if "advice counts as public" in line)
        assert "does not depend on any loss except through released values" in line


# Transcriptions


@pytest.mark.statistical
def test_an_arm_is_drawn_from_the_mixture() -> None:
    policy = make("exp4")
    state, rng = policy.kernels.begin(policy.constants()), seeded(5)
    state.shares[:] = [0.1, 0.2, 0.3, 0.4]
    advice = np.array([[1.0, 0, 0], [0.5, 0.5, 0], [0, 0.2, 0.8], [0.1, 0.1, 0.8]])
    draws = 20_000
    for gamma in (0.0, 0.3):
        arms = [draw_advised(state, advice, gamma, rng) for _ in range(draws)]
        expected = draws * mixed(state.shares, advice, gamma)
        seen = np.bincount(arms, minlength=K)
        # Chi-square with 2 degrees of freedom; fresh seeds would be beyond 18.4 once in 10,000.
        assert ((seen - expected) ** 2 / expected).sum() < 18.4


@pytest.mark.parametrize(("name", "more"), [("exp4", {"mixing": 0.2}), ("ldp-exp4", {})])
def test_exp4_follows_its_listing(name: str, more: dict[str, Any]) -> None:
    policy = make(name, learning_rate_scale=5.0, **more)
    params, (begin, choose, learn, _), recorder = policy.constants(), policy.kernels, Recorder(3)
    state, advice = begin(params), some_advice(200)
    losses = np.random.default_rng(1).random((200, K))
    weights = np.ones(N)
    for t in range(1, 201):
        arm, phase = choose(params, state, t, advice[t - 1], recorder)
        shares = weights / weights.sum()
        assert state.shares == pytest.approx(shares, rel=1e-9)
        y = losses[t - 1, arm]
        learn(params, state, t, arm, y, phase, recorder)
        if name == "ldp-exp4":
            entry = recorder.tape[-1]
            assert entry.terms is not None
            assert entry.terms == (y, 1.0, 1.0, 0.0)
            y = entry.answer
        chance = mixed(shares, advice[t - 1], params.mixing)[arm]
        weights *= np.exp(-params.learning_rate * advice[t - 1, :, arm] * y / chance)
    assert shares.max() - shares.min() > 0.01


def test_dp_exp4_follows_its_listing() -> None:
    policy = make("dp-exp4")
    params, (begin, choose, learn, _), recorder = policy.constants(), policy.kernels, Recorder(3)
    state, advice = begin(params), some_advice(300)
    losses = np.random.default_rng(1).random((300, K))
    weights, sums = np.ones(N), np.zeros(N)
    releases = 0
    for t in range(1, 301):
        arm, phase = choose(params, state, t, advice[t - 1], recorder)
        shares = weights / weights.sum()
        assert state.weights.shares == pytest.approx(shares, rel=1e-9)
        chances = mixed(shares, advice[t - 1], params.mixing)
        assert chances.min() >= params.mixing / K
        sums += losses[t - 1, arm] * advice[t - 1, :, arm] / chances[arm]
        start = len(recorder.tape)
        learn(params, state, t, arm, losses[t - 1, arm], phase, recorder)
        entries = recorder.tape[start:]
        assert len(entries) == (N if t % params.batch == 0 else 0)
        for expert, entry in enumerate(entries):
            assert entry.terms is not None
            # Each of the terms was rounded to a grid.
            assert abs(entry.terms.value - sums[expert]) <= params.batch * params.step / 2
            assert entry.terms.value % params.step == 0
            epsilon_each = 1.0 / (3 * math.sqrt(N * math.log(100)))
            assert entry.terms[1:] == (K / params.mixing, pytest.approx(epsilon_each), 0.0)
            weights[expert] *= math.exp(-params.learning_rate * entry.answer / params.batch)
            releases += 1
        if entries:
            sums[:] = 0.0
    assert releases == 3 * N


@pytest.mark.parametrize("name", WRAPPED)
def test_a_wrapped_policy_follows_its_listing(name: str) -> None:
    policy = make(name, epsilon=0.3)
    inner = bl.policy(name.removesuffix("-experts"), arms=N, horizon=600, epsilon=0.3)
    ours, theirs = seeded(7), seeded(7)
    params, (begin, choose, learn, _) = policy.constants(), policy.kernels
    state = begin(params)
    inner_params, inner_state = inner.constants(), inner.kernels.begin(inner.constants())
    advice, losses = some_advice(200), np.random.default_rng(1).random((200, K))
    followed = []
    for t in range(1, 201):
        arm, phase = choose(params, state, t, advice[t - 1], ours)
        expert, batch = inner.kernels.choose(inner_params, inner_state, t, None, theirs)
        cumulated = np.cumsum(advice[t - 1, expert])
        assert arm == np.searchsorted(cumulated, theirs.random(), side="right")
        loss = losses[t - 1, arm]
        learn(params, state, t, arm, loss, phase, ours)
        inner.kernels.learn(inner_params, inner_state, t, expert, loss, batch, theirs)
        followed.append(int(expert))
    batches = np.array(followed).reshape(-1, 4)  # 1/0.3, rounded up
    assert (batches == batches[:, :1]).all()
    assert len(set(followed)) > 1


# Late losses


def test_a_late_loss_is_weighed_by_its_own_decision() -> None:
    policy = make("exp4")
    params, (begin, choose, learn, _) = policy.constants(), policy.kernels
    state, rng, advice = begin(params), seeded(2), some_advice(30)
    decisions, chances = [], []
    for t in range(1, 31):
        decisions.append(choose(params, state, t, advice[t - 1], rng))
        chances.append(mixed(state.shares, advice[t - 1], 0.0)[decisions[-1][0]])
    logs = np.zeros(N)
    for i in np.random.default_rng(0).permutation(30):
        arm, phase = decisions[i]
        learn(params, state, int(i) + 1, arm, 0.7, phase, rng)
        logs -= params.learning_rate * 0.7 * advice[i, :, arm] / chances[i]
        learn(params, state, int(i) + 1, arm, 0.9, phase, rng)  # its note is used up
    weights = np.exp(logs)
    assert state.shares == pytest.approx(weights / weights.sum(), rel=1e-9)


def test_exp4_forgets_the_oldest_where_too_many_wait() -> None:
    agent = make("exp4", outstanding=2).agent(seed=1)
    first, *_ = (agent.ask(practice_advice(N, K)) for _ in range(3))
    before = agent.save()["state"]
    agent.tell(first, 1.0)
    assert agent.save()["state"] == before


@pytest.mark.parametrize("name", ["dp-exp4", "dp-htinf-experts"])
def test_while_a_batch_waits_the_next_one_is_learned_from(name: str) -> None:
    policy = make(name, epsilon=0.9 if name == "dp-exp4" else 0.1)
    batch = policy.constants().batch if name == "dp-exp4" else 10
    agent, advice = policy.agent(seed=1), practice_advice(N, K)
    decisions = [agent.ask(advice) for _ in range(batch + 5)]
    assert all(d.phase > 0 for d in decisions)
    for decision in reversed(decisions):
        agent.tell(decision, 0.5)
    assert agent.ask(advice).phase > 0


def test_late_losses_of_a_batch_are_released_alike_in_any_order() -> None:
    policy = make("dp-exp4")
    params, (begin, choose, learn, _) = policy.constants(), policy.kernels
    totals = []
    for order in (1, -1):
        recorder = Recorder(4)
        state = begin(params)
        advice = some_advice(params.batch)
        decisions = [choose(params, state, t + 1, advice[t], recorder) for t in range(params.batch)]
        losses = np.random.default_rng(1).random(params.batch)
        for i in range(params.batch)[::order]:
            learn(params, state, i + 1, decisions[i][0], losses[i], decisions[i][1], recorder)
        totals.append([entry.terms for entry in recorder.tape if entry.terms])
    assert len(totals[0]) == N
    assert totals[0] == totals[1]


def test_a_batch_settles_though_old_decisions_make_room() -> None:
    policy = make("dp-exp4", outstanding=10)
    agent, advice = policy.agent(seed=1), practice_advice(N, K)
    for _ in range(50):
        agent.ask(advice)
    assert agent._runner.state.lost.sum() == 40
    for _ in range(2 * policy.constants().batch):
        agent.tell(agent.ask(advice), 0.5)
    assert agent._runner.state.weights.logs.any()


def test_a_cancelled_decision_frees_its_note() -> None:
    policy = make("dp-exp4")
    agent, advice = policy.agent(seed=1), practice_advice(N, K)
    agent.cancel(agent.ask(advice))
    assert agent._runner.state.lost.sum() == 1
    assert not agent._runner.state.weights.pending.numbers.any()


# Privacy


@pytest.mark.parametrize("name", but_slow(PRIVATE, "dp-ftpl-experts"))
@pytest.mark.parametrize("pairs", looks(12, 30))
def test_decisions_see_released_losses_only(name: str, pairs: int) -> None:
    policy = make(name)
    audit = audit_by_replay(policy, policy.guarantee, rounds=100, pairs=pairs, seed=1)
    assert audit.verdict == "consistent", str(audit)
    assert audit.moved > pairs // 3
    if name != "dp-exp4":
        assert audit.epsilon == 1.0


def test_exp4_alone_is_caught() -> None:
    policy = make("exp4")
    claim = bl.Guarantee(epsilon=1.0)
    assert audit_by_replay(policy, claim, rounds=100, pairs=40, seed=1).verdict == "unproved"


class TooLittleNoise(DPExp4):
    """dp-exp4 with a quarter of its noise."""

    name = "too-little-noise"

    def constants(self) -> Any:
        params = super().constants()
        return params._replace(epsilon=4 * params.epsilon)


def test_too_little_noise_is_caught() -> None:
    parameters = make("dp-exp4").parameters
    policy = TooLittleNoise.create(parameters)
    audit = audit_by_replay(policy, policy.guarantee, rounds=200, pairs=40, seed=1)
    assert audit.verdict == "unproved"
    assert "4 mechanisms moved" in audit.fault


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("delta", [1e-6, 1e-2, 0.3, 0.9])
@pytest.mark.parametrize("experts", [1, 10, 1000])
def test_the_releases_of_a_batch_compose(epsilon: float, delta: float, experts: int) -> None:
    def create() -> Any:
        return bl.policy(
            "dp-exp4", arms=2, experts=experts, horizon=10**12, epsilon=epsilon, delta=delta
        )

    each = epsilon / (3 * math.sqrt(experts * math.log(1 / delta)))
    spent = min(experts * each, advanced_epsilon(each, experts, delta))
    if spent > epsilon:
        assert delta == 0.9
        with pytest.raises(ParameterError, match="lower delta"):
            create()
    else:
        assert create().constants().epsilon == pytest.approx(each)
    if epsilon <= 1 and delta <= 1 / math.e:
        assert spent <= 0.63 * epsilon


# Refusals and limits


def test_settings_that_cannot_be_kept_are_refused() -> None:
    with pytest.raises(ParameterError, match=r"would be 3\.8, above 0\.5; raise horizon"):
        make("dp-exp4", learning_rate_scale=1.0)
    with pytest.raises(ParameterError, match="above 1; raise horizon"):
        make("ldp-exp4", horizon=1)
    with pytest.raises(ParameterError, match="longer than the horizon"):
        make("dp-htinf-experts", epsilon=1e-3)


def test_no_epsilon_is_too_small_for_an_answer() -> None:
    shared = {"arms": 2, "horizon": 1000, "epsilon": 1e-300}
    with pytest.raises(ParameterError, match=r"epsilon = 1e-300 is not allowed; .* in \[1e-100"):
        bl.policy("ldp-exp4", experts=2, **shared)
    with pytest.raises(ParameterError, match=r"epsilon = 1e-300 is not allowed; .* in \[1e-100"):
        bl.policy("ldp-exp3", **shared)
    with pytest.raises(ParameterError, match="loss_noise"):
        bl.policy("htinf", arms=2, loss_noise=1e300)


@pytest.mark.parametrize("name", ["dp-htinf-experts", "dp-exp3-experts", "dp-ftpl-experts"])
def test_the_refusal_names_the_policy_that_was_asked_for(name: str) -> None:
    with pytest.raises(ParameterError, match=f"^{name}: epsilon = 1e-09 gives batches"):
        bl.policy(name, arms=2, experts=2, horizon=1000, epsilon=1e-9)


def test_without_noise_dp_exp4_is_exp4() -> None:
    policy = make("dp-exp4", epsilon=1e9, learning_rate_scale=100.0, delta=0.3)
    params, (begin, choose, learn, _) = policy.constants(), policy.kernels
    assert params.batch == 1
    state, rng, advice = begin(params), seeded(1), some_advice(300)
    weights = np.ones(N)
    for t in range(1, 301):
        arm, phase = choose(params, state, t, advice[t - 1], rng)
        shares = weights / weights.sum()
        assert state.weights.shares == pytest.approx(shares, rel=1e-3)
        y = (0.1, 0.5, 0.9)[arm]
        learn(params, state, t, arm, y, phase, rng)
        chance = mixed(shares, advice[t - 1], params.mixing)[arm]
        weights *= np.exp(-params.learning_rate * advice[t - 1, :, arm] * y / chance)
    assert shares.max() - shares.min() > 0.01


@pytest.mark.parametrize("name", NAMES)
def test_one_expert_is_followed(name: str) -> None:
    policy = make(name, experts=1)
    agent = policy.agent(seed=1)
    arms = []
    for _ in range(50):
        decision = agent.ask([[0.0, 1.0, 0.0]])
        agent.tell(decision, 0.5)
        arms.append(decision.arm)
    blind = policy.constants().mixing if name == "dp-exp4" else 0.0
    assert arms.count(1) == 50 or blind > 0
    assert arms.count(1) > 25


def test_huge_losses_leave_exp4_standing() -> None:
    agent = make("exp4").agent(seed=1)
    advice = practice_advice(N, K)
    for reward in (1e300, -1e300, 1e300, 0.0):
        for _ in range(20):
            agent.tell(agent.ask(advice), reward)
    assert np.isfinite(agent._runner.state.shares).all()
    assert agent._runner.state.shares.sum() == pytest.approx(1.0)


@pytest.mark.statistical
def test_regret_of_exp4_is_below_its_bound() -> None:
    horizon = 5_000
    means = np.full(K, 0.5)
    means[1] -= 0.02  # the hardest gap is of this order
    world = bl.environment(
        "advice",
        losses={"name": "stochastic-losses", "means": means},
        advice=practice_advice(N, K),
    )
    policy = make("exp4", horizon=horizon)
    results = bl.simulate(policy, world, horizon=horizon, repetitions=20, seed=1)
    bound = policy.regret_bound(world, horizon)
    assert bound == pytest.approx(math.sqrt(2 * horizon * K * math.log(N)))
    assert 10 < results.final_regret("exp4").mean() < bound


@pytest.mark.parametrize("epsilon", [1e-300, 1e300])
def test_an_epsilon_beyond_floats_is_refused_by_name(epsilon: float) -> None:
    with pytest.raises(ParameterError, match="epsilon"):
        bl.policy("dp-exp4", arms=3, experts=4, horizon=10**9, epsilon=epsilon, delta=0.01)


def test_batched_exp4_without_delta() -> None:
    """N releases of epsilon / N each: less noise than with a delta if N < 9 log(1/delta)."""
    common = {"arms": 5, "experts": 20, "horizon": 10**7, "epsilon": 0.5}
    pure = bl.policy("dp-exp4", delta=0.0, **common)
    assert str(pure.guarantee) == "ε=0.5 per trajectory"
    assert pure.constants().epsilon == pytest.approx(0.5 / 20)
    assert 20 * pure.constants().epsilon <= 0.5 * (1 + 1e-12)
    loose = bl.policy("dp-exp4", delta=1e-5, **common)
    assert pure.constants().epsilon > loose.constants().epsilon  # 20 < 9 log(10^5) = 104
    assert pure.regret_bound(None, 10**7) < loose.regret_bound(None, 10**7)
    many = {**common, "experts": 500, "horizon": 10**9}
    assert (
        bl.policy("dp-exp4", delta=0.0, **many).constants().epsilon
        < bl.policy("dp-exp4", delta=1e-5, **many).constants().epsilon
    )


def test_gaussian_noise_in_batched_exp4() -> None:
    """All sums in one release, for what one loss moves them by; as much noise as n stands for."""
    policy = make("dp-exp4", noise="gaussian")
    params, (begin, choose, learn, _), recorder = policy.constants(), policy.kernels, Recorder(3)
    state, advice = begin(params), some_advice(params.batch)
    for t in range(1, params.batch + 1):
        arm, phase = choose(params, state, t, advice[t - 1], recorder)
        learn(params, state, t, arm, 1.0, phase, recorder)
    (entry,) = (entry for entry in recorder.tape if entry.terms is not None)
    assert entry.terms is not None
    assert entry.terms.sensitivity == pytest.approx(math.sqrt(N) * K / params.mixing)
    assert entry.terms[2:] == (1.0, 0.01)
    logs = -params.learning_rate * np.array(entry.answer) / params.batch
    assert state.weights.logs == pytest.approx(logs - logs.max())
    deviation = entry.terms.sensitivity / gaussian_shift(1.0, 0.01) / params.batch
    assert deviation == pytest.approx(math.sqrt(2) * params.noise_scale)
    assert not state.sums.any()
    replay = audit_by_replay(policy, policy.guarantee, rounds=300, pairs=60, seed=1)
    assert replay.verdict == "consistent"
    assert 0.0 < replay.epsilon <= 1.0
    with pytest.raises(ParameterError, match="above 0 for noise"):
        make("dp-exp4", noise="gaussian", delta=0.0)
    with pytest.raises(ParameterError, match="epsilon = 1e-05 is too small for exact Gaussian"):
        make("dp-exp4", noise="gaussian", epsilon=1e-5)
