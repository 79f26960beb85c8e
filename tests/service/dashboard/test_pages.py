"""The pages: who sees what, what they carry, and what they never show."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from balaclava.service.dashboard.page_values import PageValues
from balaclava.service.dashboard.rendering import PAGE_HEADERS, PageRenderer
from balaclava.service.engine.jobs import SetExperimentState
from balaclava.service.http.app import create_app
from balaclava.service.store.ledger import Budget
from tests.service.dashboard.conftest import ARMS, HOSTILE, MARKUP, FilledService

EXPERIMENT = f"/experiments/{quote(HOSTILE, safe='')}"
FOR_READERS = ["/", "/live", EXPERIMENT, f"{EXPERIMENT}/live", f"{EXPERIMENT}/charts"]
FOR_READERS += [f"/experiments/{name}" for name in ("window", "arrival", "many", "single", "new")]
FOR_ADMINS = ["/ledger", "/keys", f"{EXPERIMENT}/pause", f"{EXPERIMENT}/finish"]


class Page(HTMLParser):
    """Every tag of a page with its attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def values(self, *names: str) -> list[str]:
        return [attrs[name] or "" for _, attrs in self.tags for name in names if name in attrs]


def token_of(text: str) -> str:
    return next(a["value"] or "" for _, a in Page(text).tags if a.get("name") == "token")


def enter(client: TestClient, key: str, path: str = "/login") -> None:
    form = {"key": key, "token": token_of(client.get(path).text)}
    assert client.post(path, data=form, follow_redirects=False).status_code == 303


def new_client(filled: FilledService, role: str | None, **more: object) -> TestClient:
    client = TestClient(create_app(filled.service), **more)  # type: ignore[arg-type]
    if role is not None:
        enter(client, filled.keys[role])
    return client


@pytest.fixture(scope="module")
def admin(filled: FilledService) -> TestClient:
    return new_client(filled, "admin")


@pytest.fixture(scope="module")
def reader(filled: FilledService) -> TestClient:
    return new_client(filled, "read")


@pytest.fixture(scope="module")
def stranger(filled: FilledService) -> TestClient:
    return new_client(filled, None, follow_redirects=False)


@pytest.mark.parametrize("path", [*FOR_READERS, *FOR_ADMINS])
def test_who_sees_what(
    admin: TestClient, reader: TestClient, stranger: TestClient, path: str
) -> None:
    assert admin.get(path).status_code == 200
    assert reader.get(path).status_code == (200 if path in FOR_READERS else 403)
    answer = stranger.get(path)
    if path.endswith(("/live", "/charts")):
        assert (answer.status_code, answer.headers["hx-redirect"]) == (401, "/login")
    else:
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/login")
    assert "Guarantee" not in answer.text


def test_a_reader_has_no_buttons(admin: TestClient, reader: TestClient) -> None:
    assert f"{EXPERIMENT}/finish" in Page(admin.get(EXPERIMENT).text).values("href")
    hrefs = Page(reader.get(EXPERIMENT).text).values("href")
    assert not [href for href in hrefs if re.search("pause|resume|finish|ledger|keys$", href)]


@pytest.mark.parametrize("path", [*FOR_READERS, *FOR_ADMINS, "/login", "/experiments/nothing"])
def test_no_page_runs_what_it_was_not_built_with(admin: TestClient, path: str) -> None:
    """Headers on every answer; no script, style or handler inside a page; strings stay strings."""
    answer = admin.get(path)
    assert {name: answer.headers[name] for name in PAGE_HEADERS} == PAGE_HEADERS
    assert "unsafe" not in PAGE_HEADERS["Content-Security-Policy"]
    if answer.headers["content-type"].startswith("application/json"):
        return
    page = Page(answer.text)
    assert {"img", "b"}.isdisjoint(tag for tag, _ in page.tags)
    for tag, attrs in page.tags:
        assert tag != "script" or (attrs.get("src") or "").startswith("/static/")
        assert "style" not in (tag, *attrs)
        assert not [name for name in attrs if name.startswith("on")]


def test_names_and_labels_are_displayed_verbatim(admin: TestClient) -> None:
    text = Page(admin.get(EXPERIMENT).text).text
    for string in (HOSTILE, MARKUP, *ARMS):
        assert string in text
    assert EXPERIMENT in Page(admin.get("/").text).values("href")
    assert f"all {MARKUP}" in Page(admin.get("/ledger").text).text
    assert f"decide {MARKUP}" in Page(admin.get("/keys").text).text


