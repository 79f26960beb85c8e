"""The pages, and where they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from sqlalchemy.exc import DBAPIError
from starlette.concurrency import run_in_threadpool

from balaclava.service.dashboard import forms
from balaclava.service.dashboard.latest import Latest
from balaclava.service.dashboard.pages import HEADERS, Pages, go, place, root, unless_known
from balaclava.service.dashboard.sessions import VISIT, Door, LoggedOutError, Visitor, set_cookie
from balaclava.service.problems import Problem
from balaclava.service.service import Service

_POLLED = ("/live", "/history")  # what scripts ask for

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def router(service: Service, *, keys: bool = True) -> APIRouter:
    """The dashboard of a service, to be included in its application; without keys, for all."""
    pages, door = Pages(), Door(service, keys=keys)
    routes = APIRouter(route_class=_guarded(pages, door), include_in_schema=False)
    forms.add_login(routes, pages, door)
    _add_experiments(routes, service, pages, door)
    _add_files_and_ledger(routes, service, pages, door)
    forms.add_changes(routes, service, pages, door)
    forms.add_keys(routes, service, pages, door)
    return routes


def _guarded(pages: Pages, door: Door) -> type[APIRoute]:
    """Routes whose errors are pages too, and whose answers all carry the headers."""

    class Guarded(APIRoute):
        def get_route_handler(self) -> Handler:
            handle = super().get_route_handler()

            async def answer(request: Request) -> Response:
                try:
                    response = await handle(request)
                except LoggedOutError:
                    response = _to_login(request)
                except (Problem, DBAPIError) as error:
                    response = await run_in_threadpool(_problem_page, pages, door, request, error)
                if hasattr(request.state, "visit"):
                    set_cookie(request, response, VISIT, request.state.visit)
                response.headers.update(HEADERS)
                return response

            return answer

    return Guarded


def _problem_page(
    pages: Pages, door: Door, request: Request, error: Problem | DBAPIError
) -> Response:
    if isinstance(error, DBAPIError):  # its text is not for anybody's eyes
        error = Problem(503, "the database does not answer; try again in a moment")
    try:
        visitor: Visitor | None = door.reader(request)
    except (LoggedOutError, DBAPIError):
        visitor = None
    values = {"problem": error.document}
    return pages.page(request, "problem.html", visitor, values, error.status)


def _to_login(request: Request) -> Response:
    """To the login, and from there back; a script that polls is told to go there too."""
    here = place(request) if request.method == "GET" else "/"
    if here.endswith(_POLLED):
        headers = {"HX-Redirect": f"{root(request)}/login", "Cache-Control": "no-store"}
        return Response(status_code=401, headers=headers)
    query = "" if here == "/" else f"?next={quote(here, safe='')}"
    return go(request, f"/login{query}")


def _add_experiments(routes: APIRouter, service: Service, pages: Pages, door: Door) -> None:
    latest = Latest(service)

    def list_values() -> dict[str, Any]:
        experiments = service.experiments()
        names = [experiment["name"] for experiment in experiments]
        sentences = {name: latest.of(name)["results"]["sentence"] for name in names}
        return {"experiments": experiments, "sentences": sentences}

    @routes.get("/")
    def experiments(request: Request) -> Response:
        visitor = door.reader(request)
        return pages.page(request, "experiments.html", visitor, list_values())

    @routes.get("/live")
    def experiments_live(request: Request) -> Response:
        visitor = door.reader(request)
        return pages.page(request, "experiments_live.html", visitor, list_values())

    @routes.get("/experiments/{name}")
    def experiment(request: Request, name: str) -> Response:
        visitor = door.reader(request)
        values = latest.of(name)
        curves = latest.curves(name, values["colours"])
        values |= {"privacy": service.privacy(name), "curves": curves}
        return pages.page(request, "experiment.html", visitor, values)

    @routes.get("/experiments/{name}/live")
    def experiment_live(request: Request, name: str) -> Response:
        visitor = door.reader(request)
        return pages.page(request, "experiment_live.html", visitor, latest.of(name))

    @routes.get("/experiments/{name}/history")
    def history(request: Request, name: str) -> Response:
        door.reader(request)
        drawn = latest.curves(name, latest.of(name)["colours"])
        answer = Response(json.dumps(drawn, allow_nan=False), media_type="application/json")
        return unless_known(request, answer)


def _add_files_and_ledger(routes: APIRouter, service: Service, pages: Pages, door: Door) -> None:
    @routes.get("/ledger")
    def ledger(request: Request) -> Response:
        visitor = door.admin(request)
        return pages.page(request, "ledger.html", visitor, {"ledger": service.ledger_document()})

    @routes.get("/static/{name:path}")
    def file(name: str) -> Response:
        return pages.files.answer(name)
