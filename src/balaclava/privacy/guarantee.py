"""Privacy guarantees as objects: the promise, its scope and its assumptions."""

from __future__ import annotations

import dataclasses
import html
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from balaclava._core.declared import LARGEST_EPSILON, Delta, check, check_claim
from balaclava._core.number_format import rounded_up
from balaclava.errors import ParameterError, PrivacyError
from balaclava.privacy.accounting import Decisions, group_delta
from balaclava.privacy.mechanisms.analytic_gaussian import group_epsilon

if TYPE_CHECKING:
    from balaclava.privacy.composition import Composition, Law

Model = Literal["none", "central", "split", "local"]
Scope = Literal["none", "decision", "joint", "trajectory", "view", "report"]
_SCOPE_OF_MODEL = {"none": "none", "split": "view", "local": "report"}  # and only of that model

NEIGHBOURS = "reward streams that differ in one time step's reward"

NEIGHBOURS_IN_TIME = (
    "reward streams that differ in one time step's reward, in its time of arrival, or in whether "
    "it arrived at all"
)

JOINT_NEIGHBOURS = "runs that differ in one participant's features and reward"
JOINT_NEIGHBOURS_IN_TIME = (
    "runs that differ in one participant's features and reward, in its time of arrival, or in "
    "whether it arrived at all"
)
IN_TIME = (NEIGHBOURS_IN_TIME, JOINT_NEIGHBOURS_IN_TIME)  # neighbours that cover arrival

# The notions of private bandits. All but "average" are scopes. "average" follows from "trajectory"
# at the same epsilon and delta.
NOTIONS = {
    "decision": (
        "Each decision by itself hides the reward of any one time step. Several decisions together "
        "reveal more than one of them."
    ),
    "trajectory": "All decisions of a run together hide the reward of any one time step.",
    "joint": (
        "The decisions of all others together hide the features and the reward of any one "
        "participant. A participant's own decision shows its own features."
    ),
    "average": (
        "As for a trajectory, but only on average over rewards drawn at random, and for changes "
        "that touch one reward in expectation. Weaker: some reward streams may be less protected."
    ),
    "view": (
        "All that one of two servers sees, together with all decisions of a run, hides the reward "
        "of any one time step. Each server gets a random share of each reward; only sums with "
        "noise of both leave them. Neither server need be trusted alone."
    ),
    "report": (
        "Each reward is randomised by its owner before anyone else sees it. The operator need not "
        "be trusted."
    ),
}

_OBSERVER = {
    "decision": (
        "an observer of that one decision, even one with all other rewards and all earlier "
        "decisions"
    ),
    "trajectory": "an observer of all decisions, even one with all other rewards",
    "joint": (
        "all other participants together, even with all their features and rewards, and anyone "
        "who sees the released sums"
    ),
    "view": "either server, and an observer of all decisions, even one with all other rewards",
    "report": "an observer of the reports, including the operator",
}

_ONCE = {
    "trajectory": (
        "The loss does not grow with the number of decisions: ε pays for all noisy releases that a "
        "reward enters, their noise is drawn once, and all decisions (here {n}) are computed from "
        "the releases."
    ),
    "joint": (
        "The loss does not grow with the number of decisions: each participant is in one noisy "
        "release, and the decisions of all others (here {n} in all) are computed from the releases "
        "and their own features."
    ),
    "view": (
        "The loss does not grow with the number of decisions: each reward is in one sum, each "
        "server releases its share of that sum once with noise of its own, and all decisions (here "
        "{n}) are computed from the sums."
    ),
    "report": (
        "The loss does not grow with the number of decisions: each reward is reported once, with "
        "noise, and all decisions (here {n}) are computed from the reports."
    ),
}

