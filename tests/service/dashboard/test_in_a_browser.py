"""The pages in Chromium: at two widths, light and dark, with and without scripts, by keyboard."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import uvicorn

from balaclava.service.http.app import create_app
from tests.browser import needs_browser, open_browser
from tests.service.dashboard.conftest import ARMS, HOSTILE, FilledService
from tests.service.servers import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

AXE = Path(__file__).parent / "vendor" / "axe-core-4.14.0.min.js"
NAMES = [HOSTILE, "window", "arrival", "many", "single", "new"]
PAGES = [
    "/",
    "/ledger",
    "/keys",
    "/experiments/new/finish",
    "/experiments/new/arms",
    "/experiments/nothing",
]
PAGES += [f"/experiments/{quote(name, safe='')}" for name in NAMES]


@pytest.fixture(scope="module")
def address(filled: FilledService) -> Iterator[str]:
    """Where a real server listens."""
    port = free_port()
    config = uvicorn.Config(create_app(filled.service), port=port, log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


class Tab:
    """A browser tab with a session, and the errors on its console."""

    def __init__(self, browser: Browser, filled: FilledService, address: str, **look: Any) -> None:
        self.address = address
        self.page: Page = browser.new_context(**look).new_page()
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.on("console", lambda line: self._complain(line.type, line.text))
        self.page.goto(f"{address}/login")
        self.page.fill("input:focus", filled.keys["admin"])
        self.page.keyboard.press("Enter")
        self.page.wait_for_url(f"{address}/")

    def _complain(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and "status of 404" not in text:
            self.complaints.append(text)

    def open(self, path: str) -> Page:
        self.page.goto(self.address + path)
        return self.page

    def close(self) -> None:
        assert self.complaints == []
        self.page.context.close()


@needs_browser
@pytest.mark.parametrize(("width", "scheme"), [(1366, "light"), (390, "dark")])
def test_pages_are_accessible_at_every_width(
    browser: Browser, filled: FilledService, address: str, width: int, scheme: str
) -> None:
    """No fault by axe-core, nothing wider than the screen, nothing on the console.

    Contrast depends on the scheme alone, the layout on the width alone.
    """
    look = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
    tab = Tab(browser, filled, address, **look)
    faults = []
    for path in PAGES:
        page = tab.open(path)
        if path.endswith("/arrival"):
            page.wait_for_selector(".plot.means .area")
        page.evaluate(AXE.read_text(encoding="utf-8"))
        found = page.evaluate("axe.run({resultTypes: ['violations']})")["violations"]
        faults += [(path, fault["id"], fault["nodes"][0]["html"]) for fault in found]
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    assert faults == []
    tab.close()


@needs_browser
def test_numbers_follow_and_what_did_not_change_is_not_sent(
    browser: Browser, filled: FilledService, address: str
) -> None:
    tab = Tab(browser, filled, address)
    page = tab.open("/experiments/arrival")
    decisions = page.locator(".tiles dd").first
    shown = int(decisions.inner_text().replace(",", ""))
    with page.expect_response(lambda answer: answer.url.endswith("/live")):
        pass
    with page.expect_response(lambda answer: answer.url.endswith("/live")) as second:
        pass
    assert second.value.status == 304
    filled.decide("arrival", 50)
    page.wait_for_function(
        "shown => document.querySelector('.tiles dd').textContent.replace(',', '') == shown",
        arg=f"{shown + 50}",
    )
    assert len(page.query_selector_all(".plot .area")) == 2
    page.locator(".plot.stack .readings").hover(position={"x": 60, "y": 60})
    readout = page.locator(".plot.stack .readout")
    readout.wait_for(state="visible")
    assert "map" in readout.inner_text()
    chart = page.query_selector(".plot.stack")
    filled.decide("arrival", 50)
    page.wait_for_function("old => !old.isConnected", arg=chart)  # drawn again, with what is new
    readout.wait_for(state="visible")
    tab.close()


@needs_browser
def test_a_link_keeps_its_focus_while_numbers_change(
    browser: Browser, filled: FilledService, address: str
) -> None:
    tab = Tab(browser, filled, address)
    page = tab.open("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.focus("#experiment-2")
    before = page.inner_text(".experiments li:nth-child(2) dd")
    filled.decide("arrival", 50)
    page.wait_for_function(
        "before => document.querySelector('.experiments li:nth-child(2) dd').innerText != before",
        arg=before,
    )
    page.keyboard.press("Enter")
    page.wait_for_url(f"{address}/experiments/arrival")
    tab.close()


@needs_browser
def test_everything_can_be_read_and_done_without_scripts(
    browser: Browser, filled: FilledService, address: str
) -> None:
    filled.create("plain")
    tab = Tab(browser, filled, address, java_script_enabled=False)
    page = tab.open(f"/experiments/{quote(HOSTILE, safe='')}")
    for label in ARMS:
        assert page.locator("th bdi", has_text=label).first.is_visible()
    assert page.locator(".plot.stack .fill").count() == len(ARMS)
    assert page.locator(".plot.means .line").count() >= 1
    page = tab.open("/experiments/plain")
    for step in ("Pause", "Pause it", "Finish", "Finish it"):
        page.get_by_text(step, exact=True).click()
    assert page.locator(".state").inner_text() == "finished"
    tab.open("/keys")
    page.check("input[value=read]")
    page.fill("input[name=label]", "board")
    page.get_by_text("Create the key").click()
    key = page.inner_text("#new-key")
    page.get_by_text("Log out").click()
    page.fill("input[name=key]", key)
    page.get_by_text("Log in", exact=True).last.click()
    page.wait_for_url(f"{address}/")
    assert page.get_by_text("Ledger").count() == 0
    tab.close()


@needs_browser
def test_the_page_says_when_the_service_does_not_answer(
    browser: Browser, filled: FilledService, address: str
) -> None:
    tab = Tab(browser, filled, address)
    page = tab.open("/experiments/arrival")
    page.route("**/live", lambda route: route.abort())
    line = page.wait_for_selector(".connection:not([hidden])")
    assert line is not None
    assert line.inner_text() == "No answer from the service; trying again."
    page.unroute("**/live")
    page.wait_for_selector(".connection", state="hidden")
    page.context.clear_cookies()  # the session is over
    page.wait_for_url(f"{address}/login")
    page.context.close()
