"""Request and response bodies, for validation and for OpenAPI."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from fastapi import Query
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    field_validator,
    model_validator,
)

from balaclava.service.engine.definition import MOST_ARMS

# Limits of the HTTP interface (docs/service.md); a full list of rewards fits into 1 MB.
MOST_COUNT = 10_000  # decisions, or rewards, of one request
MOST_CHANGED_ARMS = 100  # of one request: with 10,000 arms the writer takes a second for them
_NAME_PATTERN = r"^[^/\\?#\x00-\x1f\x7f]*[^/\\?#\x00-\x1f\x7f.\s][^/\\?#\x00-\x1f\x7f]*$"
Number = StrictInt | StrictFloat
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=_NAME_PATTERN)]
Text = Annotated[str, Field(max_length=2_000)]
SmallestDifference = Annotated[float | None, Query(gt=0, allow_inf_nan=False)]
Participants = Annotated[int | None, Query(ge=1, le=10**12)]
Retention = Annotated[float, Field(gt=0)]
ShortText = Annotated[str, Field(min_length=1, max_length=500)]

Labels = Annotated[list[ShortText], Field(min_length=1, max_length=MOST_ARMS, fail_fast=True)]
ChangedLabels = Annotated[list[ShortText], Field(min_length=1, max_length=MOST_CHANGED_ARMS)]

AttributeValue = StrictBool | StrictInt | StrictFloat | Annotated[str, Field(max_length=500)]
Metrics = Annotated[dict[ShortText, Number], Field(max_length=10)]
# With `fail_fast`, a long list has one fault: to find and to list them all takes seconds.
Numbers = Annotated[list[Number], Field(max_length=100_000, fail_fast=True)]
Rows = Annotated[list[Numbers], Field(max_length=100_000, fail_fast=True)]
Features = dict[ShortText, Number | Numbers] | Numbers | Rows


class Payload(BaseModel):
    """A body without unknown fields or implicit conversions."""

    model_config = ConfigDict(extra="forbid", strict=True)


class GuardrailIn(Payload):
    """A further metric, whose mean must not cross a limit in any arm."""

    metric: ShortText
    epsilon: Annotated[float, Field(gt=0, description="it adds to that of the policy")]
    range: Annotated[list[float], Field(min_length=2, max_length=2, description="clips readings")]
    limit: float
    worse: Literal["above", "below"] = "above"
    missing: Annotated[float, Field(description="counts where no reading comes")]
    serve: Annotated[ShortText, Field(description="arm that then gets all decisions")]


class TargetingIn(Payload):
    """Who takes part, by public attributes."""

    attributes: Annotated[
        dict[ShortText, Annotated[list[AttributeValue], Field(min_length=1, max_length=1_000)]],
        Field(min_length=1, max_length=20, description="allowed values by attribute"),
    ]
    otherwise: Annotated[ShortText, Field(description="arm of those who do not take part")]


class HeldOutIn(Payload):
    """Participants from whom nothing is learned, before and after the end."""

    share: Annotated[float, Field(gt=0, lt=1, description="of the participants")]
    arm: Annotated[ShortText, Field(description="arm that they get")]


class ExperimentIn(Payload):
    """A new experiment."""

    name: Name
    policy: Annotated[str, Field(max_length=100, description="registry name, such as dp-imed")]
    parameters: dict[str, Any] = Field(default_factory=dict, description="parameters of the policy")
    arms: Annotated[list[ShortText], Field(min_length=1, max_length=MOST_ARMS)]
    reward_window: Annotated[
        float, Field(gt=0, description="seconds in which a decision's reward may arrive")
    ]
    default_reward: float | None = Field(
        None, description="reward of a decision for which none arrives in time"
    )
    settle: Literal["window", "arrival"] | None = Field(
        None, description='"window" if there is a default_reward, otherwise "arrival"'
    )
    rewards_per_person: Annotated[int, Field(ge=1, le=10**6)] = 1
    population: Name | None = None
    segment: Name | None = Field(
        None,
        description="of the population: a person learns in the experiments of one segment only, so "
        "the losses of segments do not add",
    )
    owner: Text = ""
    purpose: Text = ""
    retention: Retention | None = Field(
        None, description="seconds until decisions are deleted; reward_window plus 30 days"
    )
    guardrails: Annotated[list[GuardrailIn], Field(max_length=10)] | None = None
    exposures: bool = Field(
        False, description="clients report displayed decisions, which must not depend on rewards"
    )
    targeting: TargetingIn | None = None
    deciders: Annotated[int, Field(ge=1, le=4096)] = Field(
        1, description="processes that decide, by leases; with more than 1 it needs PostgreSQL"
    )
    prior: dict[str, Any] | None = Field(
        None,
        description="results of another experiment, or [mean, rewards] by arm, for a warm start",
    )
    same_means: bool = Field(
        False, description="the means are those of the prior: results count it"
    )
    held_out: HeldOutIn | None = None
    shares: dict[ShortText, float] | None = Field(
        None, description="least chances by label, at most 1 in all; see PATCH"
    )
    aggregators: Annotated[list[ShortText], Field(min_length=2, max_length=2)] | None = Field(
        None, description='URLs of two aggregators, for a policy with "trust": "split"'
    )
    rewards_apart: bool = Field(
        False, description="a person has at most one learning decision in a batch"
    )


class ExperimentChangesIn(Payload):
    """Changes of an experiment. What is left out stays as it is."""

    owner: Text | None = None
    purpose: Text | None = None
    retention: Retention | None = None
    archived: bool | None = Field(
        None, description="whether lists leave the experiment out unless asked for archived ones"
    )
    add_arms: ChangedLabels | None = None
    retire_arms: ChangedLabels | None = None
    shares: dict[ShortText, float] | None = Field(
        None, description="least chances by label, at most 1 in all; replaces all shares"
    )

    guardrail_limits: Annotated[dict[ShortText, float], Field(max_length=10)] | None = Field(
        None, description="changed limits by metric; guardrails cannot be added"
    )

    @model_validator(mode="after")
    def _some(self) -> ExperimentChangesIn:
        if not self.changes:
            raise ValueError("give at least one change")
        return self

    @property
    def changes(self) -> dict[str, Any]:
        """What is to change."""
        return {name: value for name, value in self if value is not None}


class CloneIn(Payload):
    """A new experiment like another one. What is left out is as there."""

    name: Name
    population: Name | None = None
    parameters: dict[str, Any] = Field(default_factory=dict, description="that differ")
    owner: Text | None = None
    purpose: Text | None = None

    @property
    def changes(self) -> dict[str, Any]:
        """What differs; a population is never taken over unasked: it is charged."""
        named = {name: value for name, value in self if value is not None}
        return {"population": None, **named}


class FinishIn(Payload):
    """How to finish an experiment."""

    arm: ShortText | None = Field(
        None, description="label of the arm to serve from now on; by default the winner or leader"
    )


class DecisionsIn(Payload):
    """A request for decisions."""

    request_id: ShortText | None = Field(
        None, description="idempotency key: the same id gets the same decisions"
    )
    person: ShortText | None = Field(
        None, description="participant; rewards_per_person limits how many decisions learn"
    )
    sticky: bool = Field(
        False, description="repeat the arm of the person's first sticky decision; that one learns"
    )
    count: Annotated[int, Field(ge=1, le=MOST_COUNT)] = 1
    available: Labels | None = Field(
        None, description="labels of the arms that this person can get; must not depend on rewards"
    )
    features: Features | None = Field(
        None,
        description="of a contextual policy: numbers by name, a row, or a row for each arm. Public",
    )
    attributes: Annotated[dict[ShortText, AttributeValue], Field(max_length=100)] | None = Field(
        None, description="public attributes, for targeting; not stored"
    )


class DecisionOut(Payload):
    """One decision."""

    decision_id: str
    arm: int
    label: str
    propensity: float | None
    learns: bool
    level: float | None = Field(None, description="of a local policy: the device's report needs it")
    ticket: str | None = Field(None, description="for the aggregators, of an experiment with two")
    first_decision_id: str | None = Field(
        None,
        description="of a sticky answer: the person's first decision for this arm, or for one that "
        "was retired, while it is stored. Send the reward to it; level and ticket are its own",
    )


class DecisionsOut(Payload):
    """Exactly `count` decisions."""

    decisions: list[DecisionOut]


class RewardIn(Payload):
    """The reward of a decision, or a device's report for a local policy."""

    value: Number | None = None
    report: Number | None = None
    metrics: Metrics | None = Field(None, description="readings of guardrails")
    exposed: Literal[True] | None = Field(None, description="the decision was displayed")

    @model_validator(mode="after")
    def _one(self) -> RewardIn:
        numbers = (self.value is not None) + (self.report is not None)
        if numbers > 1 or not (numbers or self.metrics or self.exposed):
            raise ValueError("give either value or report, or metrics, or exposed")
        return self


