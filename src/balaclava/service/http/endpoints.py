"""The endpoints of the HTTP interface, grouped by the right that they need."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse

import balaclava
from balaclava.agents.policy_runner import REPORT, REWARD
from balaclava.service.credentials import ApiKey
from balaclava.service.documents import for_readers
from balaclava.service.engine.definition import ExperimentDefinition
from balaclava.service.engine.jobs import ReceivedReward
from balaclava.service.engine.served_experiment import RESULTS_CONFIDENCE
from balaclava.service.export import MEDIA_TYPES, ExportFormat
from balaclava.service.http import answers, payloads
from balaclava.service.http.metrics import Metrics
from balaclava.service.problems import Problem
from balaclava.service.service import Service


class JavaScriptResponse(Response):
    """For OpenAPI."""

    media_type = "text/javascript"


_REPORT_SCRIPT = Path(__file__).parents[1] / "static" / "report.js"


def _answers(model: type[answers.AnswerBody], *statuses: int) -> dict[str, Any]:
    """Document the answer of an endpoint, without validating it each time."""
    documented = {status: {"model": model} for status in statuses or (200,)}
    return {"response_model": None, "responses": documented}


def add_decisions(router: APIRouter, service: Service) -> None:
    @router.post("/v1/experiments/{name}/decisions")
    async def decide(name: str, payload: payloads.DecisionsIn) -> payloads.DecisionsOut:
        """Make exactly `count` decisions. A repeated request_id gets the same decisions."""
        answer = await service.decide(
            name,
            payload.count,
            payload.request_id,
            payload.person,
            payload.sticky,
            payload.available,
            payload.features,
            payload.attributes,
        )
        return Response(answer, media_type="application/json")  # type: ignore[return-value]

    @router.put("/v1/decisions/{decision_id}/reward")
    async def reward(decision_id: str, payload: payloads.RewardIn) -> payloads.RewardOut:
        """Record a decision's reward. It counts once, even if it is sent again."""
        (answer,) = await service.reward([_received(decision_id, payload)])
        if isinstance(answer, Problem):
            raise answer
        return JSONResponse(answer)  # type: ignore[return-value]

    @router.post("/v1/rewards")
    async def rewards(
        payload: payloads.RewardsIn,
    ) -> list[payloads.DecisionRewardOut | payloads.DecisionProblemOut]:
        """Record many rewards. Each gets its own answer, in the same order."""
        received = [_received(each.decision_id, each) for each in payload]
        receipts = [
            {
                "decision_id": each.decision_id,
                **(answer.document if isinstance(answer, Problem) else answer),
            }
            for each, answer in zip(received, await service.reward(received), strict=True)
        ]
        return JSONResponse(receipts)  # type: ignore[return-value]


def _received(decision_id: str, payload: payloads.RewardIn) -> ReceivedReward:
    more = payload.metrics, bool(payload.exposed)
    if payload.report is not None:
        return ReceivedReward(decision_id, REPORT, payload.report, *more)
    if payload.value is None:
        return ReceivedReward(decision_id, None, 0.0, *more)
    return ReceivedReward(decision_id, REWARD, payload.value, *more)


KeyOf = Callable[..., Awaitable[ApiKey]]  # a dependency


def add_experiments(router: APIRouter, service: Service, key_of: KeyOf) -> None:
    @router.post("/v1/experiments", status_code=201, **_answers(answers.ExperimentOut, 201, 200))
    async def create(
        payload: payloads.ExperimentIn, key: Annotated[ApiKey, Depends(key_of)]
    ) -> dict[str, Any]:
        """Create an experiment. Creating the same one again answers 200."""
        checked = ExperimentDefinition.checked  # in a thread: it takes long for many arms
        definition = await asyncio.to_thread(lambda: checked(**payload.model_dump()))
        new = await service.create(definition, key.actor)
        document = await asyncio.to_thread(service.experiment, definition.name)
        return JSONResponse(document, 201 if new else 200)  # type: ignore[return-value]

    @router.patch("/v1/experiments/{name}", **_answers(answers.ExperimentOut))
    async def edit(
        name: str,
        payload: payloads.ExperimentChangesIn,
        key: Annotated[ApiKey, Depends(key_of)],
    ) -> dict[str, Any]:
        """Change an experiment's owner, purpose, retention, arms or shares, or archive it."""
        await service.edit(name, payload.changes, key.actor)
        return await asyncio.to_thread(service.experiment, name)

    @router.post(
        "/v1/experiments/{name}/clone", status_code=201, **_answers(answers.ExperimentOut, 201, 200)
    )
    async def clone(
        name: str, payload: payloads.CloneIn, key: Annotated[ApiKey, Depends(key_of)]
    ) -> dict[str, Any]:
        """Create an experiment like another one, with its live arms. Nothing learned is copied."""
        created, new = await service.clone(name, payload.changes, key.actor)
        document = await asyncio.to_thread(service.experiment, created)
        return JSONResponse(document, 201 if new else 200)  # type: ignore[return-value]

    @router.post("/v1/experiments/{name}/finish", **_answers(answers.ExperimentOut))
    async def finish(
        name: str,
        key: Annotated[ApiKey, Depends(key_of)],
        payload: payloads.FinishIn | None = None,
    ) -> dict[str, Any]:
        """Stop learning, and serve the winner, or the arm that you choose from released values."""
        arm = None if payload is None else payload.arm
        await service.set_state(name, "finish", key.actor, arm)
        return await asyncio.to_thread(service.experiment, name)

    for verb in ("pause", "resume"):
        _add_verb(router, service, verb, key_of)


