"""Feature flags by the OpenFeature Remote Evaluation Protocol (OFREP), version 0.3.0.

A flag is an experiment, its variant an arm, and `targetingKey` the person. The arm is sticky. The
first evaluation of the single flag is the exposure: it makes the decision, and all later ones
repeat it without writing. Bulk evaluation never decides. A flag that the person was not exposed to
has no value there, by which the protocol tells the caller to use its own default.

Every answer is computed from decisions and released values. Its ETag is a digest of the answer.
"""

import asyncio
import hashlib
import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, Literal, Protocol

from fastapi import APIRouter, Header, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field

from balaclava.service.credentials import caller
from balaclava.service.engine.contexts import takes_features
from balaclava.service.engine.served_experiment import FINISHED, PAUSED, ServedExperiment
from balaclava.service.engine.unit_of_work import StoredPerson
from balaclava.service.problems import Problem
from balaclava.service.service import Service
from balaclava.service.store import sql
from balaclava.service.targeting import Attributes, is_held_out, takes_part

_BOOLEANS = {"true": True, "false": False}
_PROTOCOLS_OWN = (401, 403)  # answers without a form of the protocol's own


class FlagContext(BaseModel):
    """Who evaluates. Other attributes serve targeting alone, and are not stored."""

    model_config = ConfigDict(extra="allow", strict=True)

    targetingKey: Annotated[str, Field(min_length=1, max_length=500)]  # noqa: N815


class FlagRequest(BaseModel):
    """A request to evaluate flags."""

    context: FlagContext


class FlagValue(BaseModel):
    """An evaluated flag. Without a value the caller uses its own default."""

    key: str
    reason: Literal["STATIC", "SPLIT", "DISABLED", "UNKNOWN"]
    value: bool | str | None = None
    variant: str | None = None
    metadata: dict[str, bool | str | float]


class FlagValues(BaseModel):
    """All flags."""

    flags: list[FlagValue]


class FlagFailure(BaseModel):
    """Why a flag could not be evaluated."""

    key: str | None = None
    errorCode: str  # noqa: N815
    errorDetails: str  # noqa: N815


_FAILURES: dict[int | str, dict[str, Any]] = {400: {"model": FlagFailure}}


class FlagSource(Protocol):
    """Where flags come from."""

    async def flags(
        self, person: str, key: str | None = None, attributes: Attributes | None = None
    ) -> list[dict[str, Any]]:
        """The flags of a person without a decision, one or all."""

    async def expose(self, key: str, person: str, attributes: dict[str, Any]) -> None:
        """Decide a flag whose reason is UNKNOWN."""


class ServiceFlags:
    """The flags of a service: its experiments."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def flags(
        self, person: str, key: str | None = None, attributes: Attributes | None = None
    ) -> list[dict[str, Any]]:
        """The flags of a person without a decision, one or all."""
        return await asyncio.to_thread(_peek, self._service, person, key, attributes)

    async def expose(self, key: str, person: str, attributes: dict[str, Any]) -> None:
        """Make the person's sticky decision."""
        await self._service.decide(key, 1, None, person, sticky=True, attributes=attributes)


def add_feature_flags(router: APIRouter, source: FlagSource) -> None:
    """Add the two endpoints of the protocol to a router whose key may decide."""
    flags = APIRouter(route_class=_FlagRoute)

    @flags.post(
        "/ofrep/v1/evaluate/flags/{key}",
        operation_id="evaluateFlag",
        response_model_exclude_none=True,
        responses=_FAILURES | {404: {"model": FlagFailure}},
    )
    async def evaluate(key: str, asked: FlagRequest) -> FlagValue:
        """Evaluate a flag for a person. The first evaluation decides and is the exposure."""
        person = asked.context.targetingKey
        attributes = asked.context.model_extra or {}
        (flag,) = await source.flags(person, key, attributes)
        if flag["reason"] == "UNKNOWN":
            await source.expose(key, person, attributes)
            (flag,) = await source.flags(person, key, attributes)
        return JSONResponse(flag)  # type: ignore[return-value]

    @flags.post(
        "/ofrep/v1/evaluate/flags",
        operation_id="evaluateFlagsBulk",
        response_model_exclude_none=True,
        responses=_FAILURES | {304: {"description": "Nothing has changed."}},
    )
    async def evaluate_all(
        asked: FlagRequest, if_none_match: Annotated[str, Header()] = ""
    ) -> FlagValues:
        """Return all flags of a person. Nothing is decided, and nothing is stored."""
        attributes = asked.context.model_extra
        flags = await source.flags(asked.context.targetingKey, None, attributes)
        body = json.dumps({"flags": flags}).encode()
        return conditional(body, if_none_match)  # type: ignore[return-value]

    router.include_router(flags)


