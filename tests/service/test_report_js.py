"""report.js in a real browser: the same law as `policy.report`, each reward reported once."""

from __future__ import annotations

import base64
import itertools
import json
import math
import shutil
import subprocess
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import stats

import balaclava as bl
from balaclava.errors import ParameterError, RewardError
from balaclava.policies.base import Policy
from balaclava.policies.local_policies import LocalPolicy
from balaclava.privacy.exact_noise import to_steps
from balaclava.testing import examples
from tests.browser import needs_browser, open_browser

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

SCRIPT = Path(bl.__file__).parent / "service" / "static" / "report.js"
ADDRESS = "http://localhost:1/"  # nothing listens there: the browser is answered by `answer`
PROMISED = "{epsilon: rule.epsilon, range: rule.range}"  # whatever the rule says
LEVEL = 6.5  # of decisions whose reports need one
# From here on the browser's randomness is a tape, which Python can read too.
TAPE = """tape => { const bytes = Uint8Array.from(atob(tape), c => c.charCodeAt(0)); let next = 0;
  crypto.getRandomValues = out => { out.set(bytes.subarray(next, next += out.length));
    if (next > bytes.length) throw new Error("the tape is too short"); return out; } }"""


def local_policies() -> list[LocalPolicy]:
    """One of each."""
    classes = [entry.policy for entry in bl.list_policies() if entry.policy.model == "local"]
    return [examples(policy)[0] for policy in classes]  # type: ignore[misc]


LOCAL = local_policies()
NAMES = [policy.name for policy in LOCAL]
ONE_OF_A_KIND = list({policy.report_rule()["kind"]: policy for policy in LOCAL}.values())


def with_epsilon(policy: Policy, epsilon: float, **more: Any) -> Any:
    return bl.policy(policy.name, **{**policy.parameters, "epsilon": epsilon, **more})


def answer(route: Any) -> None:
    if route.request.url.endswith("report.js"):
        route.fulfill(content_type="text/javascript", body=SCRIPT.read_text(encoding="utf-8"))
    else:
        route.fulfill(content_type="text/html", body="<!doctype html><title>a page</title>")


@pytest.fixture(scope="module")
def profile() -> Iterator[BrowserContext]:
    with open_browser() as browser:
        context = browser.new_context()
        context.route("**/*", answer)
        yield context


@pytest.fixture
def page(profile: BrowserContext) -> Iterator[Page]:
    page = opened(profile)
    yield page
    page.close()


def opened(profile: BrowserContext) -> Page:
    page = profile.new_page()
    page.goto(ADDRESS)
    return page


def ask(page: Page, script: str, argument: Any) -> Any:
    """What a function of the module and of one argument returns, or how it complains."""
    return page.evaluate(
        f"""async argument => {{ const module = await import("/report.js");
          try {{ return await ({script})(module, argument); }}
          catch (error) {{ return `${{error.name}}: ${{error.message}}`; }} }}""",
        argument,
    )


def reports(page: Page, policy: LocalPolicy, rewards: list[Any], level: float = LEVEL) -> Any:
    return ask(
        page,
        f"(module, [rule, rewards, level]) => rewards.map(x => "
        f"module.report(rule, x, level, {PROMISED}))",
        [json.loads(json.dumps(policy.report_rule())), rewards, level],
    )


