"""Rewards for recorded runs: streams, values at the limits of arithmetic, neighbouring rewards."""

import math
from collections.abc import Callable

import numpy as np

from balaclava.auditing.rare_answers import code_numbers
from balaclava.auditing.replay.recorded_run import RecordedRun
from balaclava.auditing.scenario import Neighbour, agent_accepts
from balaclava.policies.base import Policy

# Tried with both signs: 0, denormals, grid steps, integers, values whose square or sum overflows.
_SPECIAL_REWARDS = (
    0.0, -0.0, 5e-324, 1e-310, 2.0**-1022, 1e-160, 1e-30, 2.0**-20, 1.0, 1e9, 2.0**53, 1e30, 1e154,
    1e300, 1.7e308,
)  # fmt: skip
_BEYOND = (1e-3, 0.5, 1.0, 1e3, 1e9, 1e100)  # widths of the range, by which rewards exceed it
_LONELY_ROUNDS = 11  # about a decision; it is lonely if most of them are cancelled; a guess
_REAL_REWARD = 1e3  # the largest reward to try for policies without a moment bound; a guess


def reward_stream(
    policy: Policy,
    rounds: int,
    number: int,
    limits: tuple[float, float],
    rng: np.random.Generator,
    special: bool,
) -> np.ndarray:
    """rewards[round, arm] between the limits, of kind `number`, or only special values."""
    low, high = limits
    shape = (rounds, policy.arms)
    if special:
        return np.asarray(rng.choice(special_values(policy), shape), float)
    kinds: list[Callable[[], np.ndarray]] = [
        lambda: rng.integers(0, 2, shape).astype(float),
        lambda: rng.random(shape),
        lambda: np.zeros(shape),
        lambda: np.ones(shape),
        lambda: (rng.random(shape) < np.linspace(0.05, 0.95, policy.arms)) * 1.0,
        lambda: np.tile(rng.random(policy.arms), (rounds, 1)),
        lambda: (rng.random(shape) < rng.random(policy.arms)) * 1.0,
        lambda: np.full(shape, 0.5),
        lambda: rng.integers(0, 5, shape) / 4.0,
    ]
    stream: np.ndarray = low + (high - low) * kinds[number % len(kinds)]()
    return stream


def special_values(policy: Policy) -> list[float]:
    """Ends, middle, numbers in the code, denormals, grid steps, values near overflow.

    Values outside the range are among them if an agent accepts them.
    """
    low, high = policy.accepts
    if policy.rewards == "loss" and not math.isfinite(high - low):
        low, high = 0.0, 1.0
    if math.isfinite(high - low):
        width = high - low
        shares = [0.0, 1.0, 0.5, 0.25, 1 / 3, 0.1, 2.0**-20, 2.5 * 2.0**-20, 2.0**-21, 0.75]
        values = [low + width * share for share in shares]
        values += [math.nextafter(low, high), math.nextafter(high, low), low + 5e-324]
        values += [number for number in code_numbers(policy) if low < number < high]
        beyond = [end for far in _BEYOND for end in (low - far * width, high + far * width)]
        inside = [min(max(value, low), high) for value in values]
        return inside + [value for value in beyond if agent_accepts(policy, value)]
    return [sign * value for value in _SPECIAL_REWARDS for sign in (1.0, -1.0)]


def reward_limits(policy: Policy) -> tuple[float, float]:
    """The smallest and the largest reward to try."""
    low, high = policy.accepts
    if math.isfinite(low) and math.isfinite(high):
        return low, high
    if policy.rewards == "loss":  # a policy may drop larger ones
        return 0.0, 1.0
    bound, order = policy.moment_bound, policy.moment_order
    if bound is not None and order is not None:  # most rewards of this size pass truncation
        size = float(bound ** (1.0 / order))
        return -size, size
    return -_REAL_REWARD, _REAL_REWARD


def limits_near_truncation(
    sensitivities: list[float], rng: np.random.Generator
) -> tuple[float, float]:
    """Rewards about as large as truncation allows, from the sensitivities of earlier runs.

    Rewards truncated at B have a sensitivity of 2 B, so half of it is the largest reward that
    counts. If a policy's sensitivity is too small, larger rewards also count and reveal it.
    """
    share = rng.uniform(0.4, 0.5) if rng.random() < 0.5 else 0.5 + 0.5 * rng.random() ** 3
    size = float(rng.choice(sensitivities) * share)
    return -size, size


