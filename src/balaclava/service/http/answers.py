"""Shapes of the answers of reading and administration, for OpenAPI.

They document answers and do not filter them; a test validates real answers. Later versions may add
fields.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class AnswerBody(BaseModel):
    """An answer, to which later versions may add fields."""

    model_config = ConfigDict(extra="allow")


class GuaranteeOut(AnswerBody):
    """A guarantee; epsilon and delta are null without one."""

    epsilon: float | None
    delta: float | None
    model: Literal["none", "central", "split", "local"]
    scope: Literal["none", "decision", "joint", "trajectory", "view", "report"]
    neighbours: str
    assumptions: list[str]
    sentence: str


class ExperimentOut(AnswerBody):
    """An experiment: its definition, progress and guarantee."""

    name: str
    policy: str
    parameters: dict[str, Any]
    arms: list[str]
    retired_arms: list[str]
    shares: dict[str, float]
    reward_window: float
    default_reward: float | None
    settle: Literal["window", "arrival"]
    rewards_per_person: int
    population: str | None
    owner: str
    purpose: str
    retention: float
    deciders: int
    aggregators: list[str] | None
    rewards_apart: bool
    archived: bool
    state: Literal["running", "paused", "finished"]
    served_arm: str | None
    created: str
    decisions: int
    learning_decisions: int
    guarantee: GuaranteeOut
    report: dict[str, Any] | None
    features: dict[str, Any] | None
    guardrails: list[dict[str, Any]] | None
    exposures: bool
    targeting: dict[str, Any] | None
    prior: dict[str, Any] | None
    same_means: bool
    held_out: dict[str, Any] | None
    segment: str | None


class ShareTaskForOut(AnswerBody):
    """What the operator of one aggregator needs: PUT `task` to /v1/tasks/{uid}, with a peer_key."""

    aggregator: str
    uid: str
    task: dict[str, Any]


class ShareTasksOut(AnswerBody):
    """The tasks of both aggregators."""

    tasks: list[ShareTaskForOut]


class VersionOut(AnswerBody):
    """Versions."""

    version: str
    schema_: str = Field(alias="schema")
    api: str


class ExperimentsOut(AnswerBody):
    """All experiments."""

    experiments: list[ExperimentOut]


class ArmOut(AnswerBody):
    """An arm with its released mean and interval."""

    arm: int
    label: str
    decisions: int
    share: float
    retired: bool
    rewards: float | None
    mean: float | None
    low: float | None
    high: float | None


class ResultsOut(AnswerBody):
    """Released means, and the winner if there is one."""

    name: str
    state: str
    decisions: int
    confidence: float
    arms: list[ArmOut]
    winner: str | None
    leader: str | None
    differences: list[dict[str, Any]] | None
    remaining: int | None
    may_stop: dict[str, Any] | None
    note: str | None
    condition: str | None
    releases: dict[str, Any] | None
    missing: str | None
    windows: dict[str, Any] | None
    drift: dict[str, Any]
    guardrails: list[dict[str, Any]]
    breaker: dict[str, Any] | None
    sample_ratio: dict[str, Any] | None
    values: dict[str, Any] | None
    sentence: str


class PlanOut(AnswerBody):
    """Decisions needed to name the best arm, and whether the experiment may stop."""

    name: str
    policy: str
    confidence: float
    learning_decisions: int
    names_winners: dict[str, Any]
    winner: str | None
    leader: str | None
    differences: list[dict[str, Any]] | None
    needed: int | None
    soonest: int | None
    may_stop: dict[str, Any] | None
    note: str | None


class PopulationOut(AnswerBody):
    """A privacy budget."""

    name: str
    epsilon: float
    delta: float
    spent_epsilon: float
    spent_delta: float
    left_epsilon: float
    left_delta: float
    overspent: bool
    segments: dict[str, float]


class PopulationsOut(AnswerBody):
    """All privacy budgets."""

    populations: list[PopulationOut]


class LossOut(AnswerBody):
    """A charge."""

    epsilon: float
    delta: float


class PrivacyOut(AnswerBody):
    """The guarantee, whom it protects, and what it does not cover."""

    guarantee: GuaranteeOut
    per_person: GuaranteeOut | None
    population: PopulationOut | None
    charged: LossOut | None
    restored: int
    not_covered: list[str]
    explanation: str


class HistoryOut(AnswerBody):
    """Columns of a chart: one value, or one list over the arms, for each moment."""

    decisions: list[int]
    at: list[float]
    arms: list[str]
    shares: list[list[float]]
    means: list[list[float | None]]
    low: list[list[float | None]]
    high: list[list[float | None]]


class DecisionStateOut(AnswerBody):
    """The state of a decision."""

    decision_id: str
    experiment: str
    arm: int
    state: Literal["open", "rewarded", "defaulted", "given up", "not learned from", "erased"]
    made: float
    closes: float


class ErasedOut(AnswerBody):
    """what was erased of a person, and its limits."""

    experiments: list[str]
    decisions: int
    erased: list[str]
    kept: list[str]
    cannot_be_undone: list[str]


class EntryOut(AnswerBody):
    """An entry of the ledger."""

    at: float
    event: str
    population: str | None
    experiment: str | None
    epsilon: float
    delta: float
    note: str


class LedgerOut(PopulationsOut):
    """All budgets and all entries."""

    entries: list[EntryOut]


class TrailEntryOut(EntryOut):
    """A change, its actor, and the digests that chain it."""

    id: int
    actor: str
    previous: str
    digest: str


class AuditTrailOut(AnswerBody):
    """Entries of the audit trail, oldest first."""

    entries: list[TrailEntryOut]


class KeyOut(AnswerBody):
    """An API key, without the key itself."""

    id: str
    role: Literal["decide", "read", "admin"]
    label: str
    created: float
    expires: float | None
    revoked: float | None = None
    experiments: list[str] | None = None


class NewKeyOut(KeyOut):
    """A new API key."""

    key: str


class KeysOut(AnswerBody):
    """All API keys."""

    keys: list[KeyOut]


class StatusOut(AnswerBody):
    """Health."""

    status: str
