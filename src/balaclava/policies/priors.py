"""Warm starts: arms that a prior makes unlikely to be the best rest at first.

A prior has a mean and an error for some arms. Let b be the arm with its highest mean, n the rewards
behind that mean, and R = d^2 / (2 (e_a^2 + e_b^2)) the evidence, in nats, that arm a is worse by
the difference d. Arm a rests for the first min(exp(R), n) decisions: as long as an index of the
IMED kind would let it rest with this evidence, capped at log n nats. After that, or once the
releases of b contradict the prior, the policy decides as without it.

So a prior steers choices only: no estimate counts it. A wrong one makes the best arm start later,
by at most n decisions. It costs no epsilon here.

If the user declares that the means are the same, estimates count the prior's releases, too: as
releases of the same arm that came first. The process M of `theory.confidence_sequences` then starts
at the value that it had when the prior was taken, which is a stopping time of the earlier run: the
claims hold as before. This needs independent rewards in one range, none of them in both, and noise
of the prior that is Laplace with at most this policy's scale: a smaller scale has a smaller
E e^(x W).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from balaclava._core.declared import MOST_ROUNDS, Range, brief, check
from balaclava._core.number_format import counted
from balaclava._core.text_tables import ResultTable
from balaclava.errors import ParameterError, nearest
from balaclava.policies.base import Policy
from balaclava.policies.intervals import exact_law, laplace_law

ResultsConfidence = Annotated[float, Range(0, 1, "of the results", open_low=True, open_high=True)]
DOUBT = 2.0  # errors below the prior's mean at which a mean contradicts it; a convention
PRIOR_FAILURE = 0.05  # of the interval that contradicts a prior; a convention
_FORMS = (
    "give the estimates of another agent, the results of the service, a released log, or a mapping "
    "of labels to (mean, rewards)"
)


class PriorMean(NamedTuple):
    """What a prior says about one arm; `error` is a standard error, noise included."""

    label: str
    mean: float
    error: float
    rewards: int


class ReleasedSum(NamedTuple):
    """Releases of one arm, as estimates count them: rewards, mean in [0, 1], draws of noise."""

    label: str
    rewards: int
    mean: float
    draws: int


class Releases(NamedTuple):
    """Releases that another experiment may count, with what makes them comparable."""

    range: tuple[float, float]  # of the rewards
    scale: float  # of a draw of Laplace noise, at a range of 1; 0 without noise
    arms: tuple[ReleasedSum, ...]
    condition: str | None = None  # what their estimates assume

    @property
    def document(self) -> dict[str, Any]:
        """As JSON; `_releases_in` reads it."""
        return {**self._asdict(), "arms": [each._asdict() for each in self.arms]}


class Rests(NamedTuple):
    """The first round of each arm that rests, and the best arm with its contradicted mean."""

    rounds: dict[int, int]
    contradiction: tuple[int, float]


def rests_by(policy: Policy, prior: Any) -> Rests:
    """The arms that rest under a prior; `ParameterError` if it does not fit the policy."""
    means = {}
    for each in _prior_means(policy, prior):
        labels = [policy.arm_label(arm) for arm in range(policy.arms)]
        if each.label not in labels:
            raise ParameterError(
                f"prior: there is no arm {each.label!r}; {nearest(each.label, labels)}"
            )
        low, high = policy.accepts
        if each.mean + each.error < low or each.mean - each.error > high:
            raise _outside(policy, each.label)
        means[labels.index(each.label)] = each
    if len(means) < 2:
        raise ParameterError(f"prior: it has {counted(len(means), 'mean')}; give at least 2")
    best = max(means, key=lambda arm: means[arm].mean)
    lead, rounds = means[best], {}
    for arm, each in means.items():
        evidence = (lead.mean - each.mean) ** 2 / (2.0 * (lead.error**2 + each.error**2))
        if arm != best:
            rounds[arm] = 1 + min(int(math.exp(min(evidence, 100.0))), lead.rewards)
    return Rests(rounds, (best, lead.mean - DOUBT * lead.error))


def _outside(policy: Policy, label: str) -> ParameterError:
    low, high = policy.accepts
    return ParameterError(
        f"prior: the mean of {label!r} is outside the policy's range, [{low:g}, {high:g}]; give a "
        "prior for rewards of this range"
    )


def noise_scale(policy: Policy, params: Any) -> float | None:
    """The scale of the policy's noise, at a range of 1; None if its releases cannot be pooled."""
    law = None if policy.estimation is None else policy.estimation.law
    own_rule = type(policy).named_arm is not Policy.named_arm or (
        policy.estimation is not None and policy.estimation.winner is not None
    )
    if (
        law not in (laplace_law, exact_law)
        or own_rule
        or not all(map(math.isfinite, policy.accepts))
    ):
        return None
    return float(law(params, 0.0, 0.0)[2])


def counted_releases(policy: Policy, params: Any, prior: Any) -> Releases:
    """The releases of a prior whose means are declared to be those of the policy's arms.

    `ParameterError` if estimates of the policy cannot count them.
    """
    scale, own_range = noise_scale(policy, params), tuple(map(float, policy.accepts))
    if scale is None:
        raise ParameterError(
            f"same_means: the estimates of {policy.name} cannot count a prior: they are not means "
            "with Laplace noise of rewards in a known range, or it names an arm by a rule of its "
            "own; leave same_means out, or use dp-imed"
        )
    releases = _releases_in(policy, prior, own_range)
    if releases.range != own_range:
        low, high = releases.range
        raise ParameterError(
            f"same_means: the prior has rewards in [{low:g}, {high:g}], but {policy.name} in "
            f"[{own_range[0]:g}, {own_range[1]:g}]; give both the same range, or leave it out"
        )
    if releases.scale > scale and any(each.draws for each in releases.arms):
        raise ParameterError(
            "same_means: the noise of the prior is larger than this policy's, and intervals hold "
            "for noise of one scale; raise the prior's epsilon, or lower this one's"
        )
    return releases


