"""Simulations whose arms come and leave: the same as agents, and what is refused."""

import contextlib

import numpy as np
import pytest

import balaclava as bl
from balaclava.errors import DecisionError, IncompatibleError, ParameterError
from balaclava.frames import arm_slots
from balaclava.policies.base import POLICIES
from balaclava.privacy.randomness import seeded
from balaclava.simulation.engine import (
    DELAY_STREAM,
    ENVIRONMENT_STREAM,
    POLICY_STREAM,
    repetition_player,
)
from balaclava.simulation.feedback import Feedback
from balaclava.simulation.reward_delays import LOST, draw_delay
from balaclava.testing.examples import examples

MEANS = [0.5, 0.3, 0.7, 0.4]
OFFERS = [(1, [0, 1]), (151, [0, 1, 2]), (301, [0, 2]), (401, [0, 2, 3])]
HORIZON = 600


def world_of(offers=OFFERS, means=MEANS):
    return bl.environment(
        "offered-arms", inner={"name": "bernoulli", "means": means}, offers=offers
    )


def played_by_agent(policy, seed):
    """Pulls of an agent whose user follows OFFERS, with the streams of a repetition."""
    agent = policy.agent(seed=1)
    agent._runner.rng = seeded(seed, 0, POLICY_STREAM)
    luck, pulls = seeded(seed, 0, ENVIRONMENT_STREAM), np.zeros(4, int)
    for t in range(1, HORIZON + 1):
        if t == 151:
            agent.add_arm("2")
        if t == 301:
            agent.retire_arm(1)
        if t == 401:
            agent._runner.roster.open[1] = 1  # its slot stays, as in the simulation
            agent.add_arm("3")
        decision = agent.ask()
        pulls[decision.arm] += 1
        agent.tell(decision, float(luck.random() < MEANS[decision.arm]))
    return pulls


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("dp-imed", {"epsilon": 2.0}),
        ("dp-imed", {"epsilon": 2.0, "memory": "detect"}),
        ("dp-imed", {"epsilon": 2.0, "memory": 200, "first_batch": 5}),
        ("dp-klucb", {"epsilon": 2.0, "explore": 0.2}),
        ("dp-top-two", {"epsilon": 2.0}),
        ("lazy-dp-ts", {"epsilon": 2.0}),
        ("dp-ucb", {"epsilon": 2.0}),
        ("kl-ucb", {}),
    ],
)
def test_a_simulation_makes_the_decisions_of_an_agent(name, more):
    for seed in (3, 4):
        play = repetition_player(
            name, bl.policy(name, arms=4, **more), world_of(), np.array([HORIZON]), seed,
            interpreted=True,
        )  # fmt: skip
        simulated = play(0, np.zeros(2, np.int64))
        pulls = played_by_agent(bl.policy(name, arms=2, **more), seed)
        assert simulated.pulls.tolist() == pulls.tolist()


GROWING = [(1, [0, 1]), (151, [0, 1, 2]), (401, [0, 1, 2, 3])]
LATE = {
    "fixed": {"delay": bl.Delay(mean=7, law="fixed")},
    "varied": {"delay": bl.Delay(mean=30, law="uniform")},
    "lost": {"delay": bl.Delay(mean=9, law="fixed", lost=0.2), "patience": 20},
    "window": {"settle": "window", "patience": 12, "missing": 0.5},
    "window, lost": {
        **{"settle": "window", "patience": 12, "missing": 0.5},
        "delay": bl.Delay(mean=9, law="uniform", lost=0.1),
    },
}


def played_late_by_agent(policy, offers, seed, delay=None, **how):
    """As `played_by_agent`: rewards are told after the decision of their round."""
    agent = policy.agent(seed=1, **how)
    agent._runner.rng = seeded(seed, 0, POLICY_STREAM)
    luck, late = (seeded(seed, 0, stream) for stream in (ENVIRONMENT_STREAM, DELAY_STREAM))
    law = None if delay is None else delay.constants()
    due, pulls, on_offer = {}, np.zeros(4, int), set(offers[0][1])
    for t in range(1, HORIZON + 1):
        for start, arms in offers[1:]:
            if start == t:
                for arm in on_offer.difference(arms):
                    agent.retire_arm(arm)
                for arm in set(arms).difference(on_offer):
                    assert agent.add_arm(str(arm)) == arm
                on_offer = set(arms)
        decision = agent.ask()
        pulls[decision.arm] += 1
        reward = float(luck.random() < MEANS[decision.arm])
        wait = 0 if law is None else draw_delay(law, late)
        if wait != LOST:
            due.setdefault(t + wait, []).append((decision, reward))
        for each, value in due.pop(t, []):
            with contextlib.suppress(DecisionError):  # its time is over
                agent.tell(each, value)
    return pulls


