"""What is secret: API keys, sessions, and the key under which persons are stored."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import re
import secrets
import time
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from balaclava.service.problems import StartError

Role = Literal["decide", "read", "admin"]
ROLES: tuple[str, ...] = get_args(Role)
_SESSION_SECONDS = 12 * 3600
_DECISION_ID = re.compile(r"[A-Za-z0-9_-]{22}")


class ApiKey(NamedTuple):
    """Who speaks to the service. The key itself is shown once and kept nowhere."""

    id: str
    role: Role
    label: str


def new_key() -> str:
    """256 random bits, URL-safe."""
    return secrets.token_urlsafe(32)


def key_digest(text: str) -> str:
    """What is stored of a key. It is random and long: a plain digest cannot be searched."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def new_decision_ids(count: int) -> list[str]:
    """22 characters each, URL-safe: 132 random bits, drawn and written for all of them at once."""
    text = base64.urlsafe_b64encode(secrets.token_bytes(18 * count)).decode()
    return [text[start : start + 22] for start in range(0, 24 * count, 24)]


def _write_key(path: Path) -> None:
    """All of it or nothing, and never over one that another process has just written."""
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(secrets.token_bytes(32))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(part, path)
    finally:
        part.unlink(missing_ok=True)


def is_decision_id(text: str) -> bool:
    """Whether it could be one."""
    return _DECISION_ID.fullmatch(text) is not None


class Vault:
    """The key that lies outside the database: digests of persons, signatures of sessions."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def open(cls, path: Path, *, new: bool = True) -> Vault:
        """The key in a file; made, for its owner alone, if there is none and one may be `new`."""
        try:
            if new and not path.exists():
                _write_key(path)
            key = path.read_bytes()
        except OSError as error:
            raise StartError(
                f"the secret key {path} cannot be used: {error.strerror}; put back the one that "
                "belongs to the database"
            ) from None
        if len(key) != 32:
            raise StartError(
                f"{path} is not a key of 32 bytes; put back the one that belongs to the database"
            )
        return cls(key)

    def digest(self, purpose: str, text: str) -> str:
        """HMAC-SHA256 under the key; another purpose gives another digest."""
        message = purpose.encode() + b"\0" + text.encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, message, "sha256").hex()

    def sign_session(self, key_id: str) -> str:
        """A session of a key, for a cookie."""
        content = f"{key_id}.{int(time.time()) + _SESSION_SECONDS}.{secrets.token_urlsafe(8)}"
        return f"{content}.{self.digest('session', content)}"

    def read_session(self, text: str) -> str | None:
        """The id of the key whose session it is; None if it is none, or is over."""
        content, _, signature = text.rpartition(".")
        if not hmac.compare_digest(
            self.digest("session", content).encode(), signature.encode("utf-8", "surrogatepass")
        ):
            return None
        key_id, until, _ = content.split(".")
        return key_id if int(until) > time.time() else None

    def csrf_token(self, session: str) -> str:
        """What the forms of a session carry."""
        return self.digest("csrf", session)
