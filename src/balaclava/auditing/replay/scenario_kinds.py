"""Where a mistake would hide: which lives are recorded, and which rewards are changed in them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from balaclava.auditing.games.compiled_games import GameStart, play_block
from balaclava.auditing.replay.recorded_run import RecordedRun
from balaclava.auditing.scenario import (
    Neighbour,
    Scenario,
    copy_state,
    delayed_events,
    event_arrays,
    plain_scenario,
    scenario_contexts,
)
from balaclava.policies.base import Policy, unregistered_part
from balaclava.privacy.randomness import seeded

_DELAY = 8  # rounds by which rewards are late in some lives
_FAR = 1_000  # rounds of a few lives: some faults show late
_SEVERAL = 400  # rounds of a life with rare answers, as long as three others
_AHEAD = 1_500  # rounds that are recorded far ahead, at most
_CHUNK = 500  # rounds of compiled play between two looks for a release
_FURTHEST = 1_000_000  # rounds of compiled play
_NO_PROBES = np.zeros(0, np.int64)
LARGEST = 1.7e308
_SPECIAL = (
    0.0, -0.0, 5e-324, 1e-310, 2.0**-1022, 1e-160, 1e-30, 2.0**-20, 1.0, 1e9, 2.0**53, 1e30, 1e154,
    1e300, LARGEST,
)  # fmt: skip


class ScenarioKind(NamedTuple):
    """One kind of life."""

    features: tuple[str, ...] = ()
    delay: int = 0  # -1: half as long as the life
    lost: float = 0.0
    far: bool = False
    start: int | str = 0  # rounds played before, or "horizon", or "release"
    held: int = 0  # rewards from long before that come in it
    restored: bool = False
    special: bool = False
    quiet: bool = False  # what is played before has the least rewards
    several: bool = False  # long enough for several releases


SCENARIO_KINDS = (
    ScenarioKind(),
    ScenarioKind(("late rewards",), delay=_DELAY),
    ScenarioKind(("cancelled decisions", "late rewards"), delay=_DELAY, lost=0.2),
    ScenarioKind(("special values",), special=True),
    ScenarioKind(("past the horizon",), start="horizon"),
    ScenarioKind(("after 3,000 rounds", "rewards 3,000 rounds late"), start=3_000, held=4),
    ScenarioKind(("a thousand rounds",), far=True),
    ScenarioKind(("a restored agent", "late rewards"), delay=_DELAY, restored=True),
    ScenarioKind(("after 30,000 rounds",), start=30_000),
    ScenarioKind(("rewards in any order",), delay=-1),
    ScenarioKind(("special values", "cancelled decisions"), lost=0.1, delay=3, special=True),
    ScenarioKind(
        ("past the horizon", "cancelled decisions"), start="horizon", lost=0.1, delay=_DELAY
    ),
)
START_KINDS = tuple(kind for kind in SCENARIO_KINDS if not kind.start)  # that need no compiled play
RARE_ANSWER_KINDS = (
    ScenarioKind(("rare answers",), several=True),
    ScenarioKind(("rare answers", "late rewards"), delay=_DELAY, several=True),
    ScenarioKind(("rare answers", "cancelled decisions"), delay=3, lost=0.1, several=True),
)
UNSCALED_KINDS = (
    ScenarioKind(("the first release",), start="release"),
    *SCENARIO_KINDS[4:6],
    SCENARIO_KINDS[8],
)


def kind_around(round_: int) -> ScenarioKind:
    """Lives from shortly before a round on."""
    return ScenarioKind((f"around round {round_:,}",), start=max(round_ - 20, 1), quiet=True)


def make_scenario(
    policy: Policy,
    kind: ScenarioKind,
    number: int,
    rounds: int,
    limits: tuple[float, float],
    seed: int,
    rng: np.random.Generator,
) -> Scenario | None:
    """A life of that kind; None where the policy has no such thing."""
    target, features = start_round(policy, kind), list(kind.features)
    if target is None or (kind.restored and unregistered_part(policy)):
        return None
    length = max(rounds, _FAR) if kind.far else rounds
    if kind.several:
        length = max(rounds, min(3 * rounds, _SEVERAL))
    state, first, held = None, 0, np.zeros((0, 2), np.int64)
    held_times: list[int] = []
    if kind.start:
        length = max(min(_AHEAD, 4 * rounds), 300)
        most = _FURTHEST if kind.start == "release" else 50 * _CHUNK
        state, first, held, held_times = fast_forward(
            policy, target, kind.held, most, limits, seed, kind.quiet or number % 2 == 0
        )
    delay = length // 2 if kind.delay == -1 else kind.delay
    events = delayed_events(length, delay, kind.lost, rng, len(held))
    rewards = reward_stream(policy, length + len(held), number, limits, rng, kind.special)
    varies = policy.practice_context is not None and number % 2 == 1
    if varies:
        features.append("changing contexts")
    offsets, items = event_arrays(events)
    restored = rng.integers(0, length, 2).tolist() if kind.restored else []
    return Scenario(
        times=np.concatenate([np.arange(first + 1, first + length + 1), held_times]).astype(int),
        rewards=rewards,
        contexts=scenario_contexts(policy, length, rng if varies else None),
        offsets=offsets,
        items=items,
        start=state,
        held=held,
        restored=frozenset(restored),
        features=tuple(features),
    )


def start_round(policy: Policy, kind: ScenarioKind) -> int | None:
    """How many rounds are played before the life; None where it cannot be."""
    if kind.start == "release":
        return 0
    if kind.start == "horizon":
        horizon = policy.horizon
        if horizon is None or horizon > _FURTHEST:
            return None
        return max(horizon - 20, 0)
    return int(kind.start)


def fast_forward(
    policy: Policy,
    target: int,
    hold: int,
    most: int,
    limits: tuple[float, float],
    seed: int,
    quiet: bool,
) -> tuple[Any, int, np.ndarray, list[int]]:
    """Compiled play: the state after `target` rounds or later, just before something is drawn.

    Also the round it stands at, and the first decisions, whose rewards are held back: their arms
    and phases, and their rounds. Where every round draws something, it stands at `target`.
    """
    rng, data = seeded(seed, target), np.random.default_rng([seed, target])
    params = policy.constants()
    state = policy.kernels.begin(params)
    held, round_, last = np.zeros((0, 2), np.int64), 0, target + most
    while round_ < last:
        before, tape = copy_state(state), str(rng.bit_generator.state)
        size = min(_CHUNK, target - round_ if round_ < target else last - round_)
        number = 2 if quiet else round_ // _CHUNK  # all least: nothing drowns what comes later
        table = reward_stream(policy, size, number, limits, data, False)
        life = plain_scenario(policy, table, round_)
        if round_ == 0 and hold:
            events = [[] if i < hold else [i + 1] for i in range(size)]
            life.offsets, life.items = event_arrays(events)
        start = GameStart.going_on(params, state, life)
        play_block(policy, life, life.rewards, 1, 1, _NO_PROBES, None, start, rng)
        if round_ == 0:
            held = start.decisions.T[:hold].copy()
        if round_ >= target and str(rng.bit_generator.state) != tape:
            state = before
            break
        round_ += size
    return state, round_, held, list(range(1, len(held) + 1))


def reward_stream(
    policy: Policy,
    rounds: int,
    number: int,
    limits: tuple[float, float],
    rng: np.random.Generator,
    special: bool,
) -> np.ndarray:
    """Rewards[round, arm]: fair coins, all least, all largest, clear winners, anything."""
    low, high = limits
    shape = (rounds, policy.arms)
    if special:
        values = special_values(policy)
        return np.asarray(rng.choice(values, shape), float)
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
    """Ends, middle, denormals, steps of the grid and between them, near overflow."""
    low, high = policy.accepts
    if policy.rewards == "loss" and not math.isfinite(high - low):
        low, high = 0.0, 1.0
    if math.isfinite(high - low):
        width = high - low
        shares = [0.0, 1.0, 0.5, 0.25, 1 / 3, 0.1, 2.0**-20, 2.5 * 2.0**-20, 2.0**-21, 0.75]
        values = [low + width * share for share in shares]
        values += [math.nextafter(low, high), math.nextafter(high, low), low + 5e-324]
        return [min(max(value, low), high) for value in values]
    return [sign * value for value in _SPECIAL for sign in (1.0, -1.0)]


def reward_limits(policy: Policy) -> tuple[float, float]:
    """The most extreme rewards to try."""
    low, high = policy.accepts
    if math.isfinite(low) and math.isfinite(high):
        return low, high
    if policy.rewards == "loss":  # larger ones it may leave out, and then show nothing
        return 0.0, 1.0
    bound, order = policy.moment_bound, policy.moment_order
    if bound is not None and order is not None:  # the size of rewards: most survive truncation
        size = float(bound ** (1.0 / order))
        return -size, size
    return -1e3, 1e3


def about_truncation(widths: list[float], rng: np.random.Generator) -> tuple[float, float]:
    """Rewards as large as a policy lets count, judged by the sensitivities that it asked for.

    Rewards truncated at B ask for 2 B, so that half of that is the largest one to count. If a
    policy asked for too little, larger ones count as well, and show it.
    """
    share = rng.uniform(0.4, 0.5) if rng.random() < 0.5 else 0.5 + 0.5 * rng.random() ** 3
    size = float(rng.choice(widths) * share)
    return -size, size


def choose_neighbours(
    policy: Policy,
    game: RecordedRun,
    wanted: int,
    limits: tuple[float, float],
    rng: np.random.Generator,
) -> list[Neighbour]:
    """Slots at every phase boundary and at random, among those whose rewards are told."""
    life = game.life
    slots_told = sorted({item - 1 for item in life.items.tolist() if item > 0})
    if not slots_told:
        return []
    rounds, phases = life.rounds, [phase for _, phase in game.decisions]
    edges = {0, rounds - 1, *range(rounds, len(life.times))}
    for i in range(1, rounds):
        if phases[i] != phases[i - 1] or i in game.releases:
            edges |= {i - 1, i, min(i + 1, rounds - 1)}
    slots = sorted(edges & set(slots_told))
    if len(slots) > wanted // 2:
        slots = sorted(rng.choice(slots, wanted // 2, replace=False).tolist())
    slots += rng.choice(slots_told, max(wanted - len(slots), 0)).tolist()
    neighbours = [Neighbour(int(slot), other_reward(policy, game, slot, limits, rng))
                  for slot in slots]  # fmt: skip
    return sorted(neighbours)


def other_streams(
    policy: Policy, game: RecordedRun, limits: tuple[float, float], rng: np.random.Generator
) -> list[np.ndarray]:
    """Streams that differ in every reward: turned over, drawn anew, special, about a middle."""
    (low, high), rewards = limits, game.life.rewards
    with np.errstate(over="ignore"):
        turned = np.clip(low + high - rewards, low, high)
    coins = np.where(rng.random(rewards.shape) < rng.random(), low, high)
    special = rng.choice(special_values(policy), rewards.shape)
    mixed = np.where(rng.random(rewards.shape) < 0.1, turned, rewards)
    first = np.arange(policy.arms) == rng.integers(policy.arms)  # one arm against the others
    best, worst = np.where(first, high, low), np.where(first, low, high)
    clear = [np.tile(row, (len(rewards), 1)).astype(float) for row in (best, worst)]
    return [turned, coins, np.asarray(special, float), mixed, *clear]


def other_reward(
    policy: Policy,
    game: RecordedRun,
    slot: int,
    limits: tuple[float, float],
    rng: np.random.Generator,
) -> float:
    """The far end mostly; else the middle, a value that occurred, a special one, or any."""
    low, high = limits
    arm, _ = game.decisions[slot]
    now, luck = game.life.rewards[slot, arm], rng.random()
    if luck < 0.55:
        return float(high if now < (low + high) / 2 else low)
    if luck < 0.65:
        return (low + high) / 2
    if luck < 0.75:
        return float(rng.choice(game.life.rewards.ravel()))
    if luck < 0.88:
        return float(rng.choice(special_values(policy)))
    return float(low + (high - low) * rng.random())