def test_a_budget_never_looks_larger_than_it_is() -> None:
    templates = PageRenderer()._templates
    source = templates.loader.get_source(templates, "ledger.html")[0]  # type: ignore[union-attr]
    (line,) = (line for line in source.splitlines() if "left_epsilon" in line)
    budget = Budget("all", 1.0, 1e-6, 0.333_333, 1e-6 / 3).document()
    text = Page(templates.from_string(line).render(population=budget)).text
    assert text == "ε 0.6666 left of 1; 0.3334 spent.δ 6.666e-07 left of 1e-06."


def test_the_most_frequent_of_many_arms_are_displayed(
    filled: FilledService, admin: TestClient
) -> None:
    page = Page(admin.get("/experiments/many").text)
    arms = filled.service.results("many")["arms"]
    assert len([tag for tag, attrs in page.tags if attrs.get("scope") == "row"]) == 60
    assert "has all 64" in page.text
    values = PageValues(filled.service).charts("many")
    curves = values["curves"]
    assert "offer" in admin.get("/experiments/many/charts").text
    most = sorted(arms, key=lambda arm: -arm["decisions"])[:6]
    assert {arm["label"] for arm in curves["arms"]} == {arm["label"] for arm in most}
    for i in range(len(curves["at"])):
        total = sum(column[i] for column in curves["shares"]) + curves["others"][i]
        assert total == pytest.approx(1)


def test_a_key_opens_a_session(filled: FilledService, stranger: TestClient) -> None:
    stranger.cookies.clear()
    page = stranger.get("/login?next=%2Fledger")
    form = {"token": token_of(page.text)}
    for key, complaint in (("wrong-key", "unknown"), (filled.keys["decide"], "cannot log in")):
        answer = stranger.post("/login", data=form | {"key": key})
        assert (answer.status_code, complaint in answer.text) == (403, True)
        assert "balaclava_session" not in stranger.cookies
        assert key not in answer.text
    answer = stranger.post("/login?next=%2Fledger", data=form | {"key": filled.keys["admin"]})
    assert (answer.status_code, answer.headers["location"]) == (303, "/ledger")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Secure" not in cookie
    assert filled.keys["admin"] not in str(answer.headers)
    kept = dict(stranger.cookies)
    stranger.post("/logout", data={"token": token_of(stranger.get("/").text)})
    assert stranger.get("/").status_code == 303
    stranger.cookies.update(kept)  # a copy of the cookie does not work either
    assert stranger.get("/").status_code == 303


def test_over_https_the_cookie_stays_there(filled: FilledService) -> None:
    client = new_client(filled, None, base_url="https://testserver")
    form = {"key": filled.keys["read"], "token": token_of(client.get("/login").text)}
    answer = client.post("/login", data=form, follow_redirects=False)
    assert "Secure" in answer.headers["set-cookie"]


@pytest.mark.parametrize("elsewhere", ["//evil.example", "https://e.example", "/\\evil", "/\n/e"])
def test_the_login_leads_nowhere_else(filled: FilledService, elsewhere: str) -> None:
    client = new_client(filled, None)
    form = {"key": filled.keys["read"], "token": token_of(client.get("/login").text)}
    path = f"/login?next={quote(elsewhere, safe='')}"
    answer = client.post(path, data=form, follow_redirects=False)
    assert answer.headers["location"] == "/"


FORMS = ["/login", "/logout", "/keys", "/experiments/new/finish", "/keys/{id}/revoke"]
FORMS += ["/experiments/new/review", "/experiments/new/arms"]


@pytest.mark.parametrize("form", FORMS)
def test_a_form_from_elsewhere_changes_nothing(
    filled: FilledService, admin: TestClient, reader: TestClient, form: str
) -> None:
    before = (filled.service.list_keys(), filled.service.experiment("new"))
    path = form.format(id=before[0][-1]["id"])
    fields = {"role": "admin", "label": "mine", "add": "mine", "key": filled.keys["admin"]}
    foreign = token_of(reader.get("/").text)
    own = token_of(admin.get("/" if form != "/login" else "/login").text)
    elsewhere = {"Sec-Fetch-Site": "cross-site"}
    assert admin.post(path, data=fields).status_code == 403
    assert admin.post(path, data=fields | {"token": foreign}).status_code == 403
    assert admin.post(path, data=fields | {"token": "ü"}).status_code == 403
    assert admin.post(path, data=fields | {"token": own}, headers=elsewhere).status_code == 403
    assert admin.post(path, json=fields | {"token": own}).status_code == 415
    long = fields | {"token": own, "label": "x" * 20_000}
    assert admin.post(path, data=long).status_code == 413
    assert (filled.service.list_keys(), filled.service.experiment("new")) == before
    assert admin.get("/").status_code == 200


