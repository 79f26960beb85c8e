"""Servers that really run: in a thread, in a process, and behind a connection that breaks."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn

from balaclava.service.http.app import create_app
from balaclava.service.http.server import ServerSettings, first_key, uvicorn_config
from balaclava.service.service import Service

STARTING = 60.0  # seconds that a process may take to be ready, on a busy machine


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def in_a_thread(folder: Path, **more: Any) -> Iterator[tuple[str, str, Service]]:
    """A service on a file in a folder: its address, an admin key, and the service itself."""
    settings = ServerSettings(str(folder / "balaclava.db"), port=0, **more)
    with settings.listener() as listener:
        service = settings.open()
        key = (first_key(service) if settings.keys else None) or ""
        server = uvicorn.Server(uvicorn_config(create_app(service, keys=settings.keys), settings))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield settings.address(listener.getsockname()[1]), key, service
        finally:  # the thread would keep the process alive
            server.should_exit = True
            thread.join()


class Process:
    """`balaclava serve`, as an operator starts it."""

    def __init__(self, *arguments: str, cwd: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "balaclava", "serve", *arguments],
            cwd=cwd,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.output = ""

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def wait_for(self, pattern: str) -> str:
        """The first group of a pattern, once it was printed."""
        end = time.monotonic() + STARTING
        stream = self._process.stdout
        assert stream is not None
        while (match := re.search(pattern, self.output)) is None:
            ready, _, _ = select.select([stream], [], [], max(end - time.monotonic(), 0.0))
            line = os.read(stream.fileno(), 65_536).decode() if ready else ""
            assert line, f"it ended, or took too long: {self.output}"
            self.output += line
        return match[1]

    def end(self, how: int = signal.SIGTERM) -> int:
        """Send a signal, and wait for the end; the status."""
        self._process.send_signal(how)
        rest, _ = self._process.communicate(timeout=STARTING)
        self.output += rest
        return self._process.returncode

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._process.poll() is None:
            self.end(signal.SIGKILL)
        if self._process.stdout is not None:
            self._process.stdout.close()


class FaultyProxy:
    """A connection to a service that does as it is told, one request after the other.

    "pass" hands request and answer on; "refuse" hangs up before the request is read; "lose" hands
    the request on and hangs up instead of answering; anything else is sent as the answer.
    """

    def __init__(self, address: str, *faults: str) -> None:
        host, port = re.fullmatch(r"http://(.*):(\d+)", address).groups()  # type: ignore[union-attr]
        self._there = (host, int(port))
        self._faults = list(faults)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            self.requests += 1
            with client:
                self._answer(client, self._faults.pop(0) if self._faults else "pass")

    def _answer(self, client: socket.socket, fault: str) -> None:
        if fault == "refuse":
            return
        request = _message(client)
        if fault not in ("pass", "lose"):
            client.sendall(fault.encode())
            return
        with socket.create_connection(self._there) as service:
            service.sendall(
                re.sub(rb"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", request, count=1)
            )
            answer = _message(service)
        if fault == "pass":
            client.sendall(answer)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()


def _message(stream: socket.socket) -> bytes:
    """A request or an answer, whole."""
    text = b""
    while b"\r\n\r\n" not in text:
        if not (more := stream.recv(65_536)):
            return text
        text += more
    head, _, body = text.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    while length and len(body) < int(length[1]):
        body += stream.recv(65_536)
    return head + b"\r\n\r\n" + body
