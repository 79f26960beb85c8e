"""Starlette routes for the busiest endpoints, in front of FastAPI.

FastAPI's dependency machinery takes several times as long as a decision. A fast route checks the
key, validates a JSON body and calls the same endpoint itself. Any other request, such as one with
an invalid body, is passed to FastAPI, whose routes also document the endpoints. An invalid body
with very many faults is not: FastAPI would list them all, which takes seconds.
"""

import inspect
import re
from collections.abc import Iterable
from typing import Any, get_type_hints

from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from balaclava.service.problems import DATABASE_UNAVAILABLE, Problem, problem_response

_JSON = re.compile(rb"application/([\w.-]+\+)?json\s*(;|$)", re.IGNORECASE)
# An invalid body with more faults or bytes is answered without a list of its faults.
_LISTED_FAULTS, _LISTED_BYTES = 1_000, 65_536
_TOO_MANY_FAULTS = Problem(
    422, "the body is invalid; send one with fewer elements to see what is wrong with it"
)


def fast_router(app: ASGIApp, routes: Iterable[BaseRoute]) -> ASGIApp:
    """A middleware that answers plain requests to these routes; `app` gets all others."""
    fast = [_FastEndpoint(route, app) for route in routes if isinstance(route, APIRoute)]

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and _has_json(scope):
            path, prefix = scope["path"], scope.get("root_path", "")
            if prefix and path.startswith(f"{prefix}/"):
                path = path[len(prefix) :]
            for endpoint in fast:
                if match := endpoint.matches(scope["method"], path):
                    scope["path_params"] = match.groupdict()
                    return await endpoint(scope, receive, send)
        await app(scope, receive, send)

    return dispatch


class _FastEndpoint:
    """An ASGI application for a route with path parameters, a body and a response."""

    def __init__(self, route: APIRoute, app: ASGIApp) -> None:
        self._route, self._app, self._methods = route, app, route.methods or set()
        *_, payload = inspect.signature(route.endpoint).parameters
        hints = get_type_hints(route.endpoint, include_extras=True)
        self._payload = TypeAdapter[Any](hints[payload])
        self._checks = [each.dependency for each in route.dependencies if each.dependency]
        self._path, _, _ = compile_path(route.path)

    def matches(self, method: str, path: str) -> re.Match[str] | None:
        """Whether a request is for this endpoint; the match has the path's parameters."""
        return self._path.match(path) if method in self._methods else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self._route
        response = await self._answer(scope, receive)
        if isinstance(response, bytes):
            return await self._app(scope, _replay(response), send)
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response | bytes:
        """The answer to a request, or its body if FastAPI has to say what is wrong with it.

        The key comes first: without one, nothing of a body is read.
        """
        request = Request(scope)
        try:
            for check in self._checks:
                await check(request)
            body = await _read(receive)
            if body is None:
                return Response(status_code=400)
            try:
                payload = self._payload.validate_json(body)
            except ValidationError as error:
                if error.error_count() > _LISTED_FAULTS or len(body) > _LISTED_BYTES:
                    raise _TOO_MANY_FAULTS from None
                return body
            response: Response = await self._route.endpoint(*request.path_params.values(), payload)
        except Problem as problem:
            return problem_response(problem)
        except SQLAlchemyError:
            return problem_response(DATABASE_UNAVAILABLE)
        return response


def _has_json(scope: Scope) -> bool:
    return any(name == b"content-type" and _JSON.match(value) for name, value in scope["headers"])


async def _read(receive: Receive) -> bytes | None:
    """The body of a request; None if the client has disconnected."""
    chunks: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        chunks.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(chunks)


def _replay(body: bytes) -> Receive:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
