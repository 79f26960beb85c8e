"""Kinds of scenarios that are recorded, each for another kind of mistake."""

from typing import Any, NamedTuple

import numpy as np

from balaclava.auditing.games.compiled_games import GameStart, continue_game
from balaclava.auditing.replay.reward_choices import reward_stream
from balaclava.auditing.scenario import (
    Scenario,
    delayed_events,
    event_arrays,
    plain_scenario,
    scenario_contexts,
)
from balaclava.auditing.state_copies import copy_state
from balaclava.policies.base import Policy, unregistered_part
from balaclava.privacy.randomness import seeded

_DELAY = 8  # rounds by which rewards are late, at most; a guess
_LONG_SCENARIO = 1_000  # rounds of a few scenarios: some faults show late
_LONGEST_RARE_SCENARIO = 400  # rounds of a scenario with rare answers: several releases
_SHORTEST_AHEAD, _LONGEST_AHEAD = 300, 1_500  # rounds that are recorded after a fast-forward
_FAST_FORWARD_CHUNK = 500  # rounds of compiled play between two searches for a release
_CHUNKS_TO_RELEASE = 50  # of compiled play after the wanted round
_FURTHEST_ROUND = 1_000_000  # of compiled play: a few seconds
_NO_PENDING = np.zeros((0, 2), np.int64)


class ScenarioKind(NamedTuple):
    conditions: tuple[str, ...] = ()
    delay: int = 0  # rounds; -1: half as long as the scenario
    cancelled: float = 0.0  # share of decisions
    long: bool = False
    start: int | str = 0  # rounds played before, or "horizon", or "release"
    pending: int = 0  # decisions from long before whose rewards arrive in it
    restored: bool = False
    special: bool = False
    quiet: bool = False  # whether all rewards before it are the smallest
    several_releases: bool = False
    ends: bool = False  # whether the trial is finished


SCENARIO_KINDS = (
    ScenarioKind(),
    ScenarioKind(("late rewards",), delay=_DELAY),
    ScenarioKind(("cancelled decisions", "late rewards"), delay=_DELAY, cancelled=0.2),
    ScenarioKind(("special values",), special=True),
    ScenarioKind(("past the horizon",), start="horizon"),
    ScenarioKind(("after 3,000 rounds", "rewards 3,000 rounds late"), start=3_000, pending=4),
    ScenarioKind(("a thousand rounds",), long=True),
    ScenarioKind(("a restored agent", "late rewards"), delay=_DELAY, restored=True),
    ScenarioKind(("after 30,000 rounds",), start=30_000),
    ScenarioKind(("a finished trial", "late rewards"), delay=_DELAY, cancelled=0.1, ends=True),
    ScenarioKind(("rewards in any order",), delay=-1),
    ScenarioKind(("special values", "cancelled decisions"), cancelled=0.1, delay=3, special=True),
    ScenarioKind(
        ("past the horizon", "cancelled decisions"), start="horizon", cancelled=0.1, delay=_DELAY
    ),
    ScenarioKind(("most decisions cancelled",), cancelled=0.85, several_releases=True),
)
START_KINDS = tuple(kind for kind in SCENARIO_KINDS if not kind.start)  # without a fast-forward
RARE_ANSWER_KINDS = (
    ScenarioKind(("rare answers",), several_releases=True),
    ScenarioKind(("rare answers", "late rewards"), delay=_DELAY, several_releases=True),
    ScenarioKind(
        ("rare answers", "cancelled decisions"), delay=3, cancelled=0.1, several_releases=True
    ),
)
# For the policy itself, if most scenarios are of a variant with shorter phases.
UNSCALED_KINDS = (
    ScenarioKind(("the first release",), start="release"),
    *SCENARIO_KINDS[4:6],
    SCENARIO_KINDS[8],
)


def kind_around(round_: int) -> ScenarioKind:
    """Scenarios that begin shortly before a round."""
    return ScenarioKind((f"around round {round_:,}",), start=max(round_ - 20, 1), quiet=True)


