"""Clients without a key that hold connections: endless headers, half a request, dripping bodies."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from balaclava.service.http import connections, middleware
from tests.service.servers import Process, in_a_thread


@contextmanager
def connected(address: str) -> Iterator[Callable[[], socket.socket]]:
    """A function that opens a connection; all are closed at the end."""
    host, port = re.fullmatch(r"http://(.*):(\d+)", address).groups()  # type: ignore[union-attr]
    opened: list[socket.socket] = []

    def connect() -> socket.socket:
        opened.append(socket.create_connection((host, int(port))))
        opened[-1].settimeout(30)
        return opened[-1]

    yield connect
    for each in opened:
        each.close()


def is_closed(stream: socket.socket) -> bool:
    """Whether the server closed it; waits until it does."""
    try:
        return stream.recv(1) == b""
    except ConnectionError:
        return True


def sent_until_closed(stream: socket.socket, part: bytes, most: int, pause: float = 0.0) -> int:
    """Send the same again and again; returns how many bytes were taken before it was closed."""
    sent = 0
    with suppress(OSError):
        while sent < most:
            sent += stream.send(part)
            time.sleep(pause)
    return sent


def test_endless_headers_are_cut_off(tmp_path: Path) -> None:
    with in_a_thread(tmp_path) as (address, _, _), connected(address) as connect:
        stream = connect()
        stream.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n")
        sent = sent_until_closed(stream, b"x-header: " + b"x" * 10_000 + b"\r\n", 10_000_000)
        assert sent < 10_000_000  # and not taken into memory
        large = {"x-header": "x" * 20_000}
        assert httpx.get(f"{address}/healthz", headers=large).status_code == 200


def test_half_a_request_has_a_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    with in_a_thread(tmp_path) as (address, _, _), connected(address) as connect:
        silent, half, second = connect(), connect(), connect()
        half.sendall(b"GET /healthz HTT")
        second.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert b"alive" in second.recv(10_000)  # then half of another request, byte by byte
        assert sent_until_closed(second, b"G", 400, pause=0.05) < 400
        assert is_closed(silent)
        assert is_closed(half)


def test_a_body_that_drips_does_not_outlive_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "BODY_SECONDS", 0.5)
    head = b"POST /v1/experiments HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9999\r\n\r\n"
    with in_a_thread(tmp_path) as (address, _, _), connected(address) as connect:
        stream = connect()
        stream.sendall(head)
        began = time.monotonic()
        dripping = threading.Event()

        def drip() -> None:
            while not dripping.wait(0.1):
                try:
                    stream.sendall(b" ")
                except OSError:
                    return

        thread = threading.Thread(target=drip)
        thread.start()
        assert b" 408 " in stream.recv(100)
        assert time.monotonic() - began < 10
        dripping.set()
        thread.join()


CHUNKED = (
    b"POST /v1/rewards HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"transfer-encoding: chunked\r\n\r\n2\r\n[]\r\n"
)


def test_trailers_are_no_headers(tmp_path: Path) -> None:
    """A key in a trailer was accepted: a proxy that checks headers does not see it."""
    with in_a_thread(tmp_path) as (address, key, _), connected(address) as connect:
        for pause in (0.0, 0.2):
            stream = connect()
            stream.sendall(CHUNKED + b"0\r\n")
            time.sleep(pause)
            stream.sendall(f"authorization: Bearer {key}\r\n\r\n".encode())
            assert stream.recv(10_000).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(b"0\r\nx: " + b"x" * 1_000, id="one trailer"),
        pytest.param(b"0\r\n" + b"x: y\r\n" * 200, id="many trailers"),
        pytest.param(b"2;" + b"x" * 1_000, id="an extension of a chunk"),
    ],
)
def test_what_follows_a_body_is_cut_off(tmp_path: Path, part: bytes) -> None:
    """Endless trailers were taken into memory: 33 MB of 100."""
    with in_a_thread(tmp_path) as (address, _, _), connected(address) as connect:
        stream = connect()
        stream.sendall(CHUNKED + part)
        more = part.rpartition(b"\r\n")[0][3:] + b"\r\n" if part.endswith(b"\n") else b"x" * 1_000
        assert sent_until_closed(stream, more * 10, 20_000_000) < 20_000_000


def test_what_follows_an_answer_has_a_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of a body that was refused, and line breaks, which end the time of keep-alive."""
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    head = b"POST /v1/rewards HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9999999999\r\n\r\n"
    with in_a_thread(tmp_path) as (address, _, _), connected(address) as connect:
        large, breaks = connect(), connect()
        large.sendall(head)
        assert b" 413 " in large.recv(100)
        breaks.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert b" 200 " in breaks.recv(100)
        assert sent_until_closed(large, b"x", 400, pause=0.05) < 400
        assert sent_until_closed(breaks, b"\r\n", 800, pause=0.05) < 800


