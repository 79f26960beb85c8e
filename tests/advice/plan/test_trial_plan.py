"""`bl.plan`: participants until the best arm is named, and `balaclava plan`."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import balaclava as bl
from balaclava.advice.plan.fixed_size_test import FixedSizeTest
from balaclava.cli import main
from balaclava.errors import EstimateError, ParameterError, UnknownNameError
from balaclava.policies.intervals import NO_WINNER
from balaclava.theory.fixed_sample import best_of_sample, look_share

PLAN = bl.plan(3, [0.3, 1.0], base_rate=0.3, smallest_difference=0.3, participants=2_000)


@pytest.mark.statistical
def test_the_quantiles_are_those_of_fresh_trials():
    """100 fresh trials: the share named by the planned median and 90 % is within 5 deviations."""
    row = next(row for row in PLAN if row.label == "dp-top-two" and row.epsilon == 1.0)
    world = bl.environment("bernoulli", means=[0.3, 0.3, 0.6])
    policy = bl.policy("dp-top-two", arms=3, epsilon=1.0, confidence=0.95)
    for rounds, share in ((row.median, 0.5), (row.high, 0.9)):
        results = bl.simulate(
            policy, world, horizon=int(rounds), repetitions=100, seed=7, winners=True
        )
        named = 1.0 - results.winners(0.95)[0].none
        error = math.sqrt(share * (1.0 - share) * (1 / 100 + 1 / 200))
        assert abs(named - share) < 5 * error
    assert row.wrong <= 0.05
    assert row.worse < row.high


def test_less_privacy_takes_fewer_participants():
    strict, loose = (row for row in PLAN if row.label == "dp-top-two")
    assert strict.epsilon < loose.epsilon
    assert strict.median > loose.median
    assert PLAN[-1].label == "classic test"
    assert PLAN[-1].high < loose.high
    assert all(math.isnan(row.high) for row in PLAN if row.label == "dp-imed")
    assert "takes 204 participants" in PLAN.sentence
    assert "dp-top-two 100 %, 100 % at epsilon 0.3, 1; dp-even 100 %, 100 %" in PLAN.sentence
    with pytest.raises(ParameterError, match="no row 'dp-se'"):
        PLAN.of("dp-se")


def test_the_private_test_of_fixed_size_costs_little():
    """dp-even takes less than dp-top-two, and at epsilon 1 about as many as the classic test."""
    strict, loose = (row for row in PLAN if row.label == "dp-even")
    classic = PLAN.of("classic test")
    assert strict.high > 1.3 * classic.high
    assert 0.95 * classic.high < loose.high < 1.25 * classic.high
    assert loose.high < PLAN.of("dp-top-two").high
    assert loose.median == loose.high
    assert bl.plan(3, 1.0, base_rate=0.3, smallest_difference=0.3, policy="dp-even")[0] == (
        loose._replace(
            named=pytest.approx(0.9, abs=0.02),
            worse=pytest.approx(loose.high * 2 / 3),
            width=pytest.approx(loose.width * math.sqrt(2_000 / loose.high), rel=0.05),
        )
    )


@pytest.mark.statistical
@pytest.mark.parametrize(("epsilon", "size"), [(1.0, 75), (0.2, 150)])
def test_the_power_is_that_of_the_exact_test(epsilon: float, size: int):
    """100 tests drawn for a power of about 0.9: at most 2 answers differ from the exact test's."""
    test = FixedSizeTest(np.array([0.3, 0.3, 0.6]), epsilon, 0.95, 1)
    (draws,) = test._draw(size)
    share, wrong, _ = test.shares(size)
    critical = np.sort(draws.scores)[round((1.0 - share - wrong) * draws.scores.size)]
    assert 0.8 < share < 0.98
    exact = [
        best_of_sample(np.array([[size, rate, 1.0] for rate in each]), epsilon, 0.05)
        for each in draws.rates[:100]
    ]
    quick = np.where(draws.scores >= critical, draws.leaders, NO_WINNER)[:100]
    assert (np.array(exact) != quick).sum() <= 2


