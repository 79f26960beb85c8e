"""Reports: what is in the page, and how a browser displays it."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import balaclava as bl
from balaclava.cli import main
from balaclava.cli.commands.audit_command import parse_parameter
from balaclava.reporting import quick_audits
from balaclava.reporting.report_data import results_page_data
from balaclava.reporting.report_page import LOG_NOTICE, audit_command, write_page
from balaclava.simulation.feedback import Feedback
from tests.browser import chromium, look, needs_browser
from tests.reporting.invented_results import invent, outline, some_policies

EVIL = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=2>\"'&"


def test_what_is_in_it(page: Path) -> None:
    parsed = outline(page)
    for title in (
        *("Regret over the rounds", "The price of privacy", "Final regret"),
        *("Regret against epsilon", "Which arms were pulled", "Table"),
        *("What each policy guarantees", "Audits", "Run it again"),
    ):
        assert title in parsed.text
    assert "bernoulli, 3 arms, 1,000 rounds, 4 repetitions, seed 7" in parsed.text
    # The scope beside each name, in the legend, the intervals, the pulls and the table.
    for label, policy in some_policies().items():
        assert parsed.text.count(f"{label} {policy.guarantee}") >= 4
    # Promises in full, and how to audit them.
    assert some_policies()["mild"].guarantee.explain() in parsed.text
    assert "balaclava audit dp-imed --arms 3 --epsilon 0.1" in parsed.text
    assert "It ran with balaclava" in parsed.text


def test_accessible(page: Path) -> None:
    parsed = outline(page)
    levels = [int(tag[1]) for tag, _ in parsed.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert all("scope" in attributes for tag, attributes in parsed.tags if tag == "th")
    drawings = [attributes for tag, attributes in parsed.tags if tag == "svg"]
    assert drawings
    assert all(a.get("aria-label") or a.get("aria-hidden") == "true" for a in drawings)


def test_asks_for_nothing(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"https?:|//[a-z]|url\(|@import|<link|<img|\bsrc=", text)
    assert "default-src 'none'" in text


def test_equal_results_give_equal_pages(tmp_path: Path) -> None:
    results = invent(some_policies())
    pages = []
    for name in ("one.html", "two.html"):
        pages.append(write_page(results_page_data(results, "same"), tmp_path / name).read_bytes())
    assert pages[0] == pages[1]


def test_labels_are_only_text(tmp_path: Path) -> None:
    results = invent({EVIL: bl.policy("ucb1", arms=3), "$title": bl.policy("imed", arms=3)})
    page = write_page(results_page_data(results, EVIL), tmp_path / "evil.html")
    parsed = outline(page)
    assert parsed.text.count(EVIL) >= 5
    assert "$title" in parsed.text
    assert [tag for tag, _ in parsed.tags].count("script") == 2  # the data and the code
    assert not [tag for tag, _ in parsed.tags if tag == "img"]


def test_levels_where_a_bound_is_proved(tmp_path: Path) -> None:
    policy = bl.policy("ucb1", arms=3)
    results = invent({"ucb1": policy})
    bound = policy.regret_bound(results.environment, results.horizon)
    assert bound is not None
    text = write_page(results_page_data(results, "x"), tmp_path / "x.html").read_text(
        encoding="utf-8"
    )
    assert f'<td class="number">{bound:,.0f}</td>' in text
    # Ten times above the curve: in the table, and not in a linear picture.
    assert (
        'class="bound'
        not in re.findall(r'<div class="plot regret-linear.*?</svg>', text, re.DOTALL)[0]
    )
    assert results.final_regret("ucb1").max() < bound


@pytest.mark.parametrize(
    "late",
    [
        {"delay": bl.Delay(mean=1000, law="fixed")},
        {"delay": bl.Delay(mean=5, lost=0.2), "patience": 50},
        {"patience": 50, "settle": "window", "missing": 0.0},
    ],
)
def test_no_bound_for_rewards_that_come_late(late: dict[str, Any], tmp_path: Path) -> None:
    results = invent({"ucb1": bl.policy("ucb1", arms=3), "random": bl.policy("random", arms=3)})
    assert all(row.bound is not None for row in results_page_data(results, "x").panels[0].final)
    results.feedback = Feedback.create(**late)
    assert all(row.bound is None for row in results_page_data(results, "x").panels[0].final)
    text = write_page(results_page_data(results, "x"), tmp_path / "x.html").read_text(
        encoding="utf-8"
    )
    assert "No proved bounds: they hold only for rewards that arrive immediately." in text
    assert 'class="bound' not in text
    for theory in {"bound": True}, {"theory": True}:
        assert len(results.plot(**theory).axes[0].lines) == 2  # the two curves


def test_one_repetition_and_none(tmp_path: Path) -> None:
    results = invent({"ucb1": bl.policy("ucb1", arms=3)}, repetitions=1)
    results.policies["late"] = bl.policy("imed", arms=3)
    results.runs["late"] = {}
    parsed = outline(write_page(results_page_data(results, "x"), tmp_path / "x.html"))
    assert "late" not in parsed.text.split("Run it again")[0]
    assert "0 to 1 repetitions" in parsed.text
    results.runs["ucb1"] = {}
    parsed = outline(write_page(results_page_data(results, "x"), tmp_path / "x.html"))
    assert "No repetition is finished." in parsed.text


def test_no_reward_of_a_log(tmp_path: Path) -> None:
    secrets = [0.123456789, 0.987654321]
    world = bl.environment("empirical", samples={"a": [secrets[0]] * 3, "b": [secrets[1]] * 3})
    policies = {"ucb1": bl.policy("ucb1", arms=2)}
    results = invent(policies, environment=world)
    text = write_page(results_page_data(results, "x"), tmp_path / "x.html").read_text(
        encoding="utf-8"
    )
    assert LOG_NOTICE in text
    assert "0.1234" not in text
    assert "0.9876" not in text
    assert "Results do not contain rewards" in text


def test_command(tmp_path: Path) -> None:
    invent(some_policies()).save(tmp_path / "results.parquet")
    answer = CliRunner().invoke(main, ["report", str(tmp_path / "results.parquet")])
    assert answer.exit_code == 0, answer.output
    assert (tmp_path / "results.html").is_file()
    answer = CliRunner().invoke(main, ["report", str(tmp_path)])  # a folder that holds one
    assert answer.output.startswith(f"wrote {tmp_path / 'report.html'}")
    assert "Regret over the rounds" in (tmp_path / "report.html").read_text(encoding="utf-8")
    answer = CliRunner().invoke(main, ["report", str(tmp_path / "none.parquet")])
    assert answer.exit_code == 2
    assert "none.parquet does not exist" in answer.output
    (tmp_path / "empty").mkdir()
    answer = CliRunner().invoke(main, ["report", str(tmp_path / "empty")])
    assert answer.exit_code == 2
    assert "does not contain a sweep" in answer.output


def test_audits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each policy once, then from the disk; a refuted promise is an error."""
    monkeypatch.setenv("BALACLAVA_CACHE_DIR", str(tmp_path / "cache"))
    calls = []

    class Refuted:
        claimed, verdict, replay, laws = "ε=1", "violated", "<by replay>", "<by drawing>"
        exact = statistical = exhaustive = None

    def refute(policy: bl.Policy, **_: Any) -> Any:
        calls.append(policy.name)
        return Refuted()

    monkeypatch.setattr(quick_audits, "audit", refute)
    policy = bl.policy("dp-imed", arms=3, epsilon=1.0)
    both = {"one": policy, "two": policy, "none": bl.policy("ucb1", arms=3)}
    first = quick_audits.run_audits(both)
    assert sorted(first) == ["one", "two"]
    assert first == quick_audits.run_audits(both)
    assert calls == ["dp-imed"]
    quick_audits.run_audits(both, trials=777)
    assert calls == ["dp-imed", "dp-imed"]
    invent(both).save(tmp_path / "x.parquet")
    answer = CliRunner().invoke(main, ["report", str(tmp_path / "x.parquet"), "--audit"])
    assert answer.exit_code == 1
    text = (tmp_path / "x.html").read_text(encoding="utf-8")
    assert text.count('class="verdict-bad">violated') == 2
    assert "&lt;by replay&gt;" in text
    assert "&lt;by drawing&gt;" in text