def test_an_answer_that_nobody_reads_has_a_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.5)
    with in_a_thread(tmp_path) as (address, _, service), connected(address) as connect:
        deaf = connect()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        requests = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 50
        most = 400 * len(requests)
        assert sent_until_closed(deaf, requests, most, pause=0.05) < most
        assert service.writer.alive
        assert httpx.get(f"{address}/healthz").status_code == 200


def test_an_answer_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[bytes] = []
    write = connections.JoinedWrites.write

    class Recorded:
        def __init__(self, transport: Any) -> None:
            self._transport = transport

        def write(self, data: bytes) -> None:
            writes.append(data)
            self._transport.write(data)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._transport, name)

    def recorded(self: connections.JoinedWrites, data: bytes) -> None:
        if not isinstance(self._transport, Recorded):
            self._transport = Recorded(self._transport)  # type: ignore[assignment]
        write(self, data)

    monkeypatch.setattr(connections.JoinedWrites, "write", recorded)
    with in_a_thread(tmp_path) as (address, key, _), connected(address) as connect:
        stream = connect()
        for method, ends in (("GET", b"}"), ("HEAD", b"\r\n\r\n"), ("GET", b"}")):
            stream.sendall(f"{method} /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            answer = stream.recv(10_000)
            assert answer.startswith(b"HTTP/1.1 ")
            assert answer.endswith(ends)
            assert [each for each in writes if each] == [answer]
            writes.clear()
        stream.sendall(
            b"POST /v1/rewards HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n"
            b"content-type: application/json\r\nexpect: 100-continue\r\n"
            b"authorization: Bearer " + key.encode() + b"\r\n\r\n"
        )
        assert stream.recv(10_000) == b"HTTP/1.1 100 Continue\r\n\r\n"


def test_many_half_open_connections_leave_room(tmp_path: Path) -> None:
    """1,100 of them used to delay /healthz by 15 s: now the oldest are closed."""
    with in_a_thread(tmp_path) as (address, key, _), connected(address) as connect:
        held = [connect() for _ in range(600)]
        for each in held[-100:]:
            each.sendall(b"GET /healthz HTTP/1.1\r\n")
        began = time.monotonic()
        headers = {"authorization": f"Bearer {key}"}
        for path in ("healthz", "readyz", "v1/experiments"):
            assert httpx.get(f"{address}/{path}", headers=headers).status_code == 200
        assert time.monotonic() - began < 10
        assert all(is_closed(each) for each in held[:100])


@pytest.mark.crash
def test_workers_stop_although_a_client_drips(tmp_path: Path, postgres: str) -> None:
    files = ("--ledger", str(tmp_path / "ledger"), "--secrets", str(tmp_path / "key"))
    options = ("--database", postgres, "--workers", "2", "--port", "0", "--no-keys", *files)
    with Process(*options, cwd=tmp_path) as server:
        address = server.wait_for(r"serves at (http://[\w.:]+)")
        wait_until_ready(address)
        with connected(address) as connect:
            stream = connect()
            stream.sendall(b"POST /v1/experiments HTTP/1.1\r\nhost: localhost\r\n")
            stream.sendall(b"content-length: 9999\r\n\r\n{")
            began = time.monotonic()
            os.kill(server.pid, signal.SIGTERM)
            while server.is_alive() and time.monotonic() < began + 50:
                with suppress(OSError):
                    stream.sendall(b" ")
                time.sleep(0.2)
            assert time.monotonic() - began < 40  # 10 for requests, and a busy machine


def wait_until_ready(address: str) -> None:
    end = time.monotonic() + 60
    while True:
        try:
            if httpx.get(f"{address}/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < end
        time.sleep(0.1)