def applies(policy: Policy, kind: ScenarioKind) -> bool:
    """Whether an agent can run a policy through scenarios of a kind."""
    return not (
        start_round(policy, kind) is None
        or (kind.restored and unregistered_part(policy))
        or (kind.ends and policy.estimation is None)  # an agent refuses to finish
    )


def make_scenario(
    policy: Policy,
    kind: ScenarioKind,
    number: int,
    rounds: int,
    limits: tuple[float, float],
    seed: int,
    rng: np.random.Generator,
) -> Scenario | None:
    """A scenario of a kind; None if it does not apply to the policy."""
    target, conditions = start_round(policy, kind), list(kind.conditions)
    if target is None or not applies(policy, kind):
        return None
    length = max(rounds, _LONG_SCENARIO) if kind.long else rounds
    if kind.several_releases:
        length = max(rounds, min(3 * rounds, _LONGEST_RARE_SCENARIO))
    state, first, pending = None, 0, _NO_PENDING
    if kind.start:
        length = max(min(_LONGEST_AHEAD, 4 * rounds), _SHORTEST_AHEAD)
        state, first, pending = fast_forward(policy, kind, target, limits, seed, number)
    delay = length // 2 if kind.delay == -1 else kind.delay
    events = delayed_events(length, delay, kind.cancelled, rng, len(pending))
    rewards = reward_stream(policy, length + len(pending), number, limits, rng, kind.special)
    varies = policy.practice_context is not None and number % 2 == 1
    if varies:
        conditions.append("changing contexts")
    offsets, items = event_arrays(events)
    restored = rng.integers(0, length, 2).tolist() if kind.restored else []
    times = [np.arange(first + 1, first + length + 1), np.arange(1, len(pending) + 1)]
    return Scenario(
        times=np.concatenate(times).astype(int),
        rewards=rewards,
        contexts=scenario_contexts(policy, length, rng if varies else None),
        event_offsets=offsets,
        event_items=items,
        initial_state=state,
        pending=pending,
        restore_rounds=frozenset(restored),
        conditions=tuple(conditions),
        ends=kind.ends,
    )


def start_round(policy: Policy, kind: ScenarioKind) -> int | None:
    """Rounds that are played before the scenario; None if it does not apply."""
    if kind.start == "release":
        return 0
    if kind.start == "horizon":
        if policy.horizon is None or policy.horizon > _FURTHEST_ROUND:
            return None
        return max(policy.horizon - 20, 0)
    return int(kind.start)


def fast_forward(
    policy: Policy,
    kind: ScenarioKind,
    target: int,
    limits: tuple[float, float],
    seed: int,
    number: int,
) -> tuple[Any, int, np.ndarray]:
    """Play compiled rounds up to `target`, and on until just before the next random draw.

    Returns the state, its round, and the arms and phases of the first decisions, whose rewards
    stay pending.
    """
    rng, data = seeded(seed, target), np.random.default_rng([seed, target])
    params = policy.constants()
    state = policy.kernels.begin(params)
    quiet = kind.quiet or number % 2 == 0
    furthest = (
        _FURTHEST_ROUND if kind.start == "release" else _CHUNKS_TO_RELEASE * _FAST_FORWARD_CHUNK
    )
    pending, round_, last = _NO_PENDING, 0, target + furthest
    while round_ < last:
        before, stream_state = copy_state(state), str(rng.bit_generator.state)
        size = min(_FAST_FORWARD_CHUNK, target - round_ if round_ < target else last - round_)
        # With the smallest rewards before, later ones stand out.
        stream = 2 if quiet else round_ // _FAST_FORWARD_CHUNK
        rewards = reward_stream(policy, size, stream, limits, data, False)
        scenario = plain_scenario(policy, rewards, round_)
        if round_ == 0 and kind.pending:
            events = [[] if i < kind.pending else [i + 1] for i in range(size)]
            scenario.event_offsets, scenario.event_items = event_arrays(events)
        start = GameStart.continuing(params, state, scenario)
        continue_game(policy, scenario, scenario.rewards, start, rng)
        if round_ == 0:
            pending = start.decisions.T[: kind.pending].copy()
        if round_ >= target and str(rng.bit_generator.state) != stream_state:
            state = before
            break
        round_ += size
    return state, round_, pending
