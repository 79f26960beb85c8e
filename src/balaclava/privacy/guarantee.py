"""A claim of privacy as an object."""

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

if TYPE_CHECKING:
    from balaclava.privacy.composition import Composition, Law

Model = Literal["none", "central", "local"]
Scope = Literal["none", "decision", "trajectory", "report"]

NEIGHBOURS = "reward streams that differ in one time step's reward"

NEIGHBOURS_IN_TIME = (
    "reward streams that differ in one time step's reward, in when it came, or in whether it came "
    "at all"
)

# The four notions in use for private bandits, in words. The first, second and fourth are scopes;
# the third follows from the second at the same epsilon and delta and is no scope of its own.
NOTIONS = {
    "decision": (
        "Each decision by itself hides the reward of any one time step. Decisions seen together "
        "tell more than one of them."
    ),
    "trajectory": ("All decisions of a run together hide the reward of any one time step."),
    "average": (
        "As for a trajectory, but only on average over rewards drawn at random, and for changes "
        "that touch one reward in expectation. Weaker: some reward streams may be less protected."
    ),
    "report": (
        "Each reward is randomised by its owner before anybody else sees it. The operator need "
        "not be trusted."
    ),
}

_OBSERVER = {
    "decision": (
        "anyone who sees that one decision, even one who knows all other rewards and all earlier "
        "decisions"
    ),
    "trajectory": "anyone who sees all the decisions, even one who knows all other rewards",
    "report": "anyone who sees the reports, the operator of the bandit included",
}

_ONCE = {
    "trajectory": (
        "The number of decisions does not multiply: ε pays for all noisy releases that a reward "
        "ever enters, their noise is drawn once, and all decisions (here {n}) are computed from "
        "what was released."
    ),
    "report": (
        "The number of decisions does not multiply: each reward is reported once, with its noise "
        "already in it, and all decisions (here {n}) are computed from such reports."
    ),
}

_NOT_COVERED = (
    "Not covered: the time of a decision, who took part, how arms are named, whether a reward "
    "came at all, and whatever the operator writes down elsewhere."
)
_NOT_COVERED_IN_TIME = (
    "When and whether a reward came is covered like the reward itself. Not covered: the time of a "
    "decision, who took part, how arms are named, and whatever the operator writes down elsewhere."
)


