"""What the service answers when it does not do what was asked: problem documents (RFC 9457)."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any


class Problem(Exception):  # noqa: N818  (the word of RFC 9457)
    """A status and a sentence that says what to do. It never repeats a reward or a person."""

    def __init__(self, status: int, detail: str, *, retry_after: int | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.retry_after = status, detail, retry_after

    @property
    def document(self) -> dict[str, Any]:
        """The body of the answer."""
        title = HTTPStatus(self.status).phrase
        return {
            "type": "about:blank",
            "title": title,
            "status": self.status,
            "detail": self.detail,
        }


class StartError(Exception):
    """The service cannot start on this database; says why and what to do."""