@pytest.mark.statistical
def test_the_power_with_looks_is_that_of_the_exact_test():
    """100 trials, tested at each look: at most 2 end at another one than the plan's."""
    test, size = FixedSizeTest(np.array([0.3, 0.6]), 1.0, 0.95, 1, looks=3), 75
    ends = np.ones(100)
    for draws in reversed(list(test._draw(size))):
        level = 0.05 * look_share(draws.look, 3)
        for trial, each in enumerate(draws.rates[:100]):
            released = np.array([[draws.size, rate, draws.look] for rate in each])
            if best_of_sample(released, 1.0, level) != NO_WINNER:
                ends[trial] = draws.size / size
    planned = test.shares(size)
    assert (ends != planned.lengths[:100]).sum() <= 2
    assert (ends < 1.0).sum() > 20
    one = FixedSizeTest(np.array([0.3, 0.6]), 1.0, 0.95, 1).shares(size)
    assert planned.right < one.right


def test_a_plan_knows_the_looks():
    """Five looks had the size, the power and the words of one."""
    rows = {}
    for looks in (1, 5):
        policy = bl.policy("dp-even", arms=2, epsilon=1.0, horizon=200, looks=looks)
        size = bl.plan(
            2, 1.0, base_rate=0.3, smallest_difference=0.3, policy=policy, participants=100
        )
        rows[looks] = size.of("dp-even")
        assert ("at each of 5 looks" in size.sentence) == (looks == 5)
        assert ("one exact one-sided test at the end" in size.sentence) == (looks == 1)
    assert rows[5].high > 1.2 * rows[1].high
    assert rows[5].median < rows[5].high
    assert rows[5].named < rows[1].named - 0.1
    assert rows[1].worse == 50


def test_dp_even_has_the_planned_power():
    """The policy itself, 60 trials of the planned size: named in 90 %, within 5 deviations."""
    row = bl.plan(2, 1.0, base_rate=0.2, smallest_difference=0.5, policy="dp-even")[0]
    policy = bl.policy("dp-even", arms=2, epsilon=1.0, horizon=int(row.high))
    world = bl.environment("bernoulli", means=[0.2, 0.7])
    results = bl.simulate(
        policy, world, horizon=int(row.high) + 1, repetitions=60, seed=2, winners=True
    )
    assert abs(results.winners()[0].right - 0.9) < 5 * math.sqrt(0.09 / 60)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("epsilon", "size"), [(1.0, 60), pytest.param(0.2, 150, marks=pytest.mark.slow)]
)
def test_the_width_is_that_of_the_intervals_of_fresh_trials(epsilon: float, size: int):
    """Eight agents: an interval's width is within 10 % of the plan's, their mean within 2 %."""
    width = FixedSizeTest(np.array([0.3, 0.3, 0.6]), epsilon, 0.95, 1).width(size)
    found = []
    for seed in range(8):
        policy = bl.policy("dp-even", arms=3, epsilon=epsilon, horizon=3 * size)
        agent, rng = policy.agent(seed=seed), np.random.default_rng(seed)
        for _ in range(3 * size):
            decision = agent.ask()
            agent.tell(decision, float(rng.random() < (0.3, 0.3, 0.6)[decision.arm]))
        low, high = agent.difference(2, 0)
        found.append(high - low)
    assert np.mean(found) == pytest.approx(width, rel=0.02)
    assert np.ptp(found) < 0.2 * width


def test_another_power_and_the_horizon_to_write():
    asked = {"base_rate": 0.5, "smallest_difference": 0.3, "policy": "dp-even"}
    usual = bl.plan(2, 1.0, **asked, delay=bl.Delay(mean=40, law="fixed"))
    weaker = bl.plan(2, 1.0, **asked, power=0.8)
    (size, classic), (even, _) = weaker, usual
    assert (weaker.cells[0][3], usual.cells[0][3]) == ("80 %", "90 %")
    assert size.high < even.horizon == even.high - 40
    assert 0.79 <= size.named <= 0.83
    assert 0.79 <= classic.named <= 0.83
    assert f"Its horizon is {even.horizon:,.0f}" in usual.sentence
    policy = bl.policy("dp-even", arms=2, epsilon=1.0, horizon=int(even.horizon))
    assert policy.horizon == even.horizon
    with pytest.raises(ParameterError, match="power"):
        bl.plan(2, 1.0, **asked, power=1.0)


