"""Errors of the service: problem documents (RFC 9457), and failures to start."""

from http import HTTPStatus
from typing import Any

from starlette.responses import JSONResponse

from balaclava.errors import BalaclavaError


class Problem(Exception):  # noqa: N818  (the word of RFC 9457)
    """An error answer: an HTTP status, and what to do. It never repeats a reward or a person."""

    def __init__(self, status: int, detail: str, *, retry_after: int | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.retry_after = status, detail, retry_after

    @property
    def document(self) -> dict[str, Any]:
        """The JSON body."""
        return {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail.encode("utf-8", "replace").decode(),  # lone surrogates
        }


def problem_response(problem: Problem) -> JSONResponse:
    headers = {"Cache-Control": "no-store"}
    if problem.retry_after is not None:
        headers["Retry-After"] = str(problem.retry_after)
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(
        problem.document, problem.status, headers, media_type="application/problem+json"
    )


DATABASE_UNAVAILABLE = Problem(503, "the database does not answer", retry_after=1)


class StartError(BalaclavaError):
    """The service cannot start; the message says why and what to do."""