@pytest.mark.parametrize("how", LATE)
@pytest.mark.parametrize(
    ("name", "more", "offers"),
    [
        ("dp-imed", {"epsilon": 5.0, "first_batch": 5}, GROWING),
        ("dp-imed", {"epsilon": 5.0, "memory": 160, "first_batch": 5}, GROWING),
        ("dp-top-two", {"epsilon": 5.0}, GROWING),
        ("kl-ucb", {}, OFFERS),  # without noise: an agent draws it for arms that left, too
    ],
)
def test_late_rewards_are_learned_as_by_an_agent(name, more, offers, how):
    feedback = Feedback.create(**LATE[how])
    play = repetition_player(
        name, bl.policy(name, arms=4, **more), world_of(offers), np.array([HORIZON]), 3, feedback,
        interpreted=True,
    )  # fmt: skip
    simulated = play(0, np.zeros(2, np.int64))
    pulls = played_late_by_agent(bl.policy(name, arms=2, **more), offers, 3, **LATE[how])
    assert simulated.pulls.tolist() == pulls.tolist()


def test_late_rewards_compiled_and_interpreted_are_equal():
    policy, rounds = bl.policy("dp-imed", arms=4, epsilon=5.0), np.array([150, 301, HORIZON])
    feedback = Feedback.create(delay=bl.Delay(mean=20, lost=0.1))
    runs = [
        repetition_player("it", policy, world_of(), rounds, 5, feedback, interpreted=how)(
            0, np.zeros(2, np.int64)
        )
        for how in (True, False)
    ]
    assert runs[0].pulls.tolist() == runs[1].pulls.tolist()
    assert runs[0].regret == pytest.approx(runs[1].regret)


def test_an_arm_that_leaves_does_not_hold_up_the_order_of_the_others():
    """Its unsettled batch is first in the queue; the settled one after it counts at once."""
    policy = bl.policy("dp-imed", arms=3, epsilon=5.0, first_batch=2)
    params, begin = policy.constants(), policy.kernels.begin
    state, rng = begin(params), seeded(1)
    made = [policy.kernels.choose(params, state, t, None, rng) for t in range(1, 7)]
    first = made[0][0]
    for t, (arm, phase) in enumerate(made, 1):
        if arm != first:
            policy.kernels.learn(params, state, t, arm, 1.0, phase, rng)
    assert state.rewards_in_order.sum() == 0 < state.rewards.sum()
    slots = [arm for arm in range(3) if arm != first]
    kept = arm_slots.kept_slots(begin, params, state, slots)
    assert kept.rewards_in_order.tolist() == kept.rewards.tolist()
    assert kept.rewards_in_order.sum() == 4


def test_compiled_and_interpreted_segments_are_equal():
    name = "dp-imed"
    policy = bl.policy(name, arms=4, epsilon=2.0)
    rounds = np.array([100, 150, 151, 300, 500, HORIZON])
    runs = [
        repetition_player(name, policy, world_of(), rounds, 5, interpreted=how)(
            0, np.zeros(2, np.int64)
        )
        for how in (True, False)
    ]
    assert runs[0].pulls.tolist() == runs[1].pulls.tolist()
    assert runs[0].regret == pytest.approx(runs[1].regret)


def test_regret_is_against_the_best_arm_on_offer():
    """With one arm on offer there is none; then it is that of even draws."""
    world = world_of([(1, [1]), (101, [1, 2]), (201, [0, 1])], [0.5, 0.3, 0.7])
    policy = bl.policy("random", arms=3)
    results = bl.simulate(
        policy, world, horizon=300, repetitions=200, seed=1, checkpoints=[100, 200, 300]
    )
    mean = results.regret("random").mean(axis=0)
    assert mean[0] == 0.0
    assert mean[1] == pytest.approx(20.0, abs=1.5)
    assert mean[2] == pytest.approx(30.0, abs=1.5)
    pulls = results.pulls("random")
    assert (pulls.sum(axis=1) == 300).all()
    assert pulls[:, 2].max() < 100


