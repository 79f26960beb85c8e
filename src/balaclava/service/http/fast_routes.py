"""Routes for the busiest endpoints: plain Starlette applications that FastAPI still documents.

FastAPI's dependency machinery takes several times as long as a decision. A `FastRoute` validates
a plain JSON body, checks the key and calls the endpoint itself. Any other request, such as one
with an invalid body, takes FastAPI's own way and is answered as on every other route.
"""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

_PLAIN_JSON = (b"content-type", b"application/json")


class FastRoute(APIRoute):
    """A route whose endpoint takes its path parameters, then a body, and returns a response."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        *_, payload = inspect.signature(self.endpoint).parameters
        hints = get_type_hints(self.endpoint, include_extras=True)
        self._payload = TypeAdapter[Any](hints[payload])
        self._checks = [each.dependency for each in self.dependencies if each.dependency]
        self._by_fastapi, self.app = self.app, self._answer

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if _PLAIN_JSON not in scope["headers"]:
            return await self._by_fastapi(scope, receive, send)
        request = Request(scope, receive)
        try:
            body = await request.body()
            payload = self._payload.validate_json(body)
        except ClientDisconnect:
            return await Response(status_code=400)(scope, receive, send)
        except ValidationError:
            return await self._by_fastapi(scope, _replay(body), send)
        for check in self._checks:
            await check(request)
        response = await self.endpoint(*scope["path_params"].values(), payload)
        await response(scope, receive, send)


def _replay(body: bytes) -> Receive:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return receive
