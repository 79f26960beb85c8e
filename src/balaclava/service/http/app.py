"""The FastAPI application: its routers, the check of API keys, and error handlers."""

import asyncio
import difflib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from balaclava.service import dashboard
from balaclava.service.aggregation.collector import ShareCollector
from balaclava.service.credentials import NO_KEYS, ApiKey, caller
from balaclava.service.http import endpoints
from balaclava.service.http.fast_routes import fast_router
from balaclava.service.http.metrics import Metrics
from balaclava.service.http.middleware import RequestMiddleware
from balaclava.service.http.payloads import FIELD_NAMES, ProblemOut
from balaclava.service.http.protocol_endpoints import add_snapshot, add_webhooks
from balaclava.service.http.tracing import RequestTracer
from balaclava.service.problems import DATABASE_UNAVAILABLE, Problem, problem_response
from balaclava.service.protocols.feature_flags import ServiceFlags, add_feature_flags
from balaclava.service.protocols.webhooks import WebhookSender
from balaclava.service.service import Service

_RIGHTS = {"decide": {"decide"}, "read": {"read"}, "admin": {"decide", "read", "admin"}}
# Without an experiment in the path: what they answer follows the key.
_SCOPED_ROUTES = {
    *("/v1/decisions/{decision_id}/reward", "/v1/rewards", "/ofrep/v1/evaluate/flags"),
    *("/v1/experiments", "/v1/version"),
}
_MOST_FAULTS = 10  # invalid fields that an answer names
# An unknown field is repeated if it is short and so similar to a known one (difflib); guesses.
_LONGEST_FIELD, _SIMILAR = 40, 0.75
_HTTP_DETAILS = {
    404: "no page or endpoint at this path",
    405: "this path does not accept the method",
}
_PROBLEM_TYPE = "application/problem+json"
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": ProblemOut, "content": {_PROBLEM_TYPE: {}}}
    for status in (401, 403, 404, 409, 410, 413, 422, 503)
}


class FrontedApp(FastAPI):
    """FastAPI behind `front`, which answers the busiest routes itself, without its machinery."""

    front: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        within = super().__call__ if self.front is None or scope["type"] != "http" else self.front
        await within(scope, receive, send)


def create_app(service: Service, *, keys: bool = True) -> FastAPI:
    """Build the ASGI application on an open service, which it closes when the server stops.

    Without `keys`, requests need no API key: any local caller is an admin.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        threads = WebhookSender(service), ShareCollector(service)
        for thread in threads:
            thread.start()
        yield
        for thread in threads:
            thread.stop()
        service.close()

    app = FrontedApp(
        title="balaclava",
        description="Decisions that do not reveal any participant's reward.",
        version="1",
        lifespan=lifespan,
        # Paths contain decision ids: they must not reach a collector of traces.
        telemetry={"tracing": False, "metrics": False, "logs": False},
        docs_url=None,
        redoc_url=None,
        responses=_PROBLEMS,
        generate_unique_id_function=lambda route: route.name,  # names of generated clients
    )
    metrics = Metrics(service)
    decider = require_right(service, keys, "decide")
    decisions = APIRouter(dependencies=[Depends(decider)], tags=["decide"])
    endpoints.add_decisions(decisions, service)
    app.include_router(decisions)
    flags = APIRouter(dependencies=[Depends(decider)], tags=["decide"])
    add_feature_flags(flags, ServiceFlags(service))
    app.include_router(flags)
    app.front = RequestMiddleware(
        fast_router(super(FrontedApp, app).__call__, decisions.routes),
        metrics=metrics,
        local=not keys,
        root_path=service.root_path,
        tracer=RequestTracer() if service.telemetry else None,
    )
    add_error_handlers(app)
    administrator = require_right(service, keys, "admin")
    administration = APIRouter(dependencies=[Depends(administrator)], tags=["admin"])
    endpoints.add_experiments(administration, service, administrator)
    reader = require_right(service, keys, "read")
    reading = APIRouter(dependencies=[Depends(reader)], tags=["read"])
    endpoints.add_reading(reading, service, reader)
    endpoints.add_administration(administration, service, administrator)
    endpoints.add_share_tasks(administration, service)
    endpoints.add_keys(administration, service, administrator)
    endpoints.add_metrics(administration, metrics)
    add_snapshot(reading, service)
    add_webhooks(administration, service, administrator)
    for router in (administration, reading):
        app.include_router(router)
    endpoints.add_health(app, service)
    endpoints.add_report_script(app)
    app.include_router(dashboard.router(service, keys=keys))
    complete_schema(app, keys)
    return app


def complete_schema(app: FastAPI, keys: bool) -> None:
    """Complete OpenAPI: the media type of problems, and the keys of the routers that check them."""
    schema = app.openapi()
    if keys:
        schema["components"]["securitySchemes"] = {
            "key": {"type": "http", "scheme": "bearer", "description": "An API key."}
        }
    for operation in (each for methods in schema["paths"].values() for each in methods.values()):
        if keys and {"decide", "read", "admin"} & set(operation["tags"]):
            operation["security"] = [{"key": []}]
        for response in operation["responses"].values():
            content = response.get("content", {})
            if _PROBLEM_TYPE in content and "application/json" in content:
                content[_PROBLEM_TYPE] = content.pop("application/json")


def require_right(
    service: Service, keys: bool, right: str
) -> Callable[[Request], Awaitable[ApiKey]]:
    """Make a dependency that returns the request's key, or raises if it lacks the right."""

    async def check(request: Request) -> ApiKey:
        if not keys:
            return NO_KEYS
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        key, text = None, text.strip()
        if scheme.lower() == "bearer":
            key = service.cached_key(text) or await asyncio.to_thread(service.check_key, text)
        if key is None:
            raise Problem(401, "send a valid API key as Authorization: Bearer <key>")
        if right not in _RIGHTS[key.role]:
            raise Problem(403, f"this needs a key of role {right!r}; yours has role {key.role!r}")
        if key.experiments is not None:
            _require_scope(request, key)
        caller.set(key)
        return key

    return check


