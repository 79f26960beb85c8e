"""A short way to the endpoints that are asked most.

What FastAPI does around an endpoint takes several times as long as a decision. Here the same
check of the key, the same model and the same endpoint are called at once, on the bytes as they
came. A request that is not plain, such as one whose body does not fit, goes the whole way and is
answered there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from balaclava.service.problems import NO_DATABASE, Problem, problem_response

_PLAIN = (b"content-type", b"application/json")


class Shortcut(NamedTuple):
    """A route whose endpoint takes the parts of its path and a body, and gives a response."""

    route: Any
    body: TypeAdapter[Any]
    check: Callable[[Request], Awaitable[Any]]  # of the key


class Shortcuts:
    """Plain ASGI."""

    def __init__(self, app: ASGIApp, *, shortcuts: Sequence[Shortcut]) -> None:
        self._app, self._shortcuts = app, shortcuts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take the short way if there is one."""
        if scope["type"] == "http" and _PLAIN in scope["headers"]:
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            for shortcut in self._shortcuts:
                match = shortcut.route.path_regex.match(path)
                if match is not None and scope["method"] in shortcut.route.methods:
                    rest = await _take(shortcut, match.groups(), scope, receive, send)
                    if rest is None:
                        return
                    receive = rest
                    break
        await self._app(scope, receive, send)


async def _take(
    shortcut: Shortcut, parts: Sequence[str], scope: Scope, receive: Receive, send: Send
) -> Receive | None:
    """Answer the request; where its body does not fit, what the whole way receives instead."""
    message = await receive()
    pieces = [message.get("body", b"")]
    while message.get("more_body", False):
        message = await receive()
        pieces.append(message.get("body", b""))
    if message["type"] != "http.request":
        return _again(message, receive)  # it was cut off
    body = b"".join(pieces)  # at once: a million pieces would be copied a million times
    try:
        content = shortcut.body.validate_json(body)
    except ValidationError:
        return _again({**message, "body": body}, receive)
    scope["route"] = shortcut.route
    try:
        await shortcut.check(Request(scope))
        response = await shortcut.route.endpoint(*parts, content)
    except Problem as problem:
        response = problem_response(problem)
    except SQLAlchemyError:
        response = problem_response(NO_DATABASE)
    await response(scope, receive, send)
    return None


def _again(message: Message, receive: Receive) -> Receive:
    """The message that was taken, and then whatever comes."""
    messages = [message]

    async def first_that() -> Message:
        return messages.pop() if messages else await receive()

    return first_that