@pytest.mark.parametrize("inner", ["changing", "drifting"])
def test_means_may_move_too(inner):
    worlds = {
        "changing": {"schedule": [(1, [0.2, 0.9]), (51, [0.7, 0.4])]},
        "drifting": {"means": [0.2, 0.9], "step": 0.0},
    }
    world = bl.environment(
        "offered-arms",
        inner={"name": inner, **worlds[inner]},
        offers=[(1, [0]), (51, [0, 1])],
    )
    results = bl.simulate(
        bl.policy("random", arms=2), world, horizon=150, repetitions=100, seed=1,
        checkpoints=[50, 150],
    )  # fmt: skip
    mean = results.regret("random").mean(axis=0)
    assert mean[0] == 0.0
    assert mean[1] == pytest.approx(15.0 if inner == "changing" else 35.0, abs=3.0)


LATE_ARM = {"delay": bl.Delay(mean=2_000, law="fixed"), "settle": "window", "patience": 2_000}
ADDED = {  # mean of the added arm, runs
    "dp-ucb": (0.75, 60, {}),
    "private-ucb": (0.5, 10, {}),
    "ldp-ucb-laplace": (0.5, 60, {}),
    "ldp-top-two": (0.85, 20, {**LATE_ARM, "missing": 0.0}),
}


@pytest.mark.statistical
@pytest.mark.parametrize("name", ADDED)
def test_an_arm_added_half_way_costs_at_most_a_tenth_more_than_a_fresh_run(name):
    """The ratios are 0.03, 0.99, 1.05 and 0.6: 1.1 is five standard errors away."""
    mean, runs, how = ADDED[name]
    shop = bl.environment("bernoulli", means=[0.55, 0.60, 0.65, mean])
    offers = [(1, [0, 1, 2]), (10_001, [0, 1, 2, 3])]
    world = bl.environment("offered-arms", inner=shop, offers=offers)

    def regret(world, horizon):
        needed = {"horizon": horizon} if name == "private-ucb" else {}
        results = bl.simulate(
            bl.policy(name, arms=4, epsilon=1.0, **needed), world, horizon=horizon,
            repetitions=runs, seed=1, checkpoints=horizon // 10_000, **how,
        )  # fmt: skip
        return results.regret(name).mean(axis=0)

    before, after = regret(world, 20_000)
    assert after - before <= 1.1 * regret(shop, 10_000)[-1]


PARTICIPANTS = [(0.7, [0, 1, 2, 3]), (0.3, [0, 3])]


def masked(**more):
    inner = {"name": "bernoulli", "means": MEANS}
    return bl.environment(
        "offered-arms", inner=inner, offers=OFFERS, participants=PARTICIPANTS, **more
    )


@pytest.mark.parametrize("how", [{}, {"delay": bl.Delay(mean=10, lost=0.1)}])
def test_participants_get_only_what_they_can(how):
    """Even draws: the mean regret of a round is to the best arm of each participant."""
    policy = bl.policy("random", arms=4)
    results = bl.simulate(
        policy, masked(), horizon=HORIZON, repetitions=20, seed=1, checkpoints=[150, 300, 400, 600],
        **how,
    )  # fmt: skip
    gaps = np.diff(results.regret("random"), axis=1, prepend=0.0).mean(axis=0)
    # Of arms 0 and 1: 0.1; with arm 2: 0.2; of 0 and 2: 0.1; of 0, 2 and 3: 1/6. The others have
    # arm 0 alone, and at last 0 and 3: 0.05.
    expected = [150 * 0.07, 150 * 0.14, 100 * 0.07, 200 * (0.7 / 6 + 0.015)]
    assert gaps == pytest.approx(expected, abs=2.0)  # 4 standard errors
    pulls = results.pulls("random")
    assert (pulls.sum(axis=1) == HORIZON).all()


def test_a_policy_learns_what_each_participant_can_get():
    policy = bl.policy("dp-imed", arms=4, epsilon=10.0, first_batch=4)
    even = bl.policy("random", arms=4)
    results = bl.simulate([policy, even], masked(), horizon=HORIZON, repetitions=4, seed=1)
    assert results.final_regret("dp-imed").mean() < 0.6 * results.final_regret("random").mean()
    assert (results.pulls("dp-imed")[:, 0] > 100).all()  # those who cannot get arm 2


