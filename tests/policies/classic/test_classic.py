"""The baselines without privacy: their indices, their rules and their limits."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import balaclava as bl
from balaclava.errors import IncompatibleError, RewardError

FAILURE = {"failure_probability": 0.01}
POLICIES: dict[str, dict[str, float]] = {
    "ucb1": {},
    "kl-ucb": {},
    "imed": {},
    "thompson-beta": {},
    "thompson-gauss": {},
    "successive-elimination": FAILURE,
}
INDEX_POLICIES = ["ucb1", "kl-ucb", "imed"]


def make(name: str, arms: int, **more: float) -> bl.Policy:
    return bl.policy(name, arms=arms, **POLICIES[name], **more)


# The rules, against plain numpy


def bernoulli_kl(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    p, q = np.clip(p, 1e-15, 1 - 1e-15), np.clip(q, 1e-15, 1 - 1e-15)
    return p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))


def plain_kl_ucb(n: np.ndarray, s: np.ndarray, t: int, rng: np.random.Generator) -> np.ndarray:
    low, high = s / n, np.ones(n.shape)
    for _ in range(40):
        middle = (low + high) / 2
        inside = n * bernoulli_kl(s / n, middle) <= math.log(t)
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return low


def plain_imed(n: np.ndarray, s: np.ndarray, t: int, rng: np.random.Generator) -> np.ndarray:
    top = (s / n).max(axis=1, keepdims=True)
    return -(n * bernoulli_kl(s / n, top) + np.log(n))


def plain_beta(n: np.ndarray, s: np.ndarray, t: int, rng: np.random.Generator) -> np.ndarray:
    return rng.beta(s + 1, n - s + 1)


def plain_gauss(n: np.ndarray, s: np.ndarray, t: int, rng: np.random.Generator) -> np.ndarray:
    return rng.normal(s / (n + 1), 1 / np.sqrt(n + 1))


def plain_index_regret(
    rule: Callable[..., np.ndarray], first: bool, means: np.ndarray, horizon: int, repetitions: int
) -> np.ndarray:
    """Of all repetitions at once: a row each. `first`: pull each arm once before any index."""
    rng, rows = np.random.default_rng(11), np.arange(repetitions)
    n, s = np.zeros((repetitions, means.size)), np.zeros((repetitions, means.size))
    for t in range(1, horizon + 1):
        if first and t <= means.size:
            arm = np.full(repetitions, t - 1)
        else:
            arm = rule(n, s, t, rng).argmax(axis=1)
        n[rows, arm] += 1
        s[rows, arm] += rng.random(repetitions) < means[arm]
    return n @ (means.max() - means)


def plain_elimination_regret(means: np.ndarray, horizon: int, beta: float, seed: int) -> float:
    rng = np.random.default_rng(seed)
    active, s, regret, t = np.ones(means.size, bool), np.zeros(means.size), 0.0, 0
    for n in range(1, horizon + 1):
        for arm in np.flatnonzero(active):
            if t == horizon:
                return regret
            s[arm] += rng.random() < means[arm]
            regret += float(means.max() - means[arm])
            t += 1
        radius = math.sqrt(math.log(4 * means.size * n**2 / beta) / (2 * n))
        active &= s[active].max() / n - s / n <= 2 * radius
    return regret


MEANS = np.array([0.1, 0.4, 0.9])
HORIZON, REPETITIONS = 500, 200


@pytest.mark.oracle
@pytest.mark.parametrize("name", [name for name in POLICIES if name != "ucb1"])
def test_agrees_with_a_plain_implementation(name: str) -> None:
    world = bl.environment("bernoulli", means=MEANS)
    played = bl.simulate(
        make(name, 3), world, horizon=HORIZON, repetitions=REPETITIONS, seed=5, checkpoints=1
    )
    ours = played.final_regret(name)
    rules = {
        "kl-ucb": (plain_kl_ucb, True),
        "imed": (plain_imed, True),
        "thompson-beta": (plain_beta, False),
        "thompson-gauss": (plain_gauss, False),
    }
    if name in rules:
        rule, first = rules[name]
        plain = plain_index_regret(rule, first, MEANS, HORIZON, REPETITIONS)
    else:
        plain = np.array(
            [plain_elimination_regret(MEANS, HORIZON, 0.01, seed) for seed in range(REPETITIONS)]
        )
    # Fixed seeds. On another seed each of the five fails with probability 6e-5 (normal tail).
    error = math.sqrt((ours.var(ddof=1) + plain.var(ddof=1)) / REPETITIONS)
    assert abs(ours.mean() - plain.mean()) < 4 * error
    # Uniform play costs 217; no policy can know the best arm before it has tried the others.
    assert 1 < ours.mean() < 170
    assert played.pulls(name).sum(axis=0).argmax() == 2


def test_thompson_beta_keeps_binary_rewards_and_flips_the_others() -> None:
    params = make("thompson-beta", 1).constants()
    kernels = make("thompson-beta", 1).kernels
    rng = np.random.default_rng(0)
    for reward, low, high in [(0.0, 0, 0), (1.0, 10_000, 10_000), (0.3, 2800, 3200)]:
        state = kernels.begin(params)
        for t in range(1, 10_001):
            kernels.learn(params, state, t, 0, reward, 0, rng)
        # 200 is 4.4 standard deviations of the coin flips; the seed is fixed.
        assert low <= state.sums[0] <= high
        assert state.sums[0] == int(state.sums[0])


@pytest.mark.statistical
def test_thompson_gauss_scale() -> None:
    def draws_of_the_worse(scale: float) -> int:
        policy = make("thompson-gauss", 2, radius_scale=scale)
        params, rng = policy.constants(), np.random.default_rng(1)
        state = policy.kernels.begin(params)
        for arm, reward in enumerate((0.0, 4.0)):
            for t in range(1, 4):
                policy.kernels.learn(params, state, t, arm, reward, 0, rng)
        return sum(
            policy.kernels.choose(params, state, 7, None, rng)[0] == 0 for _ in range(20_000)
        )

    # theta_0 ~ N(0, 1/4), theta_1 ~ N(3, 1/4): the worse wins with P(N > 3 sqrt 2 / scale).
    for scale in (2.0, 6.0):
        p = 0.5 * math.erfc(3 / scale)
        # 4.5 standard errors; the seed is fixed.
        slack = 4.5 * math.sqrt(p * (1 - p) / 20_000)
        assert abs(draws_of_the_worse(scale) / 20_000 - p) < slack


# Limits that all share


@pytest.mark.parametrize("name", POLICIES)
def test_one_arm(name: str) -> None:
    agent = make(name, 1).agent(seed=1)
    for _ in range(20):
        decision = agent.ask()
        assert decision.arm == 0
        agent.tell(decision, 0.25)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_constant_rewards_leave_no_arm_out(name: str, reward: float) -> None:
    agent = make(name, 3).agent(seed=1)
    pulls = [0, 0, 0]
    for _ in range(300):
        decision = agent.ask()
        pulls[decision.arm] += 1
        agent.tell(decision, reward)
    assert min(pulls) >= 1
    if name in INDEX_POLICIES and reward == 0.0:
        assert max(pulls) - min(pulls) <= 1


@pytest.mark.parametrize("name", INDEX_POLICIES)
def test_ties_go_to_the_lowest_arm(name: str) -> None:
    agent = make(name, 4).agent(seed=1)
    arms = []
    for _ in range(12):
        decision = agent.ask()
        arms.append(decision.arm)
        agent.tell(decision, 0.5)
    assert arms == [0, 1, 2, 3] * 3


@pytest.mark.parametrize("name", POLICIES)
def test_asking_never_waits(name: str) -> None:
    agent = make(name, 3).agent(seed=1)
    batch = [agent.ask() for _ in range(30)]
    assert {decision.arm for decision in batch} == {0, 1, 2}
    for decision in batch[::-2]:
        agent.tell(decision, 0.5)
    assert 0 <= agent.ask().arm < 3


@pytest.mark.parametrize("name", POLICIES)
def test_compiled_and_interpreted_make_the_same_decisions(name: str) -> None:
    from balaclava.privacy.randomness import seeded
    from balaclava.simulation.engine import make_play

    world = bl.environment("bernoulli", means=MEANS)
    policy = make(name, 3)
    played = bl.simulate(policy, world, horizon=300, repetitions=2, seed=9, checkpoints=300)
    play = make_play(*policy.kernels[:3], policy.prepare(), world.draw, world.advise)
    for repetition in range(2):
        history, *_ = play(
            policy.constants(),
            world.constants(),
            3,
            played.checkpoints,
            seeded(9, repetition, 0),
            seeded(9, repetition, 1),
            None,
            np.zeros(2, np.int64),
        )
        regret = world.regret(played.checkpoints, history, np.zeros(300))
        assert (regret == played.regret(name)[repetition]).all()


def test_rewards_outside_the_range_are_refused_unless_real() -> None:
    gaussian = make("thompson-gauss", 2).agent(seed=0)
    gaussian.tell(gaussian.ask(), -7.5)
    for name in ("kl-ucb", "imed", "thompson-beta", "successive-elimination"):
        agent = make(name, 2).agent(seed=0)
        with pytest.raises(RewardError):
            agent.tell(agent.ask(), 1.5)
        wide = bl.policy(name, arms=2, reward_range=(-2.0, 2.0), **POLICIES[name]).agent(seed=0)
        wide.tell(wide.ask(), 1.5)


def test_a_planned_horizon_binds() -> None:
    world = bl.environment("bernoulli", means=MEANS)
    policy = bl.policy("successive-elimination", arms=3, horizon=50)
    with pytest.raises(IncompatibleError, match="horizon"):
        bl.simulate(policy, world, horizon=51, repetitions=1, seed=0)
