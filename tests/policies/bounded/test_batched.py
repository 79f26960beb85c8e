"""Private policies that release once a batch: their rules, their batches, and when they lock."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.replay.replay_audit import audit_by_replay
from balaclava.errors import ParameterError
from balaclava.policies.bounded.batched import numbered_size, pulls_after, size_number
from balaclava.policies.bounded.dp_imed import DPIMED, Batching, Index
from balaclava.privacy.randomness import seeded
from tests.effort import but_slow, looks

NAMES = ["adap-ucb", "adap-klucb", "lazy-dp-ts", "lazy-dp-ucb", "dp-klucb", "dp-imed"]
EPISODES = ["adap-ucb", "adap-klucb", "dp-klucb", "dp-imed"]
MEANS = np.array([0.3, 0.5, 0.8])
ALPHA = 3.1
PAPER: dict[str, Any] = {"index": "paper", "batches": "ratio"}
AS_PUBLISHED = {"dp-imed": PAPER}


class AnyBatches(DPIMED):
    """dp-imed by the paper's rule, that refuses nothing."""

    name = "any-batches"
    most_draws = 10**9
    index: Index = "paper"
    batches: Batching = "ratio"


# The rules, written a second time and with nothing in common: plain numpy, no shared formulas.


def plain_kl(p: float, q: float) -> float:
    first = p * math.log(p / q) if p > 0 else 0.0
    if p == 1:
        return first
    return first + (1 - p) * math.log((1 - p) / (1 - q)) if q < 1 else math.inf


def plain_private_kl(x: float, y: float, epsilon: float) -> float:
    """At the minimum logit(z) = logit(y) -+ epsilon, or z is an end of the interval."""
    ends = [z for z in (x, y) if 0 < y < 1 or z == y]
    if 0 < y < 1:
        sign = 1 if x < y else -1
        z = 1 / (1 + (1 - y) / y * math.exp(min(sign * epsilon, 700.0)))
        if min(x, y) < z < max(x, y):
            ends.append(z)
    return min(epsilon * abs(z - x) + plain_kl(z, y) for z in ends)


def bisect(divergence: Callable[[float], float], x: float, level: float) -> float:
    """max{q in [x, 1] : divergence(q) <= level}."""
    low, high = x, 1.0
    if divergence(1.0) <= level:
        return 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if divergence(middle) <= level else (low, middle)
    return round(low, 14)  # within rounding of 1, arms tie and the first is played


def plain_choice(
    name: str, mean: np.ndarray, n: np.ndarray, t: int, epsilon: float, rng: Any
) -> int:
    """The arm to play when every arm has a released mean of n rewards."""
    log_t, clipped = math.log(t), np.clip(mean, 0, 1)
    if name == "adap-ucb":
        return int(
            np.argmax(mean + np.sqrt(ALPHA * log_t / (2 * n)) + ALPHA * log_t / (epsilon * n))
        )
    if name == "adap-klucb":
        above = np.clip(mean + ALPHA * log_t / (epsilon * n), 0, 1)
        return int(
            np.argmax(
                [
                    bisect(lambda q, x=x: plain_kl(x, q), x, ALPHA * log_t / m)
                    for x, m in zip(above, n, strict=True)
                ]
            )
        )
    if name == "lazy-dp-ucb":
        return int(np.argmax(mean + np.sqrt(3 * log_t / n) + 3 * log_t / (epsilon * n)))
    if name == "lazy-dp-ts":
        centre = np.clip(mean + 3 * log_t / (epsilon * n), 0, 1)
        return int(np.argmax(rng.beta(centre * n + 1, (1 - centre) * n + 1)))
    if name == "dp-klucb":
        return int(
            np.argmax(
                [
                    bisect(lambda q, x=x: plain_private_kl(x, q, epsilon), x, log_t / m)
                    for x, m in zip(clipped, n, strict=True)
                ]
            )
        )
    top = clipped.max()
    return int(
        np.argmin(
            [
                m * plain_private_kl(x, top, epsilon) + math.log(m)
                for x, m in zip(clipped, n, strict=True)
            ]
        )
    )


def plain_sizes(name: str, epsilon: float) -> list[int]:
    """An arm's batches."""
    if name.startswith("adap"):
        return [1, 1, *(2**k for k in range(1, 30))]
    if name.startswith("lazy"):
        return [2**k for k in range(30)]
    ratio = {"dp-imed": 1.5, "dp-klucb": 1.25}[name]
    totals = [0]
    for k in range(60):
        totals.append(max(totals[-1] + 1, math.ceil(max(30 / epsilon, 1) * ratio**k)))
    return np.diff(totals).tolist()


