"""The chance that a decision's arm had, given what was public: logs are analysed with it later."""

from __future__ import annotations

import math

import numpy as np
import pytest

import balaclava as bl

MEANS = (0.4, 0.5, 0.7)


def decisions(count, **parameters):
    """Decisions of a seeded dp-imed agent whose rewards come at once."""
    agent = bl.policy("dp-imed", arms=3, epsilon=2.0, **parameters).agent(seed=1)
    rewards = np.random.default_rng(2)
    made = []
    for _ in range(count):
        made.append(agent.ask())
        agent.tell(made[-1], reward=float(rewards.random() < MEANS[made[-1].arm]))
    return made


def test_first_pulls_come_in_permuted_blocks():
    """Within a block the next arm is one of those that are left, each as likely."""
    first = decisions(15)
    for block in range(0, 15, 3):
        part = first[block : block + 3]
        assert sorted(decision.arm for decision in part) == [0, 1, 2]
        assert [decision.propensity for decision in part] == pytest.approx([1 / 3, 1 / 2, 1.0])
    orders = {tuple(decision.arm for decision in first[i : i + 3]) for i in range(0, 15, 3)}
    assert len(orders) > 1


def test_later_decisions_follow_from_what_was_released():
    assert all(decision.propensity == 1.0 for decision in decisions(600)[100:])


@pytest.mark.statistical
def test_weights_by_the_propensity_count_every_arm_once():
    """1{arm} / propensity has mean 1 for every arm, as each keeps a share of explore / arms.

    4,000 decisions, at 5 standard errors: fails once in 10^6 such tests by chance.
    """
    made = decisions(4_000, explore=0.3)
    for arm in range(3):
        weights = np.array([(each.arm == arm) / each.propensity for each in made])
        assert abs(weights.mean() - 1.0) <= 5 * weights.std() / math.sqrt(weights.size)
    assert min(each.propensity for each in made) == pytest.approx(0.1)


@pytest.mark.statistical
def test_a_holdout_is_even_and_teaches_nothing():
    """A fifth of the decisions, evenly over the arms, at 5 standard errors."""
    made = decisions(4_000, holdout=0.2)
    held = np.array([each.arm for each in made if each.phase == -1])
    assert abs(held.size - 800) <= 5 * math.sqrt(4_000 * 0.2 * 0.8)
    assert (
        abs(np.bincount(held, minlength=3) - held.size / 3) <= 5 * math.sqrt(held.size / 4)
    ).all()


@pytest.mark.parametrize("name", ["dp-ftpl-gauss", "lazy-dp-ts", "ucb1"])
def test_no_chance_is_shown_where_it_is_private_or_not_known(name):
    policy = bl.policy(
        name,
        arms=3,
        **({} if name == "ucb1" else {"epsilon": 1.0}),
        **({"delta": 0.01} if name == "dp-ftpl-gauss" else {}),
    )
    assert policy.agent(seed=1).ask().propensity is None