class Tape:
    """The randomness that the browser is given, read by a second implementation of its law."""

    def __init__(self, seed: int, size: int) -> None:
        self.bytes = np.random.default_rng(seed).bytes(size)
        self.next = 0

    def below(self, limit: int) -> int:
        bits = max((limit - 1).bit_length(), 1)
        size = -(-bits // 8)
        while True:
            chunk = self.bytes[self.next : self.next + size]
            self.next += size
            if (number := int.from_bytes(chunk) >> (8 * size - bits)) < limit:
                return number

    def coin(self, chance: Fraction) -> bool:
        return self.below(chance.denominator) < chance.numerator


def put_on(page: Page, tape: Tape) -> None:
    page.evaluate(TAPE, base64.b64encode(tape.bytes).decode())


# The deterministic part: what becomes of a reward before noise


AWKWARD = [0.0, -0.0, 1.0, 0.3, 2.0**-21, 3 * 2.0**-21, 1 / 3, 0.9999999, 5e-324, True, False]


@needs_browser
@pytest.mark.parametrize("policy", LOCAL, ids=NAMES)
def test_rewards_are_rounded_as_in_python(page: Page, policy: LocalPolicy) -> None:
    """Without noise to speak of, a report is the reward on its grid: bit for bit the same."""
    exact = with_epsilon(policy, 1e100)
    rewards = [0.0, 1.0, True] if exact.report_rule()["kind"] == "bit" else AWKWARD
    assert reports(page, exact, rewards) == [exact.report(x, LEVEL) for x in rewards]
    ranges: list[dict[str, Any]] = []
    if hasattr(policy, "reward_range"):
        ranges = [{"reward_range": r, "outside": "clip"} for r in ((-2.0, 7.1), (1e-9, 3e-9))]
    for more in ranges:
        exact = with_epsilon(policy, 1e100, **more)
        sample = [-1e308, *np.linspace(-3.0, 8.0, 50), 1e-9, 1.7e-9, 1e308]
        if exact.report_rule()["kind"] == "bit":
            sample = [-1e308, -2.0, 7.1, 1e308]
        assert reports(page, exact, sample) == [exact.report(x) for x in sample]


@needs_browser
def test_truncation_is_that_of_python(page: Page) -> None:
    exact = with_epsilon(next(p for p in LOCAL if p.name == "ldpr-se"), 1e100)
    draws = np.random.default_rng(4)
    for level in (1e-249, 2.0**-30, 0.7, 1.0, 3.0, 1e9, 1e249):
        rewards = [*(draws.uniform(-1.2, 1.2, 30) * level), level, -level, math.nextafter(level, 0)]
        assert reports(page, exact, rewards, level) == [exact.report(x, level) for x in rewards]


# The law


class Noise:
    """Canonne, Kamath, Steinke 2020, written a second time."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape

    def bernoulli_exp(self, numerator: int, denominator: int) -> bool:
        while numerator > denominator:
            if not self.bernoulli_exp(1, 1):
                return False
            numerator -= denominator
        k = 1
        while self.tape.below(k * denominator) < numerator:
            k += 1
        return k % 2 == 1

    def laplace(self, t: int, s: int) -> int:
        """Of scale t / s."""
        while True:
            u = self.tape.below(t)
            if self.bernoulli_exp(u, t):
                v = 0
                while self.bernoulli_exp(1, 1):
                    v += 1
                y, minus = (u + t * v) // s, self.tape.below(2) < 1
                if y or not minus:
                    return -y if minus else y

    def truthful(self, epsilon: float) -> bool:
        while True:
            if self.tape.below(2) < 1:
                return True
            if self.bernoulli_exp(*epsilon.as_integer_ratio()):
                return False


@needs_browser
@pytest.mark.parametrize("policy", LOCAL, ids=NAMES)
def test_each_report_is_that_of_a_second_implementation(page: Page, policy: LocalPolicy) -> None:
    """The same random bytes give the same reports, on the grid and at the scale of Python."""
    rewards = [k / 16 for k in range(17)]  # which rounding leaves alone
    for epsilon in (0.1, 1.0, 2.0**20, 1e-100):
        tape = Tape(11, 60_000)
        put_on(page, tape)
        expected = [second_report(policy, epsilon, reward, tape) for reward in rewards]
        assert reports(page, with_epsilon(policy, epsilon), rewards) == expected


def second_report(policy: LocalPolicy, epsilon: float, reward: float, tape: Tape) -> float:
    noise = Noise(tape)
    if says_a_bit(policy):
        coin = tape.below(2**20) < reward * 2**20
        return float(coin == noise.truthful(epsilon))
    position, steps, step = to_steps(reward, width_of(policy))
    numerator, denominator = epsilon.as_integer_ratio()
    total = position + noise.laplace(steps * denominator, numerator)
    return float(min(max(total, -(2**63)), 2**63 - 1) * step)


def says_a_bit(policy: LocalPolicy) -> bool:
    return bool(policy.report_rule()["kind"] == "bit")


def width_of(policy: LocalPolicy) -> float:
    return 2 * LEVEL if policy.report_rule()["range"] is None else 1.0


def laplace_chances(edges: np.ndarray, scale: float) -> np.ndarray:
    """The chances of the cells between whole numbers, first and last cells open."""
    a = 1.0 / scale
    below = np.where(  # P(noise < edge), for P(k) proportional to exp(-a |k|)
        edges <= 0,
        np.exp(a * (np.minimum(edges, 0) - 1)) / (1 + math.exp(-a)),
        1 - np.exp(-a * np.maximum(edges, 0)) / (1 + math.exp(-a)),
    )
    return np.diff(below, prepend=0.0, append=1.0)


@needs_browser
@pytest.mark.parametrize("epsilon", [0.5, 2.0**21])  # noise of many steps, and of a few
@pytest.mark.parametrize("policy", ONE_OF_A_KIND, ids=lambda policy: policy.name)
def test_the_law_is_that_of_python(page: Page, policy: LocalPolicy, epsilon: float) -> None:
    """Against exact chances; on other random bytes it would fail once in 10,000 times."""
    put_on(page, Tape(5, 1_000_000))
    n, reward = 2_000, 0.25
    drawn = np.array(reports(page, with_epsilon(policy, epsilon), [reward] * n))
    if says_a_bit(policy):
        truth = 1 / (1 + math.exp(-epsilon))
        chance = truth * reward + (1 - truth) * (1 - reward)
        assert stats.binomtest(int(drawn.sum()), n, chance).pvalue > 1e-4
        return
    position, steps, step = to_steps(reward, width_of(policy))
    noise = drawn / float(step) - position
    assert np.array_equal(noise, np.round(noise))
    scale = steps / epsilon
    edges = np.unique(np.round(stats.laplace.ppf(np.arange(1, 16) / 16, scale=scale)))
    cells = np.searchsorted(edges, noise, side="right")
    counts = np.bincount(cells, minlength=edges.size + 1)
    assert stats.chisquare(counts, laplace_chances(edges, scale) * n).pvalue > 1e-4


# What is refused


@needs_browser
@pytest.mark.parametrize("policy", LOCAL, ids=NAMES)
def test_what_python_refuses_is_refused_and_not_repeated(page: Page, policy: LocalPolicy) -> None:
    for reward in (math.nan, math.inf, "1", None, [1.0]):
        with pytest.raises(RewardError):
            policy.report(reward, LEVEL)
        assert "Error: the reward " in reports(page, policy, [reward]), reward


@needs_browser
def test_a_rule_that_asks_for_more_than_was_promised(page: Page) -> None:
    rule = with_epsilon(LOCAL[0], 2.0).report_rule()
    once = "(m, [rule, promised]) => m.reportOnce({decision_id: 'p'}, rule, 1, {promised})"
    promised = {"epsilon": 2.0, "range": rule["range"]}
    assert "more than the promised 1" in ask(page, once, [rule, promised | {"epsilon": 1.0}])
    assert isinstance(ask(page, once, [rule, promised]), int | float)
    for changes in (
        *({"epsilon": x} for x in (0, -1, None, "1", math.inf, math.nan)),
        *({"kind": x} for x in ("plain", None)),
        *({"range": x} for x in (None, [1, 0], ["0", "1"], [-1e308, 1e308])),
        {"grid_bits": 60},
    ):
        assert "Error: " in ask(page, once, [{**rule, **changes}, promised]), changes
    assert "Error: " in ask(page, once, [None, promised])
    level = f"(m, [rule, level]) => m.report(rule, 1, level, {PROMISED})"
    rule = next(p for p in LOCAL if p.report_rule()["range"] is None).report_rule()
    for bad in (0, -1, None, math.nan, math.inf, 1e-260):
        assert "the level is not valid" in ask(page, level, [rule, bad])


NODE = shutil.which("node")


def in_node(cases: list[Any]) -> list[Any]:
    """The reports of [rule, reward, level, promised], or the names of their errors."""
    script = f"""import {{ report }} from {json.dumps(SCRIPT.as_uri())};
      const cases = JSON.parse(process.argv[1]);
      console.log(JSON.stringify(cases.map(one => {{
        try {{ return report(...one); }} catch (error) {{ return error.message; }} }})));"""
    command = [NODE or "node", "--input-type=module", "-e", script, json.dumps(cases)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return list(json.loads(answer.stdout))


@pytest.mark.skipif(NODE is None, reason="no node is installed")
@pytest.mark.parametrize("policy", LOCAL, ids=NAMES)
def test_silence_reveals_no_reward(policy: LocalPolicy) -> None:
    """Whatever rule a server sends: it gets a report of every reward, or of none."""
    honest = with_epsilon(policy, 1.0).report_rule()
    ranges = [[0, 0.5], [0, 5e-324], [-1e308, 1e308], [1e308, 1.1e308], [0.5, 0.5]]
    rules = [honest, *({**honest, "range": r, "outside": "refuse"} for r in ranges)]
    levels = [None, 0.5, 1e-249, 1e-300]
    rewards = (0, 1, 0.5, -3, 1e308, -1e308, 5e-324)
    cases = [
        [rule, reward, level, {"epsilon": 1.0, "range": rule["range"]}]
        for rule, level, reward in itertools.product(rules, levels, rewards)
    ]
    answers = [each if isinstance(each, str) else "a report" for each in in_node(cases)]
    for start in range(0, len(cases), len(rewards)):
        told = set(answers[start : start + len(rewards)])
        assert len(told) == 1, (cases[start], told)


@pytest.mark.skipif(NODE is None, reason="no node is installed")
def test_a_promise_is_required_and_has_a_range() -> None:
    rule = with_epsilon(LOCAL[0], 1.0).report_rule()
    promised = {"epsilon": 1.0, "range": [0, 1]}
    (answer,) = in_node([[rule, 1, None, promised]])
    assert isinstance(answer, int | float)
    missing = [
        None,
        1.0,
        {},
        {"epsilon": 1.0},
        {"range": [0, 1]},
        {"epsilon": "1", "range": [0, 1]},
    ]
    for answer in in_node([[rule, 1, None, each] for each in missing]):
        assert "`promised` is missing" in answer
    (answer,) = in_node([[{**rule, "range": [0, 0.5]}, 1, None, promised]])
    assert "another range" in answer


# Once


ONCE = f"""(module, [rule, id, x]) =>
  module.reportOnce({{decision_id: id, level: 1}}, rule, x, {{promised: {PROMISED}}})"""


@needs_browser
def test_a_reload_and_another_tab_repeat_the_report(profile: BrowserContext) -> None:
    rule = with_epsilon(next(p for p in LOCAL if p.name == "ldp-ucb-laplace"), 0.01).report_rule()
    page, tab = opened(profile), opened(profile)
    first = ask(page, ONCE, [rule, "d", 1.0])
    assert ask(page, ONCE, [rule, "d", 0.0]) == first  # whatever the reward is by now
    page.reload()
    assert ask(page, ONCE, [rule, "d", 1.0]) == first == ask(tab, ONCE, [rule, "d", 1.0])
    assert ask(page, ONCE, [rule, "e", 1.0]) != first
    both = f"""(m, rule) => Promise.all([1, 2, 3].map(() =>
      m.reportOnce({{decision_id: 'f'}}, rule, 1, {{promised: {PROMISED}}})))"""
    assert len(set(ask(page, both, rule))) == 1
    page.evaluate("() => new Promise(r => { indexedDB.deleteDatabase('balaclava').onsuccess = r })")
    assert ask(tab, ONCE, [rule, "d", 1.0]) != first  # as the documentation says
    assert "has no decision_id" in ask(page, ONCE, [rule, "", 1.0])


@needs_browser
def test_nothing_leaves_where_nothing_can_be_kept(page: Page) -> None:
    rule = LOCAL[0].report_rule()
    page.evaluate("() => { IDBObjectStore.prototype.add = () => { throw new Error('full') } }")
    assert "would cost epsilon again" in ask(page, ONCE, [rule, "g", 1.0])
    page.evaluate("() => { IDBFactory.prototype.open = () => { throw new Error('blocked') } }")
    assert "would cost epsilon again" in ask(page, ONCE, [rule, "d", 1.0])


# Python's side


def test_every_local_policy_has_a_rule() -> None:
    assert {policy.report_rule()["kind"] for policy in LOCAL} == {
        *("bit", "laplace", "truncated-laplace")
    }
    clipped = bl.policy(
        "ldp-ucb-laplace", arms=2, epsilon=0.5, reward_range=(-1.0, 4.0), outside="clip"
    )
    assert isinstance(clipped, LocalPolicy)
    assert clipped.report_rule() == {
        **{"kind": "laplace", "epsilon": 0.5, "range": [-1.0, 4.0]},
        **{"outside": "clip", "grid_bits": 20},
    }
    refuses = bl.policy("ldp-ucb-laplace", arms=2, epsilon=0.5)
    assert refuses.report_rule()["outside"] == "clip"  # type: ignore[attr-defined]

    class Own(type(clipped)):  # type: ignore[misc]
        report_kernel = staticmethod(lambda params, reward, level, rng: reward)

    with pytest.raises(ParameterError, match="its own kind of report"):
        Own(arms=2, epsilon=0.5).report_rule()
