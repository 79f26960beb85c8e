"""Truncation, located means, experts, reports, batches: what breaks their claims is caught."""

from __future__ import annotations

import itertools
import json
import math
import random

import numpy as np
import pytest

import balaclava as bl
from balaclava.auditing.audit_plan import plan_games
from balaclava.auditing.replay.composed_loss import compose
from balaclava.auditing.replay.replay_audit import audit_by_replay
from balaclava.auditing.tape import Recorder, Replayer
from balaclava.errors import ParameterError
from balaclava.policies.base import POLICIES
from balaclava.privacy.device_report import truncated_report
from balaclava.testing.conformance import round_of
from balaclava.testing.examples import examples
from tests.effort import but_slow, looks
from tests.oracles.violators_tails import HONEST, VIOLATORS


def replayed(policy, pairs=1_000):
    rounds = plan_games(policy).rounds
    return audit_by_replay(policy, policy.guarantee, rounds=rounds, pairs=pairs, seed=1)


@pytest.mark.parametrize("name", VIOLATORS)
def test_the_replay_catches_it(name):
    found = replayed(VIOLATORS[name])
    assert found.verdict in ("unproved", "violated"), str(found)


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_one_passes_where_rewards_are_as_large_as_the_level(name):
    found = replayed(HONEST[name])
    assert (found.verdict, found.fault) == ("consistent", "")
    assert 0.9 < found.epsilon <= 1.0


@pytest.mark.parametrize("pairs", looks(250, 1_000))
def test_no_distance_is_too_small_to_count(pairs):
    """Sensitivities far below 1 are measured in their own units."""
    policy = bl.policy(
        "dpr-batch-ucb", arms=2, epsilon=1.0, horizon=600, moment_order=2, moment_bound=1e-60,
        first_batch=8, radius_scale=0.1,
    )  # fmt: skip
    found = replayed(policy, pairs)
    assert (found.verdict, found.moved > pairs // 10) == ("consistent", True)


@pytest.mark.parametrize("bound", but_slow([1e-150, 1e150], 1e150))
@pytest.mark.parametrize("pairs", looks(250, 1_000))
def test_reports_are_tried_at_no_level_that_a_device_refuses(bound, pairs):
    policy = bl.policy(
        "ldpr-batch-ucb", arms=2, epsilon=1.0, horizon=600, moment_order=1.9, moment_bound=bound,
        first_batch=8, radius_scale=0.1,
    )  # fmt: skip
    assert replayed(policy, pairs).verdict == "consistent"


# An agent to which rewards come late, in any order or never, and which is saved now and then

LIVE = ("dpr-batch-ucb", "dpr-se", "prae-raw", "prae-central", "privatised", "dp-htinf-experts")


def lived(policy, script, rng, rewards, rounds):
    """The decisions of an agent whose life is the script's, and whose answers are rng's."""
    agent = policy.agent()
    agent._runner.rng = rng
    chance, advice = random.Random(script), np.random.default_rng(script)
    decisions, waiting = [], []
    for _ in range(rounds):
        context = None
        if policy.practice_context is not None:
            context = advice.dirichlet(np.full(policy.arms, 0.3), size=policy.experts)
        decisions.append(agent.ask(context))
        waiting.append(decisions[-1])
        while waiting and chance.random() < 0.55 + 0.03 * len(waiting):
            decision = waiting.pop(chance.randrange(len(waiting)))
            if chance.random() < 0.15:
                agent.cancel(decision)
            else:
                agent.tell(decision, rewards[round_of(decision) - 1])
            if chance.random() < 0.02:
                agent = bl.restore(json.loads(json.dumps(agent.save())))
                agent._runner.rng = rng
    return [decision[1:] for decision in decisions]  # ids are random


@pytest.mark.parametrize("name", [*LIVE, "dp-exp4"])
def test_a_reward_costs_epsilon_once_whatever_becomes_of_the_others(name):
    policy = examples(POLICIES.classes()[name])[0]
    if name == "dp-exp4":  # with room for so few notes that some are pushed out
        policy = type(policy).create({**policy.parameters, "outstanding": 2})
    low, high = policy.accepts if math.isfinite(policy.accepts[0]) else (-4.0, 4.0)
    moved = 0
    for script in range(3):
        chance, tape = random.Random(script), Recorder(script)
        rewards = [chance.uniform(low, high) for _ in range(260)]
        told = lived(policy, script, tape, rewards, 260)
        for _ in range(12):
            place = chance.randrange(260)
            other = [*rewards[:place], chance.uniform(low, high), *rewards[place + 1 :]]
            player = Replayer(tape.tape, 0)
            assert lived(policy, script, player, other, 260) == told
            assert player.position == len(tape.tape)
            assert compose(player.moves, policy.guarantee).within(policy.guarantee)
            moved += bool(player.moves)
    assert moved > 0


# Levels that a server may send


@pytest.mark.parametrize(
    "level",
    [math.nan, math.inf, 0.0, -37.25, 1e-300, 1e300, 10**5000, True, "37.25", None],
    ids=lambda level: type(level).__name__,
)
def test_a_level_that_no_report_can_keep_is_refused_and_not_repeated(level):
    policy = bl.policy(
        "ldpr-se", arms=2, epsilon=1.0, horizon=100, moment_order=2, moment_bound=1.0
    )
    for report in (
        lambda: truncated_report(1.0, level=level, epsilon=1.0),
        lambda: policy.report(1.0, level) if level is not None else policy.report(1.0),
    ):
        with pytest.raises(ParameterError, match="level") as refused:
            report()
        assert "37.25" not in str(refused.value)  # it may be a reward, given in the wrong place


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int64, int, np.longdouble])
def test_a_level_of_any_kind_of_number_is_that_number(kind):
    """Doubling a short float would overflow. 400 draws of scale 1e5: chance of a mean beyond a
    half of the scale's 1 is below 1e-20.
    """
    reports = [truncated_report(1.0, level=kind(50_000), epsilon=1.0) for _ in range(400)]
    assert 0.5 < np.abs(reports).mean() / 1e5 < 1.5


# Names of files


def test_rewards_cannot_be_tried_out_on_the_keys_of_a_sweep():
    """A quick digest of eight clicks gives them away; one that costs memory and time is in use."""
    import hashlib

    from balaclava._core.cache import value_bytes
    from balaclava.environments.empirical import World
    from balaclava.experiments import sweep

    clicks = [0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0]
    world = bl.environment("empirical", samples=[clicks, [0.0, 1.0]])
    used = sweep._values(world)

    def quick(guess):
        digest = hashlib.sha256()
        for part in value_bytes(World(np.array([*guess, 0.0, 1.0]), np.array([0, 8, 10]))):
            digest.update(part)
        return digest.digest()

    assert used not in map(quick, itertools.product((0.0, 1.0), repeat=8))
    sweep._slowly.cache_clear()
    assert used == sweep._slowly(quick(clicks))  # and it is still theirs
    assert used == sweep._values(bl.environment("empirical", samples=[clicks, [0.0, 1.0]]))
    other = bl.environment("empirical", samples=[clicks[::-1], [0.0, 1.0]])
    assert used != sweep._values(other)