@pytest.mark.statistical
@pytest.mark.parametrize("arms", [2, 4])
def test_equal_arms_are_named_at_two_one_sided_errors(arms: int):
    """Of 4,000 tests: within 5 standard errors. So 0.975 is a two-sided 5 %, for any arms."""
    for failure in (0.05, 0.025):
        shares = FixedSizeTest(np.full(arms, 0.6), 1.0, 1.0 - failure, 1).shares(300)
        assert sum(shares[:2]) <= 2.0 * failure + 5.0 * math.sqrt(2.0 * failure / 4_000)
    assert arms > 2 or sum(shares[:2]) > 1.5 * failure
    plan = bl.plan(arms, 1.0, base_rate=0.5, smallest_difference=0.3, policy="dp-even")
    assert "one-sided at 0.95 confidence" in plan.title
    assert "exact one-sided test" in plan.sentence


@pytest.mark.statistical
def test_the_width_of_a_trial_that_stops_is_that_of_its_intervals_then():
    """30 agents that stop at their winner: within 5 standard errors, of both means."""
    plan, found = bl.plan(2, 1.0, base_rate=0.3, smallest_difference=0.4), []
    for seed in range(30):
        agent = bl.policy("dp-top-two", arms=2, epsilon=1.0).agent(seed=seed)
        rng = np.random.default_rng(seed)
        while agent.winner() is None:
            for _ in range(5):
                decision = agent.ask()
                agent.tell(decision, float(rng.random() < (0.3, 0.7)[decision.arm]))
        found.append(sum(each.interval[1] - each.interval[0] for each in agent.estimates()))
    error = np.std(found) * math.sqrt(1 / 30 + 1 / 40)
    assert abs(np.mean(found) - plan.of("dp-top-two").width) < 5 * error
    assert plan.of("dp-even").width < plan.of("dp-top-two").width
    assert "interval of a difference is then about" in plan.sentence


def test_participants_that_are_too_few():
    few = bl.plan(3, 1.0, base_rate=0.3, smallest_difference=0.3, participants=100)
    assert few.of("dp-top-two").named < few.of("dp-even").named < 0.8
    assert few.of("dp-imed").worse < 100
    assert "With 100 participants" in few.sentence
    assert "then uses all of them" in few.sentence
    assert f"dp-even {few.of('dp-even').width:.2g} at epsilon 1" in few.sentence
    assert "of a difference is then" not in few.sentence
    assert "If the lead is 0.6" in few.sentence


def test_the_classic_test_has_the_size_of_the_usual_formula():
    """Two arms, 0.5 and 0.6: n = (z_.95 + z_.9)^2 (p q + p' q') / d^2 = 420 an arm, within 5 %."""
    row = bl.plan(2, 3.0, base_rate=0.5, smallest_difference=0.1)[-1]
    expected = 2 * (1.6449 + 1.2816) ** 2 * (0.25 + 0.24) / 0.01
    assert row.high == pytest.approx(expected, rel=0.05)
    assert row.worse == row.high / 2
    # One pair, so that no correction is due.
    deviation = math.sqrt((0.25 + 0.24) / (row.high / 2))
    assert row.width == pytest.approx(2 * 1.96 * deviation, rel=1e-3)


def test_lost_rewards_cost_participants():
    delay = bl.Delay(mean=50, law="fixed", lost=0.5)
    late = bl.plan(2, 1.0, base_rate=0.3, smallest_difference=0.4, delay=delay)
    prompt = bl.plan(2, 1.0, base_rate=0.3, smallest_difference=0.4)
    assert late[0].median > 1.5 * prompt[0].median
    # The last outcomes come 50 participants later, for tests of fixed size, too.
    assert np.isclose(late[-1].high - 50, 2 * prompt[-1].high, rtol=0.1)
    assert "fixed delay of 50, 50 % lost" in late.title
    assert "with those who come while outcomes are awaited" in late.title


