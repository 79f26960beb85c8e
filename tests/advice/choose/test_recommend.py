"""The recommended policy, and what it refuses."""

from __future__ import annotations

from typing import Any, get_args

import pytest

import balaclava as bl
from balaclava.advice.choose.questions import what_would_change
from balaclava.advice.choose.rules import RECOMMENDATION_RULES, Rewards, Trust
from balaclava.errors import ParameterError

MORE: dict[str, dict[str, Any]] = {
    "heavy-tailed": {"moment_order": 1.5, "moment_bound": 2.0},
    "outliers": {"moment_order": 2.0, "moment_bound": 1.0, "contamination": 0.05},
    "experts": {"experts": 4},
}


@pytest.mark.parametrize("rewards", get_args(Rewards))
@pytest.mark.parametrize("trust", get_args(Trust))
def test_the_policy_keeps_what_was_asked_for(rewards: Any, trust: Any) -> None:
    known = {(rule.rewards, rule.trust) for rule in RECOMMENDATION_RULES} | {("bounded", "split")}
    if (rewards, trust) not in known:
        with pytest.raises(ParameterError, match=rf"no policy fits .*; with trust = '{trust}'"):
            bl.recommend(
                arms=3, horizon=5000, rewards=rewards, trust=trust, simulate=False,
                **MORE.get(rewards, {}),
            )  # fmt: skip
        return
    advice = bl.recommend(
        arms=3,
        horizon=5000,
        epsilon=0.5,
        rewards=rewards,
        trust=trust,
        simulate=False,
        **MORE.get(rewards, {}),
    )
    assert advice.guarantee.private
    assert advice.guarantee.epsilon == 0.5
    assert advice.guarantee.delta == 0.0
    assert advice.guarantee.model == trust
    assert not advice.baseline.guarantee.private
    assert (advice.policy.arms, advice.baseline.arms) == (3, 3)
    assert eval(advice.code, {"bl": bl}) == advice.policy


def test_two_servers() -> None:
    how = {"arms": 3, "horizon": 5000, "trust": "split"}
    advice = bl.recommend(**how, goal="best", simulate=False)
    assert (advice.policy.name, advice.guarantee.scope) == ("dp-top-two", "view")
    assert advice.plan is None
    assert bl.recommend(**how, scope="decision", simulate=False).guarantee.scope == "view"
    with pytest.raises(ParameterError, match="no policy with features plays on shares"):
        bl.recommend(**how, features=2, simulate=False)
    central = bl.recommend(**(how | {"trust": "central"}), simulate=False)
    changes = what_would_change(central, trust="central", scope="trajectory")
    assert "dp-imed with trust='split', if one of two servers is trusted" in changes


@pytest.mark.slow
def test_arms_by_name() -> None:
    advice = bl.recommend(arms=["plain", "map"], horizon=1_000)
    assert advice.policy.arm_labels == ("plain", "map")
    assert "arms=['plain', 'map']" in advice.code
    with pytest.raises(ParameterError, match="twice"):
        bl.recommend(arms=["plain", "plain"], horizon=1_000)


