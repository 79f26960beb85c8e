"""Claims of privacy: what may be claimed, what decisions cost together, and the words for it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from scipy.optimize import brentq

from balaclava._core.declared import LARGEST_EPSILON
from balaclava.errors import ParameterError, PrivacyError
from balaclava.privacy.accounting import gaussian_epsilon, group_delta
from balaclava.privacy.composition import (
    AnyMechanism,
    GaussianNoise,
    LaplaceNoise,
    RandomizedResponse,
    compose,
)
from balaclava.privacy.guarantee import JOINT_NEIGHBOURS, NOTIONS, Guarantee, not_private
from balaclava.privacy.mechanisms.analytic_gaussian import gaussian_shift


@pytest.mark.parametrize("epsilon", [-0.1, math.nan, math.inf, -math.inf, "1", None, True])
def test_bad_epsilon(epsilon: Any) -> None:
    with pytest.raises(ParameterError, match=r"epsilon = .* is not allowed"):
        Guarantee(epsilon=epsilon)


@pytest.mark.parametrize("delta", [-0.1, 1.0, 2.0, math.nan, math.inf, "0", None, False])
def test_bad_delta(delta: Any) -> None:
    with pytest.raises(ParameterError, match=r"delta = .* is not allowed"):
        Guarantee(epsilon=1.0, delta=delta)


def test_both_zero_is_refused_and_either_is_not() -> None:
    with pytest.raises(ParameterError, match="do not depend on rewards"):
        Guarantee(epsilon=0.0, delta=0.0, scope="decision")
    # No reward enters any decision of the run: what playing at random promises, and no one else.
    nothing = Guarantee(epsilon=0.0)
    assert "e^ε = 1." in nothing.explain()
    assert nothing.over(5) == nothing == nothing.for_rewards(1)
    assert str(Guarantee(epsilon=0.0, delta=0.1)) == "ε=0, δ=0.1 per trajectory"
    assert str(Guarantee(epsilon=1, scope="decision")) == "ε=1 per decision"


@pytest.mark.parametrize(
    ("model", "scope"),
    [
        *(("none", "decision"), ("central", "none"), ("x", "none"), ("local", "x")),
        *(("central", "report"), ("local", "decision"), ("local", "trajectory")),
        *(("split", "trajectory"), ("central", "view"), ("local", "view")),
    ],
)
def test_bad_model_or_scope(model: Any, scope: Any) -> None:
    with pytest.raises(ParameterError, match="model"):
        Guarantee(epsilon=1.0, model=model, scope=scope)


MODEL: dict[str, Any] = {"decision": "central", "trajectory": "central", "report": "local"}
MODEL["joint"] = "central"


@pytest.mark.parametrize("decisions", [0, -3, 2.5, math.nan, math.inf, "5", None, True, 10**400])
@pytest.mark.parametrize("scope", ["decision", "trajectory", "joint", "report"])
def test_bad_number_of_decisions(decisions: Any, scope: Any) -> None:
    with pytest.raises(ParameterError, match=r"decisions = .* whole number"):
        Guarantee(epsilon=1.0, scope=scope, model=MODEL[scope]).over(decisions)
    with pytest.raises(ParameterError, match=r"count = .* whole number"):
        Guarantee(epsilon=1.0, scope=scope, model=MODEL[scope]).for_rewards(decisions)


@pytest.mark.parametrize("delta", [-0.1, 1.0, math.nan])
def test_bad_delta_of_many(delta: float) -> None:
    with pytest.raises(ParameterError, match=r"delta = .* is not allowed"):
        Guarantee(epsilon=1.0, scope="decision").over(5, delta=delta)


def test_decisions_add_up() -> None:
    each = Guarantee(epsilon=0.1, scope="decision", assumptions=("bounded",), reference="here")
    pure = each.over(1000)
    assert (pure.scope, pure.delta) == ("trajectory", 0.0)
    assert pure.epsilon == pytest.approx(100.0)
    assert "less at a δ above 0" in pure.explanation
    together = each.over(1000, delta=1e-6)
    assert together.epsilon == pytest.approx(19.3447, abs=1e-4)
    assert together.delta == 1e-6
    assert together.breakdown is not None
    assert together.breakdown.epsilon("basic") == pytest.approx(100.0)
    assert together.assumptions == ("bounded", "an observer sees at most 1000 decisions")
    assert together.reference == "here"
    assert "1000 at ε=0.1 each" in together.explanation
    assert each.over(1).epsilon == pytest.approx(0.1)


def test_delta_left_out_is_that_of_basic_composition() -> None:
    each = Guarantee(epsilon=0.1, delta=1e-8, scope="decision")
    together = each.over(1000)
    assert together.delta == pytest.approx(1e-5)
    assert together.epsilon < 30  # against 100 of basic composition at the same delta
    none = Guarantee(epsilon=0.0, delta=1e-3, scope="decision").over(10)
    assert (none.epsilon, none.delta) == (0.0, pytest.approx(0.01))


def test_too_many_decisions_promise_nothing() -> None:
    each = Guarantee(epsilon=1.0, delta=0.01, scope="decision", reference="here")
    lost = each.over(10**6)
    assert not lost.private
    assert "1000000 decisions at delta = 0.01" in lost.explain()
    with pytest.raises(PrivacyError, match="too small for 1000 decisions"):
        each.over(1000, delta=0.5)


@pytest.mark.parametrize(("model", "scope"), [("central", "trajectory"), ("local", "report")])
def test_what_covers_all_decisions_does_not_multiply(model: Any, scope: Any) -> None:
    whole = Guarantee(epsilon=0.5, delta=1e-6, model=model, scope=scope)
    many = whole.over(10**6)
    assert many == whole
    assert "does not grow with the number of decisions" in many.explanation
    assert "once" in many.explanation
    assert many.explanation in many.explain()
    assert whole.over(5, delta=0.1) == whole
    with pytest.raises(ParameterError, match="below the guarantee's own"):
        whole.over(5, delta=1e-9)


def test_a_composed_guarantee_covers_no_more_decisions() -> None:
    composed = Guarantee(epsilon=0.1, scope="decision").over(30)
    assert composed.over(20) == composed
    assert "does not grow with the number of decisions" not in composed.over(20).explain()
    with pytest.raises(ParameterError, match="composed for 30"):
        composed.over(31)


def test_what_is_not_private_stays_so() -> None:
    nothing = not_private("it uses rewards without noise")
    assert nothing.over(7) == nothing
    assert "Nothing is promised (it uses rewards without noise)" in nothing.explain()


def test_a_known_law_costs_less() -> None:
    each = Guarantee(epsilon=0.5, scope="decision")
    worst, known = each.over(100, 1e-6), each.over(100, 1e-6, law=LaplaceNoise(0.5))
    assert known.epsilon < 0.95 * worst.epsilon
    approximate = Guarantee(epsilon=1.0, delta=1e-3, scope="decision")
    law = GaussianNoise(brentq(lambda shift: gaussian_epsilon(shift, 1e-3) - 1.0, 0.1, 1.0))
    gaussian = approximate.over(100, 0.2, law=law)
    assert gaussian.epsilon < 0.5 * approximate.over(100, 0.2).epsilon
    for other in (LaplaceNoise(0.6), AnyMechanism(0.5, 1e-9), GaussianNoise(0.01)):
        with pytest.raises(PrivacyError, match=r"more than the guarantee's|too small for 1 "):
            each.over(100, 1e-6, law=other)


def test_a_law_that_leaks_less_than_the_claim_is_refused() -> None:
    each = Guarantee(epsilon=0.5, scope="decision")
    for law in (LaplaceNoise(0.499), RandomizedResponse(0.01)):
        with pytest.raises(PrivacyError, match=r"less than the guarantee's 0.5; give the law"):
            each.over(100, 1e-6, law=law)
    approximate = Guarantee(epsilon=0.5, delta=1e-3, scope="decision")
    with pytest.raises(PrivacyError, match="less than the guarantee's"):
        approximate.over(100, 0.2, law=AnyMechanism(0.5))  # of which 1e-3 is left to spare


@pytest.mark.parametrize("epsilon", [699.0, 701.0, 1000.0, 1e5, 1e99])
@pytest.mark.parametrize("law", [AnyMechanism, LaplaceNoise])
def test_an_epsilon_that_is_no_promise_is_still_counted_right(epsilon: float, law: Any) -> None:
    each = Guarantee(epsilon=epsilon, scope="decision")
    for delta in (0.0, 1e-6):
        together = each.over(2, delta, law=law(epsilon)).epsilon
        assert together == pytest.approx(2 * epsilon, rel=1e-6)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_an_epsilon_beyond_computing_is_refused(delta: float) -> None:
    with pytest.raises(ParameterError, match=r"epsilon = 1e\+308 is not allowed"):
        Guarantee(epsilon=1e308, scope="decision").over(2, delta)
    for shift in (1e-310, 0.0, 1e160):
        with pytest.raises(ParameterError, match=r"shift = .* is not allowed"):
            GaussianNoise(shift)
    for shift in (1e-100, 1e6):
        assert compose(GaussianNoise(shift), 2, 1e-6).best.epsilon >= 0


def test_several_rewards_of_one_person() -> None:
    one = Guarantee(epsilon=1.0, delta=1e-6, assumptions=("bounded",))
    three = one.for_rewards(3)
    assert (three.epsilon, three.rewards, three.assumptions) == (3.0, 3, ("bounded",))
    assert three.delta == pytest.approx(1e-6 * (1 + math.e + math.e**2))
    assert "3 times less protected than with one reward, ε=3 instead of ε=1" in three.explain()
    assert str(three) == "ε=3, δ=1.11074e-05 per trajectory for 3 rewards"  # 1.110733: up
    assert one.for_rewards(1) == one
    twice = one.for_rewards(2).for_rewards(3)
    six = one.for_rewards(6)
    assert (twice.epsilon, twice.rewards) == (six.epsilon, six.rewards)
    assert twice.delta == pytest.approx(six.delta)
    assert Guarantee(epsilon=0.5).for_rewards(7).delta == 0.0


def test_group_delta_from_tiny_to_huge() -> None:
    for epsilon in (1e-300, 1e-12, 0.3, 5.0):
        direct = sum(math.exp(j * epsilon) for j in range(4))
        assert group_delta(epsilon, 1e-12, 4) == pytest.approx(1e-12 * direct, rel=1e-12)
    assert group_delta(0.0, 1e-3, 5) == pytest.approx(5e-3)
    assert group_delta(1e308, 1e-9, 3) == 1.0
    assert group_delta(1.0, 0.5, 10**9) == 1.0
    lost = Guarantee(epsilon=1.0, delta=0.1).for_rewards(5)
    assert not lost.private
    assert "5 rewards of one participant" in lost.explain()


def test_a_composed_guarantee_for_several_rewards_covers_no_more_decisions() -> None:
    composed = Guarantee(epsilon=0.1, scope="decision").over(30).for_rewards(2)
    assert composed.epsilon == pytest.approx(6.0)
    with pytest.raises(ParameterError, match="composed for 30"):
        composed.over(31)


def test_the_notions_have_words() -> None:
    assert set(NOTIONS) == {"decision", "joint", "trajectory", "average", "view", "report"}
    assert "Neither server need be trusted alone" in NOTIONS["view"]
    assert "of all others together" in NOTIONS["joint"]
    assert "by itself" in NOTIONS["decision"]
    assert "All decisions of a run together" in NOTIONS["trajectory"]
    assert "on average" in NOTIONS["average"]
    assert "by its owner before anyone else" in NOTIONS["report"]


@pytest.mark.parametrize(
    ("scope", "model", "words"),
    [
        (
            "decision",
            "central",
            ["Each decision by itself", "that one", "over(decisions)"],
        ),
        ("trajectory", "central", ["All decisions of a run together", "on average", "trusted"]),
        ("report", "local", ["by its owner", "including the operator"]),
        ("view", "split", ["one of two servers", "either server", "collude see every reward"]),
    ],
)
def test_explain_names_its_scope(scope: Any, model: Any, words: list[str]) -> None:
    text = Guarantee(
        epsilon=math.log(3),
        delta=1e-5,
        scope=scope,
        model=model,
        assumptions=("rewards in [0, 1]",),
    ).explain()
    for word in (*words, "one time step's reward", "e^ε = 3", "δ=1e-05", "Not covered", "[0, 1]"):
        assert word in text
    others = {"Each decision by itself", "of a run together hide", "by its owner", "server need"}
    assert sum(other in text for other in others) == 1


def test_explain_names_what_joint_privacy_leaves_open() -> None:
    one = Guarantee(epsilon=math.log(3), delta=1e-5, scope="joint", neighbours=JOINT_NEIGHBOURS)
    text = one.explain()
    for words in (
        "decisions of all others together hide the features and the reward",
        "runs that differ in one participant's features and reward",
        "all other participants together",
        "changing that participant's features and reward makes no event more likely than e^ε = 3",
        "Not covered: the participant's own decision, to anyone who sees it",
        "operator sees features and rewards",
    ):
        assert words in text
    assert str(one).endswith("δ=1e-05 joint per participant")
    assert one.over(10**6).epsilon == one.epsilon
    assert "each participant is in one noisy release" in one.over(10**6).explain()
    assert "those 3 sets of features and rewards" in one.for_rewards(3).explain()


def test_explain_at_the_ends() -> None:
    pure = Guarantee(epsilon=1.0).explain()
    assert "δ" not in pure
    assert "ε=2" not in pure  # of one decision given those before it: it was read as the loss
    assert "hardly a promise" in Guarantee(epsilon=1000.0).explain()
    assert "e^ε = 1 times" in Guarantee(epsilon=0.0, delta=0.1).explain()


def test_odds_are_promised_only_without_delta() -> None:
    """A Gaussian at (1, 1e-5) exceeds odds of e with a probability of 16 delta."""
    pure = Guarantee(epsilon=1.0).explain()
    approximate = Guarantee(epsilon=1.0, delta=1e-5).explain()
    assert "multiplies the odds of any guess" in pure
    assert "odds" not in approximate
    assert (
        "no event more likely than e^ε = 2.72 times its probability before, plus δ" in approximate
    )


def test_deltas_that_add_up_to_1_promise_nothing() -> None:
    each = Guarantee(epsilon=0.1, delta=0.125, scope="decision")
    assert each.over(7).delta == 0.875
    assert not each.over(8).private
    assert "their deltas add up to 1 or more" in each.over(8).explain()
    halves = Guarantee(epsilon=0.5 * LARGEST_EPSILON)
    assert halves.for_rewards(2).epsilon == LARGEST_EPSILON
    assert not halves.for_rewards(3).private


def test_only_several_decisions_cost_less_at_a_delta() -> None:
    each = Guarantee(epsilon=0.1, scope="decision")
    assert "and to less at a δ above 0" not in each.over(1).explanation
    assert "and to less at a δ above 0" in each.over(2).explanation
    assert "and to less at a δ above 0" not in each.over(2, delta=0.01).explanation


def test_rewards_in_different_batches_cost_the_root_with_gaussian_noise() -> None:
    epsilon, delta = 0.3, 1e-6
    shift = gaussian_shift(epsilon, delta)
    one = Guarantee(epsilon=epsilon, delta=delta, shift=shift)
    for k in (2, 9, 25):
        together, apart = one.for_rewards(k), one.for_rewards(k, apart=True)
        assert together.delta == apart.delta == delta
        exact = [gaussian_epsilon(factor * shift, delta) for factor in (k, math.sqrt(k))]
        for found, least in zip((together, apart), exact, strict=True):
            assert least < found.epsilon < least + 2e-5 * k  # what exact noise costs
        assert together.assumptions == ()
        (assumption,) = apart.assumptions
        assert "same batch" in assumption
        assert assumption in apart.explain()
        assert "times less" not in together.explain()
        assert delta < Guarantee(epsilon=epsilon, delta=delta).for_rewards(k).delta


def test_what_is_no_single_gaussian_release_is_a_group_of_any_mechanism() -> None:
    shift = gaussian_shift(0.3, 1e-6)
    twice = Guarantee(epsilon=0.6, delta=2e-6, shift=shift)  # after a restore
    plain = Guarantee(epsilon=0.6, delta=2e-6)
    for apart in (False, True):
        found = twice.for_rewards(4, apart=apart)
        group = plain.for_rewards(4)
        assert (found.epsilon, found.delta) == (group.epsilon, group.delta)
        assert plain.for_rewards(4, apart=apart) == plain.for_rewards(4)
    assert (
        not Guarantee(epsilon=600.0, delta=1e-6, shift=gaussian_shift(600.0, 1e-6))
        .for_rewards(9)
        .private
    )
