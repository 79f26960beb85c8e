"""What can be asked of the service: a request, and how its answer is read. Nothing is sent here."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

from balaclava.errors import ParameterError, ServiceError
from balaclava.privacy.device_report import checked_number

Answer = TypeVar("Answer")
Document = dict[str, Any]
MOST_REWARDS = 5_000  # in one request: the service takes 10,000 and a million bytes


class ServiceDecision(NamedTuple):
    """An arm for somebody, as the service answered it."""

    decision_id: str
    arm: int
    label: str
    propensity: float | None
    learns: bool  # False where a person has had their share, or the experiment has finished
    level: float | None = None  # of a local policy: what a device needs to report


class RewardReceipt(NamedTuple):
    """What became of one of many rewards."""

    decision_id: str
    recorded: bool
    problem: str | None = None  # what is wrong, and what to do
    status: int = 200


@dataclass(frozen=True)
class Call(Generic[Answer]):
    """One request, and how its answer is read."""

    method: str
    path: str
    read: Callable[[Any], Answer]
    body: Any = None
    query: Mapping[str, Any] | None = None
    repeatable: bool = True  # sending it twice does what sending it once does


Rewarded = ServiceDecision | str
Pairs = Mapping[str, float] | Iterable[tuple[Rewarded, float]]


def decision_id(decision: Rewarded) -> str:
    """The id of a decision, which may stand for it."""
    text = decision.decision_id if isinstance(decision, ServiceDecision) else decision
    if not isinstance(text, str) or not text:
        raise ParameterError(
            f"a {type(decision).__name__} is not a decision; give what decide returned, or its "
            "decision_id"
        )
    return text


def path_of(*parts: str) -> str:
    """An address below /v1; every part may hold any character."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def as_it_is(document: Any) -> Any:
    """Answers that are handed on."""
    return document


def nothing(document: Any) -> None:
    """Answers that say no more than that it was done."""


def decide(
    experiment: str, person: str | None, request_id: str | None, count: int
) -> Call[list[ServiceDecision]]:
    """Decisions; under one request_id, however often it is sent."""
    body: Document = {"request_id": request_id or secrets.token_urlsafe(16), "count": count}
    if person is not None:
        body["person"] = person

    def read(document: Any) -> list[ServiceDecision]:
        decisions = [
            ServiceDecision(**{name: one[name] for name in ServiceDecision._fields if name in one})
            for one in document["decisions"]
        ]
        if len(decisions) != count:
            raise ServiceError(f"{count} decisions were asked for, and {len(decisions)} came")
        return decisions

    return Call("POST", path_of("experiments", experiment, "decisions"), read, body)


def reward(decision: Rewarded, kind: str, value: float) -> Call[None]:
    """One reward (`value`) or report of one."""
    number = checked_number("the service", _WORD[kind], value)
    return Call(
        "PUT", path_of("decisions", decision_id(decision), "reward"), nothing, {kind: number}
    )


_WORD = {"value": "reward", "report": "report"}


def rewards(pairs: Pairs, kind: str) -> Iterator[Call[list[RewardReceipt]]]:
    """Many of them, in as many requests as they need."""
    items = iter(pairs.items() if isinstance(pairs, Mapping) else pairs)
    checked = [
        {
            "decision_id": decision_id(decision),
            kind: checked_number("the service", _WORD[kind], value),
        }
        for decision, value in items
    ]
    waiting = iter(checked)
    while body := list(islice(waiting, MOST_REWARDS)):
        yield Call("POST", path_of("rewards"), _read_recorded, body)


def _read_recorded(document: Any) -> list[RewardReceipt]:
    return [
        RewardReceipt(each["decision_id"], True)
        if each.get("recorded")
        else RewardReceipt(each["decision_id"], False, each["detail"], each["status"])
        for each in document
    ]


def get(*parts: str, **query: Any) -> Call[Document]:
    """A document."""
    return Call("GET", path_of(*parts), as_it_is, query=query or None)


def get_list(name: str) -> Call[list[Document]]:
    """A list of documents, which is answered under its name."""
    return Call("GET", path_of(name), lambda document: list(document[name]))


def create_experiment(
    name: str,
    policy: str,
    arms: Sequence[str],
    reward_window: float,
    parameters: Document | None,
    more: Document,
) -> Call[Document]:
    """A new experiment; the same again changes nothing."""
    definition = {
        "name": name,
        "policy": policy,
        "arms": list(arms),
        "reward_window": reward_window,
        "parameters": parameters or {},
        **more,
    }
    return Call("POST", path_of("experiments"), as_it_is, definition)


def set_state(experiment: str, verb: str) -> Call[Document]:
    """Pause, resume or finish."""
    return Call("POST", path_of("experiments", experiment, verb), as_it_is)


def set_population(name: str, epsilon: float, delta: float) -> Call[Document]:
    """A population and its total."""
    body = {"epsilon": epsilon, "delta": delta}
    return Call("PUT", path_of("populations", name), as_it_is, body)


def create_key(role: str, label: str) -> Call[Document]:
    """A new key: asked for twice, there would be two."""
    body = {"role": role, "label": label}
    return Call("POST", path_of("keys"), as_it_is, body, repeatable=False)


def revoke_key(id: str) -> Call[None]:
    """A key that is not accepted any more."""
    return Call("DELETE", path_of("keys", id), nothing)