def test_pause_resume_and_finish(
    filled: FilledService, admin: TestClient, reader: TestClient
) -> None:
    filled.create("changing")
    for change, state in (("pause", "paused"), ("resume", "running"), ("finish", "finished")):
        page = admin.get(f"/experiments/changing/{change}")
        assert "changing" in page.text
        form = {"token": token_of(page.text)}
        mine = {"token": token_of(reader.get("/").text)}
        assert reader.post(f"/experiments/changing/{change}", data=mine).status_code == 403
        shown = admin.post(f"/experiments/changing/{change}", data=form)
        assert filled.service.experiment("changing")["state"] == state
        assert f"</svg>{state}</span>" in shown.text
    again = admin.post("/experiments/changing/resume", data=form)
    assert (again.status_code, "cannot be undone" in again.text) == (409, True)


def test_arms_are_added_and_retired(
    filled: FilledService, admin: TestClient, reader: TestClient
) -> None:
    filled.create("season")
    first = filled.service.experiment("season")["arms"][0]
    path = "/experiments/season/arms"
    assert path in Page(admin.get("/experiments/season").text).values("href")
    form = {"token": token_of(admin.get(path).text)}
    mine = {"token": token_of(reader.get("/").text), "add": "new"}
    assert reader.get(path).status_code == reader.post(path, data=mine).status_code == 403
    answer = admin.post(path, data=form | {"add": MARKUP, "retire": first})
    assert MARKUP in Page(answer.text).text
    after = filled.service.experiment("season")
    assert (after["arms"][-1], after["retired_arms"]) == (MARKUP, [first])
    assert first not in Page(admin.get(path).text).values("value")
    for fields in ({}, {"add": first}, {"retire": "stranger"}, {"add": "x" * 501}):
        refusal = admin.post(path, data=form | fields)
        assert refusal.status_code == 422
        assert 'class="complaint" role="alert"' in refusal.text
        assert fields.get("add", "") in Page(refusal.text).values("value")
    assert filled.service.experiment("season") == after


def test_arms_that_cannot_change_have_no_form(filled: FilledService, admin: TestClient) -> None:
    filled.create("epochs", policy="dp-se", parameters={"epsilon": 1.0, "failure_probability": 0.1})
    filled.create("over")
    over = "/experiments/over/finish"
    assert admin.post(over, data={"token": token_of(admin.get(over).text)}).status_code == 200
    for name, why in (("epochs", "he arms of dp-se cannot change: "), ("over", "is finished; its")):
        before, path = filled.service.experiment(name), f"/experiments/{name}/arms"
        page = admin.get(path)
        assert why in " ".join(Page(page.text).text.split())
        assert path not in Page(page.text).values("action")
        form = {"token": token_of(admin.get("/").text), "add": "new"}
        refusal = admin.post(path, data=form)
        assert (refusal.status_code, why in refusal.text) == (409, True)
        assert filled.service.experiment(name) == before


def test_a_retired_arm_stays_marked(filled: FilledService, admin: TestClient) -> None:
    """Its releases stay in the table; the lead goes to a live arm."""
    filled.create("leading", settle="arrival", default_reward=None)
    for _ in range(10):
        filled.reward(filled.decide("leading", 50), best=1)
    leader = filled.service.results("leading")["leader"]
    assert leader is not None
    path = "/experiments/leading/arms"
    form = {"token": token_of(admin.get(path).text), "retire": leader}
    text = " ".join(Page(admin.post(path, data=form).text).text.split())
    assert f"{leader} retired" in text