def _add_verb(router: APIRouter, service: Service, verb: str, key_of: KeyOf) -> None:
    @router.post(
        f"/v1/experiments/{{name}}/{verb}",
        operation_id=verb,
        name=verb,
        **_answers(answers.ExperimentOut),
    )
    async def set_state(name: str, key: Annotated[ApiKey, Depends(key_of)]) -> dict[str, Any]:
        await service.set_state(name, verb, key.actor)
        return await asyncio.to_thread(service.experiment, name)


def add_reading(router: APIRouter, service: Service, key_of: KeyOf) -> None:
    @router.get("/v1/experiments", **_answers(answers.ExperimentsOut))
    def list_experiments(archived: bool = False, search: str = "") -> dict[str, Any]:
        """List experiments: archived ones on request; `search` is in name, owner or purpose."""
        return {"experiments": service.experiments(archived=archived, search=search)}

    @router.get("/v1/experiments/{name}", **_answers(answers.ExperimentOut))
    def experiment(name: str) -> dict[str, Any]:
        """Return the definition, the progress and the guarantee."""
        return service.experiment(name)

    @router.get("/v1/experiments/{name}/results", **_answers(answers.ResultsOut))
    def results(
        name: str,
        key: Annotated[ApiKey, Depends(key_of)],
        confidence: Annotated[float, Query(gt=0, lt=1)] = RESULTS_CONFIDENCE,
        smallest_difference: payloads.SmallestDifference = None,
        participants: payloads.Participants = None,
    ) -> dict[str, Any]:
        """Return released means with intervals, the winner if there is one, and `may_stop`.

        Its reason is winner, equivalent (no arm is better than the named one by
        `smallest_difference` or more; that one may be better than the others), futile (a winner is
        unlikely within `participants`) or null.

        Where batches settle by arrival, `windows` counts rewards that arrived: it is null unless
        the key has the role admin.
        """
        answer = service.results(
            name, confidence, smallest_difference=smallest_difference, participants=participants
        )
        return answer if key.role == "admin" else for_readers(answer)

    @router.get("/v1/experiments/{name}/plan", **_answers(answers.PlanOut))
    def plan(
        name: str,
        confidence: Annotated[float, Query(gt=0, lt=1)] = RESULTS_CONFIDENCE,
        smallest_difference: payloads.SmallestDifference = None,
        participants: payloads.Participants = None,
    ) -> dict[str, Any]:
        """Return the decisions needed to name the best arm, and whether the experiment may stop."""
        return service.plan(
            name, confidence, smallest_difference=smallest_difference, participants=participants
        )

    @router.get("/v1/experiments/{name}/privacy", **_answers(answers.PrivacyOut))
    def privacy(name: str) -> dict[str, Any]:
        """Return the guarantee, whom it protects, and what it does not cover."""
        return service.privacy(name)

    @router.get("/v1/experiments/{name}/history", **_answers(answers.HistoryOut))
    def history(name: str, points: Annotated[int, Query(ge=2, le=2_000)] = 300) -> dict[str, Any]:
        """Return shares of decisions and released means over time."""
        return service.history(name, points)

    @router.get("/v1/version", **_answers(answers.VersionOut))
    def version() -> dict[str, Any]:
        """Return the versions of the service and of its database's schema."""
        schema = service.storage.schema_version()
        return {"version": balaclava.__version__, "schema": schema, "api": "1"}

    @router.get("/v1/populations", **_answers(answers.PopulationsOut))
    def populations() -> dict[str, Any]:
        """List the privacy budgets: total, spent, left."""
        return {"populations": service.ledger_document()["populations"]}


