"""Long compiled runs in which no mechanism tells anything: whatever shows there goes around them.

With an epsilon (and a delta) of 1e-60 the noise is so large that a float holds nothing of what was
released. Two reward streams on one random stream then get the same answers, to the last bit, and
where every dependence on rewards goes through a mechanism they get the same decisions. This takes
compiled play of the policy's own kernels and no replay, so that it reaches rounds that no recorded
life does. A round in which decisions differ proves nothing (the exponential mechanism, drawn by
hand, differs too): it says where a life is worth recording.
"""

from __future__ import annotations

import time

import numpy as np

from balaclava.auditing.games.compiled_games import GameStart, play_block
from balaclava.auditing.replay.scenario_kinds import reward_limits, reward_stream
from balaclava.auditing.scenario import Scenario, delayed_events, event_arrays, scenario_contexts
from balaclava.errors import BalaclavaError
from balaclava.policies.base import Policy
from balaclava.privacy.randomness import seeded

_DEAF = 1e-60  # an epsilon, and a delta where there is one
_ROUNDS = 200_000
_CHUNK = 4_000
_STREAMS = ((2, 3), (4, 0), (3, 6))  # kinds of `reward_stream`: two that differ in most rewards
_LOST = (0.0, 0.1, 0.0)  # decisions that are given up; with some, rewards are late too
_NO_PROBES = np.zeros(0, np.int64)


def scan_for_leaks(policy: Policy, seed: int, seconds: float) -> list[int]:
    """The first rounds that rewards reach around the mechanisms, one for each pair of streams.

    Each pair is played for 200,000 rounds, or for its share of the seconds of processor time.
    """
    if "epsilon" not in policy.annotations:
        return []
    rounds = set()
    try:
        names: list[str] = [name for name in ("epsilon", "delta") if name in policy.annotations]
        deaf = type(policy).create({**policy.parameters, **dict.fromkeys(names, _DEAF)})
        for number in range(len(_STREAMS)):
            until = time.thread_time() + seconds / len(_STREAMS)
            rounds.add(first_difference(deaf, number, seed, until))
    except (BalaclavaError, ArithmeticError, ValueError):
        pass  # it cannot be played with such an epsilon
    return sorted(rounds - {0})


def first_difference(policy: Policy, number: int, seed: int, until: float) -> int:
    """The first round that two streams decide differently; 0 if there was none in time."""
    params = policy.constants()
    states = [policy.kernels.begin(params) for _ in range(2)]
    rngs = [seeded(seed, number) for _ in range(2)]
    data, limits = np.random.default_rng([seed, number]), reward_limits(policy)
    contexts = scenario_contexts(policy, _CHUNK, data)
    delay = 8 if _LOST[number] else 0
    offsets, items = event_arrays(delayed_events(_CHUNK, delay, _LOST[number], data))
    for first in range(0, _ROUNDS, _CHUNK):
        decisions = []
        for state, rng, kind in zip(states, rngs, _STREAMS[number], strict=True):
            rewards = reward_stream(policy, _CHUNK, kind, limits, data, False)
            times = np.arange(first + 1, first + _CHUNK + 1)
            life = Scenario(times, rewards, contexts, offsets, items)
            start = GameStart.going_on(params, state, life)
            play_block(policy, life, rewards, 1, 1, _NO_PROBES, None, start, rng)
            decisions.append(start.decisions)
        differs = (decisions[0] != decisions[1]).any(axis=0)
        if differs.any():
            return first + 1 + int(differs.argmax())
        if time.thread_time() > until:
            break
    return 0