def plain_play(
    name: str, epsilon: float, horizon: int, reward: Callable[[int], float], rng: Any, arms: int
) -> np.ndarray:
    """The arms of a run."""
    sizes = plain_sizes(name, epsilon)
    batch, filled = np.zeros(arms, int), np.zeros(arms, int)
    raw, total, mean, n = np.zeros(arms), np.zeros(arms), np.zeros(arms), np.zeros(arms)
    played, current = np.zeros(horizon, int), -1
    block: list[int] = []
    for t in range(1, horizon + 1):
        arm = current
        if (n == 0).any():
            block = block or np.flatnonzero(n == 0).tolist()
            turn = int(rng.random() * len(block))
            arm, block[turn] = block[turn], block[0]
            del block[0]
        elif arm < 0:
            arm = plain_choice(name, mean, n, t, epsilon, rng)
        current = arm if name in EPISODES and (n > 0).all() else -1
        played[t - 1] = arm
        raw[arm] += reward(arm)
        filled[arm] += 1
        if filled[arm] == sizes[batch[arm]]:
            answer = raw[arm] + rng.laplace(0, 1 / epsilon)
            keep = name in ("dp-klucb", "dp-imed")  # the others forget
            total[arm] = total[arm] * keep + answer
            n[arm] = n[arm] * keep + filled[arm]
            mean[arm] = total[arm] / n[arm]
            raw[arm], filled[arm], current = 0.0, 0, -1
            batch[arm] += 1
    return played


@pytest.mark.parametrize("epsilon", [1.0, 0.37, 7.0])
@pytest.mark.parametrize("name", NAMES)
def test_decisions_are_those_of_the_plain_rule_on_the_same_noise(name: str, epsilon: float) -> None:
    policy = bl.policy(name, arms=3, epsilon=epsilon, **AS_PUBLISHED.get(name, {}))
    horizon = 700
    coins = (np.random.default_rng(5).random((horizon, 3)) < MEANS).astype(float)
    agent, arms = policy.agent(seed=11), []
    for t in range(horizon):
        decision = agent.ask()
        agent.tell(decision, coins[t, decision.arm])
        arms.append(decision.arm)
    clock = itertools.count()
    plain = plain_play(
        name, epsilon, horizon, lambda arm: coins[next(clock), arm], seeded(11), arms=3
    )
    assert arms == plain.tolist()


def plain_own_index(
    kind: str, n: float, x: float, top: float, epsilon: float, m: int, arms: int, t: int
) -> float:
    """dp-imed's own indices: the exponent on a grid of s, its curvature by differences."""
    rate = surprise = tail = 0.0
    if x < top:
        step = 1e-5
        s = np.arange(step, 1.0 - step / 2, step)
        exponents = -s * epsilon * n * x - n * np.log(1 - top + top * np.exp(-epsilon * s))
        exponents += m * np.log(1 - s * s)
        best = min(max(int(exponents.argmax()), 1), s.size - 2)
        curvature = 2 * exponents[best] - exponents[best - 1] - exponents[best + 1]
        rate, tilt = float(exponents[best]), s[best]
        width = tilt * math.sqrt(curvature) / step
        surprise = rate + math.log((3 * width + math.sqrt(width * width + 8)) / math.sqrt(8))
        factor = (1 - tilt) * (2 * tilt / (1 + tilt)) ** tilt
        if m > 1:
            spread = math.sqrt(2 * (1 + tilt**2)) / (1 - tilt**2)
            ratio = tilt * spread * math.sqrt(math.pi * (2 * m - 3))
            factor = min(factor, (1 - math.exp(-ratio)) / ratio)
        tail = rate - math.log(factor)
    if kind != "rechecking":
        own = {"exact": rate, "tail": tail}[kind]
        return max(own - math.log(max(4_000 / arms / t, 1.0)), 0.0) + math.log(n)
    paper = n * plain_private_kl(min(max(x, 0.0), 1.0), top, epsilon)
    if surprise < 12.4 - math.log((arms - 1) * epsilon / (1 + epsilon) * n):
        paper = max(min(paper, surprise) - 5 * math.log(max(t / 12_000, 1.0)), 0.0)
    return paper + math.log(n)


