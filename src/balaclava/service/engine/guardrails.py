"""Guardrails: further metrics of a decision, released with noise, and a breaker on their means.

A guardrail has a range, an epsilon, and a limit that its mean must not cross in any arm. A reading
arrives with the reward or apart from it. Batches settle by windows: at the end of a decision's
window its reading counts, or `missing` if none came. The readings of an arm are summed in batches,
in the order of decisions; each sum is released once. If a mean is beyond the limit, the breaker
sends all decisions to the arm `serve`, and nothing more is learned, until the limit is changed.

Proof of privacy.
    Neighbours differ in the reward and in all readings of one decision, in their times and in
    whether they arrived. The size of a batch is a function of the number of readings released
    before, or a clock ends it; when a reading counts is a function of the clock. So decisions and
    clocks alone determine the batch of a reading, it is in one sum, and that sum, on a grid in
    [0, 1], moves by at most 1. Given all releases before it, those of the policy too, its answer is
    epsilon-private (`privacy.mechanisms.laplace`). The differing decision is in one release of each
    guardrail and in the policy's releases, so the losses add up: epsilon is the policy's plus those
    of all guardrails. The breaker looks at releases only.

Proof that the breaker seldom errs.
    A reading is drawn independently of all that happened before its decision. Readings count in the
    order of decisions, at the ends of windows, so that all released before a reading counts was
    computed from earlier decisions. Hence a batch multiplies the arm's M by a factor of mean at
    most 1 (`theory.confidence_sequences`), and its lower limit ever exceeds the mean with
    probability at most beta. The betas of all guardrails and arms, also of those that come later,
    sum to at most BREAKER_ERROR. A lower limit holds for every threshold at once, so that limits
    may be changed by what was released.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from balaclava._core.declared import Epsilon, check
from balaclava.errors import BalaclavaError
from balaclava.policies.base import Policy
from balaclava.privacy.exact_noise import GRID_BITS
from balaclava.privacy.mechanisms.laplace import laplace_release
from balaclava.service.problems import Problem
from balaclava.theory.confidence_sequences import laplace_scale, lower_limit

BREAKER_ERROR = 0.05  # probability that it ever trips although no mean is beyond its limit
MOST_GUARDRAILS = 10
# Readings of a batch. The first: as many as make the noise, sqrt(2)/epsilon, no larger than the
# largest deviation of their sum, sqrt(n)/2. Later ones: a quarter of those released. Guesses.
_LEAST_FIRST, _MOST_FIRST = 10, 10_000
_GROWTH = 0.25
_STEPS = 2.0**GRID_BITS  # of the grid in [0, 1]


class Guardrail(NamedTuple):
    """A metric whose mean must not cross a limit, in the metric's own unit."""

    metric: str
    epsilon: float
    range: list[float]
    limit: float
    serve: str  # label of the arm that gets all decisions once the limit is crossed
    worse: str = "above"  # or "below": on which side of the limit a mean must not be
    missing: float = 0.0  # what counts where no reading came

    @classmethod
    def checked(cls, fields: Mapping[str, Any], arms: Sequence[str]) -> Guardrail:
        """Check a guardrail of a request; raises a `Problem`."""
        rail = cls(**fields)
        place = f"guardrail {rail.metric!r}"
        try:
            check("epsilon", rail.epsilon, Epsilon)
        except BalaclavaError as error:
            raise Problem(422, f"{place}: {error}") from None
        if len(rail.range) != 2 or not rail.range[0] < rail.range[1]:
            raise Problem(422, f"{place}: range must be [smallest, largest]")
        low, high = rail.range
        if not math.isfinite(high - low):
            raise Problem(422, f"{place}: range must be finite")
        rail.check_limit(rail.limit)
        if not low <= rail.missing <= high:
            raise Problem(422, f"{place}: missing must be in [{low:g}, {high:g}]")
        if rail.serve not in arms:
            raise Problem(422, f"{place}: there is no arm {rail.serve!r} to serve")
        return rail

    def check_limit(self, limit: float) -> None:
        """Raise a `Problem` unless a mean can be on either side of the limit."""
        low, high = self.range
        if not low < limit < high:
            raise Problem(
                422, f"guardrail {self.metric!r}: limit must be between {low:g} and {high:g}"
            )

    def steps(self, value: float) -> int:
        """A reading, clipped to the range, as grid steps."""
        low, high = self.range
        share = (min(max(value, low), high) - low) / (high - low)
        return round(min(max(share, 0.0), 1.0) * _STEPS)

    def in_units(self, share: float) -> float:
        """A mean in [0, 1] in the metric's unit."""
        low, high = self.range
        return low + share * (high - low)

    @property
    def first_batch(self) -> int:
        return min(max(math.ceil(8.0 / self.epsilon**2), _LEAST_FIRST), _MOST_FIRST)


