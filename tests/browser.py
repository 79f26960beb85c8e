"""A browser without a window, for pages: what they draw, and what they complain of."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
DEMANDED = os.environ.get("BALACLAVA_DEMAND_BROWSER") == "1"  # then tests fail without one
NO_BROWSER = "no chromium is installed"


def needs_browser(test: Any) -> Any:
    """Mark a test of what a page looks like; it is left out where there is no browser."""
    without = pytest.mark.skipif(CHROMIUM is None and not DEMANDED, reason=NO_BROWSER)
    return pytest.mark.browser(without(test))


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Chromium, to be driven; while it is open, no test can run an event loop of its own."""
    from playwright.sync_api import sync_playwright

    assert CHROMIUM is not None, NO_BROWSER
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield browser
        browser.close()


# A page in a frame of the size of a screen; `probe` is JavaScript that sees it as `page`, its
# window as `view`, and returns what is to be known.
_HARNESS = """<!doctype html><body style="margin:0"><iframe id="frame" src="{name}"
style="border:0;width:{width}px;height:{height}px"></iframe><pre id="found"></pre><script>
addEventListener("load", () => {{
  const view = document.getElementById("frame").contentWindow, page = view.document;
  let found;
  try {{ found = (() => {{ {probe} }})(); }} catch (error) {{ found = {{error: String(error)}}; }}
  document.getElementById("found").textContent = JSON.stringify(found);
}});
</script></body>"""


class Look(NamedTuple):
    """What the probe returned, and the lines that the page wrote to the console."""

    found: Any
    console: list[str]


def chromium(*arguments: str, profile: Path) -> subprocess.CompletedProcess[str]:
    """Run it, with a profile of its own."""
    assert CHROMIUM is not None, NO_BROWSER
    return subprocess.run(
        [
            CHROMIUM,
            *("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *("--no-first-run", "--disable-background-networking", f"--user-data-dir={profile}"),
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )


def look(page: Path, probe: str, *, width: int = 1366, height: int = 768) -> Look:
    """Open a page and ask it something."""
    harness = page.with_name(f"{page.stem}-harness.html")
    harness.write_text(
        _HARNESS.format(name=page.name, width=width, height=height, probe=probe), encoding="utf-8"
    )
    done = chromium(
        *("--dump-dom", "--allow-file-access-from-files", "--enable-logging=stderr", "--v=0"),
        f"--window-size={max(width, 600)},{height}",
        harness.as_uri(),
        profile=page.with_name("profile"),
    )
    answer = re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)
    assert answer is not None, done.stderr
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return Look(json.loads(html.unescape(answer[1])), console)