def test_the_page_for_a_review_board_states_the_guarantee_of_the_service(
    filled: FilledService, reader: TestClient
) -> None:
    filled.create("named", rewards_per_person=3, purpose=MARKUP)
    filled.decide("named", 1, person="somebody")
    form = {"token": token_of(reader.get("/experiments/named").text)}
    texts = {}
    filled.create("trial ended", settle="arrival", parameters={"epsilon": 1.0, "first_batch": 8})
    filled.reward(filled.decide("trial ended", 200), best=1)
    filled.service.run_job(SetExperimentState(filled.service.ledger, "trial ended", "finish"))
    for name in ("named", "window", "arrival", "trial ended"):
        answer = reader.post(f"/experiments/{name}/review", data=form)
        assert answer.headers["content-disposition"].startswith("attachment")
        page = Page(answer.text)
        assert "img" not in [tag for tag, _ in page.tags]
        texts[name] = " ".join(page.text.split())
    assert MARKUP in texts["named"]
    assert "gives each person ε=3" in texts["named"]
    assert "learns from at most 3 of each person" in texts["named"]
    assert "gives each reward ε=1" in texts["window"]
    assert "The result is not in yet, after 200 decisions: " in texts["trial ended"]
    assert "What was planned, and what happened" not in texts["arrival"]
    assert "No guarantee covers a person" in texts["window"]
    assert "guarantee covers when a reward arrived" in texts["window"]
    assert "guarantee does not cover when a reward arrived" in texts["arrival"]
    assert "does not depend on the value of any reward" in texts["arrival"]
    assert "create the experiment with a default_reward" in texts["arrival"]


def test_a_key_is_displayed_once_and_ends_with_its_sessions(
    filled: FilledService, admin: TestClient
) -> None:
    page = admin.get("/keys").text
    token, (form,) = token_of(page), re.findall(r'name="form" value="(\w+)"', page)
    asked = {"token": token, "form": form, "role": "read", "label": "<i>board</i>"}
    shown = admin.post("/keys", data=asked)
    before = len(filled.service.list_keys())
    again = admin.post("/keys", data=asked)  # as a reload does
    assert (again.status_code, "sent before" in again.text) == (409, True)
    assert len(filled.service.list_keys()) == before
    assert shown.headers["cache-control"] == "no-store"
    (key,) = re.findall(r'<code id="new-key">([^<]+)</code>', shown.text)
    assert "&lt;i&gt;board&lt;/i&gt;" in shown.text
    assert key not in admin.get("/keys").text
    board = new_client(filled, None, follow_redirects=False)
    enter(board, key)
    assert board.get("/").status_code == 200
    (identity,) = [k["id"] for k in filled.service.list_keys() if k["label"] == "<i>board</i>"]
    assert "&lt;i&gt;board" in admin.get(f"/keys/{identity}/revoke").text
    assert admin.post(f"/keys/{identity}/revoke", data={"token": token}).status_code == 200
    assert board.get("/").status_code == 303
    assert admin.get(f"/keys/{identity}/revoke").status_code == 404
    for role, label in (("owner", "x"), ("read", ""), ("read", "x" * 101)):
        bad = admin.post("/keys", data=asked | {"role": role, "label": label})
        assert bad.status_code == 422
    del asked["form"]
    assert admin.post("/keys", data=asked).status_code == 422


def test_what_did_not_change_is_not_sent_again(filled: FilledService, admin: TestClient) -> None:
    for path in ("/live", "/experiments/arrival/live", "/experiments/arrival/charts"):
        first = admin.get(path)
        headers = {"If-None-Match": f'"other", W/{first.headers["etag"]}'}
        same = admin.get(path, headers=headers)
        assert (same.status_code, same.content) == (304, b"")
        assert same.headers["content-security-policy"]
        filled.decide("arrival", 50)
        assert admin.get(path, headers=headers).status_code == 200


def test_rewards_that_came_are_on_no_page_before_their_windows_end(
    filled: FilledService, admin: TestClient
) -> None:
    """If only purchases are reported, the number of rewards that came is their sum."""
    paths = ["/", "/live", "/ledger", "/keys"]
    paths += [f"/experiments/window{part}" for part in ("", "/live", "/charts")]
    decisions = filled.decide("window", 40)
    before = [admin.get(path).content for path in paths]
    filled.reward(decisions, best=1)
    assert [admin.get(path).content for path in paths] == before
    text = Page(admin.get("/experiments/window").text).text
    assert "Rewarded" not in text
    assert "Windows open80" in text
    assert "Rewarded500" in Page(admin.get("/experiments/arrival").text).text