@dataclass
class ArmReadings:
    """The open batch of an arm, raw, and its releases."""

    steps: int = 0  # sum of the open batch, on the grid
    open: int = 0  # readings in it
    since: float = 0.0  # when its first decision was made
    first: int = 0  # round of that decision
    total: float = 0.0  # of all releases, with noise, for readings in [0, 1]
    readings: int = 0  # in the releases
    draws: int = 0

    def next_size(self, first: int) -> int:
        """Readings of the open batch, once it is whole."""
        return max(first, math.ceil(_GROWTH * self.readings))


class Trip(NamedTuple):
    """Why the breaker sends all decisions to one arm."""

    metric: str
    arm: str  # whose mean is beyond the limit
    serve: str
    at: float


class Guardrails:
    """All guardrails of an experiment: their readings, releases and breaker."""

    def __init__(self, rails: Sequence[Guardrail], arms: int) -> None:
        self.rails, self._first_arms = list(rails), arms
        self.readings: list[list[ArmReadings]] = [[] for _ in rails]
        self.trip: Trip | None = None
        self.released: set[int] = set()  # arms with a release that `drop_bounds` did not return

    def load(self, text: str | None) -> None:
        """Restore what `json` returned."""
        if text is None:
            return
        stored = json.loads(text)
        self.readings = [[ArmReadings(*each) for each in arms] for arms in stored["readings"]]
        self.trip = None if stored["trip"] is None else Trip(*stored["trip"])

    @property
    def json(self) -> str | None:
        """The state, for the database; None without guardrails. It holds raw sums."""
        if not self.rails:
            return None
        readings = [[list(vars(each).values()) for each in arms] for arms in self.readings]
        return json.dumps({"readings": readings, "trip": self.trip})

    def limited(self, limits: Mapping[str, float] | None) -> list[Guardrail]:
        """The guardrails with changed limits."""
        return [
            rail._replace(limit=(limits or {}).get(rail.metric, rail.limit)) for rail in self.rails
        ]

    # Readings

    def checked_metrics(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Check the names of readings; raises a `Problem`. Values are clipped when they count."""
        known = {rail.metric for rail in self.rails}
        if not metrics.keys() <= known:
            raise Problem(422, f"metrics: this experiment has the guardrails {sorted(known)}")
        if not all(map(math.isfinite, metrics.values())):
            raise Problem(422, "metrics: give finite numbers")
        return dict(metrics)

    def add(self, row: Mapping[str, Any], metrics: Mapping[str, float], rng: Any) -> None:
        """Count the readings of a decision whose window is over, or what is missing."""
        arm = row["arm"]
        for rail, arms in zip(self.rails, self.readings, strict=True):
            while len(arms) <= arm:
                arms.append(ArmReadings())
            each = arms[arm]
            if each.open == 0:
                each.since, each.first = row["made"], row["round"]
            each.steps += rail.steps(metrics.get(rail.metric, rail.missing))
            each.open += 1
            if each.open >= each.next_size(rail.first_batch):
                self._release(rail, arm, each, rng)

    def _release(self, rail: Guardrail, arm: int, each: ArmReadings, rng: Any) -> None:
        each.total += laplace_release(rng, each.steps / _STEPS, 1.0, rail.epsilon)
        each.readings += each.open
        each.draws += 1
        each.steps = each.open = 0
        self.released.add(arm)

    def release_old(self, before: float, rng: Any) -> None:
        """End batches that began before a time: a clock decides it."""
        for rail, arms in zip(self.rails, self.readings, strict=True):
            for arm, each in enumerate(arms):
                if each.open and each.since < before:
                    self._release(rail, arm, each, rng)

    def drop_bounds(self) -> dict[int, int | None]:
        """Where readings were released: below which round all are, by arm; None for all rounds."""
        bounds = {}
        for arm in self.released:
            open_batches = (arms[arm] for arms in self.readings if arms[arm].open)
            bounds[arm] = min((each.first for each in open_batches), default=None)
        self.released = set()
        return bounds

    def erase(self, row: Mapping[str, Any], metrics: Mapping[str, float]) -> None:
        """Replace the readings of an ended window by what counts as missing, exactly."""
        for rail, arms in zip(self.rails, self.readings, strict=True):
            each = arms[row["arm"]]
            if rail.metric in metrics and each.open and row["round"] >= each.first:
                each.steps += rail.steps(rail.missing) - rail.steps(metrics[rail.metric])

    def forget_open(self) -> None:
        """Drop what is not released: nothing more is learned."""
        for arms in self.readings:
            self.released.update(range(len(arms)))
            for each in arms:
                each.steps = each.open = 0

    # Released values

    def failure(self, arm: int) -> float:
        """The share of BREAKER_ERROR of an arm's interval in one guardrail."""
        first, share = self._first_arms, 0.5 * BREAKER_ERROR / len(self.rails)
        if arm < first:
            return share / first
        later = arm - first + 1
        return share / (later * (later + 1))

    def bounds(self, rail: Guardrail, arm: int, each: ArmReadings) -> tuple[float, float]:
        """Lower and upper limit of an arm's mean, each one-sided, in the metric's unit."""
        more = each.readings, each.draws, laplace_scale(rail.epsilon), self.failure(arm)
        low = _lower_limit(each.total, *more)
        high = 1.0 - _lower_limit(each.readings - each.total, *more)
        return rail.in_units(low), rail.in_units(high)

    def update_breaker(
        self, limits: Mapping[str, float] | None, labels: Sequence[str], now: float
    ) -> None:
        """Trip the breaker if a mean is beyond its limit; reset it once none is."""
        crossed = None
        for rail, arms in zip(self.limited(limits), self.readings, strict=True):
            for arm, each in enumerate(arms):
                if each.readings == 0:
                    continue
                low, high = self.bounds(rail, arm, each)
                if low > rail.limit if rail.worse == "above" else high < rail.limit:
                    crossed = crossed or Trip(rail.metric, labels[arm], rail.serve, now)
        self.trip = None if crossed is None else self.trip or crossed

    def document(self, limits: Mapping[str, float] | None, labels: Sequence[str]) -> list[Any]:
        """Released means of all guardrails by arm, with limits of their intervals."""
        return [
            {
                **rail._asdict(),
                "arms": [
                    self._arm_document(rail, arm, arms[arm] if arm < len(arms) else ArmReadings())
                    | {"label": label}
                    for arm, label in enumerate(labels)
                ],
            }
            for rail, arms in zip(self.limited(limits), self.readings, strict=True)
        ]

    def _arm_document(self, rail: Guardrail, arm: int, each: ArmReadings) -> dict[str, Any]:
        if each.readings == 0:
            return {"readings": 0, "mean": None, "low": None, "high": None}
        low, high = self.bounds(rail, arm, each)
        mean = rail.in_units(each.total / each.readings)
        return {"readings": each.readings, "mean": mean, "low": low, "high": high}


_lower_limit = functools.lru_cache(maxsize=4_096)(lower_limit)  # one takes milliseconds


def checked_guardrails(
    fields: Sequence[Mapping[str, Any]], policy: Policy, arms: Sequence[str], settle: str
) -> list[dict[str, Any]]:
    """Check the guardrails of a new experiment; returns them with all defaults."""
    rails = [Guardrail.checked(each, arms) for each in fields]
    if not rails:
        return []
    if settle != "window":
        raise Problem(422, "guardrails need settle='window', with a default_reward")
    if (policy.model, policy.scope) != ("central", "trajectory"):
        raise Problem(
            422,
            f"guardrails need a policy whose guarantee is for all decisions together; "
            f"{policy.name} has another one; use dp-imed",
        )
    if len(rails) > MOST_GUARDRAILS or len({rail.metric for rail in rails}) < len(rails):
        raise Problem(422, f"give at most {MOST_GUARDRAILS} guardrails, each of its own metric")
    return [rail._asdict() for rail in rails]