@pytest.mark.parametrize(
    ("participants", "why"),
    [
        ([], "is not a list"),
        ([0.5, 0.5], "not a pair"),
        ([(0.5, [0]), (0.4, [0])], "do not add up to 1"),
        ([(1.5, [0])], "share"),
        ([(1.0, [])], "without arms"),
        ([(1.0, [7])], "does not exist"),
        ([(0.5, [0]), (0.5, [1])], "could get no arm from round 301 on"),
    ],
)
def test_participants_that_cannot_be_are_refused(participants, why):
    inner = {"name": "bernoulli", "means": MEANS}
    with pytest.raises(ParameterError, match=why):
        bl.environment("offered-arms", inner=inner, offers=OFFERS, participants=participants)


def test_an_arm_that_comes_back_is_new():
    offers = [
        (start, [0, 1] if number % 2 else [0]) for number, start in enumerate(range(1, 400, 50))
    ]
    policy = bl.policy("dp-imed", arms=2, epsilon=5.0, first_batch=4)
    results = bl.simulate(policy, world_of(offers, [0.9, 0.1]), horizon=400, repetitions=5, seed=1)
    assert (results.pulls("dp-imed")[:, 1] >= 4 * 4).all()


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(policy, id=f"{name}-{number}", marks=[pytest.mark.slow] if number else [])
        for name, cls in POLICIES.classes().items()
        for number, policy in enumerate(examples(cls))
        if not policy.fixed_arms and name in ("dp-ucb-int", "private-ucb", "dpr-ucb")
    ],
)  # fmt: skip
def test_other_policies_play_them(policy):
    offers = [(1, [0, 1]), (41, [0, 1, 2]), (81, [2]), (121, [1, 2])]
    inner = {"name": "bernoulli", "means": [0.2, 0.5, 0.8]}
    world = bl.environment("offered-arms", inner=inner, offers=offers)
    results = bl.simulate(policy, world, horizon=200, repetitions=2, seed=1)
    assert (results.pulls(policy.name).sum(axis=1) == 200).all()


def test_policies_with_fixed_arms_are_refused():
    with pytest.raises(IncompatibleError, match="cannot change its arms"):
        bl.simulate(
            bl.policy("dp-se", arms=4, epsilon=1.0, horizon=99), world_of(), horizon=99,
            repetitions=1, seed=1,
        )  # fmt: skip


def test_a_policy_that_compares_begins_with_two_arms():
    policy = bl.policy("dp-top-two", arms=4, epsilon=1.0)
    with pytest.raises(IncompatibleError, match=r"first arms of offered-arms: .* at least 2"):
        bl.simulate(policy, world_of([(1, [0]), (9, [0, 1])]), horizon=20, repetitions=1, seed=1)


@pytest.mark.parametrize(
    ("offers", "why"),
    [
        ([], "is not a list"),
        ("ab", "is not a list"),
        ([(1,)], "not a pair"),
        ([(2, [0])], "does not start at round 1"),
        ([(1, [0]), (1, [1])], "do not ascend"),
        ([(1, [0]), (9, [])], "without arms"),
        ([(1, [4])], "does not exist; arms are 0 to 3"),
    ],
)
def test_bad_offers_are_refused(offers, why):
    with pytest.raises(ParameterError, match=why):
        world_of(offers)


def test_losses_and_contexts_cannot_come_and_leave():
    for inner in (
        {"name": "stochastic-losses", "means": [0.1, 0.2]},
        {"name": "linear", "theta": [0.5, 0.2], "arms": 2},
    ):
        with pytest.raises(ParameterError, match="has no mean for each arm and round"):
            bl.environment("offered-arms", inner=inner, offers=[(1, [0])])


@pytest.mark.parametrize("name", ["dp-imed", "dp-top-two"])
def test_an_arm_added_while_rewards_are_late_gets_its_share_at_once(name):
    """In its first window it gets a fresh run's share, about 1/4, not its first batch alone."""
    window, start = 2_000, 8_000
    offers = [(1, [0, 1, 2]), (start + 1, [0, 1, 2, 3])]
    results = bl.simulate(
        bl.policy(name, arms=4, epsilon=1.0),
        world_of(offers, means=[0.5, 0.4, 0.3, 0.6]),
        horizon=start + window,
        repetitions=20,
        seed=1,
        delay=bl.Delay(mean=window, law="fixed"),
        patience=window,
        settle="window",
        missing=0.0,
    )
    pulls = results.pulls(name)[:, 3]
    assert (pulls >= window // 16).all()
    assert (pulls <= window // 3).all()
