"""Sessions of the dashboard: cookies, roles and CSRF tokens."""

import hmac
import secrets
from dataclasses import dataclass
from urllib.parse import parse_qs

from fastapi import Request, Response

from balaclava.service.credentials import NO_KEYS, ApiKey
from balaclava.service.dashboard.rendering import root
from balaclava.service.problems import Problem
from balaclava.service.service import Service

SESSION_COOKIE = "balaclava_session"
VISIT_COOKIE = "balaclava_visit"  # ties forms to a browser that has no session
_FORM_TYPE = "application/x-www-form-urlencoded"
LARGEST_FORM = 16_384  # bytes: a form has a key or a label, and a token


class LoggedOutError(Exception):
    """The request has no session, or its key was revoked."""


@dataclass(frozen=True)
class Session:
    """The API key of a session, and the CSRF token of its forms."""

    key: ApiKey
    token: str
    can_log_out: bool = True

    @property
    def label(self) -> str:
        return self.key.label

    @property
    def role(self) -> str:
        return self.key.role

    @property
    def admin(self) -> bool:
        """Whether it may change experiments, and read the ledger and the keys."""
        return self.role == "admin"


class Auth:
    """Checks sessions. Without keys, every caller is an admin."""

    def __init__(self, service: Service, *, keys: bool) -> None:
        self._service, self._keys = service, keys

    def reader(self, request: Request) -> Session:
        """The session of a request; raises `LoggedOutError` without one."""
        if not self._keys:
            return Session(NO_KEYS, self.browser_token(request), can_log_out=False)
        session = request.cookies.get(SESSION_COOKIE, "")
        key = self._service.session_key(session)
        if key is None or key.role not in ("read", "admin") or key.experiments is not None:
            raise LoggedOutError
        return Session(key, self._service.vault.csrf_token(session))

    def admin(self, request: Request) -> Session:
        """The session of a request; raises unless its role is admin."""
        session = self.reader(request)
        if not session.admin:
            raise Problem(
                403,
                f"this needs a key of role 'admin'; yours has role {session.role!r}. Log in with "
                "another key",
            )
        return session

    def browser_token(self, request: Request) -> str:
        """The CSRF token of forms in a browser without a session."""
        if not hasattr(request.state, "visit"):
            request.state.visit = request.cookies.get(VISIT_COOKIE) or secrets.token_urlsafe(16)
        return self._service.vault.csrf_token(f"visit {request.state.visit}")

    def open_session(self, text: str) -> str:
        """Open a session with an API key; returns the cookie's value."""
        key = self._service.check_key(text.strip())
        if key is None:
            raise Problem(403, "this key is unknown, or was revoked")
        if key.role not in ("read", "admin"):
            raise Problem(
                403,
                f"a key of role {key.role!r} cannot log in; use one of role 'read' or 'admin'",
            )
        if key.experiments is not None:
            raise Problem(403, "this key is valid for some experiments only, and not for the pages")
        return self._service.vault.sign_session(key.id)


def set_cookie(request: Request, response: Response, name: str, value: str) -> None:
    """Set a cookie that scripts cannot read and other sites do not send; delete it if empty."""
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
    """The fields of a form; of a repeated field, the last value."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _FORM_TYPE:
        raise Problem(415, f"send the form as {_FORM_TYPE}")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_FORM:
            raise Problem(413, f"the form is too large: at most {LARGEST_FORM:,} bytes")
    try:
        fields = parse_qs(body.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError:
        raise Problem(400, "the form cannot be parsed") from None
    return {name: values[-1] for name, values in fields.items()}


def check_token(request: Request, token: str, form: dict[str, str]) -> None:
    """Raise unless the form carries this session's CSRF token, from the same origin."""
    ours = request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
    if not ours or not hmac.compare_digest(token.encode(), form.get("token", "").encode()):
        raise Problem(
            403,
            "the form belongs to another session; nothing was changed. Reload the page and send "
            "it again",
        )


def destination(path: str) -> str:
    """The path to open after the login: a local path, or the first page.

    >>> destination("/ledger"), destination("//elsewhere.example"), destination("/\\\\elsewhere")
    ('/ledger', '/', '/')
    """
    plain = path.isascii() and path.isprintable() and "\\" not in path
    return path if plain and path.startswith("/") and not path.startswith("//") else "/"
