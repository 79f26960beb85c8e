"""Saves in files. Each names its successor once: the one agent that may release its sums.

A save contains unreleased sums. If two agents released them, epsilon would count twice. So the
first agent that continues is recorded beside the file, in `agent.json.<digest>.successor-1`, which
is created exclusively. A restored agent is recorded at once. The saved agent is recorded at its
next save, or when it first draws noise after the save: until then it has released nothing that a
restored agent could release again. The agent that comes second is refused.

An agent that saves to the same path replaces the save, and removes the records of the old one. So a
claim counts only if the file still holds the claimed save.

Undetected: a copy of the file in another place, a save that is not in a file, a deleted record.
"""

import contextlib
import datetime
import itertools
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from balaclava._core.atomic_files import atomically, sync_folder
from balaclava.errors import SavedStateError

_FOR_THE_SAVED_AGENT = (
    "this agent must stop: both would release the same rewards, and epsilon would count twice"
)
FOR_A_RESTORED_AGENT = (
    "restore a later save of that agent. If it was lost in a crash, pass again=True: it may have "
    "released the same rewards, so epsilon counts once more"
)


class SaveFile(NamedTuple):
    """A file and the digest of the save in it."""

    path: Path
    digest: str

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> tuple["SaveFile", Any]:
        """Read a save; its checks come later."""
        text = os.fspath(path)
        if text.lstrip().startswith(("{", '"', "[")):  # raw sums: the message must not repeat it
            raise SavedStateError(
                "the string is a saved agent as JSON, not a path; give the path of a save, or the "
                "dict: json.loads(text)"
            )
        place = Path(text).resolve()
        try:
            saved = json.loads(place.read_text(encoding="utf-8"))
        except OSError as error:
            raise SavedStateError(
                f"{place} cannot be read: {error.strerror}; give the path of a save, or "
                "the dict that agent.save() returned"
            ) from None
        except ValueError:
            raise SavedStateError(
                f"{place} is not a saved agent; give a file that agent.save(path) wrote"
            ) from None
        return cls(place, _digest(saved)), saved

    @classmethod
    def write(cls, path: str | os.PathLike[str], saved: dict[str, Any]) -> "SaveFile":
        """Replace the file atomically; only its owner may read it."""
        place = Path(path).resolve()
        with atomically(place) as temporary:
            handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(handle, "w", encoding="utf-8") as file:
                json.dump(saved, file)
        return cls(place, saved["digest"])

    def claim(
        self, agent: str, *, again: bool = False, otherwise: str = _FOR_THE_SAVED_AGENT
    ) -> int:
        """Record an agent as the successor of the save, or raise.

        Args:
            agent: The name of the agent.
            again: Whether it may be a further successor.
            otherwise: What to do if there is another successor.

        Returns:
            The number of successors, this one included.
        """
        for number, record in self._records():
            try:
                self._create(record, agent)
            except FileExistsError:
                if not again:
                    raise SavedStateError(
                        f"the save in {self.path} was continued{_by(record)}; {otherwise}"
                    ) from None
                continue
            except OSError as error:
                raise SavedStateError(
                    f"{record} cannot be written: {error.strerror}; the agent continues once it "
                    "is recorded as the successor of its save"
                ) from None
            self._require_current(record, otherwise)
            return number
        raise AssertionError("the records are endless")

    def forget(self) -> None:
        """Remove the records of a save that was replaced."""
        for _, record in self._records():
            try:
                record.unlink()
            except OSError:
                return

    def _records(self) -> Iterator[tuple[int, Path]]:
        name = f"{self.path.name}.{self.digest[:16]}.successor"
        return ((number, self.path.with_name(f"{name}-{number}")) for number in itertools.count(1))

    def _create(self, record: Path, agent: str) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        by = {"agent": agent, "process": os.getpid(), "host": socket.gethostname(), "at": now}
        with open(record, "x", encoding="utf-8") as file:
            json.dump(by, file)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(record.parent)

    def _require_current(self, record: Path, otherwise: str) -> None:
        """Refuse if another agent has replaced the save, and removed its records."""
        try:
            current = SaveFile.read(self.path)[0].digest if self.path.exists() else self.digest
        except SavedStateError:
            current = ""
        if current != self.digest:
            record.unlink(missing_ok=True)
            raise SavedStateError(
                f"{self.path} was replaced by a save of another agent, which continues; {otherwise}"
            )


def _digest(saved: Any) -> str:
    digest = saved.get("digest") if isinstance(saved, dict) else None
    return digest if isinstance(digest, str) else ""


def _by(record: Path) -> str:
    """Who continued the save; empty if the record cannot be read."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        by = json.loads(record.read_text(encoding="utf-8"))
        return f" by process {by['process']} on {by['host']} at {by['at']}"
    return ""


class WatchedRandomness:
    """Secure randomness that notes whether a policy drew noise.

    Policies of scope "decision" draw it from any method. All others release through mechanisms
    alone, which audits check, and draw ties and orders of arms otherwise.
    """

    def __init__(self, rng: Any, scope: str) -> None:
        self.rng, self.used = rng, False
        self._any_draw = scope == "decision"

    def __getattr__(self, name: str) -> Any:
        self.used = self.used or self._any_draw or name == "release"
        return getattr(self.rng, name)