def _require_scope(request: Request, key: ApiKey) -> None:
    """Raise unless the request is for an experiment of the key, or answers about those alone."""
    name = request.path_params.get("name", request.path_params.get("key"))
    route = getattr(request.scope.get("route"), "path", "")
    if not (route in _SCOPED_ROUTES if name is None else key.covers(name)):
        raise Problem(403, "this key is valid for other experiments only")


def add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(Problem)
    async def _problem(request: Request, problem: Problem) -> JSONResponse:
        return problem_response(problem)

    @app.exception_handler(RequestValidationError)
    async def _invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return problem_response(Problem(422, _validation_faults(error)))

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> JSONResponse:
        detail = _HTTP_DETAILS.get(error.status_code, "the request cannot be parsed")
        return problem_response(Problem(error.status_code, detail))

    @app.exception_handler(SQLAlchemyError)
    async def _database(request: Request, error: SQLAlchemyError) -> JSONResponse:
        return problem_response(DATABASE_UNAVAILABLE)


def _unknown_field(path: list[str], name: str) -> tuple[list[str], str]:
    """The path of an unknown field and what is wrong: its name, if it is nearly a known one."""
    similar = difflib.get_close_matches(name[:_LONGEST_FIELD], FIELD_NAMES, 1, _SIMILAR)
    if similar and len(name) <= _LONGEST_FIELD:
        return [*path, name], f"is not a known field; did you mean {similar[0]!r}?"
    words = "has an unknown field, not repeated since it may be a person; see /openapi.json"
    return path, words


def _validation_faults(error: RequestValidationError) -> str:
    """Name the invalid fields and why, but never their values."""
    reasons = {"extra_forbidden": "is not a known field", "json_invalid": "is not valid JSON"}
    faults = []
    for fault in error.errors()[:_MOST_FAULTS]:
        path = [str(part) for part in fault["loc"] if part in FIELD_NAMES or isinstance(part, int)]
        reason = reasons.get(fault["type"], fault["msg"])
        if fault["type"] == "extra_forbidden" and fault["loc"][-1] not in FIELD_NAMES:
            path, reason = _unknown_field(path, str(fault["loc"][-1]))
        faults.append(f"{'.'.join(path) or 'body'}: {reason}")
    return "; ".join(faults)
