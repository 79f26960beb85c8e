"""API keys, dashboard sessions, and the secret key for digests of persons."""

from __future__ import annotations

import binascii
import contextlib
import hashlib
import hmac
import math
import os
import re
import secrets
import time
from contextvars import ContextVar
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from balaclava.service.problems import StartError

Role = Literal["decide", "read", "admin"]
ROLES: tuple[str, ...] = get_args(Role)
SESSION_SECONDS = 12 * 3600  # a working day
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_ID_BLOCK = 512  # ids that share pages of an index: a few pages; 256 to 4,096 are as fast
_DECISION_ID = re.compile(r"[A-Za-z0-9_-]{22}")


class ApiKey(NamedTuple):
    """What the service stores about an API key, except its digest."""

    id: str
    role: Role
    label: str
    expires: float = math.inf  # seconds since 1970
    experiments: frozenset[str] | None = None  # for which it is valid; None: all

    @property
    def valid(self) -> bool:
        """Whether it has not expired."""
        return time.time() < self.expires

    def covers(self, experiment: str) -> bool:
        """Whether it is valid for an experiment."""
        return self.experiments is None or experiment in self.experiments

    @property
    def actor(self) -> str:
        """Who it is, for the ledger."""
        return f"by key {self.id}" if self.id else "without a key"


NO_KEYS = ApiKey("", "admin", "no keys")  # of a caller of a service without keys
caller: ContextVar[ApiKey] = ContextVar("caller", default=NO_KEYS)  # the key of the request


def new_key() -> str:
    return secrets.token_urlsafe(32)  # 256 random bits


def key_digest(text: str) -> str:
    """The stored digest of a key. A key has 256 random bits: it needs no salt."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class DecisionIds:
    """Draws ids of 22 URL-safe characters, 132 random bits.

    Ids of a block begin with the same four characters: then an index has them on the same pages,
    and a commit writes half as many. Who knows an id of a block still has to guess 108 bits of the
    next one.
    """

    def __init__(self) -> None:
        self._prefix, self._left = "", 0  # ids, in this block

    def draw(self, count: int) -> list[str]:
        """Draw so many ids."""
        text = binascii.b2a_base64(os.urandom(15 * count)).translate(_URL_SAFE).decode()
        ids: list[str] = []
        for start in range(0, 20 * count, 20):
            if self._left == 0:
                self._prefix, self._left = secrets.token_urlsafe(3), _ID_BLOCK
            self._left -= 1
            ids.append(self._prefix + text[start : start + 18])
        return ids


new_decision_ids = DecisionIds().draw


def _write_key(path: Path) -> None:
    """Write a new secret key atomically, and never over an existing one."""
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
    return _DECISION_ID.fullmatch(text) is not None


def person_tag(digest: str) -> int:
    """The first 60 bits of a person's digest, which find the person's decisions."""
    return int(digest[:15], 16)


class Vault:
    """The secret key, outside the database: it digests persons and signs sessions."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    @classmethod
    def open(cls, path: Path, *, new: bool = True) -> Vault:
        """Read the key from a file, or create one that only its owner can read, if `new`."""
        try:
            if new and not path.exists():
                _write_key(path)
            key = path.read_bytes()
        except OSError as error:
            raise StartError(
                f"cannot use the secret key {path}: {error.strerror}; restore the key that belongs "
                "to the database"
            ) from None
        if len(key) != 32:
            raise StartError(
                f"{path} does not contain a key of 32 bytes; restore the key of this database"
            )
        return cls(key)

    def digest(self, purpose: str, text: str) -> str:
        """HMAC-SHA256 under the key, separate for each purpose."""
        message = purpose.encode() + b"\0" + text.encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, message, "sha256").hex()

    def person_digest(self, experiment: str, person: str) -> str:
        """The digest under which a person is stored, separate for each experiment."""
        return self.digest("person", f"{experiment}\0{person}")

    def member_digest(self, population: str, person: str) -> str:
        """The digest under which a person's segment of a population is stored."""
        return self.digest("member", f"{population}\0{person}")

    def holdout_digest(self, experiment: str, person: str) -> str:
        """The digest that decides whether a person is held out of an experiment."""
        return self.digest("held out", f"{experiment}\0{person}")

    def sign_session(self, key_id: str) -> str:
        """Sign a session of an API key, for a cookie."""
        content = f"{key_id}.{int(time.time()) + SESSION_SECONDS}.{secrets.token_urlsafe(8)}"
        return f"{content}.{self.digest('session', content)}"

    def read_session(self, text: str) -> str | None:
        """The id of a session's API key; None if it is invalid or expired."""
        content, _, signature = text.rpartition(".")
        if not hmac.compare_digest(
            self.digest("session", content).encode(), signature.encode("utf-8", "surrogatepass")
        ):
            return None
        key_id, until, _ = content.split(".")
        return key_id if int(until) > time.time() else None

    def csrf_token(self, session: str) -> str:
        return self.digest("csrf", session)