class DecisionRewardIn(RewardIn):
    """A reward with its decision."""

    decision_id: Annotated[str, Field(max_length=100)]


RewardsIn = Annotated[list[DecisionRewardIn], Field(max_length=MOST_COUNT)]


class RewardOut(Payload):
    """Acknowledgement: the reward is on the disk."""

    recorded: Literal[True]


class DecisionRewardOut(RewardOut):
    """An acknowledgement with its decision."""

    decision_id: str


class PersonIn(Payload):
    """A participant whose data are to be erased."""

    person: ShortText


class PopulationIn(Payload):
    """The total privacy budget of a population."""

    epsilon: Annotated[float, Field(gt=0, le=1e6)]
    delta: Annotated[float, Field(ge=0, lt=1)] = 0.0


class ChargeIn(PopulationIn):
    """A release that is made elsewhere, and its privacy loss."""

    release: Name = Field(description="what is released, for the ledger")
    request_id: ShortText = Field(description="the same id is charged once")


class KeyIn(Payload):
    """A new API key."""

    role: Literal["decide", "read", "admin"]
    label: Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    lifetime: Annotated[float, Field(gt=0, le=3e9)] | None = Field(
        None, description="seconds until the key expires; null for a key that does not"
    )
    experiments: Annotated[list[Name], Field(min_length=1, max_length=1_000)] | None = Field(
        None, description="names for which a key of role decide or read is valid; null for all"
    )

    @model_validator(mode="after")
    def _admins_have_all(self) -> KeyIn:
        if self.role == "admin" and self.experiments is not None:
            raise ValueError("a key of role admin is valid for all experiments")
        return self


