"""Requests to the service, how to read their answers, and retries. No I/O happens here.

Retries decide which faults are transient, how long to wait, and which error an answer raises. Both
clients share `attempts`, a generator: it yields each wait and request, and receives the response or
the transport error.
"""

from __future__ import annotations

import email.utils
import itertools
import random
import secrets
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

from balaclava import errors
from balaclava.privacy.device_report import checked_number

if TYPE_CHECKING:
    import httpx

Answer = TypeVar("Answer")
Document = dict[str, Any]
MOST_REWARDS = 5_000  # per request: the service takes 10,000, and 1 MB
_NOUNS = {"value": "reward", "report": "report"}


class ServiceDecision(NamedTuple):
    """A decision as the service answered it, or the `default` of `decide` in its place."""

    decision_id: str  # "" of a default, whose reward is ignored
    arm: int
    label: str
    propensity: float | None
    learns: bool  # False at the participant's limit, and after the experiment has finished
    level: float | None = None  # local policies only: the device needs it to report
    ticket: str | None = None  # experiments with aggregators only: the device needs it to share
    first_decision_id: str | None = None  # sticky only: the one whose reward may count


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
    deadline: float | None = None  # seconds for all attempts together
    file: bool = False  # whether the answer is a file, not JSON


def decision_id(decision: DecisionOrId) -> str:
    """The id of a decision, given as a `ServiceDecision` or as the id itself."""
    text = decision.decision_id if isinstance(decision, ServiceDecision) else decision
    if not isinstance(text, str) or not text:
        raise errors.ParameterError(
            f"a {type(decision).__name__} is not a decision of the service; give the result of "
            "decide, or its decision_id, and leave defaults out"
        )
    return text