def plain_own_play(kind: str, epsilon: float, coins: np.ndarray, rng: Any) -> list[int]:
    """The arms of a run of dp-imed with its adaptive batches, batch by batch."""
    horizon, arms = coins.shape
    played: list[int] = []
    n, total, m = np.zeros(arms), np.zeros(arms), np.zeros(arms, int)
    first = 40 / epsilon
    for _ in range(math.ceil(first)):
        block = list(range(arms))
        for i in range(arms):
            turn = i + int(rng.random() * (arms - i))
            block[i], block[turn] = block[turn], block[i]
            played.append(block[i])
            total[block[i]] += coins[len(played) - 1, block[i]]
            n[block[i]] += 1
            if n[block[i]] == math.ceil(first):
                total[block[i]] += rng.laplace(0, 1 / epsilon)
    m += 1
    while len(played) < horizon:
        top, x, t = min(max((total / n).max(), 0.0), 1.0), total / n, len(played) + 1

        def index(a: int, pulls: float, more: int, top: float = top, x: Any = x, t: int = t) -> Any:
            return plain_own_index(kind, pulls, x[a], top, epsilon, m[a] + more, arms, t)

        arm = int(np.argmin([index(a, n[a], 0) for a in range(arms)]))
        if kind == "rechecking":
            low, high = 1.25 * n[arm], 2.0 * n[arm]
            for _ in range(12 if x[arm] < top else 0):
                middle = (low + high) / 2
                short = index(arm, middle, 1) < math.log(t) + 0.5
                low, high = (middle, high) if short else (low, middle)
            after = math.ceil(high)
        else:
            listed = [math.ceil(first * 1.14**j) for j in range(60)]
            listed = [size for size in listed if n[arm] < size <= 2 * n[arm]]
            enough = [a for a in listed if x[arm] < top and index(arm, a, 1) >= math.log(t)]
            after = [*enough[:1], listed[-1]][0]
        size = after - int(n[arm])
        rewards = coins[len(played) : len(played) + size, arm]
        total[arm] += rewards.sum() + rng.laplace(0, 1 / epsilon)
        n[arm], m[arm] = n[arm] + size, m[arm] + 1
        played += [arm] * size
    return played[:horizon]


@pytest.mark.parametrize("epsilon", [1.0, 0.37, 7.0])
@pytest.mark.parametrize("index", ["rechecking", "tail", "exact"])
def test_dp_imed_decides_as_its_own_rule_written_again(index: str, epsilon: float) -> None:
    coins = (np.random.default_rng(5).random((2_000, 3)) < MEANS).astype(float)
    policy = bl.policy("dp-imed", arms=3, epsilon=epsilon, index=index, horizon=4_000)
    agent, arms = policy.agent(seed=11), []
    for t in range(len(coins)):
        decision = agent.ask()
        agent.tell(decision, coins[t, decision.arm])
        arms.append(decision.arm)
    assert arms == plain_own_play(index, epsilon, coins, seeded(11))


