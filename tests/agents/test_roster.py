"""Arms that come, rest and leave."""

from __future__ import annotations

import json

import numpy as np
import pytest

import balaclava as bl
import balaclava.agents.roster
from balaclava.frames import arm_slots

MEANS = {"a": 0.2, "b": 0.5, "c": 0.8, "d": 0.95, "one more": 0.1}


def agent_of(name="dp-imed", arms=("a", "b"), seed=1, **more):
    return bl.policy(name, arms=list(arms), epsilon=5.0, **more).agent(seed=seed)


def play(agent, rounds, available=None, seed=2):
    """The labels that were played."""
    rng, labels = np.random.default_rng(seed), []
    for _ in range(rounds):
        decision = agent.ask(available=available)
        agent.tell(decision, float(rng.random() < MEANS[decision.label]))
        labels.append(decision.label)
    return labels


def test_an_arm_that_comes_is_tried_at_once_and_then_played_if_it_is_best():
    agent = agent_of()
    play(agent, 2_000)
    assert agent.add_arm("d") == 2
    labels = play(agent, 2_000)
    assert labels[0] == "d"
    assert labels.count("d") > 1_800
    assert agent.policy.arm_labels == ("a", "b", "d")


def test_a_poor_arm_that_comes_late_costs_little():
    agent = agent_of(arms=("b", "d"))
    play(agent, 2_000)
    agent.add_arm("a")
    assert play(agent, 2_000).count("a") < 100


def test_a_retired_arm_is_not_played_and_its_late_rewards_count():
    agent = agent_of(arms=("a", "b", "c"))
    decisions = [agent.ask() for _ in range(60)]
    agent.retire_arm("c")
    late = [decision for decision in decisions if decision.label == "c"]
    for decision in decisions:
        agent.tell(decision, 1.0)
    assert "c" not in play(agent, 500)
    entry = agent.estimates().of("c")
    assert (entry.rewards, entry.decisions) == (len(late), len(late))
    assert entry.retired
    assert "c (retired)" in str(agent.estimates())


def test_the_winner_is_among_the_arms_that_are_left():
    agent = agent_of(arms=("a", "b", "d"), explore=0.5)
    play(agent, 6_000)
    assert agent.policy.arm_label(agent.winner()) == "d"
    agent.retire_arm("d")
    play(agent, 6_000)
    assert agent.policy.arm_label(agent.winner()) == "b"
    estimates = agent.estimates()
    assert (estimates.compared, estimates.made) == (("a", "b"), 12_000)
    assert str(estimates).endswith("; the winner is b, of a, b, after 12,000 decisions.")
    assert "b is the best arm, of a, b, after 12,000 decisions" in str(agent.may_stop())


@pytest.mark.parametrize("first", [2, 3, 7])
def test_weights_of_all_arms_and_of_all_pairs_add_up_to_one(first):
    roster = bl.agents.roster.ArmRoster(bl.policy("dp-imed", arms=first, epsilon=1.0))
    assert sum(map(roster.arm_weight, range(first))) == pytest.approx(1.0)
    roster.labels += [f"arm {arm}" for arm in range(first, 400)]
    assert sum(map(roster.arm_weight, range(400))) == pytest.approx(1.0 - 1.0 / 401)
    pairs = [(a, b) for b in range(400) for a in range(b)]
    assert sum(roster.pair_weight(*pair) for pair in pairs) == pytest.approx(1.0 - 1.0 / 401)


def test_only_available_arms_are_played_and_arms_are_then_not_compared():
    agent = agent_of(arms=("a", "b", "d"), explore=0.5)
    play(agent, 3_000)
    assert agent.winner() is not None
    assert set(play(agent, 200, available=["a", "b"])) == {"a", "b"}
    assert set(play(agent, 50, available=[0])) == {"a"}
    for compare in (
        *(agent.winner, agent.may_stop, agent.remaining),
        lambda: agent.difference("a", "b"),
    ):
        with pytest.raises(bl.errors.EstimateError, match="did not offer all of them"):
            compare()
    assert (
        "who could get the arm, and does not depend on which other" in agent.estimates().condition
    )
    assert agent.estimates().winner is None


