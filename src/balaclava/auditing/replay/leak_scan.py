"""Long compiled runs at a tiny epsilon, to find rewards that bypass the mechanisms.

With an epsilon (and a delta) of 1e-60 the noise is so large that a float keeps nothing of the
input. Two reward streams on one random stream then get the same answers, to the last bit. If
rewards enter only through mechanisms, they get the same decisions. This needs compiled play but no
replay, so it reaches rounds that a recorded run does not. A round in which decisions differ is not
a proof (a hand-written exponential mechanism differs too): it is where to record.
"""

import time

import numpy as np

from balaclava.auditing.games.compiled_games import GameStart, continue_game
from balaclava.auditing.replay.reward_choices import reward_limits, reward_stream
from balaclava.auditing.scenario import Scenario, delayed_events, event_arrays, scenario_contexts
from balaclava.errors import BalaclavaError
from balaclava.policies.base import Policy
from balaclava.privacy.randomness import seeded

_BLIND_EPSILON = 1e-60  # also the delta: noise of scale 1e60 leaves no bit of a reward
_SCAN_ROUNDS = 200_000  # for each pair of streams
_SCAN_CHUNK = 4_000  # rounds between two comparisons
# Kinds of `reward_stream`: pairs that differ in most rewards.
_STREAM_KINDS = ((2, 3), (4, 0), (3, 6))
_CANCELLED_SHARES = (0.0, 0.1, 0.0)  # of decisions; above 0, rewards are late too
_SCAN_DELAY = 8  # rounds


def scan_for_leaks(policy: Policy, seed: int, seconds: float) -> list[int]:
    """The first rounds in which rewards bypass the mechanisms, one for each pair of streams.

    Each pair is played for 200,000 rounds, or for its share of the seconds of processor time.
    """
    if "epsilon" not in policy.annotations:
        return []
    rounds = set()
    try:
        names: list[str] = [name for name in ("epsilon", "delta") if name in policy.annotations]
        blind = type(policy).create({**policy.parameters, **dict.fromkeys(names, _BLIND_EPSILON)})
        for number in range(len(_STREAM_KINDS)):
            until = time.thread_time() + seconds / len(_STREAM_KINDS)
            rounds.add(first_difference(blind, number, seed, until))
    except (BalaclavaError, ArithmeticError, ValueError):
        pass  # the policy does not accept such an epsilon
    return sorted(rounds - {0})


def first_difference(policy: Policy, number: int, seed: int, until: float) -> int:
    """The first round in which two streams decide differently; 0 if there is none in time."""
    params = policy.constants()
    states = [policy.kernels.begin(params) for _ in range(2)]
    rngs = [seeded(seed, number) for _ in range(2)]
    data, limits = np.random.default_rng([seed, number]), reward_limits(policy)
    contexts = scenario_contexts(policy, _SCAN_CHUNK, data)
    cancelled = _CANCELLED_SHARES[number]
    delay = _SCAN_DELAY if cancelled else 0
    offsets, items = event_arrays(delayed_events(_SCAN_CHUNK, delay, cancelled, data))
    for first in range(0, _SCAN_ROUNDS, _SCAN_CHUNK):
        decisions = []
        for state, rng, kind in zip(states, rngs, _STREAM_KINDS[number], strict=True):
            rewards = reward_stream(policy, _SCAN_CHUNK, kind, limits, data, False)
            times = np.arange(first + 1, first + _SCAN_CHUNK + 1)
            scenario = Scenario(times, rewards, contexts, offsets, items)
            start = GameStart.continuing(params, state, scenario)
            continue_game(policy, scenario, rewards, start, rng)
            decisions.append(start.decisions)
        differs = (decisions[0] != decisions[1]).any(axis=0)
        if differs.any():
            return first + 1 + int(differs.argmax())
        if time.thread_time() > until:
            break
    return 0
