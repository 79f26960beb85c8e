"""The dashboard's router: its pages and the live parts that they poll."""

from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from sqlalchemy.exc import DBAPIError
from starlette.concurrency import run_in_threadpool

from balaclava.service.dashboard import forms, rendering
from balaclava.service.dashboard.page_values import PageValues
from balaclava.service.dashboard.sessions import (
    VISIT_COOKIE,
    Auth,
    LoggedOutError,
    Session,
    set_cookie,
)
from balaclava.service.problems import Problem
from balaclava.service.service import Service

_POLLED = ("/live", "/charts")  # paths that scripts request, not navigation

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def router(service: Service, *, keys: bool = True) -> APIRouter:
    """Build the dashboard's router; without keys, it is open to every local caller."""
    pages, auth = rendering.PageRenderer(), Auth(service, keys=keys)
    routes = APIRouter(route_class=_page_route(pages, auth), include_in_schema=False)
    forms.add_login(routes, service, pages, auth)
    _add_experiments(routes, service, pages, auth)
    _add_files_and_ledger(routes, service, pages, auth)
    forms.add_changes(routes, service, pages, auth)
    forms.add_keys(routes, service, pages, auth)
    return routes


def _page_route(pages: rendering.PageRenderer, auth: Auth) -> type[APIRoute]:
    """Make a route class that renders errors as pages and sets the security headers."""

    class PageRoute(APIRoute):
        def get_route_handler(self) -> Handler:
            handle = super().get_route_handler()

            async def answer(request: Request) -> Response:
                try:
                    response = await handle(request)
                except LoggedOutError:
                    response = _to_login(request)
                except (Problem, DBAPIError) as error:
                    response = await run_in_threadpool(_problem_page, pages, auth, request, error)
                if hasattr(request.state, "visit"):
                    set_cookie(request, response, VISIT_COOKIE, request.state.visit)
                response.headers.update(rendering.PAGE_HEADERS)
                return response

            return answer

    return PageRoute


def _problem_page(
    pages: rendering.PageRenderer, auth: Auth, request: Request, error: Problem | DBAPIError
) -> Response:
    if isinstance(error, DBAPIError):  # its text may contain stored values
        error = Problem(503, "the database does not answer; try again in a moment")
    try:
        session: Session | None = auth.reader(request)
    except (LoggedOutError, DBAPIError):
        session = None
    values = {"problem": error.document}
    return pages.page(request, "problem.html", session, values, error.status)


def _to_login(request: Request) -> Response:
    """Redirect to the login page, and from there back; htmx follows HX-Redirect."""
    here = rendering.request_path(request) if request.method == "GET" else "/"
    if here.endswith(_POLLED):
        headers = {"HX-Redirect": f"{rendering.root(request)}/login", "Cache-Control": "no-store"}
        return Response(status_code=401, headers=headers)
    query = "" if here == "/" else f"?next={quote(here, safe='')}"
    return rendering.redirect(request, f"/login{query}")


def _add_experiments(
    routes: APIRouter, service: Service, pages: rendering.PageRenderer, auth: Auth
) -> None:
    values = PageValues(service)

    def list_values() -> dict[str, Any]:
        experiments = service.experiments(archived=False)
        names = [experiment["name"] for experiment in experiments]
        sentences = {name: values.experiment(name)["results"]["sentence"] for name in names}
        return {"experiments": experiments, "sentences": sentences}

    @routes.get("/")
    def experiments(request: Request) -> Response:
        return pages.page(request, "experiments.html", auth.reader(request), list_values())

    @routes.get("/live")
    def experiments_live(request: Request) -> Response:
        return pages.page(request, "experiments_live.html", auth.reader(request), list_values())

    @routes.get("/experiments/{name}")
    def experiment(request: Request, name: str) -> Response:
        session = auth.reader(request)
        privacy = {"privacy": service.privacy(name)}
        content = values.charts(name, admin=session.admin) | privacy
        return pages.page(request, "experiment.html", session, content)

    @routes.get("/experiments/{name}/live")
    def experiment_live(request: Request, name: str) -> Response:
        session = auth.reader(request)
        content = values.experiment(name, admin=session.admin)
        return pages.page(request, "experiment_live.html", session, content)

    @routes.get("/experiments/{name}/charts")
    def experiment_charts(request: Request, name: str) -> Response:
        return pages.page(request, "charts_live.html", auth.reader(request), values.charts(name))


def _add_files_and_ledger(
    routes: APIRouter, service: Service, pages: rendering.PageRenderer, auth: Auth
) -> None:
    @routes.get("/ledger")
    def ledger(request: Request) -> Response:
        session = auth.admin(request)
        return pages.page(request, "ledger.html", session, {"ledger": service.ledger_document()})

    @routes.get("/static/{name:path}")
    def file(name: str) -> Response:
        return pages.files.answer(name)