def _releases_in(policy: Policy, prior: Any, own_range: Any) -> Releases:
    """The releases that a prior holds; public numbers are means without noise, of any range."""
    low, high = own_range
    if isinstance(releases := getattr(prior, "releases", None), Releases):
        return releases
    if isinstance(prior, Mapping) and {"arms", "confidence"} <= set(prior):
        releases = prior.get("releases")
        if isinstance(releases, Mapping):
            return _read_document(releases)
    elif isinstance(prior, Mapping):
        numbers = [_from_numbers(policy, label, each) for label, each in prior.items()]
        unit = tuple(
            ReleasedSum(each.label, each.rewards, (each.mean - low) / (high - low), 0)
            for each in numbers
        )
        return Releases(own_range, 0.0, unit)
    raise ParameterError(
        "same_means: the prior does not say how many draws of noise are in its means; give the "
        "estimates or results of a policy with Laplace noise, a released log, or public numbers"
    )


def _read_document(document: Mapping[str, Any]) -> Releases:
    """Read `Releases.document`, with checks."""
    try:
        low, high = map(float, document["range"])
        scale, condition = float(document["scale"]), document["condition"]
        arms = tuple(
            ReleasedSum(str(e["label"]), int(e["rewards"]), float(e["mean"]), int(e["draws"]))
            for e in document["arms"]
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        raise ParameterError(
            "prior: its releases are not valid; give the results unchanged"
        ) from None
    numbers = (low, high, scale, *(each.mean for each in arms))
    counts = [(each.rewards - 1, each.draws) for each in arms]
    if (
        not all(map(math.isfinite, numbers))
        or scale < 0.0
        or not all(0 <= min(each) <= max(each) < MOST_ROUNDS for each in counts)
        or not isinstance(condition, str | None)
    ):
        raise ParameterError("prior: its releases are not valid; give the results unchanged")
    return Releases((low, high), scale, arms, condition)


def _prior_means(policy: Policy, prior: Any) -> list[PriorMean]:
    """The means of a prior, of arms that have one."""
    if isinstance(prior, ResultTable) and hasattr(prior, "compared"):
        estimates: Any = prior  # of an agent
        rows = [(e.label, e.mean, *e.interval, e.rewards) for e in estimates if not e.retired]
        return _from_intervals(rows, estimates.confidence, len(estimates))
    if isinstance(prior, Mapping) and {"arms", "confidence"} <= set(prior):
        return _from_results(prior)
    if isinstance(prior, Mapping):
        return [_from_numbers(policy, label, numbers) for label, numbers in prior.items()]
    if isinstance(prior, Sequence) and all(isinstance(each, PriorMean) for each in prior):
        if isinstance(releases := getattr(prior, "releases", None), Releases):
            low, high = releases.range  # noise may have moved a mean out of it
            return [each._replace(mean=min(max(each.mean, low), high)) for each in prior]
        return list(prior)
    raise ParameterError(f"prior = {brief(prior)} is not a prior; {_FORMS}")


def _from_results(results: Mapping[str, Any]) -> list[PriorMean]:
    """The means in the results of the service."""
    try:
        arms = results["arms"]
        confidence = check("confidence", results["confidence"], ResultsConfidence)
        rows: list[Any] = [
            (
                str(a["label"]),
                *(float(a[name]) for name in ("mean", "low", "high")),
                int(a["rewards"]),
            )
            for a in arms
            if not a.get("retired") and None not in (a["mean"], a["low"], a["high"], a["rewards"])
        ]
        if not all(0 <= rewards < MOST_ROUNDS for *_, rewards in rows):
            raise ValueError
        return _from_intervals(rows, confidence, len(arms))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        raise ParameterError("prior: the results are not valid; give them unchanged") from None


def _from_intervals(rows: Sequence[Any], confidence: float, arms: int) -> list[PriorMean]:
    """Errors such that the interval is that of a Gaussian mean, at its part of the failure.

    A mean that noise has moved out of the range is out of its interval: it is moved back.
    """
    reach = math.sqrt(2.0 * math.log(2.0 * arms / (1.0 - confidence)))
    return [
        PriorMean(label, min(max(mean, low), high), (high - low) / (2.0 * reach), rewards)
        for label, mean, low, high, rewards in rows
        if None not in (mean, low, high)
        and rewards
        and math.isfinite(mean + high - low)
        and low < high
    ]


def _from_numbers(policy: Policy, label: Any, numbers: Any) -> PriorMean:
    """A public mean of so many rewards, with the largest error that the range allows.

    It has no noise, so it lies in the range.
    """
    low, high = policy.accepts
    if not math.isfinite(high - low):
        raise ParameterError(
            f"prior: {policy.name} has no range of rewards, so a mean has no error; give estimates"
        )
    try:
        mean, rewards = float(numbers[0]), int(numbers[1])
    except (TypeError, ValueError, IndexError, OverflowError):
        rewards = 0
    if not 1 <= rewards < MOST_ROUNDS or rewards != numbers[1] or not math.isfinite(mean):
        raise ParameterError(f"prior: {brief(label)} must have (mean, rewards), as (0.3, 200)")
    if not low <= mean <= high:
        raise _outside(policy, str(label))
    return PriorMean(str(label), mean, (high - low) / (2.0 * math.sqrt(rewards)), rewards)