@dataclass(frozen=True, kw_only=True)
class Guarantee:
    """What an observer of the decisions cannot learn, and under which assumptions.

    `scope` says what the epsilon covers: one decision at a time ("decision"), all decisions of
    a run together ("trajectory"), or each reward as it leaves its owner ("report"). `NOTIONS`
    tells them apart, `explain` says it in a few sentences, `over` says what many decisions leak
    together, and `for_rewards` what is left for a person who gives several rewards.

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
    rewards: int = 1  # of one person, that are protected together
    # What `over` adds: why it is this epsilon, and what every accountant found.
    explanation: str = field(default="", compare=False, repr=False)
    breakdown: Composition | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.model not in get_args(Model) or self.scope not in get_args(Scope):
            raise ParameterError(
                f"model {self.model!r} with scope {self.scope!r} is not a guarantee; models: "
                f"{', '.join(get_args(Model))}; scopes: {', '.join(get_args(Scope))}"
            )
        if (self.model == "none") != (self.scope == "none"):
            raise ParameterError("model and scope are both 'none' or neither is")
        if (self.model == "local") != (self.scope == "report"):
            raise ParameterError(
                f"model {self.model!r} with scope {self.scope!r} is not a guarantee; reports, and "
                "nothing else, are protected by the local model"
            )
        unmoved = self.scope == "trajectory" and self.epsilon == 0 and self.delta == 0
        if self.model != "none" and not unmoved:  # 0 and 0: decisions that no reward touches
            epsilon, delta = check_claim(self.epsilon, self.delta)
            object.__setattr__(self, "epsilon", epsilon)
            object.__setattr__(self, "delta", delta)

    @property
    def private(self) -> bool:
        """Whether anything is promised at all."""
        return self.model != "none"

    def over(self, decisions: int, delta: float | None = None, law: Law | None = None) -> Guarantee:
        """What that many decisions together leak.

        A guarantee of scope "decision" is composed, and the result, of scope "trajectory", keeps
        what every accountant found as its `breakdown`. `delta` is the delta of the result; left
        out, it is `decisions` times that of one decision, as in basic composition. `law` is for
        when more is known of one decision than its epsilon and delta
        (`balaclava.privacy.composition`).

        The other scopes cover any number of decisions already: the result is the same guarantee,
        and its `explanation` says why.
        """
        n = check("decisions", decisions, Decisions)
        target = None if delta is None else check("delta", delta, Delta)
        if not self.private:
            return self
        if self.scope == "decision":
            return self._composed(n, target, law)
        if self.breakdown and n > self.breakdown.decisions:
            raise ParameterError(
                f"decisions = {n} is not allowed; this guarantee was composed for "
                f"{self.breakdown.decisions}: call `over` on that of one decision"
            )
        if target is not None and target < self.delta:
            raise ParameterError(
                f"delta = {target!r} is below the guarantee's own, {self.delta!r}; give at least "
                "that, or leave it out"
            )
        why = self.explanation if self.breakdown else _ONCE[self.scope].format(n=n)
        return dataclasses.replace(self, explanation=why)

    def for_rewards(self, count: int) -> Guarantee:
        """What is promised to someone who gives that many rewards: group privacy.

        Epsilon is `count` times as large, and delta (e^(count epsilon) - 1) / (e^epsilon - 1)
        times; where that reaches 1, nothing is promised any more.

        >>> three = Guarantee(epsilon=1.0, delta=1e-6).for_rewards(3)
        >>> three.epsilon, round(three.delta * 1e6, 3)
        (3.0, 11.107)
        """
        k = check("count", count, Decisions)
        if not self.private or k == 1:
            return self
        epsilon, delta = k * self.epsilon, group_delta(self.epsilon, self.delta, k)
        if delta >= 1 or epsilon > LARGEST_EPSILON:
            return not_private(
                f"{k} rewards of one person at {self} each: their deltas or epsilons add up to "
                "more than can be promised",
                self.reference,
            )
        return dataclasses.replace(
            self,
            epsilon=epsilon,
            delta=delta,
            rewards=k * self.rewards,
            neighbours=f"{k} changes one after the other, each between {self.neighbours}",
        )

    def _composed(self, n: int, target: float | None, law: Law | None) -> Guarantee:
        from balaclava.privacy.composition import AnyMechanism, compose

        if law is None:
            law = AnyMechanism(self.epsilon, self.delta)
        else:
            one = compose(law, 1, self.delta).best.epsilon
            if abs(one - self.epsilon) > 1e-6 * self.epsilon:
                raise PrivacyError(
                    f"{law} leaks epsilon = {one:.8g} in one decision, "
                    f"{'more' if one > self.epsilon else 'less'} than the guarantee's "
                    f"{self.epsilon!r}; give the law that the guarantee was made from"
                )
        if target is None:
            target = n * self.delta
            if target >= 1:
                return not_private(
                    f"{n} decisions at delta = {rounded_up(self.delta)} each: together one of them "
                    "may well fail, so that nothing is promised",
                    self.reference,
                )
        composition = compose(law, n, target)
        best = composition.best
        each = f"ε={rounded_up(self.epsilon)}{_and_delta(self.delta)}"
        total = f"ε={rounded_up(best.epsilon, '.4g')}{_and_delta(target)} by {best.method}"
        if target == 0 and n > 1:
            total += ", and to less for a δ above 0"
        return dataclasses.replace(
            self,
            epsilon=best.epsilon,
            delta=target,
            scope="trajectory",
            assumptions=(*self.assumptions, f"decisions seen together: at most {n}"),
            explanation=(
                "Every decision draws new noise over the same rewards, so that what decisions "
                f"leak adds up: {n} at {each} each come to {total}."
            ),
            breakdown=composition,
        )

    def explain(self) -> str:
        """The guarantee in a few sentences, for readers who know nothing of the field.

        >>> print(Guarantee(epsilon=1, model="local", scope="report").explain())
        ... # doctest: +ELLIPSIS
        Each reward is randomised by its owner before anybody else sees it. ...
        """
        if not self.private:
            why = f" ({self.assumptions[0]})" if self.assumptions else ""
            return (
                f"Nothing is promised{why}. Whoever sees the decisions may learn the reward of "
                "any time step from them."
            )
        sentences = [
            NOTIONS[self.scope],
            f"What looks alike: {self.neighbours}.",
            *self._together(),
            f"It holds against {_OBSERVER[self.scope]}.",
            f"With ε={rounded_up(self.epsilon)}, seeing it multiplies the odds of any guess about "
            f"{'that reward' if self.rewards == 1 else 'those rewards together'} by at most e^ε = "
            f"{_odds(self.epsilon)}{_slack(self.delta)}.",
            *self._relations(),
            _NOT_COVERED_IN_TIME if self.neighbours == NEIGHBOURS_IN_TIME else _NOT_COVERED,
        ]
        if self.explanation:
            sentences.append(self.explanation)
        if self.assumptions:
            sentences.append(f"It assumes: {'; '.join(self.assumptions)}.")
        return " ".join(sentences)

    def _together(self) -> list[str]:
        if self.rewards == 1:
            return []
        return [
            f"Said of someone who gives {self.rewards} rewards, and of all of them together: who "
            f"does is {self.rewards} times less protected than who gives one, "
            f"ε={rounded_up(self.epsilon)} instead of ε={rounded_up(self.epsilon / self.rewards)}."
        ]

    def _relations(self) -> list[str]:
        """What follows for the other notions, and what does not."""
        if self.scope == "decision":
            return [
                "It says nothing about several decisions seen together: `over(decisions)` says "
                "what they cost."
            ]
        if self.scope == "report":
            return ["All decisions of a run together, made from the reports, leak no more."]
        lines = ["It also holds on average over rewards drawn at random, which is weaker."]
        if self.delta == 0:
            lines.append(
                f"A single decision, given those before it, leaks at most twice this, "
                f"ε={rounded_up(2 * self.epsilon)}."
            )
        lines.append("The operator, who sees the rewards, has to be trusted with them.")
        return lines

    def _repr_html_(self) -> str:
        return (
            f"<p><strong>{html.escape(str(self))}</strong></p><p>{html.escape(self.explain())}</p>"
        )

    def __str__(self) -> str:
        if not self.private:
            return "not private"
        many = f" for {self.rewards} rewards" if self.rewards > 1 else ""
        return f"ε={rounded_up(self.epsilon)}{_and_delta(self.delta)} per {self.scope}{many}"


def not_private(reason: str, reference: str = "") -> Guarantee:
    """The guarantee of a policy that promises nothing, and why."""
    return Guarantee(
        epsilon=math.inf, model="none", scope="none", assumptions=(reason,), reference=reference
    )


def _and_delta(delta: float) -> str:
    return f", δ={rounded_up(delta)}" if delta else ""


def _slack(delta: float) -> str:
    return f", up to an extra probability of δ={rounded_up(delta)}" if delta else ""


def _odds(epsilon: float) -> str:
    if epsilon > 20:
        return f"10^{math.ceil(epsilon / math.log(10))}, which is hardly a promise"
    return rounded_up(math.exp(epsilon), ".3g")