def test_intervals_come_with_what_they_hold_for(filled: FilledService, admin: TestClient) -> None:
    """The demo loses one report in ten: its intervals hold rates of reports, not of purchases."""
    counts = "A reward that did not come in its window counts as 0 in its arm's mean, also if"
    regardless = "any reward comes, or is cancelled, does not depend on the value of any reward"
    for name, lost, condition in (("window", True, False), ("arrival", False, True)):
        text = Page(admin.get(f"/experiments/{name}/live").text).text
        assert "misses its arm's mean is at most 5" in text
        assert "true mean" not in text
        assert "Rewards must be independent, and an arm's mean must not change." in text
        assert (counts in text) == lost
        assert (regardless in text) == condition


def test_the_leaders_differences_are_displayed_once_all_arms_have_a_release(
    filled: FilledService, admin: TestClient
) -> None:
    results = filled.service.results("arrival")
    leader, differences = results["leader"], results["differences"]
    assert len(differences) == len(results["arms"]) - 1
    text = Page(admin.get("/experiments/arrival/live").text).text
    _, _, table = text.partition(f"Lead of {leader}")
    for each in differences:
        assert each["label"] in table
    assert f"The mean of {leader} minus that of each other arm" in table
    assert "Lead of" not in admin.get("/experiments/new/live").text


def test_readers_do_not_see_how_many_rewards_came_by_arrival(filled: FilledService) -> None:
    """A reward that releases nothing changes nothing on their pages: buyers are not counted."""
    filled.create("buyers", settle="arrival", parameters={"epsilon": 1.0, "first_batch": 64})
    reader, admin = (new_client(filled, role) for role in ("read", "admin"))
    paths = ["/", "/live", *(f"/experiments/buyers{part}" for part in ("", "/live", "/charts"))]
    decisions = filled.decide("buyers", 3)
    before = [reader.get(path).content for path in paths]
    for count, decision in enumerate(decisions, start=1):
        filled.reward([decision], best=decision["arm"])
        assert f"Rewarded{count}" in Page(admin.get("/experiments/buyers").text).text
        assert [reader.get(path).content for path in paths] == before


def test_everything_stays_under_the_root_path(tmp_path: Path) -> None:
    filled = FilledService(tmp_path, root_path="/bandits")
    filled.create("one")
    with TestClient(create_app(filled.service), base_url="http://testserver/bandits") as client:
        assert client.get("/").url.path == "/bandits/login"
        enter(client, filled.keys["admin"])
        assert {cookie.path for cookie in client.cookies.jar} == {"/bandits"}
        for path in ("/", "/experiments/one", "/experiments/one/pause", "/ledger", "/keys"):
            answer = client.get(path)
            assert answer.status_code == 200
            links = Page(answer.text).values("href", "src", "action", "hx-get")
            outside = [link for link in links if not link.startswith(("/bandits/", "#"))]
            assert outside == []
            for link in links:
                if "/static/" in link:
                    assert client.get(link.removeprefix("/bandits")).status_code == 200
        proxied = TestClient(client.app, follow_redirects=False)  # by a proxy that takes it off
        assert proxied.get("/keys").headers["location"] == "/bandits/login?next=%2Fkeys"
        session = {"Cookie": f"balaclava_session={client.cookies['balaclava_session']}"}
        assert proxied.get("/keys", headers=session).text == client.get("/keys").text


def test_without_keys_forms_are_still_our_own(tmp_path: Path) -> None:
    filled = FilledService(tmp_path)
    filled.create("one")
    app = create_app(filled.service, keys=False)
    with TestClient(app, base_url="http://localhost") as client:
        page = client.get("/experiments/one/pause")
        assert "Log out" not in page.text
        assert client.post("/experiments/one/pause", data={"token": "none"}).status_code == 403
        form = {"token": token_of(page.text)}
        other = TestClient(client.app)
        assert other.post("/experiments/one/pause", data=form).status_code == 403
        assert filled.service.experiment("one")["state"] == "running"
        assert client.post("/experiments/one/pause", data=form).status_code == 200
        assert filled.service.experiment("one")["state"] == "paused"


def test_files_are_kept_by_browsers_and_nothing_else_is_served(stranger: TestClient) -> None:
    links = Page(stranger.get("/login").text).values("href", "src")
    files = [link for link in links if link.startswith("/static/")]
    assert files
    for path in files:
        answer = stranger.get(path)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    for path in ("/static/../routes.py", "/static/%2e%2e/routes.py", "/static/", "/static//etc"):
        assert stranger.get(path).status_code == 404


def test_a_problem_is_a_page(admin: TestClient) -> None:
    answer = admin.get("/experiments/nothing")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "This experiment does not exist." in answer.text
    assert admin.get("/experiments/new/restart").status_code == 404