# What trust="split" assumes.
SHARED_BY_DEVICES = (
    "at least one of the two servers is honest: it shares nothing but its noisy sums, draws its "
    "noise afresh and releases each batch once; two servers that pool their shares see every "
    "reward",
    "devices draw shares from a secure source of randomness, and send exactly one pair for each "
    "decision, at a time and of a size that do not depend on the reward, a default included",
    "a program that is given rewards instead of shares is trusted with them",
)
_APART = (
    "no two rewards of one participant are in the same batch: at most one of a participant's "
    "decisions in a batch is learned from"
)
_NOT_COVERED = (
    "Not covered: the time of a decision, who took part, the names of arms, whether a reward "
    "arrived at all, and records that the operator keeps elsewhere."
)
_NOT_COVERED_JOINT = (
    "Not covered: the participant's own decision, to anyone who sees it. Lists of decisions, "
    "counts of decisions by arm and exports show such decisions: keep them to the operator."
)
_NOT_COVERED_IN_TIME = (
    "When and whether a reward arrived is covered like the reward itself. Not covered: the time of "
    "a decision, who took part, the names of arms, and records that the operator keeps elsewhere."
)


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """A privacy guarantee: epsilon and delta, their scope, and their assumptions.

    `scope` states what the epsilon covers: one decision at a time ("decision"), all decisions of
    a run together ("trajectory"), features and reward of a participant in the decisions of all
    others ("joint"), all that one of two servers sees ("view"), or each reward as it leaves its
    owner ("report"). `explain` describes the guarantee in words, `over` bounds the loss of many
    decisions together, and `for_rewards` the loss of a participant who gives several rewards.

    Example:
        >>> each = Guarantee(epsilon=0.1, delta=1e-8, scope="decision")
        >>> together = each.over(1000, delta=1e-4)
        >>> together.scope, round(together.epsilon, 2)
        ('trajectory', 16.14)
        >>> whole = Guarantee(epsilon=0.1)
        >>> whole.over(1000) == whole
        True
    """

    epsilon: float
    delta: float = 0.0
    model: Model = "central"
    scope: Scope = "trajectory"
    neighbours: str = NEIGHBOURS
    assumptions: tuple[str, ...] = ()
    reference: str = ""
    rewards: int = 1  # rewards of one participant that are protected together
    # If every release has Gaussian noise: how far one reward moves one release, in deviations.
    shift: float = field(default=0.0, repr=False)
    # Set by `over`: the reason for this epsilon, and the result of every accountant.
    explanation: str = field(default="", compare=False, repr=False)
    breakdown: Composition | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.model not in get_args(Model) or self.scope not in get_args(Scope):
            raise ParameterError(
                f"model {self.model!r} with scope {self.scope!r} is not a guarantee; models are "
                f"{', '.join(get_args(Model))}; scopes are {', '.join(get_args(Scope))}"
            )
        for model, scope in _SCOPE_OF_MODEL.items():
            if (self.model == model) != (self.scope == scope):
                raise ParameterError(
                    f"model {self.model!r} with scope {self.scope!r} is not a guarantee; model "
                    f"{model!r} goes with scope {scope!r}, and only with it"
                )
        unmoved = self.scope == "trajectory" and self.epsilon == 0 and self.delta == 0
        if self.model != "none" and not unmoved:  # 0 and 0: decisions that do not depend on rewards
            epsilon, delta = check_claim(self.epsilon, self.delta)
            object.__setattr__(self, "epsilon", epsilon)
            object.__setattr__(self, "delta", delta)

    @property
    def private(self) -> bool:
        """Whether it promises any privacy."""
        return self.model != "none"

    @property
    def covers_arrival(self) -> bool:
        """Whether it also hides when a reward arrived, and whether it did."""
        return self.neighbours.endswith(IN_TIME)

    def over(self, decisions: int, delta: float | None = None, law: Law | None = None) -> Guarantee:
        """Return the guarantee of that many decisions together.

        A guarantee of scope "decision" is composed. The result has scope "trajectory" and keeps
        the result of every accountant as its `breakdown`. The other scopes cover any number of
        decisions already: the result is the same guarantee, and its `explanation` says why.

        Args:
            decisions: how many decisions an observer sees.
            delta: delta of the result; by default `decisions` times that of one decision, as in
                basic composition.
            law: the law of the privacy loss of one decision (`balaclava.privacy.composition`), if
                more is known than its epsilon and delta.

        Returns:
            A guarantee of a scope other than "decision", or one that promises nothing.

        Raises:
            ParameterError: if an argument is out of range.
            PrivacyError: if the law contradicts this guarantee, or no epsilon reaches `delta`.
        """
        n = check("decisions", decisions, Decisions)
        target = None if delta is None else check("delta", delta, Delta)
        if not self.private:
            return self
        if self.scope == "decision":
            return self._composed(n, target, law)
        if self.breakdown and n > self.breakdown.decisions:
            raise ParameterError(
                f"decisions = {n} is too many: this guarantee was composed for "
                f"{self.breakdown.decisions}; call `over` on the guarantee of one decision"
            )
        if target is not None and target < self.delta:
            raise ParameterError(
                f"delta = {target!r} is below the guarantee's own delta, {self.delta!r}; give at "
                "least that, or leave it out"
            )
        why = self.explanation if self.breakdown else _ONCE[self.scope].format(n=n)
        return dataclasses.replace(self, explanation=why)

    def for_rewards(self, count: int, *, apart: bool = False) -> Guarantee:
        r"""Return the guarantee for a participant who gives that many rewards (group privacy).

        With k rewards it is

        .. math::
            k \varepsilon \quad \text{and} \quad
            \delta \, (e^{k \varepsilon} - 1) / (e^\varepsilon - 1).

        If delta reaches 1, the result promises nothing.

        With Gaussian noise epsilon is that of a k times larger move, at the same delta. If no two
        of the rewards are in one batch, the move is sqrt(k) times larger.

        Args:
            count: k, rewards of one participant.
            apart: whether each of them is in another batch. The result lists this assumption; it
                matters for Gaussian noise only. Batches grow, so without a rule that enforces it
                they would share one.

        Returns:
            A guarantee of the same scope.

        Raises:
            ParameterError: if `count` is not a positive whole number.

        >>> three = Guarantee(epsilon=1.0, delta=1e-6).for_rewards(3)
        >>> three.epsilon, round(three.delta * 1e6, 3)
        (3.0, 11.107)
        """
        k = check("count", count, Decisions)
        if not self.private or k == 1:
            return self
        epsilon, delta = k * self.epsilon, group_delta(self.epsilon, self.delta, k)
        if self._is_gaussian:
            factor = math.sqrt(k) if apart else k
            epsilon, delta = group_epsilon(factor * self.shift, self.delta, k), self.delta
        if delta >= 1 or epsilon > LARGEST_EPSILON:
            return not_private(
                f"{k} rewards of one participant at {self} each: together their epsilon or delta "
                "is too large for a guarantee",
                self.reference,
            )
        what = "runs" if self.scope == "joint" else "reward streams"
        return dataclasses.replace(
            self,
            epsilon=epsilon,
            delta=delta,
            rewards=k * self.rewards,
            neighbours=f"{what} {k} changes apart, each between {self.neighbours}",
            assumptions=(*self.assumptions, *([_APART] if apart and self._is_gaussian else [])),
        )

    @property
    def _is_gaussian(self) -> bool:
        """Whether epsilon is that of one move by `shift`, not of a restore or a composition."""
        if not self.shift > 0.0 or self.rewards > 1:
            return False
        return self.epsilon <= group_epsilon(self.shift, self.delta, 1) * (1.0 + 1e-6)

    def _composed(self, n: int, target: float | None, law: Law | None) -> Guarantee:
        from balaclava.privacy.composition import AnyMechanism, compose

        if law is None:
            law = AnyMechanism(self.epsilon, self.delta)
        else:
            one = compose(law, 1, self.delta).best.epsilon
            if abs(one - self.epsilon) > 1e-6 * self.epsilon:
                raise PrivacyError(
                    f"{law} has epsilon = {one:.8g} in one decision, "
                    f"{'more' if one > self.epsilon else 'less'} than the guarantee's "
                    f"{self.epsilon!r}; give the law of this guarantee's mechanism"
                )
        if target is None:
            target = n * self.delta
            if target >= 1:
                return not_private(
                    f"{n} decisions at delta = {rounded_up(self.delta)} each: their deltas add up "
                    "to 1 or more",
                    self.reference,
                )
        composition = compose(law, n, target)
        best = composition.best
        each = f"ε={rounded_up(self.epsilon)}{_and_delta(self.delta)}"
        total = f"ε={rounded_up(best.epsilon, '.4g')}{_and_delta(target)} by {best.method}"
        if target == 0 and n > 1:
            total += ", and to less at a δ above 0"
        return dataclasses.replace(
            self,
            epsilon=best.epsilon,
            delta=target,
            scope="trajectory",
            assumptions=(*self.assumptions, f"an observer sees at most {n} decisions"),
            explanation=(
                "Every decision draws new noise over the same rewards, so that their losses add "
                f"up: {n} at {each} each come to {total}."
            ),
            breakdown=composition,
        )

    def explain(self) -> str:
        """Describe the guarantee in a few sentences, for readers outside the field.

        >>> print(Guarantee(epsilon=1, model="local", scope="report").explain())
        ... # doctest: +ELLIPSIS
        Each reward is randomised by its owner before anyone else sees it. ...

        Returns:
            Plain text.
        """
        if not self.private:
            why = f" ({self.assumptions[0]})" if self.assumptions else ""
            return (
                f"Nothing is promised{why}. An observer of the decisions may learn the reward of "
                "any time step from them."
            )
        joint = [_NOT_COVERED_JOINT] if self.scope == "joint" else []
        sentences = [
            NOTIONS[self.scope],
            f"These look alike to an observer: {self.neighbours}.",
            *self._together(),
            f"It holds against {_OBSERVER[self.scope]}.",
            self._meaning(),
            *self._relations(),
            *joint,
            _NOT_COVERED_IN_TIME if self.covers_arrival else _NOT_COVERED,
        ]
        if self.explanation:
            sentences.append(self.explanation)
        if self.assumptions:
            sentences.append(f"It assumes: {'; '.join(self.assumptions)}.")
        return " ".join(sentences)

    def _meaning(self) -> str:
        """What epsilon bounds: odds, or the probability of events if delta is above 0.

        With delta above 0 the odds of some guesses may grow by more than e^epsilon. The probability
        of that may be many times delta.
        """
        rewards = "that reward" if self.rewards == 1 else "those rewards together"
        if self.scope == "joint":
            whose = "that participant's features and reward"
            rewards = (
                whose if self.rewards == 1 else f"those {self.rewards} sets of features and rewards"
            )
        if self.delta == 0:
            return (
                f"With ε={rounded_up(self.epsilon)}, seeing it multiplies the odds of any guess "
                f"about {rewards} by at most e^ε = {_factor(self.epsilon)}."
            )
        return (
            f"With ε={rounded_up(self.epsilon)} and δ={rounded_up(self.delta)}, changing {rewards} "
            f"makes no event more likely than e^ε = {_factor(self.epsilon)} times its probability "
            f"before, plus δ."
        )

    def _together(self) -> list[str]:
        if self.rewards == 1:
            return []
        if self.shift > 0.0:
            return [
                f"This holds for a participant who gives {self.rewards} rewards, for all of them "
                "together."
            ]
        return [
            f"This holds for a participant who gives {self.rewards} rewards, for all of them "
            f"together: {self.rewards} times less protected than with one reward, "
            f"ε={rounded_up(self.epsilon)} instead of ε={rounded_up(self.epsilon / self.rewards)}."
        ]

    def _relations(self) -> list[str]:
        """What follows for the other notions of privacy, and what does not."""
        if self.scope == "decision":
            return [
                "It does not cover several decisions together: `over(decisions)` gives their loss."
            ]
        if self.scope == "joint":
            return ["The operator sees features and rewards and must be trusted with them."]
        if self.scope == "view":
            return [
                "All decisions of a run together reveal no more. Two servers that collude see "
                "every reward."
            ]
        if self.scope == "report":
            return ["All decisions of a run together, made from the reports, reveal no more."]
        return [
            "It also holds on average over rewards drawn at random, which is weaker.",
            "The operator sees the rewards and must be trusted with them.",
        ]

    def _repr_html_(self) -> str:
        return (
            f"<p><strong>{html.escape(str(self))}</strong></p><p>{html.escape(self.explain())}</p>"
        )

    def __str__(self) -> str:
        if not self.private:
            return "not private"
        many = f" for {self.rewards} rewards" if self.rewards > 1 else ""
        return f"ε={rounded_up(self.epsilon)}{_and_delta(self.delta)} {self.covered}{many}"

    @property
    def covered(self) -> str:
        """What the epsilon is of, in tables: "per trajectory", "joint per participant"."""
        words = {"joint": "joint per participant", "view": "per server's view"}
        return words.get(self.scope, f"per {self.scope}")


def not_private(reason: str, reference: str = "") -> Guarantee:
    """Return the guarantee of a policy that promises nothing.

    Args:
        reason: why it promises nothing.
        reference: the paper of the policy.
    """
    return Guarantee(
        epsilon=math.inf, model="none", scope="none", assumptions=(reason,), reference=reference
    )


def _and_delta(delta: float) -> str:
    return f", δ={rounded_up(delta)}" if delta else ""


def _factor(epsilon: float) -> str:
    if epsilon > 20:
        return f"10^{math.ceil(epsilon / math.log(10))}, which is hardly a promise"
    return rounded_up(math.exp(epsilon), ".3g")
