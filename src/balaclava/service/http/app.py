"""The endpoints: what may be asked over HTTP, and by whom."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import TypeAdapter
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from balaclava.agents.player import REPORT, REWARD
from balaclava.service import dashboard
from balaclava.service.credentials import ApiKey
from balaclava.service.engine.definition import ExperimentDefinition
from balaclava.service.engine.jobs import ReceivedReward
from balaclava.service.http.fast_routes import Shortcut, Shortcuts
from balaclava.service.http.metrics import Metrics
from balaclava.service.http.middleware import RequestMiddleware
from balaclava.service.http.payloads import (
    DecisionProblemOut,
    DecisionRewardOut,
    DecisionsIn,
    DecisionsOut,
    ExperimentIn,
    KeyIn,
    Name,
    PopulationIn,
    ProblemOut,
    RewardIn,
    RewardOut,
    RewardsIn,
)
from balaclava.service.problems import NO_DATABASE, Problem, problem_response
from balaclava.service.service import Service

_RIGHTS = {"decide": {"decide"}, "read": {"read"}, "admin": {"decide", "read", "admin"}}
_OPERATOR = ApiKey("", "admin", "no keys")
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": ProblemOut, "content": {"application/problem+json": {}}}
    for status in (401, 403, 404, 409, 410, 413, 422, 503)
}


def create_app(service: Service, *, keys: bool = True) -> FastAPI:
    """The application on an open service; without keys, whoever can reach it may do all."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="balaclava",
        description="Decisions that nobody can read a reward off.",
        version="1",
        lifespan=lifespan,
        # Nothing is told to whatever collects traces on the machine: paths hold ids of decisions.
        telemetry={"tracing": False, "metrics": False, "logs": False},
        docs_url=None,
        redoc_url=None,
        responses=_PROBLEMS,
    )
    metrics = Metrics(service)
    shortcuts: list[Shortcut] = []
    app.add_middleware(Shortcuts, shortcuts=shortcuts)
    app.add_middleware(
        RequestMiddleware, metrics=metrics, local=not keys, root_path=service.root_path
    )
    _add_handlers(app)
    for right, add in (
        ("decide", _add_decisions),
        ("admin", _add_experiments),
        ("read", _add_reading),
        ("admin", _add_administration),
    ):
        who = _require(service, keys, right)
        router = APIRouter(dependencies=[Depends(who)], tags=[right])
        add(router, service)
        if add is _add_decisions:
            bodies: tuple[Any, ...] = (DecisionsIn, RewardIn, RewardsIn)
            shortcuts += [
                Shortcut(route, TypeAdapter(body), who)
                for route, body in zip(router.routes, bodies, strict=True)
            ]
        if add is _add_administration:
            _add_metrics(router, metrics)
        app.include_router(router)
    _add_health(app, service)
    _add_script(app)
    app.include_router(dashboard.router(service, keys=keys))
    return app


def _require(service: Service, keys: bool, right: str) -> Callable[[Request], Awaitable[ApiKey]]:
    """A dependency: the key of who asks, who must have that right."""

    async def who(request: Request) -> ApiKey:
        if not keys:
            return _OPERATOR
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        key, text = None, text.strip()
        if scheme.lower() == "bearer":
            key = service.cached_key(text) or await asyncio.to_thread(service.check_key, text)
        if key is None:
            raise Problem(401, "give a valid key: Authorization: Bearer <key>")
        if right not in _RIGHTS[key.role]:
            raise Problem(403, f"a key of role {key.role!r} may not do this; it takes {right!r}")
        return key

    return who


def _add_handlers(app: FastAPI) -> None:
    @app.exception_handler(Problem)
    async def _problem(request: Request, problem: Problem) -> JSONResponse:
        return problem_response(problem)

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return problem_response(Problem(422, _faults(error)))

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        details = {404: "there is nothing at this address", 405: "this method is not for this"}
        detail = details.get(error.status_code, "the request is not understood")
        return problem_response(Problem(error.status_code, detail))

    @app.exception_handler(SQLAlchemyError)
    async def _database(request: Request, error: SQLAlchemyError) -> JSONResponse:
        return problem_response(NO_DATABASE)


def _faults(error: RequestValidationError) -> str:
    """Which known fields are wrong and why; never what was in them."""
    known = {
        name
        for model in (ExperimentIn, DecisionsIn, RewardIn, PopulationIn, KeyIn)
        for name in model.model_fields
    } | {"decision_id", "confidence", "points", "body", "query", "path"}
    faults = []
    for fault in error.errors()[:10]:
        where = [str(part) for part in fault["loc"] if part in known or isinstance(part, int)]
        why = "is not known here" if fault["type"] == "extra_forbidden" else fault["msg"]
        if fault["type"] == "json_invalid":
            why = "is not JSON"
        faults.append(f"{'.'.join(where) or 'body'}: {why}")
    return "; ".join(faults)