def conditional(body: bytes, if_none_match: str, media_type: str = "application/json") -> Response:
    """Answer a body with its digest as ETag, or 304 if the caller has it."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    known = {each.strip().removeprefix("W/") for each in if_none_match.split(",")}
    if known & {tag, "*"}:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media_type, headers=headers)


def _peek(
    service: Service, person: str, key: str | None = None, attributes: Attributes | None = None
) -> list[dict[str, Any]]:
    """Flags of a person, one or all, without a decision."""
    experiments = [service.committed(key)] if key is not None else service.all_committed()
    experiments = [each for each in experiments if caller.get().covers(each.definition.name)]
    persons = []
    with service.storage.reading() as connection:
        for experiment in experiments:
            digest = service.vault.person_digest(experiment.definition.name, person)
            rows = sql.fetch(connection, sql.PERSONS, [digest], experiment.id)
            persons.append(StoredPerson(*rows[0][1:]) if rows else StoredPerson())
        ids = [each.decision for each in persons if each.decision is not None]
        decisions = sql.DECISIONS.read(connection, "WHERE id IN (*)", ids)
    by_id = {row["id"]: row for row in decisions}
    flags = []
    for experiment, known in zip(experiments, persons, strict=True):
        definition = experiment.definition
        digest = service.vault.holdout_digest(definition.name, person)
        if not takes_part(definition.targeting, attributes):
            assert definition.targeting is not None
            flags.append(_fixed_flag(experiment, definition.targeting["otherwise"]))
        elif (held_out := experiment.held_out) is not None and is_held_out(held_out, digest):
            flags.append(_fixed_flag(experiment, held_out["arm"]))
        else:
            flags.append(_flag(experiment, known.arm, by_id.get(known.decision or "")))
    return flags


def _fixed_flag(experiment: ServedExperiment, label: str) -> dict[str, Any]:
    """The flag of a person who is outside the targeting, or held out."""
    arm, name = experiment.arms.index(label), experiment.definition.name
    return flag_value(name, experiment.arms, arm, "STATIC", {"exposed": False})


def _flag(
    experiment: ServedExperiment, arm: int | None, decision: dict[str, Any] | None
) -> dict[str, Any]:
    """The flag of a person with this sticky arm, set by this decision while that is kept."""
    labels, key = experiment.arms, experiment.definition.name
    by_features = takes_features(experiment.policy) and experiment.chosen_arm is None
    if by_features and (experiment.state == FINISHED or arm is None):
        return {"key": key, "reason": "DISABLED", "metadata": {"exposed": False}}
    if experiment.state == FINISHED or experiment.chosen_arm is not None:
        return flag_value(key, labels, experiment.served(), "STATIC", {"exposed": False})
    if arm is None or arm in experiment.retired:  # the next decision gives another arm
        reason = "DISABLED" if experiment.state == PAUSED else "UNKNOWN"
        return {"key": key, "reason": reason, "metadata": {"exposed": False}}
    metadata: dict[str, Any] = {"exposed": True}
    if decision is not None:
        same = decision["arm"] == arm  # otherwise it is the first one, whose arm was retired
        metadata |= {"decision_id": decision["id"], "learns": same and bool(decision["learns"])}
        optional = {"level": decision["level"]}
        if same:
            optional["propensity"] = decision["propensity"]
        metadata |= {name: value for name, value in optional.items() if value is not None}
    return flag_value(key, labels, arm, "SPLIT", metadata)


def flag_value(
    key: str, labels: Sequence[str], arm: int, reason: str, metadata: dict[str, Any]
) -> dict[str, Any]:
    """A flag with a value: the label, or a boolean where all labels are true and false."""
    label = labels[arm]
    value = _BOOLEANS[label] if set(labels) <= _BOOLEANS.keys() else label
    return {"key": key, "reason": reason, "value": value, "variant": label, "metadata": metadata}


class _FlagRoute(APIRoute):
    """A route whose errors have the protocol's form."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()

        async def translated(request: Request) -> Response:
            key = request.path_params.get("key")
            try:
                return await answer(request)
            except RequestValidationError as error:
                return _failure(400, key, *_context_fault(error))
            except Problem as problem:
                if problem.status in _PROTOCOLS_OWN:
                    raise
                return _problem_failure(problem, key)

        return translated


def _context_fault(error: RequestValidationError) -> tuple[str, str]:
    """The protocol's code and words for an invalid body, without its values."""
    fault = error.errors()[0]
    if fault["type"] == "json_invalid":
        return "PARSE_ERROR", "the body is not valid JSON"
    if "targetingKey" in fault["loc"] and fault["type"] in ("missing", "string_too_short"):
        advice = "give the person as context.targetingKey: the arm is sticky by it"
        return "TARGETING_KEY_MISSING", advice
    return "INVALID_CONTEXT", "give {context: {targetingKey}}, a string of at most 500 characters"


def _problem_failure(problem: Problem, key: str | None) -> Response:
    detail = problem.document["detail"]
    if problem.status == 404:
        return _failure(404, key, "FLAG_NOT_FOUND", detail)
    if problem.status >= 500:
        retry = problem.retry_after
        headers = None if retry is None else {"Retry-After": str(retry)}
        return JSONResponse({"errorDetails": detail}, problem.status, headers)
    return _failure(400, key, "GENERAL", detail)


def _failure(status: int, key: str | None, code: str, detail: str) -> Response:
    document = {"errorCode": code, "errorDetails": detail}
    return JSONResponse(document if key is None else {"key": key, **document}, status)