def choose_neighbours(
    policy: Policy,
    run: RecordedRun,
    wanted: int,
    limits: tuple[float, float],
    rng: np.random.Generator,
) -> list[Neighbour]:
    """Neighbours at phase boundaries and at random, among slots whose rewards are told."""
    scenario = run.scenario
    slots_told = sorted({item - 1 for item in scenario.event_items.tolist() if item > 0})
    if not slots_told:
        return []
    rounds, phases = scenario.rounds, [phase for _, phase in run.decisions]
    edges = {0, rounds - 1, *range(rounds, len(scenario.times))}
    for i in range(1, rounds):
        if phases[i] != phases[i - 1] or i in run.release_rounds:
            edges |= {i - 1, i, min(i + 1, rounds - 1)}
    slots = sorted(edges & set(slots_told))
    if len(slots) > wanted // 2:
        slots = sorted(rng.choice(slots, wanted // 2, replace=False).tolist())
    slots += lonely_slots(run, slots_told)[: wanted // 4]
    slots += rng.choice(slots_told, max(wanted - len(slots), 0)).tolist()
    neighbours = [
        Neighbour(int(slot), neighbouring_reward(policy, run, slot, limits, rng)) for slot in slots
    ]
    return sorted(neighbours)


def latest_neighbour(policy: Policy, run: RecordedRun) -> Neighbour | None:
    """The reward that comes the longest after its decision, changed; None if all are prompt."""
    scenario, (low, high), waits = run.scenario, reward_limits(policy), dict[int, int]()
    for i in range(scenario.rounds):
        for item in scenario.events(i):
            if item > 0:
                waits[item - 1] = int(scenario.times[i] - scenario.times[item - 1])
    if not waits or max(waits.values()) == 0:
        return None
    slot = max(waits, key=lambda each: waits[each])
    now = scenario.rewards[slot, run.decisions[slot][0]]
    return Neighbour(slot, high if now < (low + high) / 2 else low)


def lonely_slots(run: RecordedRun, slots_told: list[int]) -> list[int]:
    """Slots about which most decisions were cancelled, the loneliest first."""
    rounds, arrivals = run.scenario.rounds, np.zeros(run.scenario.rounds)
    arrivals[[slot for slot in slots_told if slot < rounds]] = 1.0
    if arrivals.all():
        return []
    near = np.convolve(arrivals, np.ones(_LONELY_ROUNDS))[_LONELY_ROUNDS // 2 :][:rounds]
    lonely = np.flatnonzero((arrivals > 0.0) & (near <= _LONELY_ROUNDS / 3))
    ranked: list[int] = lonely[np.argsort(near[lonely], kind="stable")].tolist()
    return ranked


def neighbouring_reward(
    policy: Policy,
    run: RecordedRun,
    slot: int,
    limits: tuple[float, float],
    rng: np.random.Generator,
) -> float:
    """Mostly the far end; else the middle, a value that occurred, a special or random one."""
    low, high = limits
    arm, _ = run.decisions[slot]
    now, luck = run.scenario.rewards[slot, arm], rng.random()
    if luck < 0.55:
        return float(high if now < (low + high) / 2 else low)
    if luck < 0.65:
        return (low + high) / 2
    if luck < 0.75:
        return float(rng.choice(run.scenario.rewards.ravel()))
    if luck < 0.88:
        return float(rng.choice(special_values(policy)))
    return float(low + (high - low) * rng.random())


def different_streams(
    policy: Policy, run: RecordedRun, limits: tuple[float, float], rng: np.random.Generator
) -> list[np.ndarray]:
    """Streams with many rewards changed: mirrored, random, special, one arm against the others."""
    (low, high), rewards = limits, run.scenario.rewards
    with np.errstate(over="ignore"):
        mirrored = np.clip(low + high - rewards, low, high)
    coins = np.where(rng.random(rewards.shape) < rng.random(), low, high)
    special = rng.choice(special_values(policy), rewards.shape)
    mixed = np.where(rng.random(rewards.shape) < 0.1, mirrored, rewards)
    one = np.arange(policy.arms) == rng.integers(policy.arms)
    best, worst = np.where(one, high, low), np.where(one, low, high)
    clear = [np.tile(row, (len(rewards), 1)).astype(float) for row in (best, worst)]
    return [mirrored, coins, np.asarray(special, float), mixed, *clear]
