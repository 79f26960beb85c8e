"""`balaclava explore`: who gets the page, what it has, and what the sliders do."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path

import pytest

from balaclava.advice.log.log_reading import summarise_log
from balaclava.advice.trial.what_if import Explorer, WhatIf, WhatIfAnswer
from balaclava.errors import ParameterError
from balaclava.reporting.explore_server import ExploreServer
from tests.advice.logs_on_disk import write_log
from tests.browser import needs_browser, open_browser

PATIENCE = 600_000  # milliseconds: the first answer may compile, on a busy machine
EVIL = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=2>\"'&"


@contextmanager
def serving(explorer: Explorer) -> Iterator[ExploreServer]:
    with ExploreServer(
        explorer, lambda settings: f"compare --epsilon {settings.epsilon}"
    ) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExploreServer]:
    path = tmp_path_factory.mktemp("log") / "visits.csv"
    write_log(path, {"old": [0, 0, 1] * 30, "new": [1, 1, 0, 1] * 30, "rare": [0, 0, 1] * 10})
    with serving(Explorer(summarise_log(path, arm="page", reward="paid"))) as running:
        yield running


def ask(
    server: ExploreServer, path: str, **headers: str
) -> tuple[int, str, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=600)
    connection.request("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, answer.headers


def test_the_page_is_for_those_who_know_its_address(server: ExploreServer) -> None:
    home = f"/{server.key}/"
    assert server.server_address[0] == "127.0.0.1"
    for path in ("/", "/favicon.ico", home[:-1], f"/{'x' * len(server.key)}/", f"{home}more"):
        assert ask(server, path)[:2] == (404, "not found"), path
    for host in ("evil.example", f"evil.example:{server.server_port}", "127.0.0.1"):
        assert ask(server, home, Host=host)[:2] == (403, "unknown host")
    for site in ("cross-site", "same-site"):
        assert ask(server, home, Sec_Fetch_Site=site)[:2] == (403, "started by another site")
    for site in ("none", "same-origin"):
        assert ask(server, home, Sec_Fetch_Site=site)[0] == 200
    assert ask(server, home, Host=f"localhost:{server.server_port}")[0] == 200


def test_what_an_answer_says_to_the_browser(server: ExploreServer) -> None:
    status, page, headers = ask(server, f"/{server.key}/")
    assert status == 200
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert not re.search(r"script-src[^;]*unsafe|style-src-elem[^;]*unsafe|https?:|\*", policy)
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Python" not in headers["Server"]
    assert not re.search(r"https?:|//[a-z]|url\(|@import|<link|<img|\bsrc=", page)
    assert server.key not in page
    assert "Looking at a log is not private." in page
    assert "compare --epsilon 1" in page


def test_a_query_is_a_stop_of_each_slider(server: ExploreServer) -> None:
    stops = server.explorer.stops
    query = "epsilon=0&horizon=0&delay=2&arms=0"
    assert server.settings(query) == WhatIf(0.1, 500, 30, 2)
    status, page, _ = ask(server, f"/{server.key}/?{query}")
    assert status == 200
    assert "2 arms, 500 rounds" in page
    assert "ε=0.1 per trajectory" in page
    for wrong in (
        "epsilon=9",
        "epsilon=-1",
        "epsilon=",
        "horizon=01",
        "arms=٣",
        "seed=1",
        "a=1&" * 9,
    ):
        status, answer, _ = ask(server, f"/{server.key}/?{wrong.replace('٣', '%D9%A3')}")
        assert status == 400, wrong
        assert "<" not in answer
    assert len(stops["epsilon"]) == 9


def test_settings_that_are_not_wanted_any_more_are_not_played(
    server: ExploreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    played, answer = [], server.explorer.answer

    def note(settings: WhatIf) -> WhatIfAnswer:
        played.append(settings)
        return answer(settings)

    monkeypatch.setattr(server.explorer, "answer", note)
    settings = server.explorer.start._replace(horizon=2_000)
    assert server.page(settings, lambda: False) is None
    assert played == []
    first, again = (server.page(settings, lambda: True) for _ in range(2))
    assert first is again is not None
    assert played == [settings]


def test_a_port_in_use_is_named(server: ExploreServer) -> None:
    with pytest.raises(ParameterError, match=f"port = {server.server_port} cannot be used"):
        ExploreServer(server.explorer, str, server.server_port)


def test_no_single_reward_and_no_label_as_html(tmp_path: Path) -> None:
    path = tmp_path / "orders.csv"
    paid = {EVIL.replace(",", ""): [0, 7.3125, 1] * 20, "b": [2, 0.0078125 + 2, 1] * 20}
    rows = [
        "page;paid",
        *(f'"{a.replace(chr(34), chr(34) * 2)}";{r}' for a, rs in paid.items() for r in rs),
    ]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    with serving(Explorer(summarise_log(path, arm="page", reward="paid"))) as running:
        status, page, _ = ask(running, f"/{running.key}/?horizon=0")
    assert status == 200
    assert "7.3125" not in page
    assert "2.0078125" not in page
    assert "<img" not in page
    assert EVIL in unescape(page)


@needs_browser
def test_sliders_simulate(server: ExploreServer) -> None:
    with open_browser() as browser:
        page = browser.new_page(viewport={"width": 390, "height": 844})
        page.set_default_timeout(PATIENCE)
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(server.url)
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == "epsilon"
        page.keyboard.press("Home")
        page.locator("#again code", has_text="--epsilon 0.1").wait_for()
        assert page.locator("#epsilon").get_attribute("aria-valuetext") == "0.1"
        assert page.locator("output").first.inner_text() == "0.1"
        assert "ε=0.1" in page.locator("#summary").inner_text()
        assert page.evaluate("document.activeElement.id") == "epsilon"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page.locator("#panel-0 .plot svg:visible").hover()
        assert page.locator("#tip").is_visible()
        assert complaints == []
        still = browser.new_context(java_script_enabled=False).new_page()
        still.goto(f"{server.url}?epsilon=2")
        still.get_by_role("button", name="Simulate").click()
        assert still.url.startswith(f"{server.url}?epsilon=2&horizon=")
        assert "ε=0.3" in still.locator("#summary").inner_text()
        server_gone = browser.new_page()
        server_gone.goto(server.url)
        server_gone.route("**/*", lambda route: route.abort())
        server_gone.keyboard.press("Tab")
        server_gone.keyboard.press("End")
        server_gone.locator("#summary", has_text="has stopped; start it again").wait_for()


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_the_command(tmp_path: Path) -> None:
    write_log(tmp_path / "my log.csv", {"old": [0, 0, 1] * 30, "new": [1, 1, 0, 1] * 30})
    words = ("my log.csv", "--arm", "page", "--reward", "paid", "--range", "0", "2.5")
    command = [sys.executable, "-c", "from balaclava.cli import main; main()", "explore", *words]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        url = next(found[0] for line in lines if (found := re.search(r"http://\S+/", line)))
        _, port, path = re.fullmatch(r"http://([\d.]+):(\d+)(/.+/)", url).groups()  # type: ignore[union-attr]
        connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=600)
        connection.request("GET", f"{path}?delay=1")
        page = unescape(connection.getresponse().read().decode())
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
    again = "balaclava compare 'my log.csv' --arm page --reward paid --range 0 2.5 --epsilon 1 "
    assert again + "--horizon 1000 --delay 10" in page
