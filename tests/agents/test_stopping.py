"""`agent.may_stop`: winner, equivalent, futile, or continue."""

from __future__ import annotations

import numpy as np
import pytest

import balaclava as bl
from balaclava.agents.estimates import Estimates, MeanEstimate
from balaclava.agents.stopping import largest_loss
from balaclava.errors import EstimateError, ParameterError
from balaclava.theory.confidence_sequences import laplace_scale, mean_interval, pair_evidence


def played(means: list[float], rounds: int, name: str = "dp-top-two") -> bl.Agent:
    agent = bl.policy(name, arms=len(means), epsilon=1.0).agent(seed=1)
    rng = np.random.default_rng(1)
    for _ in range(rounds):
        decision = agent.ask()
        agent.tell(decision, float(rng.random() < means[decision.arm]))
    return agent


def test_winner():
    agent = played([0.2, 0.8], 500)
    advice = agent.may_stop()
    assert advice
    assert advice.reason == "winner"
    assert str(advice) == "Stop: 1 is the best arm, at 0.95 confidence."


def test_equal_arms_stop_for_equivalence_after_a_number_of_rounds():
    """Two equal arms: at a smallest difference of 0.1 within 4,000 rounds, at 0.2 within 1,200."""
    for difference, rounds in ((0.1, 6_000), (0.2, 1_600)):
        agent = played([0.5, 0.5], rounds)
        advice = agent.may_stop(smallest_difference=difference)
        assert advice.reason == "equivalent"
        assert f"by {difference:g} or more" in advice.sentence
        assert "itself may be better than the others" in advice.sentence
    assert not played([0.5, 0.5], 300).may_stop(smallest_difference=0.02)


@pytest.mark.parametrize("mean", [0.5, 0.97])
def test_equal_arms_stop_by_a_proved_round(mean):
    """The bound holds for every sequence of rewards; this is one."""
    agent = played([mean, mean], 400)
    policy = agent.policy
    assert policy.equivalence_bound(0.2) == 1_852
    agent = played([mean, mean], 1_852)
    assert agent.may_stop(smallest_difference=0.2)
    assert policy.equivalence_bound(0.1) > 1_852
    wide = bl.policy("dp-top-two", arms=2, epsilon=1.0, reward_range=(0.0, 10.0))
    assert wide.equivalence_bound(2.0) == 1_852
    top = bl.policy("dp-top-two", arms=3, epsilon=1.0, goal="top", top=1)
    assert top.equivalence_bound(0.2) is None
    for difference in (0.0, 1.0):
        with pytest.raises(ParameterError, match="smallest_difference"):
            policy.equivalence_bound(difference)


def test_several_arms_stop_by_a_proved_round():
    """Two equal best arms and a worse one; the bound is loose, and grows with the arms."""
    agent = played([0.5, 0.5, 0.3], 1_600)
    assert agent.may_stop(smallest_difference=0.2).reason == "equivalent"
    three, four = (
        bl.policy("dp-top-two", arms=arms, epsilon=1.0).equivalence_bound(0.2) for arms in (3, 4)
    )
    assert (three, four) == (347_760, 637_440)


def test_a_worse_arm_with_few_pulls_is_below_the_leader():
    """The step of the proof: E of log(2/f) puts the interval below the leader's mean."""
    failure, scale = 0.05 / 3, laplace_scale(1.0)
    shown = 0
    for mean in np.linspace(0.0, 0.6, 61):
        worse, leader = (float(mean), 60, 1), (0.6, 200_000, 30)
        if pair_evidence(worse, leader, scale, 1.0) >= np.log(2.0 / failure):
            shown += 1
            assert mean_interval(*worse, scale, failure)[1] <= leader[0]
    assert 10 < shown < 50


def test_futile():
    agent = played([0.50, 0.51], 4_000)
    assert not agent.may_stop()
    assert not agent.may_stop(horizon=10**9)
    advice = agent.may_stop(horizon=4_500)
    assert advice.reason == "futile"
    assert "500 are left" in advice.sentence
    assert agent.may_stop(horizon=4_000).sentence.startswith("Stop: all 4,000")
    assert not played([0.5, 0.51], 10).may_stop(horizon=20)  # nothing is released yet


def test_a_test_at_the_end_is_waited_for():
    """All participants of dp-even are there, but the last reward is not."""
    agent = bl.policy("dp-even", arms=2, epsilon=1.0, horizon=80).agent(seed=1)
    decisions = [agent.ask() for _ in range(80)]
    for decision in decisions[:-1]:
        agent.tell(decision, float(decision.arm))
    waiting = agent.may_stop(horizon=80)
    assert not waiting
    assert waiting.sentence.startswith("Wait for the last rewards")
    agent.tell(decisions[-1], float(decisions[-1].arm))
    assert agent.may_stop(horizon=80).reason == "winner"


@pytest.mark.statistical
def test_noise_alone_does_not_end_a_trial():
    """Rates of 5 and 9 %: all such trials name the winner within 10,000 decisions."""
    for seed in range(5):
        agent = bl.policy("dp-top-two", arms=2, epsilon=1.0).agent(seed=seed)
        rng, forecasts = np.random.default_rng(seed + 50), []
        for _ in range(8):
            for _ in range(50):
                decision = agent.ask()
                agent.tell(decision, float(rng.random() < (0.05, 0.09)[decision.arm]))
            assert agent.may_stop(horizon=10_000).reason != "futile"
            forecasts.append(agent.remaining() or 0)
        assert max(forecasts) < 30_000  # the difference as released would say 10^5 and more


def test_the_largest_loss_is_that_of_the_safest_arm():
    intervals = [(0.4, 0.6), (0.5, 0.55), (0.1, 0.9)]
    entries = [MeanEstimate(i, str(i), 9, 9, 0.5, each) for i, each in enumerate(intervals)]
    best, most = largest_loss(Estimates(entries, 0.95, None))
    assert best == 1
    assert most == pytest.approx(0.4)
    best, most = largest_loss(Estimates(entries[:2], 0.95, None))
    assert best == 1
    assert most == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"smallest_difference": 0.0}, "smallest_difference"),
        ({"smallest_difference": 1.0}, "width"),
        ({"horizon": 0}, "horizon"),
        ({"confidence": 1.0}, "confidence"),
    ],
)
def test_bad_input(options, words):
    with pytest.raises(ParameterError, match=words):
        played([0.5, 0.5], 3).may_stop(**options)


def test_policies_without_estimates():
    agent = bl.policy("dp-ftpl-gauss", arms=2, epsilon=1.0, delta=1e-3, horizon=100).agent(seed=1)
    with pytest.raises(EstimateError):
        agent.may_stop()
    assert not agent.policy.names_winners
    for name in ("dp-se", "successive-elimination"):
        private = {"epsilon": 1.0} if name == "dp-se" else {}
        assert bl.policy(name, arms=2, horizon=100, **private).names_winners
    assert bl.policy("dp-imed", arms=2, epsilon=1.0, explore=0.1).names_winners