def path(*parts: str) -> str:
    """A path below /v1. Each part may contain any character."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def listed(labels: Sequence[str]) -> Any:
    """Labels as a list; a single string is sent as it is, so that the service refuses it."""
    return labels if isinstance(labels, str) else list(labels)


def unchanged(document: Any) -> Any:
    return document


def nothing(document: Any) -> None:
    """Ignore an answer that only confirms the request."""


def default_decision(label: str) -> ServiceDecision:
    """What `decide` returns in place of a decision if the service is unavailable."""
    return ServiceDecision("", -1, label, None, learns=False)


def decide(
    experiment: str,
    person: str | None,
    request_id: str | None,
    count: int,
    deadline: float | None = None,
    available: Sequence[str] | None = None,
    features: Any = None,
    attributes: Mapping[str, Any] | None = None,
    sticky: bool = False,
) -> Call[list[ServiceDecision]]:
    """Request decisions under a request_id, generated if the caller gives none."""
    body: Document = {"request_id": request_id or secrets.token_urlsafe(16), "count": count}
    if person is not None:
        body["person"] = person
    if available is not None:
        body["available"] = listed(available)
    if features is not None:
        body["features"] = features
    if attributes is not None:
        body["attributes"] = dict(attributes)
    if sticky:
        body["sticky"] = True

    def read(document: Any) -> list[ServiceDecision]:
        decisions = [
            ServiceDecision(**{name: one[name] for name in ServiceDecision._fields if name in one})
            for one in document["decisions"]
        ]
        if len(decisions) != count:
            raise errors.ServiceError(f"asked for {count} decisions, but received {len(decisions)}")
        return decisions

    way = path("experiments", experiment, "decisions")
    return Call("POST", way, read, body, deadline=deadline)


def reward(decision: DecisionOrId, kind: str, value: float) -> Call[None]:
    """Send one reward (kind "value") or one report."""
    number = checked_number("the service", _NOUNS[kind], value)
    return Call("PUT", path("decisions", decision_id(decision), "reward"), nothing, {kind: number})


def metrics(decision: DecisionOrId, readings: Mapping[str, float]) -> Call[None]:
    """Send readings of guardrails."""
    numbers = {
        name: checked_number("the service", f"metric {name!r}", value)
        for name, value in readings.items()
    }
    way = path("decisions", decision_id(decision), "reward")
    return Call("PUT", way, nothing, {"metrics": numbers})


def exposed(decision: DecisionOrId) -> Call[None]:
    """Say that a decision was displayed."""
    way = path("decisions", decision_id(decision), "reward")
    return Call("PUT", way, nothing, {"exposed": True})


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


def charge_release(population: str, release: str, epsilon: float, delta: float) -> Call[Document]:
    """Charge a release, once however often the request is sent."""
    body: Document = {"request_id": secrets.token_urlsafe(16), "release": release}
    body |= {"epsilon": epsilon, "delta": delta}
    return Call("POST", path("populations", population, "charges"), unchanged, body)


def get(*parts: str, **query: Any) -> Call[Document]:
    """Read one document."""
    return Call("GET", path(*parts), unchanged, query=query or None)


def stopping_query(
    confidence: float, smallest_difference: float | None, participants: int | None
) -> dict[str, Any]:
    """The query of results and plan, without what is not given."""
    query = {
        "confidence": confidence,
        "smallest_difference": smallest_difference,
        "participants": participants,
    }
    return {name: value for name, value in query.items() if value is not None}


def export(experiment: str, format: str, since: float, until: float) -> Call[bytes]:
    """Read an experiment as a file."""
    query = {"format": format, "since": since, "until": until}
    return Call("GET", path("experiments", experiment, "export"), bytes, query=query, file=True)


def get_list(name: str, **query: Any) -> Call[list[Document]]:
    """Read a list, which the service answers under its name."""
    return Call("GET", path(name), lambda document: list(document[name]), query=query or None)


Step = tuple[float, Call[Any]]  # seconds to wait, then the request to send
Exchange = Generator[Step, "httpx.Response | httpx.TransportError", Answer]

# Seconds. The first wait is longer than a commit; the longest spreads a restart's load.
FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
_TRANSIENT = (502, 503, 504)
_ERRORS: dict[int, type[errors.ServiceError]] = {
    401: errors.ServiceKeyError,
    403: errors.ServiceKeyError,
    404: errors.ServiceLookupError,
    409: errors.ServiceConflictError,
    410: errors.WindowOverError,
}


def attempts(
    call: Call[Answer],
    patience: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    chance: Callable[[], float] = random.random,
) -> Exchange[Answer]:
    """Retry transient faults with exponential back-off and jitter.

    A connection error and the statuses 502, 503 and 504 are transient. A retry waits at least as
    long as the service's Retry-After. After `patience` seconds, or the call's deadline, a transient
    fault raises `ServiceUnavailableError`. Other faults raise at once. `chance` draws uniformly
    from [0, 1).
    """
    end = clock() + (patience if call.deadline is None else min(patience, call.deadline))
    wait = 0.0
    for attempt in itertools.count():
        outcome = yield wait, call
        if not _is_transient(outcome, call):
            return call.read(_document(outcome, file=call.file))
        longest = min(FIRST_WAIT * 2.0 ** min(attempt, 30), LONGEST_WAIT)
        wait = _retry_after(outcome) + longest * (0.5 + 0.5 * chance())
        if clock() + wait > end:
            raise _unavailable(outcome, attempt + 1, call)
    raise AssertionError("unreachable")


def _is_transient(outcome: httpx.Response | httpx.TransportError, call: Call[Any]) -> bool:
    import httpx

    if isinstance(outcome, httpx.Response):
        return outcome.status_code in _TRANSIENT and call.idempotent
    if isinstance(outcome, httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        raise outcome
    if isinstance(outcome, httpx.ConnectError | httpx.ConnectTimeout) or call.idempotent:
        return True
    raise errors.ServiceUnavailableError(
        f"the connection broke during {call.method} {call.path}, which is not safe to repeat; "
        "check whether the service did it before you send it again"
    ) from outcome


def _retry_after(outcome: httpx.Response | httpx.TransportError) -> float:
    """Seconds in the Retry-After header, a number or a date; 0 without one."""
    text = getattr(outcome, "headers", {}).get("retry-after", "")
    if text.isdecimal():
        return float(text)
    try:
        until = email.utils.parsedate_to_datetime(text).timestamp()
    except ValueError:
        return 0.0
    return max(until - time.time(), 0.0)


def _unavailable(
    outcome: httpx.Response | httpx.TransportError, sent: int, call: Call[Any]
) -> errors.ServiceUnavailableError:
    status = getattr(outcome, "status_code", 0)
    why = (_detail(outcome) if status else "") or str(outcome) or type(outcome).__name__
    advice = "send the same request again later; it counts once"
    if isinstance(call.body, dict) and "request_id" in call.body:
        advice = f"retry later with request_id={call.body['request_id']!r}"
    times = "1 attempt" if sent == 1 else f"{sent} attempts"
    return errors.ServiceUnavailableError(
        f"the service is unavailable after {times}: {why}; {advice}", status
    )


def _document(response: Any, *, file: bool = False) -> Any:
    """The JSON of a response, or the content of a file.

    Raises if it is an error, or not from a balaclava service.
    """
    status = response.status_code
    if status == 204:
        return None
    if not 200 <= status < 300:
        detail = _detail(response) or (
            "the answer is not from a balaclava service; check the URL, and any proxy"
        )
        kind = _ERRORS.get(
            status, errors.ServiceRequestError if 400 <= status < 500 else errors.ServiceError
        )
        raise kind(f"{detail} (HTTP {status})", status)
    if file:
        return response.content
    try:
        return response.json()
    except ValueError:
        raise errors.ServiceError(
            f"the answer from {response.url} is not JSON; check that the URL is that of a "
            "balaclava service",
            status,
        ) from None


def _detail(response: Any) -> str:
    """The detail of a problem document; empty for any other response."""
    try:
        document = response.json()
    except ValueError:
        return ""
    detail = document.get("detail") if isinstance(document, dict) else None
    return detail if isinstance(detail, str) else ""