def test_a_mean_delay_is_that_of_simulate_and_choose():
    """A number, --delay of every command, and the default of bl.Delay are one law."""
    late = bl.plan(2, 1.0, base_rate=0.3, smallest_difference=0.5, policy="dp-even", delay=20)
    assert "geometric delay of mean 20" in late.title
    words = ["plan", "--arms", "2", "--rate", "0.3", "--difference", "0.5", "--policy", "dp-even"]
    answer = CliRunner().invoke(main, [*words, "--epsilon", "1", "--delay", "20", "--json"])
    rows = json.loads(answer.output)["rows"]
    assert [row["high"] for row in rows] == [row.high for row in late]


def test_a_window_counts_what_did_not_come():
    """Each has an outcome, the lead is smaller: dp-even's size is that of the smaller lead."""
    lossy = {"delay": bl.Delay(mean=20, law="uniform"), "lost": None}
    window = bl.plan(2, 1.0, base_rate=0.4, smallest_difference=0.4, policy="dp-even",
                     patience=20, settle="window", missing=1.0, **lossy)  # fmt: skip
    share = 21 / 41
    small = bl.plan(2, 1.0, base_rate=1 - 0.6 * share, smallest_difference=0.4 * share,
                    policy="dp-even")  # fmt: skip
    assert [row.high - 20 for row in window] == [row.high for row in small]  # the window
    assert "settled after a window of 20, missing counts 1" in window.title
    impatient = bl.plan(2, 1.0, base_rate=0.4, smallest_difference=0.4, policy="dp-even",
                        patience=20, **lossy)  # fmt: skip
    prompt = bl.plan(2, 1.0, base_rate=0.4, smallest_difference=0.4, policy="dp-even")
    assert impatient[0].high - 20 == pytest.approx(prompt[0].high / share, rel=0.01)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"arms": 1}, "nothing to compare"),
        ({"smallest_difference": 0.0}, "smallest_difference"),
        ({"smallest_difference": 0.9}, "add up to more than 1"),
        ({"confidence": 0.5}, "confidence"),
        ({"confidence": 1.0}, "confidence"),
        ({"base_rate": 1.0}, "base_rate"),
        ({"epsilon": []}, "epsilon is empty"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"lost": 1.0}, "lost"),
        ({"delay": "soon"}, "delay"),
        ({"delay": -1}, "mean = -1.0 is not allowed"),
        ({"delay": bl.Delay(mean=5), "lost": 0.1}, "twice"),
        ({"participants": 1}, "participants"),
        ({"settle": "window"}, "needs patience"),
        ({"settle": "window", "patience": 9, "missing": 0.5}, "give one of them"),
        ({"delay": bl.Delay(mean=9, law="fixed"), "patience": 8}, "no reward arrives in time"),
        ({"smallest_difference": 1e-6}, "larger smallest_difference"),
        ({"policy": bl.policy("dp-imed", arms=2, epsilon=1.0)}, "2 arms"),
    ],
)
def test_bad_input(options, words):
    usual = {"arms": 3, "epsilon": 1.0, "base_rate": 0.3, "smallest_difference": 0.1}
    with pytest.raises(ParameterError, match=words):
        bl.plan(**{**usual, **options})


def test_policies_that_cannot_be_planned():
    usual = {"arms": 3, "epsilon": 1.0, "base_rate": 0.3, "smallest_difference": 0.1}
    with pytest.raises(UnknownNameError, match="did you mean 'dp-top-two'"):
        bl.plan(**usual, policy="dp-topp-two")
    with pytest.raises(EstimateError, match="exp3 offers no estimates"):
        bl.plan(**usual, policy="exp3")


def test_the_command(tmp_path: Path):
    picture = tmp_path / "plan.png"
    asked = ["plan", "--arms", "3", "--rate", "0.3", "--difference", "0.3", "--epsilon", "0.3,1"]
    printed = CliRunner().invoke(main, [*asked, "--participants", "2000", "--out", str(picture)])
    assert printed.exit_code == 0, printed.output
    assert printed.output.split() == str(PLAN).split()
    assert max(map(len, printed.output.splitlines())) <= 96  # wrapped
    assert picture.read_bytes()[:4] == b"\x89PNG"
    as_json = CliRunner().invoke(main, [*asked, "--json"])
    assert json.loads(as_json.output)["rows"][0]["label"] == "dp-top-two"
    refused = CliRunner().invoke(main, [*asked[:-1], "0.3,one"])
    assert refused.exit_code == 2
    assert "'0.3,one' is not a number" in refused.output
