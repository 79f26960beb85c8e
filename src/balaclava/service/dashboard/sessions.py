"""Who is looking: cookies, roles, and proof that a form was sent from one of our own pages."""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from urllib.parse import parse_qs

from fastapi import Request, Response

from balaclava.service.dashboard.rendering import root
from balaclava.service.problems import Problem
from balaclava.service.service import Service

SESSION_COOKIE = "balaclava_session"
VISIT_COOKIE = "balaclava_visit"  # of a browser without a session: what its forms are tied to
_FORM = "application/x-www-form-urlencoded"
_LONGEST = 16_384  # bytes of a form


class LoggedOutError(Exception):
    """There is no session, or its key was revoked."""


@dataclass(frozen=True)
class Session:
    """The key of a session, and what its forms must carry."""

    label: str
    role: str
    token: str
    can_log_out: bool = True

    @property
    def admin(self) -> bool:
        """Whether it may change anything, and see the ledger and the keys."""
        return self.role == "admin"


class Auth:
    """Lets in those who have a key; without keys, whoever can reach it."""

    def __init__(self, service: Service, *, keys: bool) -> None:
        self._service, self._keys = service, keys

    def reader(self, request: Request) -> Session:
        """Who is looking; raises `LoggedOutError` where nobody is known."""
        if not self._keys:
            return Session("no keys", "admin", self.visit(request)[1], can_log_out=False)
        session = request.cookies.get(SESSION_COOKIE, "")
        identity = self._service.vault.read_session(session)
        key = None if identity is None else self._service.key(identity)
        if key is None or key.role not in ("read", "admin"):
            raise LoggedOutError
        return Session(key.label, key.role, self._service.vault.csrf_token(session))

    def admin(self, request: Request) -> Session:
        """Who is looking, if an admin is."""
        session = self.reader(request)
        if not session.admin:
            raise Problem(
                403,
                f"this takes a key of role admin, and yours is of role {session.role}; log out, "
                "and in again with an admin key",
            )
        return session

    def visit(self, request: Request) -> tuple[str, str]:
        """What ties forms to a browser without a session, and the token of its forms."""
        if not hasattr(request.state, "visit"):
            request.state.visit = request.cookies.get(VISIT_COOKIE) or secrets.token_urlsafe(16)
        value = str(request.state.visit)
        return value, self._service.vault.csrf_token(f"visit {value}")

    def enter(self, text: str) -> str:
        """The session of a key; a problem where it opens nothing."""
        key = self._service.check_key(text.strip())
        if key is None:
            raise Problem(403, "this key is not known here, or was revoked")
        if key.role not in ("read", "admin"):
            raise Problem(
                403, f"a key of role {key.role} is for programs; pages take one of read or admin"
            )
        return self._service.vault.sign_session(key.id)


def set_cookie(request: Request, response: Response, name: str, value: str) -> None:
    """A cookie that scripts cannot read and that other sites do not send; removed if empty."""
    response.set_cookie(
        name,
        value,
        max_age=None if value else 0,
        path=root(request) or "/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form, each once."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM:
        raise Problem(415, f"send it as {_FORM}, as the form of the page does")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LONGEST:
            raise Problem(413, f"a form has at most {_LONGEST:,} bytes")
    try:
        fields = parse_qs(body.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError:
        raise Problem(400, "the form cannot be read") from None
    return {name: values[-1] for name, values in fields.items()}


def check_token(request: Request, token: str, form: dict[str, str]) -> None:
    """Refuse a form that was not made here, for this session."""
    ours = request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
    if not ours or not hmac.compare_digest(token.encode(), form.get("token", "").encode()):
        raise Problem(
            403,
            "the form was made for another session, and nothing was changed; go back, load the "
            "page again and repeat",
        )


def destination(wish: str) -> str:
    """Where to go after the login: a path of ours, or the first page.

    >>> destination("/ledger"), destination("//elsewhere.example"), destination("/\\\\elsewhere")
    ('/ledger', '/', '/')
    """
    plain = wish.isascii() and wish.isprintable() and "\\" not in wish
    return wish if plain and wish.startswith("/") and not wish.startswith("//") else "/"