@pytest.mark.oracle
@pytest.mark.parametrize("epsilon", [1.0, pytest.param(0.37, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", but_slow(NAMES, "lazy-dp-ts"))
def test_mean_regret_agrees_with_the_plain_rule(name: str, epsilon: float) -> None:
    # Streams of its own. Four standard errors: wrong once in 16,000, and the seeds are fixed.
    horizon, repetitions = 500, 40
    rng = np.random.default_rng(3)
    gaps = MEANS.max() - MEANS

    def reward(arm: int) -> float:
        return float(rng.random() < MEANS[arm])

    plain = np.array(
        [gaps[plain_play(name, epsilon, horizon, reward, rng, 3)].sum() for _ in range(repetitions)]
    )
    ours = bl.simulate(
        bl.policy(name, arms=3, epsilon=epsilon, **AS_PUBLISHED.get(name, {})),
        bl.environment("bernoulli", means=MEANS),
        horizon=horizon,
        repetitions=400,
        seed=9,
        workers=1,
    ).final_regret(name)
    error = math.hypot(plain.std() / repetitions**0.5, ours.std() / ours.size**0.5)
    assert abs(ours.mean() - plain.mean()) < 4 * error


class Silent:
    """A generator whose Laplace noise is 0."""

    def __init__(self, seed: int) -> None:
        self.generator = seeded(seed)

    def laplace(self, *_: float) -> float:
        self.generator.laplace(0.0, 1.0)  # keeps step with the noisy run
        return 0.0

    def random(self) -> float:
        return self.generator.random()

    def beta(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.generator.beta(a, b)


@pytest.mark.parametrize("name", NAMES)
def test_with_a_huge_epsilon_they_are_the_batch_policies_without_noise(name: str) -> None:
    rewards = np.array([0.21, 0.52, 0.83])
    policy = bl.policy(name, arms=3, epsilon=1e9, **AS_PUBLISHED.get(name, {}))
    agent, arms = policy.agent(seed=2), []
    for _ in range(600):
        decision = agent.ask()
        agent.tell(decision, rewards[decision.arm])
        arms.append(decision.arm)
    plain = plain_play(name, 1e9, 600, lambda arm: float(rewards[arm]), Silent(2), arms=3)
    assert arms == plain.tolist()
    assert arms.count(2) > 300


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("pairs", looks(60, 200))
def test_each_reward_reaches_decisions_through_one_release(name: str, pairs: int) -> None:
    options = {"first_batch": 10.0} if name in ("dp-klucb", "dp-imed") else {}
    policy = bl.policy(name, arms=3, epsilon=0.7 if not options else 3.0, **options)
    audit = audit_by_replay(policy, policy.guarantee, rounds=200, pairs=pairs, seed=4)
    assert audit.verdict == "consistent", audit.fault
    assert audit.moved > pairs // 4
    assert audit.epsilon == policy.guarantee.epsilon


# Batches


def batches_of_arm_zero(policy: bl.Policy, rounds: int) -> list[int]:
    """Pulls in each full batch of an only arm."""
    agent = policy.agent(seed=1)
    phases = []
    for _ in range(rounds):
        decision = agent.ask()
        agent.tell(decision, 0.5)
        phases.append(decision.phase)
    return [len(list(group)) for _, group in itertools.groupby(phases)][:-1]


@pytest.mark.parametrize(
    ("name", "options", "sizes"),
    [
        ("adap-ucb", {}, [1, 1, 2, 4, 8, 16, 32]),
        ("adap-klucb", {}, [1, 1, 2, 4, 8, 16, 32]),
        ("lazy-dp-ts", {}, [1, 2, 4, 8, 16, 32]),
        ("lazy-dp-ucb", {}, [1, 2, 4, 8, 16, 32]),
        ("dp-imed", {}, [40, 38]),  # an only arm leads, and nearly doubles
        ("dp-imed", PAPER, [30, 15, 23]),
        ("dp-klucb", {}, [30, 8, 9, 12, 15, 18]),
        # As published, ceil(2^m), ceil(1.5^m) and ceil(1.1^m), kept increasing.
        (
            "dp-imed",
            {**PAPER, "batch_ratio": 2.0, "first_batch": 2.0},
            [2, 2, 4, 8, 16, 32],
        ),
        (
            "dp-imed",
            {**PAPER, "batch_ratio": 1.5, "first_batch": 1.5, "epsilon": 3.0},
            [2, 1, 1, 2, 2, 4],
        ),
        (
            "dp-imed",
            {**PAPER, "batch_ratio": 1.1, "first_batch": 1.1, "epsilon": 3.0},
            [2] + [1] * 5,
        ),
    ],
)
def test_batch_sizes(name: str, options: dict[str, float], sizes: list[int]) -> None:
    policy = bl.policy(name, **{"arms": 1, "epsilon": 1.0, **options})
    assert batches_of_arm_zero(policy, 100)[: len(sizes)] == sizes


def test_a_first_batch_beyond_counting_is_as_long_as_can_be_counted() -> None:
    policy = bl.policy("dp-imed", arms=2, epsilon=1e-100)
    assert pulls_after(policy.constants(), 1, 0) == 2**53
    assert policy.agent(seed=1).ask().phase == 1


@pytest.mark.parametrize("name", NAMES)
def test_without_rewards_first_batches_come_in_blocks_and_then_all_arms_go_on(name: str) -> None:
    policy = bl.policy(name, arms=3, epsilon=20.0)
    first = math.ceil(policy.constants().first_batch) if name in AS_PUBLISHED else 0
    first = first or plain_sizes(name, 20.0)[0]
    agent = policy.agent(seed=1)
    decisions = [agent.ask() for _ in range(3 * first + 30)]
    arms = [d.arm for d in decisions]
    for block in range(first):
        assert sorted(arms[3 * block : 3 * block + 3]) == [0, 1, 2]
    assert {d.phase for d in decisions[: 3 * first]} == {1}
    assert min(d.phase for d in decisions[3 * first :]) == 2  # into the batches that follow
    assert set(arms[3 * first :]) == {0, 1, 2}
    for decision in reversed(decisions):
        agent.tell(decision, 0.5)
    pools = policy.pools_of(agent._runner.state)
    under_way = np.where(pools.placed < pools.size, pools.size, 0)
    assert pools.rewards.sum() == (pools.planned - under_way).sum()


@pytest.mark.parametrize("name", EPISODES)
def test_an_arm_that_waits_is_not_explored_and_the_leader_goes_on(name: str) -> None:
    agent = bl.policy(name, arms=3, epsilon=20.0).agent(seed=1, patience=10_000)
    for _ in range(400):
        decision = agent.ask()
        agent.tell(decision, float(decision.arm == 1))
    waiting = [agent.ask() for _ in range(500)]
    others = {(d.arm, d.phase) for d in waiting if d.arm != 1}
    assert sum(d.arm == 1 for d in waiting) > 400
    assert len(others) == len({arm for arm, _ in others})  # a batch each, and then no more
    for late in waiting:
        agent.tell(late, float(late.arm == 1))
    assert agent.ask().phase > 0


@pytest.mark.parametrize("reward", [0.0, 1.0])
@pytest.mark.parametrize("name", [*NAMES[:4], "any-batches"])
def test_noise_far_larger_than_the_rewards(name: str, reward: float) -> None:
    options: dict[str, Any] = {"arms": 4, "epsilon": 1e-3}
    if name == "any-batches":
        policy: bl.Policy = AnyBatches(**options, first_batch=2.0, batch_ratio=2.0)
    else:
        policy = bl.policy(name, **options)
    agent = policy.agent(seed=3)
    for _ in range(1000):
        decision = agent.ask()
        assert 0 <= decision.arm < 4
        agent.tell(decision, reward)


# Bound


def test_regret_bound_of_adap_ucb() -> None:
    policy = bl.policy("adap-ucb", arms=3, epsilon=0.2)
    world = bl.environment("bernoulli", means=[0.5, 0.4, 0.1])
    log_t = math.log(10**5)
    expected = 16 * 3.1 * log_t / 0.1 + 16 * 3.1 * log_t / 0.2 + 2 * 3.1 / (3.1 - 3)
    assert policy.regret_bound(world, 10**5) == pytest.approx(expected, rel=1e-12)
    assert policy.regret_bound(bl.environment("gaussian", means=[0, 1, 2]), 10**5) is None
    wide = bl.policy("adap-ucb", arms=3, epsilon=0.2, reward_range=(0.0, 2.0))
    halved = bl.environment("bernoulli", means=[0.5, 0.3, 0.1])
    expected = 2 * (16 * 3.1 * log_t * (1 / 0.1 + 1 / 0.2) + 2 * 3.1 / (3.1 - 3))
    assert wide.regret_bound(halved, 10**5) == pytest.approx(expected, rel=1e-12)


def test_alpha_is_above_three() -> None:
    with pytest.raises(ParameterError, match="alpha"):
        bl.policy("adap-ucb", arms=3, epsilon=1.0, alpha=3.0)


# Locks


def locked_share(policy: bl.Policy) -> float:
    """The share of runs that play the best arm in less than a quarter of the rounds."""
    means = [0.75, 0.7, 0.7, 0.7, 0.7]
    results = bl.simulate(
        policy,
        bl.environment("bernoulli", means=means),
        horizon=1_000_000,
        repetitions=100,
        seed=21,
        checkpoints=1,
        workers=1,
    )
    return float((results.pulls(policy.name)[:, 0] < 250_000).mean())


def test_short_batches_lock_onto_a_wrong_arm_and_the_defaults_do_not() -> None:
    # At epsilon 0.1 the true shares are near 0.31 and 0.001: 100 runs are on the wrong side of
    # 0.1 and 0.05 with a probability below 1e-6 each.
    published = AnyBatches(arms=5, epsilon=0.1, batch_ratio=1.1, first_batch=1.1)
    assert locked_share(published) > 0.1
    assert locked_share(bl.policy("dp-imed", arms=5, epsilon=0.1)) < 0.05


@pytest.mark.parametrize("name", ["dp-imed", "dp-klucb"])
def test_settings_that_lock_are_refused_with_what_to_do(name: str) -> None:
    options = {"arms": 5, "epsilon": 0.1, "batch_ratio": 1.1, "first_batch": 2.0}
    options |= AS_PUBLISHED.get(name, {})
    with pytest.raises(
        ParameterError, match=r"batch_ratio = 1\.1 .*wrong arm.*first_batch"
    ) as error:
        bl.policy(name, **options)
    advised = float(str(error.value).split("Raise batch_ratio to ")[1].split()[0])
    policy = bl.policy(name, **{**options, "batch_ratio": advised})
    assert policy.draws <= policy.most_draws
    assert bl.policy(name, **{**options, "first_batch": 600.0}).draws <= policy.most_draws
    assert bl.policy(name, **{**options, "epsilon": 3.0}).batch_ratio == 1.1


def test_dp_imed_refuses_the_ratio_that_locks_even_with_the_default_first_batch() -> None:
    with pytest.raises(ParameterError, match="batch_ratio"):
        bl.policy("dp-imed", arms=5, epsilon=0.1, batch_ratio=1.1, index="paper")


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.1, 1.0, 2.9, 1e6])
def test_the_defaults_add_noise_a_few_times_at_any_epsilon(epsilon: float) -> None:
    assert bl.policy("dp-imed", arms=2, epsilon=epsilon, batches="ratio").draws <= 4
    assert bl.policy("dp-klucb", arms=2, epsilon=epsilon).draws <= 7


@pytest.mark.parametrize("epsilon", [1e-6, 800.0, 1e12])
@pytest.mark.parametrize("batches", ["adaptive", "ratio"])
@pytest.mark.parametrize("index", ["tail", "rechecking", "exact"])
def test_agents_play_on_at_every_epsilon(epsilon: float, index: str, batches: str) -> None:
    agent = bl.policy("dp-imed", arms=3, epsilon=epsilon, index=index, batches=batches).agent(
        seed=1
    )
    arms = []
    for _ in range(60):
        decision = agent.ask()
        agent.tell(decision, reward=(0.0, 1.0, 0.5)[decision.arm])
        arms.append(decision.arm)
    assert arms.count(1) > 40 or epsilon < 1


def test_values_that_earlier_versions_saved_are_read():
    policy = bl.policy("dp-imed", arms=3, epsilon=1.0, index="rechecking")
    earlier = policy.parameters | {"index": "careful", "batches": "need"}
    del earlier["horizon"]  # a later parameter
    assert type(policy).create(earlier) == policy
    with pytest.raises(ParameterError, match="one of 'tail', 'exact', 'paper', 'rechecking'"):
        bl.policy("dp-imed", arms=3, epsilon=1.0, index="sure")


# Clock and sizes


def test_a_horizon_sets_the_clock_and_bounds_the_first_batch():
    plain = bl.policy("dp-imed", arms=4, epsilon=0.1)
    assert (plain.clock, plain.constants().first_batch) == (5_000, 400)
    short = bl.policy("dp-imed", arms=4, epsilon=0.1, horizon=1_000)
    assert (short.clock, short.constants().first_batch) == (250, 31.25)
    assert bl.policy("dp-imed", arms=4, epsilon=0.1, horizon=1).constants().first_batch == 1
    own = bl.policy("dp-imed", arms=4, epsilon=0.1, horizon=1_000, first_batch=90)
    assert own.constants().first_batch == 90
    for index in ("paper", "rechecking"):
        other = bl.policy("dp-imed", arms=4, epsilon=1.0, horizon=100, index=index)
        assert other.constants().first_batch == 40


def test_it_plays_beyond_its_horizon():
    agent = bl.policy("dp-imed", arms=2, epsilon=5.0, horizon=50).agent(seed=1)
    for _ in range(200):
        decision = agent.ask()
        agent.tell(decision, reward=float(decision.arm))
    assert agent.estimates()[1].decisions > 100


@pytest.mark.parametrize("first", [1.0, 2.5, 31.25, 400.0])
@pytest.mark.parametrize("ratio", [1.01, 1.14, 3.0])
def test_the_next_size_is_the_least_listed_one_above(first: float, ratio: float) -> None:
    options = {"first_batch": first, "batch_ratio": ratio}
    policy = bl.policy("dp-imed", arms=2, epsilon=1.0, **options)
    params = policy.constants()
    listed = [math.ceil(first * ratio**j) for j in range(20 if ratio > 2 else 700)]
    for pulls in (0, 1, 2, 7, 31, 399, 400, 456):
        number = size_number(params, pulls)
        assert numbered_size(params, number) == min(s for s in listed if s > pulls)
    last = min(size for size in listed if size >= 1_000)
    assert policy.sizes(1_000) == sorted({size for size in listed if size <= last})
    assert numbered_size(params, size_number(params, 2**53)) == 2**53
