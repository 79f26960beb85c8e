"""Guarantees by how decisions settle, and after restores."""

from __future__ import annotations

import dataclasses

import pytest

import balaclava as bl
from balaclava._core.declared import LARGEST_EPSILON
from balaclava.agents.settling import (
    ARRIVES_REGARDLESS,
    ONE_COPY_CONTINUES,
    OTHERS_REGARDLESS,
    arrival_condition,
    guarantee_after_restores,
    guarantee_when_settled,
)
from balaclava.frames.tally import begin_tally
from balaclava.privacy.guarantee import (
    IN_TIME,
    NEIGHBOURS,
    NEIGHBOURS_IN_TIME,
    Guarantee,
    not_private,
)

PRIVATE = Guarantee(epsilon=0.5, delta=0.25, assumptions=("rewards are bounded",))
LOCAL = Guarantee(epsilon=0.5, model="local", scope="report")


@pytest.mark.parametrize("restored", [0, 1, 2])
def test_each_restore_costs_epsilon_and_delta_again(restored: int) -> None:
    found = guarantee_after_restores(PRIVATE, restored, "the save")
    assert (found.epsilon, found.delta) == (0.5 * (1 + restored), 0.25 * (1 + restored))
    assert found.assumptions == PRIVATE.assumptions


def test_a_claim_that_restores_exhaust_promises_nothing() -> None:
    found = guarantee_after_restores(PRIVATE, 3, "the save")  # delta is 1
    assert not found.private
    assert "the save was restored 3 times" in found.explain()
    half = Guarantee(epsilon=LARGEST_EPSILON / 2)
    assert guarantee_after_restores(half, 1, "the save").epsilon == LARGEST_EPSILON
    assert not guarantee_after_restores(half, 2, "the save").private
    nothing = not_private("no noise")
    assert guarantee_after_restores(nothing, 5, "the save") is nothing


def test_intervals_assume_nothing_if_rewards_count_in_order_and_none_is_lost() -> None:
    for window in (False, True):
        for in_order in (False, True):
            for lost in (False, True):
                found = arrival_condition(window=window, in_order=in_order, lost=lost)
                free = window or (in_order and not lost)
                assert found == (None if free else ARRIVES_REGARDLESS)


@pytest.mark.parametrize("copied", [False, True])
def test_a_guarantee_says_what_settling_assumes(copied: bool) -> None:
    copies = (ONE_COPY_CONTINUES,) if copied else ()
    window = guarantee_when_settled(PRIVATE, window=True, copied=copied)
    assert window.assumptions == ("rewards are bounded", OTHERS_REGARDLESS, *copies)
    assert window.neighbours == NEIGHBOURS_IN_TIME
    for guarantee, in_window in ((PRIVATE, False), (LOCAL, False), (LOCAL, True)):
        found = guarantee_when_settled(guarantee, window=in_window, copied=copied, otherwise="!")
        assert found.assumptions == (*guarantee.assumptions, ARRIVES_REGARDLESS + "!", *copies)
        assert found.neighbours == NEIGHBOURS
    nothing = not_private("no noise")
    assert guarantee_when_settled(nothing, window=True, copied=copied) is nothing


def test_the_status_of_an_agent() -> None:
    agent = bl.policy("dp-imed", arms=2, epsilon=1.0).agent(seed=1)
    assert (agent.status().oldest_wait, agent.status().oldest_open) == (0, None)
    made = [agent.ask() for _ in range(4)]
    agent.tell(made[1], 1.0)
    agent.cancel(made[0])
    status = agent.status()
    assert (status.decisions, status.rewards, status.open, status.cancelled) == (4, 1, 2, 1)
    assert (status.oldest_open, status.oldest_wait, status.closed) == (made[2].id, 1, None)
    window = bl.policy("dp-imed", arms=2, epsilon=1.0).agent(
        seed=1, settle="window", patience=3, missing=0.0
    )
    for _ in range(5):
        window.ask()
    found = window.status()
    assert (found.open, found.closed, found.rewards) == (4, 1, None)
    assert str(found).startswith("5 decisions, 1 window closed, 4 open")


def test_the_status_names_releases_and_decisions_not_learned_from() -> None:
    agent = bl.policy("dp-imed", arms=2, epsilon=1.0, first_batch=2, holdout=0.5).agent(seed=1)
    for _ in range(40):
        agent.tell(agent.ask(), 1.0)
    status = agent.status()
    assert status.releases is not None
    assert f"{status.releases} releases so far" in str(status)
    assert f"{status.unlearned} not learned from" in str(status)
    assert "cancelled" not in str(status)
    agent.cancel(agent.ask())
    assert "1 cancelled" in str(agent.status())


def test_the_last_decision_of_a_save_is_known_and_the_next_is_not() -> None:
    agent = bl.policy("ucb1", arms=2).agent(seed=1)
    made = [agent.ask() for _ in range(3)]
    saved = agent.save()
    later = agent.ask()
    restored = bl.restore(saved)
    restored.tell(made[2], 1.0)
    assert restored.status().rewards == 1
    with pytest.raises(bl.errors.DecisionError, match="has its reward"):
        restored.tell(made[2], 1.0)
    with pytest.raises(bl.errors.DecisionError, match="after the save"):
        restored.tell(later, 1.0)
    with pytest.raises(bl.errors.DecisionError, match="was never made; this agent has made 4"):
        restored.tell(f"{restored.ask().id.rpartition('-')[0]}-9", 1.0)


def test_an_arm_that_a_policy_does_not_have_is_refused() -> None:
    class Beyond(bl.Policy):
        """Plays an arm that it does not have."""

        name = "beyond"
        kernels = bl.Kernels(begin_tally, lambda *_: (2, 0), lambda *_: None)

    with pytest.raises(bl.errors.PolicyError, match="arm"):
        Beyond(arms=2).agent(seed=1).ask()


def test_no_forecast_before_every_arm_has_a_release() -> None:
    agent = bl.policy("dp-imed", arms=2, epsilon=1.0, first_batch=4).agent(seed=1)
    assert agent.remaining() is None
    for _ in range(3):
        agent.tell(agent.ask(), 1.0)
    assert agent.remaining() is None


def test_a_participant_with_several_rewards_keeps_the_cover_of_arrival() -> None:
    window = guarantee_when_settled(Guarantee(epsilon=1.0), window=True, copied=False)
    joint = dataclasses.replace(window, scope="joint", neighbours=IN_TIME[True])
    for one in (window, joint):
        text = one.for_rewards(3).explain()
        assert "When and whether a reward arrived is covered like the reward itself" in text
        assert "Not covered: the time of a decision, who took part, the names of arms, and" in text
    assert joint.for_rewards(2).neighbours.startswith("runs 2 changes apart, each between runs")
    plain = Guarantee(epsilon=1.0).for_rewards(3).explain()
    assert "whether a reward arrived at all" in plain