def _add_decisions(router: APIRouter, service: Service) -> None:
    @router.post("/v1/experiments/{name}/decisions")
    async def decide(name: str, asked: DecisionsIn) -> DecisionsOut:
        """Exactly `count` decisions. The same request_id gets the same ones."""
        answer = await service.decide(name, asked.count, asked.request_id, asked.person)
        return Response(answer, media_type="application/json")  # type: ignore[return-value]

    @router.put("/v1/decisions/{decision_id}/reward")
    async def reward(decision_id: str, came: RewardIn) -> RewardOut:
        """What came of a decision. However often it is sent, it counts once."""
        (answer,) = await service.reward([_outcome(decision_id, came)])
        if isinstance(answer, Problem):
            raise answer
        return JSONResponse(answer)  # type: ignore[return-value]

    @router.post("/v1/rewards")
    async def rewards(came: RewardsIn) -> list[DecisionRewardOut | DecisionProblemOut]:
        """Many rewards, an answer for each, in their order."""
        outcomes = [_outcome(each.decision_id, each) for each in came]
        answers = [
            {
                "decision_id": outcome.decision_id,
                **(each.document if isinstance(each, Problem) else each),
            }
            for outcome, each in zip(outcomes, await service.reward(outcomes), strict=True)
        ]
        return JSONResponse(answers)  # type: ignore[return-value]


def _outcome(decision_id: str, came: RewardIn) -> ReceivedReward:
    if came.report is not None:
        return ReceivedReward(decision_id, REPORT, came.report)
    assert came.value is not None
    return ReceivedReward(decision_id, REWARD, came.value)


def _add_experiments(router: APIRouter, service: Service) -> None:
    @router.post("/v1/experiments", status_code=201)
    async def create(asked: ExperimentIn) -> dict[str, Any]:
        """A new experiment; the same again is answered with 200."""
        definition = ExperimentDefinition.checked(**asked.model_dump())
        new = await service.create(definition)
        document = await asyncio.to_thread(service.experiment, definition.name)
        return JSONResponse(document, 201 if new else 200)  # type: ignore[return-value]

    for verb in ("pause", "resume", "finish"):
        _add_verb(router, service, verb)


def _add_verb(router: APIRouter, service: Service, verb: str) -> None:
    @router.post(f"/v1/experiments/{{name}}/{verb}", operation_id=verb, name=verb)
    async def set_state(name: str) -> dict[str, Any]:
        await service.set_state(name, verb)
        return await asyncio.to_thread(service.experiment, name)


def _add_reading(router: APIRouter, service: Service) -> None:
    @router.get("/v1/experiments")
    def list_experiments() -> dict[str, Any]:
        """Every experiment."""
        return {"experiments": service.experiments()}

    @router.get("/v1/experiments/{name}")
    def experiment(name: str) -> dict[str, Any]:
        """What it is, how far it is, what it promises."""
        return service.experiment(name)

    @router.get("/v1/experiments/{name}/results")
    def results(
        name: str, confidence: Annotated[float, Query(gt=0, lt=1)] = 0.95
    ) -> dict[str, Any]:
        """Released means with intervals, and the winner if there is one."""
        return service.results(name, confidence)

    @router.get("/v1/experiments/{name}/privacy")
    def privacy(name: str) -> dict[str, Any]:
        """What is promised, to whom, and what it does not cover."""
        return service.privacy(name)

    @router.get("/v1/experiments/{name}/history")
    def history(name: str, points: Annotated[int, Query(ge=2, le=2_000)] = 300) -> dict[str, Any]:
        """Shares of decisions and released means over time."""
        return service.history(name, points)

    @router.get("/v1/populations")
    def populations() -> dict[str, Any]:
        """Totals and what is left of them."""
        return {"populations": service.ledger_document()["populations"]}


def _add_administration(router: APIRouter, service: Service) -> None:
    @router.get("/v1/decisions/{decision_id}")
    def decision(decision_id: str) -> dict[str, Any]:
        """Open, rewarded, defaulted or given up; never the value."""
        return service.decision(decision_id)

    @router.put("/v1/populations/{name}")
    def set_population(name: Name, total: PopulationIn) -> dict[str, Any]:
        """A population and its total, which can be raised later."""
        return service.ledger.set_population(name, total.epsilon, total.delta).document()

    @router.get("/v1/ledger")
    def ledger() -> dict[str, Any]:
        """Everything that was ever charged."""
        return service.ledger_document()

    @router.get("/v1/keys")
    def list_keys() -> dict[str, Any]:
        """Every key but for the key itself."""
        return {"keys": service.list_keys()}

    @router.post("/v1/keys", status_code=201)
    async def create_key(asked: KeyIn) -> dict[str, Any]:
        """A new key, shown this once."""
        return await service.create_key(asked.role, asked.label)

    @router.delete("/v1/keys/{id}", status_code=204)
    async def revoke_key(id: str) -> Response:
        """A key that is not accepted any more."""
        await service.revoke_key(id)
        return Response(status_code=204)


def _add_metrics(router: APIRouter, metrics: Metrics) -> None:
    @router.get("/metrics")
    def show_metrics() -> Response:
        """For Prometheus; with a key, since the number of requests may be a sum of rewards."""
        return Response(metrics.text(), media_type=metrics.media_type)


def _add_health(app: FastAPI, service: Service) -> None:
    @app.get("/healthz", tags=["health"])
    async def healthz() -> dict[str, str]:
        """The process lives."""
        return {"status": "alive"}

    @app.get("/readyz", tags=["health"])
    def readyz() -> dict[str, str]:
        """Decisions can be made."""
        if not service.ready():
            raise Problem(503, "the database does not answer, or the writer has ended")
        return {"status": "ready"}


def _add_script(app: FastAPI) -> None:
    script = (Path(__file__).parents[1] / "static" / "report.js").read_bytes()
    headers = {"Cache-Control": "public, max-age=3600", "Access-Control-Allow-Origin": "*"}

    @app.get("/report.js", tags=["device"])
    async def report_js() -> Response:
        """What a browser reports with; open to all, and to pages from elsewhere."""
        return Response(script, media_type="text/javascript", headers=headers)
