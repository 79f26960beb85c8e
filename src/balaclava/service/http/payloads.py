"""What the endpoints take and give, for OpenAPI and for checking."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, model_validator

MOST_COUNT = 10_000
MOST_ARMS = 10_000
_NAME = r"^[^/\\?#\x00-\x1f\x7f]*[^/\\?#\x00-\x1f\x7f.\s][^/\\?#\x00-\x1f\x7f]*$"
Number = StrictInt | StrictFloat
Name = Annotated[str, Field(min_length=1, max_length=200, pattern=_NAME)]
Text = Annotated[str, Field(max_length=2_000)]
ShortText = Annotated[str, Field(min_length=1, max_length=500)]


class Payload(BaseModel):
    """Nothing is taken that is not known, and nothing of another type."""

    model_config = ConfigDict(extra="forbid", strict=True)


class ExperimentIn(Payload):
    """A new experiment."""

    name: Name
    policy: Annotated[str, Field(max_length=100, description="such as dp-imed")]
    parameters: dict[str, Any] = Field(default_factory=dict, description="of the policy")
    arms: Annotated[list[ShortText], Field(min_length=1, max_length=MOST_ARMS)]
    reward_window: Annotated[float, Field(gt=0, description="seconds that a reward may take")]
    default_reward: float | None = Field(
        None, description="what counts where no reward came in time"
    )
    settle: Literal["window", "arrival"] | None = Field(
        None, description="window where there is a default_reward, arrival otherwise"
    )
    rewards_per_person: Annotated[int, Field(ge=1, le=10**6)] = 1
    population: Name | None = None
    owner: Text = ""
    purpose: Text = ""


class DecisionsIn(Payload):
    """A request for decisions."""

    request_id: ShortText | None = Field(None, description="the same one gets the same decisions")
    person: ShortText | None = Field(None, description="whose rewards are capped together")
    count: Annotated[int, Field(ge=1, le=MOST_COUNT)] = 1


class DecisionOut(Payload):
    """An arm for somebody."""

    decision_id: str
    arm: int
    label: str
    propensity: float | None
    learns: bool
    level: float | None = None


class DecisionsOut(Payload):
    """Exactly as many as were asked for."""

    decisions: list[DecisionOut]


class RewardIn(Payload):
    """What came of a decision: its reward, or, of a local policy, a report of it."""

    value: Number | None = None
    report: Number | None = None

    @model_validator(mode="after")
    def _one(self) -> RewardIn:
        if (self.value is None) == (self.report is None):
            raise ValueError("give either value or report")
        return self


class DecisionRewardIn(RewardIn):
    """The same, with the decision that it belongs to."""

    decision_id: Annotated[str, Field(max_length=100)]


RewardsIn = Annotated[list[DecisionRewardIn], Field(max_length=MOST_COUNT)]


class RewardOut(Payload):
    """It is on the disk."""

    recorded: Literal[True]


class DecisionRewardOut(RewardOut):
    """The same, with the decision that it belongs to."""

    decision_id: str


class PopulationIn(Payload):
    """A population's total."""

    epsilon: Annotated[float, Field(gt=0, le=1e6)]
    delta: Annotated[float, Field(ge=0, lt=1)] = 0.0


class KeyIn(Payload):
    """A new key."""

    role: Literal["decide", "read", "admin"]
    label: Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""


class ProblemOut(BaseModel):
    """A problem document (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str


class DecisionProblemOut(ProblemOut):
    """The same, with the decision that it belongs to."""

    decision_id: str
