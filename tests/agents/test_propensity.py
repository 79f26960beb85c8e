"""Propensities: the chance of a decision's arm given public values, for the analysis of logs."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

import balaclava as bl
from balaclava.estimators.arm_probabilities import chances_to_lead
from balaclava.policies.expert_policies import practice_advice

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
    """Within a block each arm still due is equally likely to be next."""
    first = decisions(15)
    for block in range(0, 15, 3):
        part = first[block : block + 3]
        assert sorted(decision.arm for decision in part) == [0, 1, 2]
        assert [decision.propensity for decision in part] == pytest.approx([1 / 3, 1 / 2, 1.0])
    orders = {tuple(decision.arm for decision in first[i : i + 3]) for i in range(0, 15, 3)}
    assert len(orders) > 1


def test_later_decisions_follow_from_releases():
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
def test_a_private_or_unknown_chance_is_not_displayed(name):
    policy = bl.policy(
        name,
        arms=3,
        **({} if name == "ucb1" else {"epsilon": 1.0}),
        **({"delta": 0.01} if name == "dp-ftpl-gauss" else {}),
    )
    assert policy.agent(seed=1).ask().propensity is None


EXPERTS = {"experts": 4}
LOSS_POLICIES = {
    "dp-exp3": {},
    "dp-ftpl": {},
    "dp-htinf-experts": EXPERTS,
    "dp-ftpl-experts": EXPERTS,
}


def loss_agent(name, **parameters):
    policy = bl.policy(name, arms=3, horizon=4_000, epsilon=0.5, **LOSS_POLICIES[name])
    return dataclasses.replace(policy, **parameters).agent(seed=1)


def losses_told(agent, count, *, held_loss=None):
    """Decisions of an agent that is told losses at once; those held out cost `held_loss`."""
    advice = practice_advice(4, 3) if "experts" in agent.policy.parameters else None
    rewards = np.random.default_rng(2)
    made = []
    for _ in range(count):
        made.append(agent.ask() if advice is None else agent.ask(advice))
        loss = float(rewards.random() >= MEANS[made[-1].arm])
        held = made[-1].phase == -1 and held_loss is not None
        agent.tell(made[-1], reward=held_loss if held else loss)
    return made


@pytest.mark.statistical
@pytest.mark.parametrize("name", LOSS_POLICIES)
def test_conversions_weigh_every_arm_once_and_hold_out_evenly(name):
    """As above, 3,000 decisions at 5 standard errors; the base learns fast, so chances differ."""
    made = losses_told(loss_agent(name, holdout=0.3, learning_rate_scale=20.0), 3_000)
    for arm in range(3):
        weights = np.array([(each.arm == arm) / each.propensity for each in made])
        assert abs(weights.mean() - 1.0) <= 5 * weights.std() / math.sqrt(weights.size)
    held = np.bincount([each.arm for each in made if each.phase == -1], minlength=3)
    assert abs(held.sum() - 900) <= 5 * math.sqrt(3_000 * 0.3 * 0.7)
    assert (abs(held - held.sum() / 3) <= 5 * math.sqrt(held.sum() / 4)).all()
    assert min(each.propensity for each in made) >= 0.1 - 1e-12


@pytest.mark.parametrize("name", ["dp-exp3", "dp-htinf-experts"])
def test_a_loss_that_is_held_out_changes_no_decision(name):
    fast = {"holdout": 0.3, "learning_rate_scale": 20.0}
    one, other = (losses_told(loss_agent(name, **fast), 300, held_loss=loss) for loss in (0.0, 1.0))
    assert [(each.arm, each.phase, each.propensity) for each in one] == [
        (each.arm, each.phase, each.propensity) for each in other
    ]


def test_an_arm_of_experts_has_the_chance_of_their_advice():
    """All alike at first, so the mean of their advice; then that of the expert in play."""
    agent, advice = loss_agent("dp-htinf-experts"), practice_advice(4, 3)
    first, second = agent.ask(advice), agent.ask(advice)
    assert first.propensity == pytest.approx(advice[:, first.arm].mean())
    assert second.propensity == pytest.approx(advice[second.phase % 4, second.arm])


def test_no_regret_is_proved_with_even_draws():
    world = bl.environment("bernoulli", means=MEANS)
    policy = bl.policy("dp-se", arms=3, epsilon=1.0, horizon=10**6)
    assert policy.regret_bound(world, 10**6) is not None
    for share in ("explore", "holdout"):
        assert dataclasses.replace(policy, **{share: 0.1}).regret_bound(world, 10**6) is None


@pytest.mark.statistical
def test_the_chance_to_lead_is_that_of_draws():
    """10^5 draws, at 5 standard errors; for two arms, 1 - (2 + gap) exp(-gap) / 4."""
    losses, spread = np.array([1.0, 0.0, 2.5, 0.2]), 0.7
    chances = chances_to_lead(losses, spread)
    noise = np.random.default_rng(3).laplace(scale=spread, size=(10**5, 4))
    shares = np.bincount((losses + noise).argmin(axis=1), minlength=4) / 10**5
    assert (abs(shares - chances) <= 5 * np.sqrt(chances * (1 - chances) / 10**5)).all()
    assert chances.sum() == pytest.approx(1.0, abs=1e-12)
    for gap in (0.0, 0.3, 7.0, 30.0):
        behind = (2 + gap) * math.exp(-gap) / 4
        assert chances_to_lead(np.array([gap, 0.0]), 1.0)[0] == pytest.approx(behind, rel=1e-6)
    assert chances_to_lead(np.array([2.0, 1.0, 1.0]), 0.0).tolist() == [0.0, 1.0, 0.0]