class WebhookIn(Payload):
    """A webhook."""

    url: Annotated[str, Field(max_length=2_000, description="https, or in an allowed network")]
    events: Annotated[
        list[Literal["winner", "guardrail", "drift", "budget"]], Field(min_length=1, max_length=4)
    ]
    secret: Annotated[str, Field(min_length=16, max_length=200, pattern=r"^[\x21-\x7e]+$")]

    @field_validator("url")
    @classmethod
    def _plain(cls, url: str) -> str:
        parts = urlsplit(url)
        _ = parts.port  # raises for one that is not a number
        plain = url.isascii() and url.isprintable() and " " not in url
        if parts.scheme not in ("https", "http") or not parts.hostname or "@" in parts.netloc:
            plain = False
        if not plain:
            raise ValueError("give a URL such as https://example.org/hook, without a user name")
        return url


class ProblemOut(BaseModel):
    """A problem document (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


class DecisionProblemOut(ProblemOut):
    """A problem with the decision that it concerns."""

    decision_id: str


# Names that an error may repeat. An unknown key could be a participant's name.
FIELD_NAMES = {
    *("confidence", "smallest_difference", "participants", "points", "after", "limit"),
    *("format", "since", "until", "body", "query", "path"),
    *(
        name
        for known, payload in list(globals().items())
        if isinstance(payload, type) and issubclass(payload, Payload) and known.endswith("In")
        for name in payload.model_fields
    ),
}