def test_single_decisions() -> None:
    advice = bl.recommend(arms=3, horizon=1000, scope="decision", simulate=False)
    assert advice.guarantee.scope == "decision"
    assert advice.notes == ()
    heavy = bl.recommend(
        arms=3,
        horizon=1000,
        scope="decision",
        rewards="heavy-tailed",
        simulate=False,
        **MORE["heavy-tailed"],
    )
    assert heavy.guarantee.scope == "trajectory"
    assert "no policy for such rewards is made for single decisions" in heavy.notes[0]
    assert "radius_scale, such as 0.2" in heavy.notes[1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rewards": "clicks"}, "rewards = 'clicks' is not allowed; give one of 'bounded'"),
        ({"epsilon": 0.0}, "epsilon = 0.0 is not allowed; give a number in"),
        ({"horizon": 1}, "horizon = 1 is not allowed"),
        ({"rewards": "heavy-tailed"}, "'moment_order' is missing"),
        ({"rewards": "experts"}, "'experts' is missing"),
        ({"rewards": "outliers", "moment_order": 2.0, "moment_bound": 1.0}, "contamination is"),
        ({"reward_range": (1.0, 0.0)}, "reward_range"),
    ],
)
def test_refusals(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        bl.recommend(**{"arms": 2, "horizon": 100, **given})


def test_expectation() -> None:
    advice = bl.recommend(arms=2, horizon=2_000, epsilon=1.0)
    found = advice.expect(repetitions=8)
    world = bl.environment("bernoulli", means=[0.3, 0.7])
    again = bl.simulate(
        {"policy": advice.policy}, world, horizon=2_000, repetitions=8, seed=1, checkpoints=1
    )
    assert found.regret == again.final_regret("policy").mean()
    assert found.price == found.regret / found.baseline_regret
    assert found.random_regret == pytest.approx(2_000 * 0.2)
    assert not found.hardly_better
    strict = bl.recommend(arms=2, horizon=100, epsilon=1e-4, simulate=False)
    assert strict.expect(repetitions=4).hardly_better


@pytest.mark.parametrize(
    ("rewards", "name"), [("adversarial", "ldp-exp3"), ("outliers", "ldpr-batch-ucb")]
)
def test_local_policies_are_found(rewards: Any, name: str) -> None:
    advice = bl.recommend(
        arms=3,
        horizon=5000,
        rewards=rewards,
        trust="local",
        simulate=False,
        **MORE.get(rewards, {}),
    )
    assert advice.policy.name == name
    assert advice.policy.contamination == MORE.get(rewards, {}).get("contamination")


def test_problems_are_those_of_the_users_rate() -> None:
    advice = bl.recommend(arms=5, horizon=2_000, average=0.003, difference=0.0005)
    assert advice.policy.name == "random"  # too little to learn: dp-imed would be advised at 0.5
    outlook = advice.expect(repetitions=2)
    assert outlook.random_regret == pytest.approx(2_000 * 0.0005 * 4 / 5)
    assert outlook.instance == "rewards 0 and 1, 5 arms with averages of 0.003, one 0.0005 ahead"
    with pytest.raises(ParameterError, match="give average and difference together"):
        bl.recommend(arms=5, horizon=2_000, average=0.003)


@pytest.mark.parametrize(
    ("given", "name", "planned"),
    [
        ({"horizon": 3_000}, "dp-top-two", True),
        ({"horizon": 150}, "dp-even", True),
        ({"horizon": 20, "epsilon": 0.1}, "dp-top-two", True),  # no answer is possible
        pytest.param({"trust": "local"}, "ldp-top-two", True, marks=pytest.mark.slow),
        ({"scope": "decision", "horizon": 3_000}, "dp-top-two", True),
        ({"rewards": "heavy-tailed", **MORE["heavy-tailed"]}, "dpr-top-two", False),
        (
            {"rewards": "heavy-tailed", "trust": "local", **MORE["heavy-tailed"]},
            "ldpr-batch-ucb",
            False,
        ),
        ({"rewards": "unknown-tails"}, "dpr-adaptive-ucb", False),
        ({"rewards": "adversarial"}, "dp-htinf", False),
    ],
)
def test_to_know_which_arm_is_best(given: dict[str, Any], name: str, planned: bool) -> None:
    around = {"average": 0.3, "difference": 0.3} if planned else {}
    advice = bl.recommend(**{"arms": 3, "horizon": 1_000, "goal": "best", **around, **given})
    assert advice.policy.name == name
    assert (advice.plan is not None) == planned
    assert eval(advice.code, {"bl": bl}) == advice.policy
    if "heavy-tailed" in given.values():
        assert advice.policy.names_winners
    if not planned or given.get("horizon", 9) < 100 or "scope" in given:
        assert advice.notes


def test_the_plan_is_for_the_users_own_problem() -> None:
    """Rewards from 10 to 20: 13, and 16 for the best, are rates of 0.3 and 0.6."""
    own = {"average": 13.0, "difference": 3.0, "reward_range": (10.0, 20.0)}
    late = bl.Delay(mean=20, law="fixed", lost=0.1)
    advice = bl.recommend(arms=3, horizon=2_000, goal="regret", delay=late, **own)
    assert advice.policy.name in ("dp-imed", "dp-klucb")
    assert advice.plan is not None
    assert "rates of 0.3, and 0.6 of the best, fixed delay of 20, 10 % lost" in advice.plan.title
    assert "Plan: A classic test" in str(advice)
    assert bl.recommend(arms=3, horizon=2_000, simulate=False).plan is None
    with pytest.raises(ParameterError, match="goal = 'both' is not allowed"):
        bl.recommend(arms=3, horizon=2_000, goal="both")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="confidence"):
        bl.recommend(arms=3, horizon=2_000, goal="best", confidence=0.5)
    tiny = bl.recommend(arms=2, horizon=100, goal="best", average=0.5, difference=1e-5)
    assert "there is no plan: the trial takes more than" in tiny.notes[0]
    with pytest.raises(ParameterError, match="epsilons is empty"):
        bl.epsilon_table([], arms=2, horizon=100)


def test_a_window_is_planned_and_played() -> None:
    """A missing 10 of rewards from 10 to 20 counts 0 in the plan, and 10 in what is played."""
    own: dict[str, Any] = {"average": 13.0, "difference": 5.0, "reward_range": (10.0, 20.0)}
    window: dict[str, Any] = {"patience": 40, "settle": "window", "missing": 10.0}
    late = bl.Delay(mean=20, law="fixed", lost=0.5)
    advice = bl.recommend(arms=2, horizon=800, goal="regret", delay=late, **own, **window)
    assert advice.plan is not None
    assert "settled after a window of 40, missing counts 0," in advice.plan.title
    prompt = bl.recommend(arms=2, horizon=800, goal="regret", **own)
    assert prompt.plan is not None
    # Half of the outcomes are lost and count 0: the lead is half, so it takes longer.
    assert advice.plan.of("dp-even").high > 2 * prompt.plan.of("dp-even").high
    outlook = advice.expect(repetitions=4, delay=late, **window)
    assert "missing counts 10" in outlook.instance
    with pytest.raises(ParameterError, match="missing = 0 is not allowed"):
        bl.recommend(arms=2, horizon=800, simulate=False, **own, **{**window, "missing": 0.0})


def test_a_plan_for_random_delays_tests_all_participants() -> None:
    """The longest possible delay is 1,200 decisions; without it 31 % of the trials named an arm."""
    delay = bl.Delay(mean=60, lost=0.1)
    advice = bl.recommend(
        arms=3, horizon=2_000, epsilon=0.3, goal="best", average=0.55, difference=0.1,
        delay=delay, patience=200,
    )  # fmt: skip
    assert advice.plan is not None
    assert 0.78 < advice.plan.of("dp-even").named < 0.9
