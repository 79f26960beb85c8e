"""The definition of an experiment: checked when it is created, and never changed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from balaclava.agents.policy_runner import PolicyRunner
from balaclava.agents.settling import guarantee_after_restores, guarantee_when_settled
from balaclava.errors import BalaclavaError, IncompatibleError, ParameterError
from balaclava.policies.base import POLICIES, Policy
from balaclava.policies.leased_policy import REQUESTS_ARE_PUBLIC, require_leasable
from balaclava.privacy.guarantee import Guarantee
from balaclava.service.engine.contexts import takes_features
from balaclava.service.engine.guardrails import checked_guardrails
from balaclava.service.engine.settings import check_retention
from balaclava.service.problems import Problem
from balaclava.service.targeting import (
    ATTRIBUTES_REGARDLESS,
    EXPOSED_REGARDLESS,
    check_held_out,
    check_targeting,
)

ERASED_REGARDLESS = "whether and when a participant is erased does not depend on any reward"
GUARDRAILS_COUNT = "a reward is meant with the readings of the same decision, whose losses add up"
MOST_ARMS = 10_000
LONGEST_WINDOW = 10 * 366 * 86_400.0  # seconds: ten years, longer than any trial waits

_ADDED: dict[str, Any] = {  # fields of later versions, with their defaults
    "retention": None,
    "guardrails": None,
    "exposures": False,
    "targeting": None,
    "deciders": 1,
    "prior": None,
    "same_means": False,
    "held_out": None,
    "aggregators": None,
    "rewards_apart": False,
    "segment": None,
    "shares": None,
}
_LEASED_WITH = ("retention", "deciders")  # of these, fields that leases allow
_SPLIT_WITHOUT = ("guardrails", "exposures")  # of these, what devices would report beside shares


@dataclass(frozen=True)
class ExperimentDefinition:
    """Settings of an experiment, fixed when it is created."""

    name: str
    policy: str
    parameters: dict[str, Any]
    arms: list[str]
    reward_window: float
    default_reward: float | None = None
    settle: str = "arrival"
    rewards_per_person: int = 1
    population: str | None = None
    owner: str = ""
    purpose: str = ""
    retention: float | None = None
    guardrails: list[dict[str, Any]] | None = None
    exposures: bool = False  # whether clients report which decisions were displayed
    targeting: dict[str, Any] | None = None
    deciders: int = 1
    prior: dict[str, Any] | None = None  # results of another experiment, or {arm: [mean, rewards]}
    same_means: bool = False  # whether estimates count the prior
    held_out: dict[str, Any] | None = None  # the share that gets a fixed arm, and the arm
    aggregators: list[str] | None = None  # URLs of the two, for a policy with trust="split"
    rewards_apart: bool = False  # whether a person has at most one learning decision in a batch
    segment: str | None = None  # of the population: its experiments share no participants
    shares: dict[str, float] | None = None  # least chances by label, at the start

    @classmethod
    def checked(cls, **fields: Any) -> ExperimentDefinition:
        """Check the fields of a request; raises a `Problem` that says what is wrong."""
        if fields.get("settle") is None:
            default = fields.get("default_reward")
            fields["settle"] = "arrival" if default is None else "window"
        definition = cls(**fields)
        if definition.settle == "window" and definition.default_reward is None:
            raise Problem(
                422,
                "settle='window' needs default_reward, which counts where a reward is missing",
            )
        if not 0 < definition.reward_window <= LONGEST_WINDOW:
            raise Problem(422, f"reward_window must be in (0, {LONGEST_WINDOW:g}] seconds")
        if definition.retention is not None:
            check_retention(definition.retention, definition.reward_window)
        try:
            policy = definition.make_policy()
            if definition.default_reward is not None:
                policy.checked_reward(definition.default_reward)
        except BalaclavaError as error:
            raise Problem(422, str(error)) from None
        require_distinct(definition.arms)
        definition._require_fit(policy)
        definition._check_prior(policy)
        if definition.exposures and definition.settle != "window":
            raise Problem(422, "exposures need settle='window', with a default_reward")
        if definition.targeting is not None:
            check_targeting(definition.targeting, definition.arms)
        if definition.held_out is not None:
            check_held_out(definition.held_out, definition.arms)
        rails = checked_guardrails(
            fields.get("guardrails") or (), policy, definition.arms, definition.settle
        )
        definition = dataclasses.replace(definition, guardrails=rails or None)
        try:
            definition.guarantee(policy)
        except BalaclavaError as error:  # all losses together are too large
            raise Problem(422, str(error)) from None
        return definition

    def _check_prior(self, policy: Policy) -> None:
        """Raise a `Problem` if the policy cannot start from the prior, or cannot count it."""
        if self.prior is None:
            if self.same_means:
                raise Problem(422, "same_means needs a prior; give one, or leave it out")
            return
        try:
            PolicyRunner(policy, None).set_prior(self.prior, self.same_means)
        except BalaclavaError as error:
            raise Problem(422, str(error)) from None

    def _require_fit(self, policy: Policy) -> None:
        if self.deciders > 1:
            self._require_leases(policy)
        if self.rewards_apart:
            self._require_apart(policy)
        if self.segment is not None and self.population is None:
            raise Problem(422, "a segment is part of a population; give the population too")
        if self.is_split or policy.model == "split":
            self._require_split(policy)
        if policy.scope == "joint":
            raise Problem(
                422,
                f"{policy.name} hides features from all but their participant, and the service "
                "displays and exports decisions, which depend on them; run it as an agent, or "
                "choose a policy whose features are public",
            )
        if not takes_features(policy):
            try:
                policy.checked_context(None)
            except BalaclavaError:
                raise Problem(
                    422,
                    f"{policy.name} needs contexts that are not features, which the service "
                    "does not support",
                ) from None
        if policy.model == "local" and self.default_reward is not None:
            raise Problem(
                422,
                f"{policy.name} learns from reports of devices, and the service cannot report in "
                "their place; omit default_reward",
            )
        if self.population is not None and policy.scope not in ("trajectory", "view", "report"):
            raise Problem(
                422,
                f"{policy.name} cannot be charged to a population: "
                + (
                    "its guarantee is for single decisions; choose a policy of scope 'trajectory'"
                    if policy.scope == "decision"
                    else "it has no guarantee"
                ),
            )

    @property
    def is_split(self) -> bool:
        """Whether two aggregators add up shares of rewards, so that the service sees none."""
        return self.aggregators is not None

    def _require_split(self, policy: Policy) -> None:
        """Raise a `Problem` unless two aggregators can add up the rewards."""
        if policy.model != "split" or self.aggregators is None:
            raise Problem(
                422,
                'aggregators and a policy with "trust": "split" belong together: give the URLs of '
                "two aggregators and this parameter of dp-imed, or neither",
            )
        if len({check_aggregator(url) for url in self.aggregators}) != 2:
            raise Problem(422, "aggregators must be two servers of different operators")
        if self.settle != "window":
            raise Problem(
                422, "aggregators need default_reward, which devices share where no reward came"
            )
        if more := [name for name in _SPLIT_WITHOUT if getattr(self, name)]:
            raise Problem(
                422, f"aggregators do not go with {', '.join(more)}, which devices would report"
            )

    def _require_apart(self, policy: Policy) -> None:
        """Raise a `Problem` unless keeping a person's rewards apart is enforced, and helps."""
        if policy.guarantee.shift == 0.0 or policy.model != "central":
            raise Problem(
                422,
                "rewards_apart helps only where batches have Gaussian noise: use dp-imed with "
                '"noise": "gaussian" and a delta, or leave it out',
            )
        if self.settle != "window" or self.deciders > 1:
            raise Problem(
                422,
                "rewards_apart needs a default_reward, which replaces what is erased, and one "
                "decider: give both, or leave it out",
            )

    def _require_leases(self, policy: Policy) -> None:
        """Raise a `Problem` if several processes cannot decide for the experiment."""
        if self.settle != "window":
            raise Problem(
                422,
                "deciders > 1 needs settle='window': where batches settle by arrival each reward "
                "changes the policy at once, so that one process at a time can take it; give a "
                "default_reward, or deciders = 1",
            )
        later = [name for name in _ADDED if name not in _LEASED_WITH and getattr(self, name)]
        if later:
            raise Problem(
                422,
                f"deciders > 1 does not go with {', '.join(later)}: a process that decides by a "
                "lease does not see them; leave them out, or give deciders = 1",
            )
        try:
            require_leasable(policy)
        except IncompatibleError as error:
            raise Problem(422, str(error)) from None

    def make_policy(self) -> Policy:
        if "arms" in self.parameters:
            raise ParameterError("give the arms in `arms`, not in `parameters`")
        return POLICIES.create(self.policy, {**self.parameters, "arms": list(self.arms)})

    @cached_property
    def built_policy(self) -> Policy:
        """`make_policy`, once: restoring an experiment takes half as long."""
        return self.make_policy()

    def with_defaults(self) -> ExperimentDefinition:
        """A copy that names every parameter: a later version may have other defaults."""
        parameters = self.make_policy().parameters
        del parameters["arms"]
        return dataclasses.replace(self, parameters=parameters)

    def matches(self, known: ExperimentDefinition) -> bool:
        """Whether `known` has every value that this definition names."""
        mine, stored = self.with_defaults(), known.with_defaults()
        if dataclasses.replace(mine, parameters=stored.parameters) != stored:
            return False
        return all(mine.parameters[name] == stored.parameters[name] for name in self.parameters)

    def guarantee(self, policy: Policy, restored: int = 0) -> Guarantee:
        """The guarantee for one reward, after `restored` restores of the database."""
        advice = "; if it does, create the experiment with a default_reward and settle='window'"
        advised = policy.model == "central"
        one = guarantee_when_settled(
            self._with_guardrails(policy.guarantee),
            window=self.settle == "window",
            copied=False,
            otherwise=advice if advised else "",
        )
        if one.private and self.settle == "arrival":
            one = dataclasses.replace(one, assumptions=(*one.assumptions, ERASED_REGARDLESS))
        more: tuple[str, ...] = (EXPOSED_REGARDLESS,) if self.exposures else ()
        if self.targeting is not None:
            more += (ATTRIBUTES_REGARDLESS,)
        if self.deciders > 1:
            more += (REQUESTS_ARE_PUBLIC,)
        if one.private and more:
            one = dataclasses.replace(one, assumptions=(*one.assumptions, *more))
        return guarantee_after_restores(one, restored, "the database")

    def _with_guardrails(self, guarantee: Guarantee) -> Guarantee:
        """The guarantee where neighbours differ in all metrics of a decision: losses add up."""
        if not self.guardrails or not guarantee.private:
            return guarantee
        losses = [guarantee.epsilon, *(rail["epsilon"] for rail in self.guardrails)]
        epsilon = math.nextafter(math.fsum(losses), math.inf)
        metrics = ", ".join(rail["metric"] for rail in self.guardrails)
        return dataclasses.replace(
            guarantee,
            epsilon=epsilon,
            shift=0.0,  # guardrails have Laplace noise
            assumptions=(*guarantee.assumptions, f"{GUARDRAILS_COUNT}: {metrics}"),
        )

    def person_guarantee(self, policy: Policy, restored: int = 0) -> Guarantee:
        """The guarantee for one person, with which an experiment is charged."""
        one = self.guarantee(policy, restored)
        return one.for_rewards(self.rewards_per_person, apart=self.rewards_apart)

    @property
    def json(self) -> str:
        values = asdict(self)
        for name, default in _ADDED.items():  # the uid of an older definition must not change
            if values[name] == default:
                del values[name]
        return json.dumps(values, sort_keys=True, ensure_ascii=False)

    @cached_property
    def uid(self) -> str:
        """The experiment's id in the ledger, a digest of its definition."""
        return hashlib.sha256(self.json.encode("utf-8", "surrogatepass")).hexdigest()

    @classmethod
    def from_json(cls, text: str) -> ExperimentDefinition:
        return cls(**json.loads(text))


def check_aggregator(url: str) -> str:
    """The URL of an aggregator, or a `Problem`: who taps both connections sees the rewards."""
    parts = urlsplit(url)
    local = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
    if not (parts.scheme == "https" or local) or not parts.hostname or parts.query:
        raise Problem(422, "aggregators must be URLs such as https://aggregator.example.org")
    return url.rstrip("/")


def require_distinct(labels: Sequence[str], before: Sequence[str] = ()) -> None:
    """Raise a `Problem` if a label differs from another only by case or spaces: one arm's, likely.

    Labels from `before` may: earlier versions took them.
    """
    known = {"".join(label.split()).casefold(): label for label in before}
    for label in labels:
        other = known.setdefault("".join(label.split()).casefold(), label)
        if other != label:
            raise Problem(
                422,
                f"arms {other!r} and {label!r} differ only by case or spaces; give another label",
            )