@pytest.mark.slow
def test_a_real_audit_is_shown(tmp_path: Path) -> None:
    policies = {"local": bl.policy("ldp-ucb-bernoulli", arms=2, epsilon=1.0)}
    found = quick_audits.run_audits(policies, trials=2_000)
    assert found["local"].verdict == "consistent"
    world = bl.environment("bernoulli", means=[0.4, 0.6])
    story = results_page_data(invent(policies, environment=world), "x")
    parsed = outline(write_page(story, tmp_path / "x.html", audits=found))
    assert "ε=1 per reportconsistent" in parsed.text


def test_the_audit_command_names_what_is_not_usual() -> None:
    policy = bl.policy(
        "dp-se", arms=2, epsilon=0.5, horizon=900, radius_scale=0.3, reward_range=(0, 5)
    )
    words = shlex.split(audit_command(policy))
    assert words[:3] == ["balaclava", "audit", "dp-se"]
    names, values = words[3::2], words[4::2]
    given = {}
    for name, value in zip(names, values, strict=True):
        key, number = parse_parameter(value if name == "--set" else f"{name[2:]}={value}")
        given[key] = number
    assert set(given) == {"arms", "epsilon", "horizon", "radius_scale", "reward_range"}
    assert bl.policy("dp-se", **given) == policy


