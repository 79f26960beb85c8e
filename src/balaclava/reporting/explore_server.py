"""Serves the page of `balaclava explore` to this machine, and to those that know its address.

A loopback address is open to every user of the machine and, by a form or by DNS rebinding, to every
page in a browser. So the path has a random key, the host must be the loopback address, and requests
that a page of another site started are refused. The server changes nothing and stores nothing: a
request is settings, an answer the page.
"""

import functools
import hmac
import secrets
import select
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from balaclava.advice.trial.what_if import Explorer, WhatIf
from balaclava.errors import BalaclavaError, ParameterError
from balaclava.reporting.explore_page import render_explorer, security_policy

_LOOPBACK = "127.0.0.1"
_HOSTS = (_LOOPBACK, "localhost")
_KEY_BYTES = 16
_PAGES_KEPT = 64  # of settings that were displayed; each has some 100 KB
_EXPLORE_REQUEST_SECONDS = 10.0  # to send a request; then the connection is closed
_SAME_SITE = (None, "none", "same-origin")  # of Sec-Fetch-Site; old browsers send none


class ExploreServer(ThreadingHTTPServer):
    """Serves what-if pages on the loopback address.

    Args:
        explorer: Plays the trials.
        command: The command that gives the numbers of some settings.
        port: Of the loopback address; 0 for a free one.

    Raises:
        ParameterError: the port cannot be used.
    """

    daemon_threads = True

    def __init__(self, explorer: Explorer, command: Callable[[WhatIf], str], port: int = 0) -> None:
        try:
            super().__init__((_LOOPBACK, port), _ExploreHandler)
        except OSError as error:
            raise ParameterError(
                f"port = {port} cannot be used: {error.strerror}; give another one, or 0 for any"
            ) from error
        self.explorer, self.command = explorer, command
        self.key, self.policy = secrets.token_urlsafe(_KEY_BYTES), security_policy()
        self.hosts = {f"{host}:{self.server_port}" for host in _HOSTS}
        self._one_at_a_time = threading.Lock()
        self._page = functools.lru_cache(_PAGES_KEPT)(self._render)

    @property
    def url(self) -> str:
        return f"http://{_LOOPBACK}:{self.server_port}/{self.key}/"

    def settings(self, query: str) -> WhatIf:
        """The settings of a query: a stop of each slider.

        Raises:
            ParameterError: an unknown setting, or no stop of it.
        """
        chosen = self.explorer.start
        for name, text in parse_qsl(query, keep_blank_values=True, max_num_fields=len(chosen)):
            stops = self.explorer.stops.get(name)
            if stops is None or text not in map(str, range(len(stops))):
                raise ParameterError("a setting is unknown, or not a stop of its slider")
            chosen = chosen._replace(**{name: stops[int(text)]})
        return chosen

    def page(self, settings: WhatIf, wanted: Callable[[], bool]) -> bytes | None:
        """The page at some settings; None if the browser closed the connection meanwhile."""
        with self._one_at_a_time:
            return self._page(settings) if wanted() else None

    def _render(self, settings: WhatIf) -> bytes:
        answer = self.explorer.answer(settings)
        page = render_explorer(self.explorer, settings, answer, self.command(settings))
        return page.encode()


class _ExploreHandler(BaseHTTPRequestHandler):
    server: ExploreServer
    server_version, sys_version = "balaclava", ""
    timeout = _EXPLORE_REQUEST_SECONDS

    def do_GET(self) -> None:
        url, server = urlsplit(self.path), self.server
        if self.headers.get("Host") not in server.hosts:
            return self._answer(HTTPStatus.FORBIDDEN, b"unknown host")
        if self.headers.get("Sec-Fetch-Site") not in _SAME_SITE:
            return self._answer(HTTPStatus.FORBIDDEN, b"started by another site")
        if not hmac.compare_digest(url.path.encode(), f"/{server.key}/".encode()):
            return self._answer(HTTPStatus.NOT_FOUND, b"not found")
        try:
            page = server.page(server.settings(url.query), self._is_connected)
        except (BalaclavaError, ValueError) as error:  # ValueError: too many fields
            return self._answer(HTTPStatus.BAD_REQUEST, str(error).encode())
        if page is not None:
            self._answer(HTTPStatus.OK, page, "text/html")

    def _is_connected(self) -> bool:
        """Whether the browser still waits: it closes the connection when a slider moves on."""
        readable, _, _ = select.select([self.connection], [], [], 0)
        return not readable or self.connection.recv(1, socket.MSG_PEEK) != b""

    def _answer(self, status: HTTPStatus, body: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(body)),
            "Content-Security-Policy": self.server.policy,
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *values: object) -> None:
        """Write nothing: a request has the key."""
