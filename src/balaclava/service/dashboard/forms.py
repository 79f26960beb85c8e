"""Form handlers: log in and out, change an experiment's state or arms, create and revoke keys.

Each form needs its page's CSRF token. Each change has a confirmation page, so that it works without
JavaScript.
"""

from typing import Any, cast
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from balaclava.service.credentials import ROLES, Role
from balaclava.service.dashboard import sessions
from balaclava.service.dashboard.page_values import review_page
from balaclava.service.dashboard.rendering import PageRenderer, redirect
from balaclava.service.problems import Problem
from balaclava.service.service import Service

LONGEST_KEY_LABEL = 100  # characters; the page has the same limit
_LONGEST_ARM_LABEL = 500  # characters, as in requests
_CHANGES = ("pause", "resume", "finish")


def add_login(
    routes: APIRouter, service: Service, pages: PageRenderer, auth: sessions.Auth
) -> None:
    """Add login and logout. A session stores the key's id, not the key."""

    def login_page(request: Request, status: int = 200, complaint: str = "") -> Response:
        after = quote(sessions.destination(request.query_params.get("next", "/")), safe="")
        values = {"token": auth.browser_token(request), "complaint": complaint, "after": after}
        response = pages.page(request, "login.html", None, values, status)
        response.headers["Cache-Control"] = "no-store"
        return response

    @routes.get("/login")
    def login(request: Request) -> Response:
        return login_page(request)

    @routes.post("/login")
    async def enter(request: Request) -> Response:
        form = await sessions.read_form(request)
        sessions.check_token(request, auth.browser_token(request), form)
        try:
            session = await run_in_threadpool(auth.open_session, form.get("key", ""))
        except Problem as problem:
            return login_page(request, problem.status, problem.detail)
        response = redirect(request, sessions.destination(request.query_params.get("next", "/")))
        sessions.set_cookie(request, response, sessions.SESSION_COOKIE, session)
        return response

    @routes.post("/logout")
    async def leave(request: Request) -> Response:
        await _checked(request, await run_in_threadpool(auth.reader, request))
        await service.end_session(request.cookies.get(sessions.SESSION_COOKIE, ""))
        response = redirect(request, "/login")
        response.headers["Clear-Site-Data"] = '"cache"'
        sessions.set_cookie(request, response, sessions.SESSION_COOKIE, "")
        return response


async def _checked(request: Request, session: sessions.Session) -> dict[str, str]:
    form = await sessions.read_form(request)
    sessions.check_token(request, session.token, form)
    return form


def add_changes(
    routes: APIRouter, service: Service, pages: PageRenderer, auth: sessions.Auth
) -> None:
    """Add pause, resume, finish and changes of arms, and the download for a review board."""

    @routes.post("/experiments/{name}/review")
    async def review(request: Request, name: str) -> Response:
        await _checked(request, await run_in_threadpool(auth.reader, request))
        text = await run_in_threadpool(review_page, service, name)
        headers = {
            "Content-Disposition": 'attachment; filename="review.html"',
            "Cache-Control": "no-store",
        }
        return Response(text, media_type="text/html; charset=utf-8", headers=headers)

    def arms_page(
        request: Request, session: sessions.Session, name: str, problem: Problem | None, add: str
    ) -> Response:
        values = {
            "experiment": service.experiment(name),
            "refusal": service.committed(name).fixed_arms,
            "longest": _LONGEST_ARM_LABEL,
            "complaint": problem and problem.detail,
            "add": add,
        }
        return pages.page(request, "arms.html", session, values, problem.status if problem else 200)

    @routes.get("/experiments/{name}/arms")
    def arms(request: Request, name: str) -> Response:
        return arms_page(request, auth.admin(request), name, None, "")

    @routes.post("/experiments/{name}/arms")
    async def change_arms(request: Request, name: str) -> Response:
        session = await run_in_threadpool(auth.admin, request)
        form = await _checked(request, session)
        add, retire = form.get("add", "").strip(), form.get("retire", "")
        changes = {"add_arms": [add] * bool(add), "retire_arms": [retire] * bool(retire)}
        named = {what: labels for what, labels in changes.items() if labels}
        try:
            if len(add) > _LONGEST_ARM_LABEL or not named:
                raise Problem(
                    422,
                    "name an arm to add, or choose one to retire; a label has at most "
                    f"{_LONGEST_ARM_LABEL} characters",
                )
            await service.edit(name, named, session.key.actor)
        except Problem as problem:
            return await run_in_threadpool(arms_page, request, session, name, problem, add)
        return redirect(request, f"/experiments/{quote(name, safe='')}")

    @routes.get("/experiments/{name}/{change}")
    def confirm(request: Request, name: str, change: str) -> Response:
        session = auth.admin(request)
        values = {"change": _known(change), "experiment": service.experiment(name)}
        return pages.page(request, "confirm.html", session, values)

    @routes.post("/experiments/{name}/{change}")
    async def act(request: Request, name: str, change: str) -> Response:
        session = await run_in_threadpool(auth.admin, request)
        form = await _checked(request, session)
        arm = form.get("arm") if change == "finish" else None
        await service.set_state(name, _known(change), session.key.actor, arm or None)
        return redirect(request, f"/experiments/{quote(name, safe='')}")


def _known(change: str) -> str:
    if change not in _CHANGES:
        raise Problem(404, "no such page")
    return change


def add_keys(routes: APIRouter, service: Service, pages: PageRenderer, auth: sessions.Auth) -> None:
    """Add the list of keys. A new key appears once, in the answer to its form."""

    def keys_page(
        request: Request, session: sessions.Session, new: dict[str, Any] | None
    ) -> Response:
        known = service.list_keys()
        form = service.vault.digest("form", f"{session.token} {len(known)}")  # new after each key
        values = {"keys": known, "new": new, "roles": ROLES, "form": form}
        return pages.page(request, "keys.html", session, values)

    @routes.get("/keys")
    def keys(request: Request) -> Response:
        return keys_page(request, auth.admin(request), None)

    @routes.post("/keys")
    async def create(request: Request) -> Response:
        session = await run_in_threadpool(auth.admin, request)
        form = await _checked(request, session)
        role, label = form.get("role", ""), form.get("label", "").strip()
        if role not in ROLES or not form.get("form") or not 0 < len(label) <= LONGEST_KEY_LABEL:
            raise Problem(
                422,
                f"a key needs a role ({', '.join(ROLES)}) and a label of 1 to {LONGEST_KEY_LABEL} "
                "characters",
            )
        id = service.vault.digest("key form", form["form"])[:16]  # a reload must not create two
        new = await service.create_key(cast(Role, role), label, session.key.actor, id=id)
        return await run_in_threadpool(keys_page, request, session, new)

    @routes.get("/keys/{identity}/revoke")
    def confirm(request: Request, identity: str) -> Response:
        session = auth.admin(request)
        valid = (key for key in service.list_keys() if key["revoked"] is None)
        key = next((key for key in valid if key["id"] == identity), None)
        if key is None:
            raise Problem(404, "this key does not exist, or was revoked")
        return pages.page(request, "revoke.html", session, {"key": key})

    @routes.post("/keys/{identity}/revoke")
    async def revoke(request: Request, identity: str) -> Response:
        session = await run_in_threadpool(auth.admin, request)
        await _checked(request, session)
        await service.revoke_key(identity, session.key.actor)
        return redirect(request, "/keys")
