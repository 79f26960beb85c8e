"""Requests to the service, and how to read their answers. No I/O happens here."""

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

from balaclava.errors import ParameterError, ServiceError
from balaclava.privacy.device_report import checked_number

Answer = TypeVar("Answer")
Document = dict[str, Any]
MOST_REWARDS = 5_000  # per request: the service takes 10,000, and 1 MB
_NOUNS = {"value": "reward", "report": "report"}


class ServiceDecision(NamedTuple):
    """A decision as the service answered it."""

    decision_id: str
    arm: int
    label: str
    propensity: float | None
    learns: bool  # False at the participant's limit, and after the experiment has finished
    level: float | None = None  # local policies only: the device needs it to report


class RewardReceipt(NamedTuple):
    """The service's answer to one of many rewards."""

    decision_id: str
    recorded: bool
    problem: str | None = None  # why it was not recorded, and what to do
    status: int = 200


DecisionOrId = ServiceDecision | str
Pairs = Mapping[str, float] | Iterable[tuple[DecisionOrId, float]]


@dataclass(frozen=True)
class Call(Generic[Answer]):
    """One request, and the function that reads its answer."""

    method: str
    path: str
    read: Callable[[Any], Answer]
    body: Any = None
    query: Mapping[str, Any] | None = None
    idempotent: bool = True  # safe to send again


def decision_id(decision: DecisionOrId) -> str:
    """The id of a decision, given as a `ServiceDecision` or as the id itself."""
    text = decision.decision_id if isinstance(decision, ServiceDecision) else decision
    if not isinstance(text, str) or not text:
        raise ParameterError(
            f"a {type(decision).__name__} is not a decision; give the result of decide, or its "
            "decision_id"
        )
    return text


def path(*parts: str) -> str:
    """A path below /v1. Each part may contain any character."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def unchanged(document: Any) -> Any:
    return document


def nothing(document: Any) -> None:
    """Ignore an answer that only confirms the request."""


def decide(
    experiment: str, person: str | None, request_id: str | None, count: int
) -> Call[list[ServiceDecision]]:
    """Request decisions under a request_id, generated if the caller gives none."""
    body: Document = {"request_id": request_id or secrets.token_urlsafe(16), "count": count}
    if person is not None:
        body["person"] = person

    def read(document: Any) -> list[ServiceDecision]:
        decisions = [
            ServiceDecision(**{name: one[name] for name in ServiceDecision._fields if name in one})
            for one in document["decisions"]
        ]
        if len(decisions) != count:
            raise ServiceError(f"asked for {count} decisions, but received {len(decisions)}")
        return decisions

    return Call("POST", path("experiments", experiment, "decisions"), read, body)


def reward(decision: DecisionOrId, kind: str, value: float) -> Call[None]:
    """Send one reward (kind "value") or one report."""
    number = checked_number("the service", _NOUNS[kind], value)
    return Call("PUT", path("decisions", decision_id(decision), "reward"), nothing, {kind: number})


def rewards(pairs: Pairs, kind: str) -> list[Call[list[RewardReceipt]]]:
    """Send many rewards or reports, in as many requests as they need."""
    noun = _NOUNS[kind]
    bodies = [
        {"decision_id": decision_id(decision), kind: checked_number("the service", noun, value)}
        for decision, value in (pairs.items() if isinstance(pairs, Mapping) else pairs)
    ]
    return [
        Call("POST", path("rewards"), _read_receipts, bodies[start : start + MOST_REWARDS])
        for start in range(0, len(bodies), MOST_REWARDS)
    ]


def _read_receipts(document: Any) -> list[RewardReceipt]:
    return [
        RewardReceipt(each["decision_id"], True)
        if each.get("recorded")
        else RewardReceipt(each["decision_id"], False, each["detail"], each["status"])
        for each in document
    ]


def get(*parts: str, **query: Any) -> Call[Document]:
    """Read one document."""
    return Call("GET", path(*parts), unchanged, query=query or None)


def get_list(name: str) -> Call[list[Document]]:
    """Read a list, which the service answers under its name."""
    return Call("GET", path(name), lambda document: list(document[name]))