def test_to_offer_all_arms_is_not_a_mask():
    one, other = agent_of(arms=("a", "b", "d")), agent_of(arms=("a", "b", "d"))
    assert play(one, 300) == play(other, 300, available=["d", "a", "b"])
    assert other.estimates().condition is None


def test_propensities_are_chances_among_the_available_arms():
    """Even draws among two of three arms, in the first block and with explore=1."""
    agent = agent_of(arms=("a", "b", "d"), explore=1.0)
    chances = {agent.ask(available=["a", "d"]).propensity for _ in range(50)}
    assert chances == {0.5}


def test_slots_are_reused_and_numbers_are_not():
    agent, releases = agent_of(arms=("a", "b")), 0
    for number in range(2, 40):
        assert agent.add_arm(f"arm {number}") == number
        for _ in range(30):
            agent.tell(agent.ask(), 0.5)
        agent.retire_arm(number)
        assert agent.status().releases > releases
        releases = agent.status().releases
    assert len(agent._runner.roster.arm_in_slot) <= 4
    entries = agent.estimates()
    assert [entry.arm for entry in entries] == list(range(40))
    assert sum(entry.decisions for entry in entries) == agent.status().decisions
    restored = bl.restore(json.loads(json.dumps(agent.save())))
    assert list(restored.estimates()) == list(entries)
    assert restored.status().releases == releases


def test_the_guarantee_lists_what_changes_of_arms_may_depend_on():
    agent = bl.policy("dp-imed", arms=["a", "b"], epsilon=5.0).agent()
    before = agent.guarantee
    agent.ask(available=["a", "b"])
    assert agent.guarantee == before
    agent.add_arm("c")
    assert agent.guarantee.epsilon == 5.0
    assert set(agent.guarantee.assumptions) > set(before.assumptions)
    assert "had any one reward been different" in agent.guarantee.assumptions[-1]


def test_finish_releases_each_live_batch_and_then_arms_stay():
    agent = agent_of(arms=("a", "b", "c"))
    play(agent, 100)
    agent.retire_arm("a")
    agent.add_arm("d")
    play(agent, 55)
    final = agent.finish()
    assert [entry.rewards for entry in final] == [entry.decisions for entry in final]
    with pytest.raises(bl.errors.DecisionError, match="finished"):
        agent.add_arm("late")


def test_in_window_mode_rewards_of_a_retired_arm_count_at_the_end_of_their_windows():
    policy = bl.policy("dp-imed", arms=["a", "b"], epsilon=5.0)
    agent = policy.agent(seed=1, patience=50, settle="window", missing=0.0)
    first = [agent.ask() for _ in range(10)]
    agent.retire_arm("a")
    for decision in first:
        agent.tell(decision, 1.0)
    assert agent.estimates().of("a").rewards == 0
    for _ in range(60):
        agent.ask()
    assert agent.estimates().of("a").rewards == sum(each.label == "a" for each in first)


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        (lambda agent: agent.add_arm("a"), "ParameterError", "arm 'a' exists; labels are never"),
        (lambda agent: agent.add_arm("gone"), "ParameterError", "arm 'gone' was retired; labels"),
        (lambda agent: agent.add_arm(" "), "ParameterError", "give the arm a name"),
        (lambda agent: agent.add_arm(3), "ParameterError", "give the arm a name"),
        (lambda agent: agent.retire_arm("gone"), "ParameterError", "arm 'gone' was retired"),
        (lambda agent: agent.retire_arm("z"), "UnknownNameError", "there is no arm 'z'"),
        (lambda agent: agent.retire_arm(9), "UnknownNameError", "known: 0 to 2"),
        (lambda agent: agent.retire_arm(0.5), "UnknownNameError", "there is no arm 0.5"),
        (lambda agent: agent.ask(available=[]), "ParameterError", "available is empty"),
        (lambda agent: agent.ask(available="ab"), "ParameterError", "is not a list"),
        (lambda agent: agent.ask(available=["a", "gone"]), "ParameterError", "was retired"),
        (lambda agent: agent.ask(available=["a", "z"]), "UnknownNameError", "no arm 'z'"),
        (lambda agent: agent.set_shares({"a": 0.6, "b": 0.5}), "ParameterError", "add up to 1.1"),
        (lambda agent: agent.set_shares({"a": 0.2, 0: 0.3}), "ParameterError", "arm 'a' twice"),
        (
            lambda agent: agent.set_shares({"a": 1.0, "b": 1e-9}),
            "ParameterError",
            "up to 1.000000001; lower",
        ),
        (lambda agent: agent.set_shares({"a": -0.1}), "ParameterError", r"shares\['a'\] = -0.1"),
        (lambda agent: agent.set_shares({"z": 0.1}), "UnknownNameError", "no arm 'z'"),
        (lambda agent: agent.set_shares(["a"]), "ParameterError", "must be a mapping"),
    ],
)
def test_bad_changes_are_refused_and_change_nothing(change, error, why):
    agent = agent_of(arms=("a", "b", "gone"))
    agent.retire_arm("gone")
    before = json.dumps(agent.save())
    with pytest.raises(getattr(bl.errors, error), match=why):
        change(agent)
    assert json.dumps(agent.save()) == before