def add_administration(router: APIRouter, service: Service, key_of: KeyOf) -> None:
    @router.get("/v1/decisions/{decision_id}", **_answers(answers.DecisionStateOut))
    def decision(decision_id: str) -> dict[str, Any]:
        """Return the state: open, rewarded, defaulted or given up; never the value."""
        return service.decision(decision_id)

    @router.put("/v1/populations/{name}", **_answers(answers.PopulationOut))
    def set_population(
        name: payloads.Name,
        total: payloads.PopulationIn,
        key: Annotated[ApiKey, Depends(key_of)],
    ) -> dict[str, Any]:
        """Create a population with a total budget, or raise its total."""
        terms = total.epsilon, total.delta, key.actor
        return service.ledger.set_population(name, *terms).document()

    @router.post("/v1/populations/{name}/charges", **_answers(answers.PopulationOut))
    def charge_release(
        name: payloads.Name,
        charge: payloads.ChargeIn,
        key: Annotated[ApiKey, Depends(key_of)],
    ) -> dict[str, Any]:
        """Charge a release that is made elsewhere, such as that of a log, before it is made."""
        terms = charge.epsilon, charge.delta, charge.release
        budget = service.ledger.charge_release(name, charge.request_id, terms, key.actor)
        return budget.document()

    @router.get(
        "/v1/experiments/{name}/export",
        response_class=StreamingResponse,
        responses={200: {"content": {media: {} for media in MEDIA_TYPES.values()}}},
    )
    def export_experiment(
        name: str,
        key: Annotated[ApiKey, Depends(key_of)],
        format: ExportFormat = "jsonl",
        since: Annotated[float, Query(ge=0, allow_inf_nan=False)] = 0.0,
        until: Annotated[float, Query(ge=0, allow_inf_nan=False)] = 1e11,
    ) -> Response:
        """Return definition, guarantee, releases and decisions made in [since, until)."""
        answer = service.export(name, format, since, until, key.actor)
        disposition = f'attachment; filename="experiment.{format}"'
        return StreamingResponse(
            answer,
            media_type=MEDIA_TYPES[format],
            headers={"Content-Disposition": disposition, "Cache-Control": "no-store"},
        )

    @router.delete("/v1/persons", **_answers(answers.ErasedOut))
    async def erase(
        payload: payloads.PersonIn, key: Annotated[ApiKey, Depends(key_of)]
    ) -> dict[str, Any]:
        """Erase a person's data; says what was erased, and its limits."""
        return await service.erase(payload.person, key.actor)


def add_share_tasks(router: APIRouter, service: Service) -> None:
    @router.get("/v1/experiments/{name}/tasks", **_answers(answers.ShareTasksOut))
    def share_tasks(name: str) -> dict[str, Any]:
        """Return what the operators of the two aggregators need. It contains keys."""
        return {"tasks": service.share_tasks(name)}


def add_keys(router: APIRouter, service: Service, key_of: KeyOf) -> None:
    @router.get("/v1/ledger", **_answers(answers.LedgerOut))
    def ledger() -> dict[str, Any]:
        """Return all budgets and all ledger entries."""
        return service.ledger_document()

    @router.get("/v1/audit-trail", **_answers(answers.AuditTrailOut))
    def audit_trail(
        after: Annotated[int, Query(ge=0, le=2**62)] = 0,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1_000,
    ) -> dict[str, Any]:
        """Return who changed what, and when. Each entry holds the digest of the one before."""
        return service.audit_trail(after, limit)

    @router.get("/v1/keys", **_answers(answers.KeysOut))
    def list_keys() -> dict[str, Any]:
        """List all API keys, without the keys themselves."""
        return {"keys": service.list_keys()}

    @router.post("/v1/keys", status_code=201, **_answers(answers.NewKeyOut, 201))
    async def create_key(
        payload: payloads.KeyIn, key: Annotated[ApiKey, Depends(key_of)]
    ) -> dict[str, Any]:
        """Create an API key. Only this answer contains it."""
        more = {"lifetime": payload.lifetime, "experiments": payload.experiments}
        return await service.create_key(payload.role, payload.label, key.actor, **more)

    @router.delete("/v1/keys/{id}", status_code=204)
    async def revoke_key(id: str, key: Annotated[ApiKey, Depends(key_of)]) -> Response:
        """Revoke an API key."""
        await service.revoke_key(id, key.actor)
        return Response(status_code=204)


def add_metrics(router: APIRouter, metrics: Metrics) -> None:
    @router.get("/metrics", response_class=PlainTextResponse)
    def show_metrics() -> Response:
        """Return metrics for Prometheus. Needs a key: request counts can reveal rewards."""
        return Response(metrics.text(), media_type=metrics.media_type)


def add_health(app: FastAPI, service: Service) -> None:
    @app.get("/healthz", tags=["health"], **_answers(answers.StatusOut))
    async def healthz() -> dict[str, str]:
        """Answer while the process is alive."""
        return {"status": "alive"}

    @app.get("/readyz", tags=["health"], **_answers(answers.StatusOut))
    def readyz() -> dict[str, str]:
        """Answer whether the service can make decisions."""
        if (reason := service.ready()) is not None:
            raise Problem(503, f"not ready: {reason}", retry_after=1)
        return {"status": "ready"}


def add_report_script(app: FastAPI) -> None:
    """Serve report.js, with which a browser reports to a local policy."""
    script = _REPORT_SCRIPT.read_bytes()
    headers = {"Cache-Control": "public, max-age=3600", "Access-Control-Allow-Origin": "*"}

    @app.get("/report.js", tags=["device"], response_class=JavaScriptResponse)
    async def report_js() -> Response:
        """Return the reporting script, for pages of any origin."""
        return JavaScriptResponse(script, headers=headers)