# What is drawn: everything visible, with a size, inside the page.
DRAWN = """
  const visible = [...page.querySelectorAll(".plot, .intervals")].filter(e => e.offsetParent);
  const lines = [...page.querySelectorAll(".plot path.line")].filter(
    e => e.getBoundingClientRect().width > 50 && getComputedStyle(e).stroke !== "none");
  return {
    width: page.documentElement.scrollWidth, room: page.documentElement.clientWidth,
    views: visible.map(e => e.className), lines: lines.length, hacked: view.hacked ?? null,
    text: Math.min(...[...page.querySelectorAll(".plot span, .legend span")]
      .map(e => parseFloat(getComputedStyle(e).fontSize))),
    loaded: view.performance.timing.loadEventEnd - view.performance.timing.navigationStart,
  };
"""


@needs_browser
@pytest.mark.parametrize(("width", "height"), [(1366, 768), (390, 844)])
def test_it_draws(page: Path, width: int, height: int) -> None:
    found, console = look(page, DRAWN, width=width, height=height)
    assert console == []
    assert found["width"] <= found["room"] == width
    # Five curves and one family of epsilons, each in the chosen scale only.
    assert found["lines"] == 6
    assert [name.split()[0] for name in found["views"]] == [
        "plot",
        "intervals",
        "plot",
        "intervals",
    ]
    assert found["text"] >= 11


@needs_browser
def test_scales_are_switched(page: Path) -> None:
    probe = """
      const shown = () => [...page.querySelectorAll(".plot")].filter(e => e.offsetParent)
        .map(e => e.className);
      const before = shown();
      page.getElementById("regret-log").click();
      page.getElementById("rounds-log").click();
      page.getElementById("bands").click();
      const bands = [...page.querySelectorAll(".band")].filter(
        e => e.getBoundingClientRect().width > 0);
      return { before, after: shown(), bands: bands.length };
    """
    found, console = look(page, probe)
    assert console == []
    assert found["before"] == ["plot regret-linear rounds-linear", "plot regret-linear"]
    assert found["after"] == ["plot regret-log rounds-log", "plot regret-log"]
    assert found["bands"] == 0


@needs_browser
def test_hovering_names_the_policy_and_its_scope(page: Path) -> None:
    probe = """
      const svg = [...page.querySelectorAll(".plot[data-panel] svg")].find(
        e => e.getBoundingClientRect().width);
      svg.scrollIntoView();
      const box = svg.getBoundingClientRect();
      const at = { clientX: box.right - 1, clientY: box.bottom - 1 };
      svg.dispatchEvent(new view.PointerEvent("pointermove", at));
      const tip = page.getElementById("tip");
      const found = { text: tip.innerText, hidden: tip.hidden,
        near: tip.querySelector(".near").innerText,
        on: page.querySelectorAll(".line.on").length };
      svg.dispatchEvent(new view.PointerEvent("pointerleave"));
      return { ...found, gone: tip.hidden, left: page.querySelectorAll(".on").length };
    """
    found, console = look(page, probe)
    assert console == []
    assert found["text"].startswith("round 1,000")
    assert "local ε=2 per report" in found["text"]
    assert "ucb1 not private" in found["near"]  # the lowest curve, next to the pointer
    assert (found["hidden"], found["gone"], found["left"]) == (False, True, 0)
    assert found["on"] == 4  # one line in each of four scales


@needs_browser
def test_a_hostile_label_runs_nothing(tmp_path: Path) -> None:
    results = invent({EVIL: bl.policy("ucb1", arms=3)})
    page = write_page(results_page_data(results, EVIL), tmp_path / "evil.html")
    found, console = look(page, DRAWN)
    assert console == []
    assert found["hacked"] is None
    assert found["lines"] == 1


@needs_browser
def test_the_browser_would_tell(tmp_path: Path) -> None:
    """That the tests above can fail: an error and a wide page are seen."""
    page = tmp_path / "bad.html"
    page.write_text("<body><div style='width:2000px'>x</div><script>nothing()</script>")
    found, console = look(page, DRAWN, width=390)
    assert "nothing is not defined" in console[0]
    assert found["width"] > found["room"]


@needs_browser
def test_fifty_policies_open_at_once(tmp_path: Path) -> None:
    """Under 5 MB and 2 s; measured: 1 MB and 0.3 s."""
    world = bl.environment("bernoulli", means=np.linspace(0.3, 0.7, 101))
    policies = {
        f"dp-klucb {i}": bl.policy("dp-klucb", arms=101, epsilon=0.1 * (i + 1)) for i in range(50)
    }
    results = invent(policies, environment=world, checkpoints=200, repetitions=10)
    page = write_page(results_page_data(results, "many"), tmp_path / "many.html")
    assert page.stat().st_size < 5e6
    found, console = look(page, DRAWN)
    assert console == []
    assert found["lines"] == 51
    assert 0 < found["loaded"] < 2_000


@needs_browser
def test_it_prints(page: Path) -> None:
    file = page.with_suffix(".pdf")
    chromium(f"--print-to-pdf={file}", page.as_uri(), profile=page.with_name("profile"))
    content = file.read_bytes()
    assert content.startswith(b"%PDF")
    assert 3 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 12