def test_arms_may_be_numbers_of_an_array():
    agent = agent_of(arms=("a", "b", "c"))
    mask = np.array([False, True, False])
    assert set(play(agent, 20, available=np.flatnonzero(mask))) == {"b"}
    agent.set_shares({np.int64(1): 0.5})
    assert agent.estimates().of(np.int64(1)).label == "b"
    agent.retire_arm(np.int64(1))
    assert "b" not in play(agent, 20)


TALLIES = (
    *(("ucb1", {}), ("kl-ucb", {}), ("imed", {}), ("thompson-beta", {})),
    *(("dp-ucb", {"epsilon": 9}), ("dp-ucb-bound", {"epsilon": 9})),
    ("dp-ucb-int", {"epsilon": 9, "delta": 0.1}),
    ("private-ucb", {"epsilon": 9, "horizon": 5_000}),
    *(("ldp-ucb-bernoulli", {"epsilon": 9}), ("dp-ftpl-new", {"epsilon": 9, "horizon": 5_000})),
)


@pytest.mark.parametrize(("name", "parameters"), TALLIES)
def test_arms_of_tallies_come_rest_and_leave(name, parameters):
    agent = bl.policy(name, arms=["a", "b"], **parameters).agent(seed=1)
    play(agent, 200)
    agent.add_arm("d")
    assert play(agent, 800).count("d") > 100
    assert set(play(agent, 50, available=["a", "b"])) <= {"a", "b"}
    late = agent.ask(available=["d"])
    agent.retire_arm("d")
    assert "d" not in play(agent, 50)
    agent.add_arm("c")  # the slot of "d" has an open decision
    assert len(agent._runner.roster.arm_in_slot) == 4
    agent.tell(late, 1.0)
    agent.add_arm("one more")
    assert len(agent._runner.roster.arm_in_slot) == 4
    restored = bl.restore(json.loads(json.dumps(agent.save())))
    assert restored.save()["state"] == agent.save()["state"]
    assert {*play(agent, 400)} <= {"a", "b", "c", "one more"}


def test_a_reused_slot_of_a_tally_starts_anew_and_results_keep_the_arm_before():
    agent = bl.policy("ldp-ucb-bernoulli", arms=["a", "d"], epsilon=9.0).agent(seed=1)
    play(agent, 300)
    before = agent.estimates().of("d")
    agent.retire_arm("d")
    agent.add_arm("c")
    assert len(agent._runner.roster.arm_in_slot) == 2
    assert agent.estimates().of("c").rewards == 0
    assert agent.estimates().of("d").mean == before.mean
    assert play(agent, 1) == ["c"]


