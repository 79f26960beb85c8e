"""report.js sends shares from a real browser to two aggregators that really run."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import BrowserContext

from balaclava.privacy.secret_shares import GRID_STEPS, reward_steps, share_text
from balaclava.service import share_messages as messages
from tests.browser import needs_browser, open_browser
from tests.service.test_report_js import TAPE, answer, ask, opened

BITS = messages.task_bits(1.0)
SERVERS = ["http://localhost:3", "http://localhost:4"]
RULE: dict[str, Any] = {
    "kind": "shares",
    "epsilon": 1.0,
    "range": [0.0, 1.0],
    "default": 0.0,
    "grid_bits": 20,
    "modulus_bits": BITS,
    "send_after": 60.0,
    "addresses": [f"{server}/v1/tasks/{'5' * 64}/shares" for server in SERVERS],
}
CLOCK = """const real = Date.now; let skipped = 0;
  Date.now = () => real() + 1000 * skipped; globalThis.skip = seconds => { skipped += seconds; };"""
PROMISED = {"epsilon": 1.0, "range": [0.0, 1.0], "servers": SERVERS}


STORED = """async () => {
  const open = indexedDB.open("balaclava", 2);
  await new Promise(done => { open.onsuccess = done; });
  const all = open.result.transaction("shares").objectStore("shares").getAll();
  await new Promise(done => { all.onsuccess = done; });
  open.result.close();
  return all.result.map(each => each.pair); }"""


class Browser:
    """A page, and what its aggregators got."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.down = 0  # requests that get no answer
        self.sent: list[tuple[str, Any, float]] = []
        for server in SERVERS:
            context.route(f"{server}/**", self._take)
        self.page = opened(context)

    def _take(self, route: Any) -> None:
        request = route.request
        if self.down:
            self.down -= 1
            route.abort()
            return
        headers = {
            "access-control-allow-origin": "*",
            "access-control-allow-headers": "*",
            "access-control-allow-methods": "PUT",
        }
        if request.method == "PUT":
            self.sent.append((request.url, request.post_data, request.post_data_json))
        route.fulfill(status=200, body="{}", headers=headers)

    def ask(self, script: str, argument: Any = None) -> Any:
        return ask(self.page, script, [RULE, PROMISED, argument])

    def play(self, id: str, rewards: list[float]) -> None:
        """A decision, and the rewards that come for it."""
        made = self.ask(
            """async (module, [rule, promised, [id, rewards]]) => {
              const decision = { decision_id: id, ticket: "t".repeat(32) };
              await module.shareLater(decision, rule, { promised });
              for (const reward of rewards) await module.noteReward(decision, reward); }""",
            [id, rewards],
        )
        assert made is None, made

    def send(self, skip: float = 0.0) -> None:
        """Let some seconds pass, and send what is due."""
        self.page.evaluate("seconds => skip(seconds)", skip)
        assert self.ask("(module) => module.sendShares()") is None

    def sums(self) -> dict[str, int]:
        """Rewards in steps by decision, from pairs; each decision sent exactly one pair."""
        pairs: dict[str, list[int]] = {}
        for url, _, body in self.sent:
            pairs.setdefault(url.rpartition("/")[2], []).append(int(body["share"], 16))
        assert all(len(pair) == 2 for pair in pairs.values())
        return {id: sum(pair) % 2**BITS for id, pair in pairs.items()}


@pytest.fixture(scope="module")
def program() -> Iterator[Any]:
    with open_browser() as started:
        yield started


@pytest.fixture
def browser(program: Any) -> Iterator[Browser]:
    context = program.new_context()
    context.route("**/*", answer)
    context.add_init_script(CLOCK)
    yield Browser(context)
    context.close()


@needs_browser
def test_one_pair_for_each_decision_whether_or_not_a_reward_came(browser: Browser) -> None:
    browser.play("none", [])
    browser.play("one", [1.0])
    browser.play("last", [1.0, 0.25])
    browser.play("outside", [-7.0])
    browser.play("beyond", [1e300])
    browser.play("one", [])  # asked again
    browser.send(50.0)
    assert browser.sent == []  # before its time
    browser.send(11.0)
    steps = {"none": 0.0, "one": 1.0, "last": 0.25, "outside": 0.0, "beyond": 1.0}
    assert browser.sums() == {id: reward_steps(reward) for id, reward in steps.items()}
    assert len({len(text) for _, text, _ in browser.sent}) == 1  # of one size
    assert {(body["epsilon"], body["modulus_bits"]) for _, _, body in browser.sent} == {(1, BITS)}
    assert browser.ask(STORED) == [[]] * 5  # both shares together would be the reward
    browser.play("none", [1.0])  # after its time
    browser.send(1_000.0)
    assert len(browser.sent) == 10
    script = """async (module, [rule, promised]) => module.shareLater(
      { decision_id: "y", ticket: "t" }, { ...rule, send_after: 0.01 }, { promised })"""
    browser.ask(script)
    for _ in range(200):  # by its own timer
        if len(browser.sent) == 12:
            break
        browser.page.wait_for_timeout(50)
    assert browser.sums()["y"] == 0


@needs_browser
def test_a_closed_page_and_lost_requests_send_the_same_pair(browser: Browser) -> None:
    browser.play("x", [0.5])
    browser.page.close()
    browser.page = browser.context.new_page()
    browser.page.goto("http://localhost:1/")
    browser.down = 1
    browser.send(61.0)
    assert len(browser.sent) == 1
    for _ in range(2):
        browser.send()
    assert browser.sums() == {"x": GRID_STEPS // 2}


@needs_browser
def test_shares_are_python_s_and_use_the_whole_tape(browser: Browser) -> None:
    """The first share is the tape's number, the second what is missing to the reward."""
    tape = np.random.default_rng(7).bytes(4_096)
    browser.page.evaluate(TAPE, base64.b64encode(tape).decode())
    size, rewards = -(-BITS // 8), [0.0, 1.0, 0.3, 1 / 3, 2.0**-21]
    made = browser.ask(
        "(module, [rule, promised, rewards]) => rewards.map(x => module.shares(rule, x, promised))",
        rewards,
    )
    for n, (reward, pair) in enumerate(zip(rewards, made, strict=True)):
        first = int.from_bytes(tape[n * size : (n + 1) * size]) >> (8 * size - BITS)
        second = (reward_steps(reward) - first) % 2**BITS
        assert pair == [share_text(each, BITS) for each in (first, second)]


BROKEN = [
    ({"addresses": [RULE["addresses"][0]] * 2}, "other servers"),
    ({"addresses": ["http://localhost:5/a", "http://localhost:4/b"]}, "other servers"),
    ({"epsilon": 1.5}, "more than the promised"),
    ({"range": [0.0, 2.0]}, "another range"),
    ({"modulus_bits": 8}, "not valid"),
    # A default that cannot be shared would make silence of those without a reward.
    ({"default": None}, "finite number"),
    ({"default": "0"}, "finite number"),
    ({"kind": "laplace"}, "unknown rule"),
]


@needs_browser
def test_a_rule_that_breaks_the_promise_is_refused(browser: Browser) -> None:
    """A decider that names two servers of its own would see every reward."""
    script = "(module, [rule, promised, more]) => module.shares({ ...rule, ...more }, 1, promised)"
    for changes, reason in BROKEN:
        assert reason in browser.ask(script, changes)


@needs_browser
def test_a_report_is_not_made_by_the_rule_of_shares(browser: Browser) -> None:
    """It would leave without noise for a server that is not trusted."""
    said = browser.ask("(module, [rule, promised]) => module.report(rule, 1, null, promised)")
    assert "unknown rule" in said
