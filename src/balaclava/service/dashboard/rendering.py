"""Render templates, serve static files, and set security headers and ETags."""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import jinja2
from fastapi import Request, Response
from fastapi.responses import RedirectResponse

from balaclava._core.number_format import count, within_interval
from balaclava.service.dashboard import formatting, svg_charts

if TYPE_CHECKING:
    from balaclava.service.dashboard.sessions import Session

PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_STATIC, _TEMPLATES = (Path(__file__).parent / name for name in ("static", "templates"))
_HTML = "text/html; charset=utf-8"


class StaticFiles:
    """Style sheet and scripts, read once; their URLs contain a digest of the content."""

    def __init__(self) -> None:
        files = (path for path in _STATIC.rglob("*") if path.is_file())
        self._bodies = {path.relative_to(_STATIC).as_posix(): path.read_bytes() for path in files}

    def address(self, name: str) -> str:
        return f"static/{name}?{_digest(self._bodies[name])[:12]}"

    def answer(self, name: str) -> Response:
        """The file, cacheable for a year; 404 for an unknown name."""
        body = self._bodies.get(name)
        if body is None:
            return Response("No such file.\n", 404, media_type="text/plain")
        headers = {"Cache-Control": "public, max-age=31536000, immutable"}
        kind = mimetypes.guess_type(name)[0] or "text/plain"
        return Response(body, media_type=kind, headers=headers)


class PageRenderer:
    """The Jinja templates, with autoescape."""

    def __init__(self) -> None:
        self.files = StaticFiles()
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_TEMPLATES),
            auto_reload=False,
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= {
            "count": count,
            "percent": formatting.percent,
            "figure": within_interval,
            "most": formatting.most,
            "least": formatting.least,
            "plain": formatting.plain,
            "span": formatting.span,
            "about": formatting.about,
            "paragraphs": formatting.paragraphs,
            "date": formatting.date,
            "iso": lambda when: formatting.moment(when).isoformat(timespec="seconds"),
            "part": lambda text: quote(text, safe=""),
        }
        self._templates.globals |= {
            "file": self.files.address,
            "interval_axis": svg_charts.interval_axis,
            "shares_chart": svg_charts.shares_chart,
            "means_chart": svg_charts.means_chart,
        }

    def page(
        self,
        request: Request,
        template: str,
        session: Session | None,
        values: dict[str, Any],
        status: int = 200,
    ) -> Response:
        """Render a page; 304 if the browser's copy is current."""
        text = self._templates.get_template(template).render(
            root=root(request), session=session, here=request_path(request), **values
        )
        return with_etag(request, Response(text, status, media_type=_HTML))


def root(request: Request) -> str:
    """The path prefix under which a proxy serves the application."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def request_path(request: Request) -> str:
    """The path of a page without the prefix, whether or not the proxy removed it."""
    path, before = request.url.path, root(request)
    return path[len(before) :] or "/" if f"{path}/".startswith(f"{before}/") else path


def redirect(request: Request, path: str) -> Response:
    return RedirectResponse(root(request) + path, 303, headers={"Cache-Control": "no-store"})


def with_etag(request: Request, response: Response) -> Response:
    """Add an ETag to a response; 304 if the request's If-None-Match contains it."""
    if request.method != "GET" or response.status_code != 200:
        response.headers["Cache-Control"] = "no-store"
        return response
    tag = f'"{_digest(bytes(response.body))[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    known = request.headers.get("if-none-match", "")
    if tag in (entry.strip().removeprefix("W/") for entry in known.split(",")):
        return Response(status_code=304, headers=headers)
    response.headers.update(headers)
    return response


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