@pytest.mark.parametrize("explore", [0.0, 0.3])
@pytest.mark.parametrize("rounds", [12, 600])
def test_propensities_count_shares(explore, rounds):
    """Decisions weighted by 1/propensity have the same expected number for each arm.

    Statistical: chance of a false alarm below 10^-6 (five standard errors, three arms, two tests).
    The short runs are first pulls, with batches that wait.
    """
    policy = bl.policy("dp-imed", arms=["a", "b", "d"], epsilon=5.0, explore=explore)
    weights, total = np.zeros(3), 0
    for seed in range(4_800 // rounds):
        agent = policy.agent(seed=seed, shares={"a": 0.2, "b": 0.1, "d": 0.1})
        rng = np.random.default_rng(seed)
        for _ in range(rounds):
            decision = agent.ask()
            weights[decision.arm] += 1.0 / decision.propensity
            total += 1
            if rounds > 100:
                agent.tell(decision, float(rng.random() < MEANS[decision.label]))
    assert np.abs(weights - total).max() < 5.0 * np.sqrt(total / 0.1)


def test_an_arm_has_at_least_its_share_and_the_policy_learns_from_it():
    agent = agent_of(arms=("a", "d"), first_batch=2)
    agent.set_shares({"a": 0.25})
    labels = play(agent, 2_000)
    assert labels.count("a") > 400
    assert agent.estimates().of("a").rewards > 300
    again = bl.restore(json.loads(json.dumps(agent.save())))
    assert again._runner.roster.shares == {0: 0.25}
    agent.set_shares({})
    assert play(agent, 400).count("a") < 40
    agent.retire_arm("d")
    with pytest.raises(bl.errors.ParameterError, match="was retired"):
        agent.set_shares({"d": 0.1})


def test_shares_of_all_arms_divide_decisions_without_the_rule():
    agent = bl.policy("ucb1", arms=["a", "d"]).agent(seed=1, shares={"a": 0.5, "d": 0.5})
    assert 400 < play(agent, 1_000).count("a") < 600


def test_the_last_arm_stays():
    agent = agent_of()
    agent.retire_arm("a")
    with pytest.raises(bl.errors.ParameterError, match="is the last one"):
        agent.retire_arm("b")


def test_damaged_rosters_are_refused():
    agent = agent_of(arms=("a", "b", "c"))
    agent.retire_arm("c")
    content = agent._content()
    for part, value in (
        *(("slots", [0, 1]), ("slots", [0, 1, 1]), ("retired", [0, 1, 2]), ("start", 0)),
        *(("masked", 1), ("archived", [[1, 0, 0.0, 0.0]])),
    ):
        damaged = bl.agents.saving.seal({**content, "roster": {**content["roster"], part: value}})
        with pytest.raises(bl.errors.SavedStateError):
            bl.restore(damaged)


def test_a_batch_in_play_continues_while_its_arms_are_offered(monkeypatch):
    """The rule is asked once a batch, also after an arm has left: not in each decision."""
    asked, choose_among = [], arm_slots.choose_among

    def noted(*arguments):
        asked.append(arguments[4])
        return choose_among(*arguments)

    monkeypatch.setattr(arm_slots, "choose_among", noted)
    agent = agent_of(arms=("a", "b", "c", "d"), first_batch=20)
    agent.retire_arm("a")
    play(agent, 3_000)
    assert 0 < len(asked) - 60 < 60  # first pulls are drawn one by one
    asked.clear()
    play(agent, 300, available=["d", "b"])
    assert len(asked) < 20
    assert set(play(agent, 50, available=["b"])) == {"b"}  # which was not in play


@pytest.mark.parametrize("name", ["dp-imed", "dp-klucb"])
def test_a_restored_agent_decides_alike_whatever_was_offered(name):
    agent, masks = agent_of(name, arms=("a", "b", "c", "d"), seed=5), np.random.default_rng(1)
    agent.retire_arm("a")
    for _ in range(40):
        offered = masks.choice(["b", "c", "d"], masks.integers(1, 4), replace=False).tolist()
        again = bl.restore(json.loads(json.dumps(agent.save())))
        assert play(again, 15, offered) == play(agent, 15, offered)
        again = bl.restore(json.loads(json.dumps(agent.save())))
        assert play(again, 3) == play(agent, 3)


@pytest.mark.parametrize("more", [("dp-ucb", {}), ("private-ucb", {"horizon": 2_000})])
def test_a_restored_agent_knows_when_an_arm_came(more):
    agent = bl.policy(more[0], arms=["a", "b"], epsilon=1.0, **more[1]).agent(seed=1)
    play(agent, 300)
    agent.add_arm("c")
    assert play(agent, 150).count("c") > 20
    again = bl.restore(json.loads(json.dumps(agent.save())))
    assert play(again, 200) == play(agent, 200)
    assert again._runner.params.added_after.tolist() == [0, 0, 300]


@pytest.mark.parametrize(
    ("name", "late"), [("dp-imed", 0), ("dp-imed", 40), ("ldp-ucb-laplace", 9)]
)
def test_slots_are_bounded_by_live_arms_and_open_batches(name, late):
    """Eight live arms, 200 in all, and rewards that come late: the state does not grow."""
    agent, waiting = agent_of(name, arms=tuple(map(str, range(8))), seed=3), []
    for number in range(8, 200):
        agent.add_arm(str(number))
        agent.retire_arm(number - 8)
        for _ in range(25):
            waiting.append(agent.ask())
            if len(waiting) > late:
                agent.tell(waiting.pop(0), float(number % 2))
        roster = agent._runner.roster
        assert len(roster.arm_in_slot) <= 8 + 2 + -(-late // 25)
        assert len(roster.archived) == number + 1 - len(roster.arm_in_slot)
    assert len(agent.estimates()) == 200


def test_why_intervals_under_masks_assume_one_mean_for_all_offers():
    """Locals buy "a" in 20 %, tourists in 80 %; only locals could get "d", which is better.

    So "a" is played for tourists, and its mean is theirs: not the .5 of all who could get it. With
    one mean for both kinds the interval holds.
    """
    for locals_, tourists, holds in ((0.2, 0.8, False), (0.5, 0.5, True)):
        agent, luck = agent_of(arms=("a", "d")), np.random.default_rng(4)
        for turn in range(4_000):
            is_local = turn % 2 == 0
            decision = agent.ask(available=["a", "d"] if is_local else ["a"])
            mean = 0.9 if decision.label == "d" else locals_ if is_local else tourists
            agent.tell(decision, float(luck.random() < mean))
        low, high = agent.estimates().of("a").interval
        assert (low <= 0.5 <= high) == holds


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["dp-imed", "dp-klucb", "adap-ucb", "lazy-dp-ts"])
def test_all_arms_may_be_replaced_before_one_of_the_new_has_a_release(name):
    """Their first batches are asked and wait; an index of an arm without rewards is undefined."""
    agent = bl.policy(name, arms=["a", "b"], epsilon=5.0).agent(seed=1, patience=10_000)
    for _ in range(200):
        agent.tell(agent.ask(), reward=0.5)
    for leaves, comes in (("a", "c"), ("b", "d")):
        agent.retire_arm(leaves)
        agent.add_arm(comes)
    waiting = [agent.ask() for _ in range(300)]
    assert {decision.arm for decision in waiting} == {2, 3}
    for decision in waiting:
        agent.tell(decision, reward=float(decision.arm == 3))
    later = [agent.ask() for _ in range(100)]
    assert sum(decision.arm == 3 for decision in later) > 50


def test_the_guarantee_names_what_shares_assumed_after_they_are_cleared():
    agent = bl.policy("dp-imed", arms=["a", "b"], epsilon=5.0).agent(shares={"a": 0.5})
    agent.ask()
    before = agent.guarantee
    agent.set_shares({})
    assert agent.guarantee == before
    assert any("their shares" in each for each in bl.restore(agent.save()).guarantee.assumptions)
