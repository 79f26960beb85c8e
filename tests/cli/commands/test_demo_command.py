"""`balaclava demo`."""

from __future__ import annotations

from pathlib import Path

import pytest

import balaclava as bl
from tests.cli.running import invoke


def test_demo_policies_fit_together() -> None:
    from balaclava.cli.commands.demo_command import DEMO_HORIZON, DEMO_MEANS, demo_policies
    from balaclava.simulation.engine import require_compatible

    assert 0.01 <= min(DEMO_MEANS) < max(DEMO_MEANS) <= 0.1  # rates that shops have
    baseline, *private = demo_policies()
    assert baseline.name == "imed"
    assert [policy.guarantee.epsilon for policy in private] == [1.0] * 6
    assert {policy.scope for policy in private} == {"trajectory", "decision", "report"}
    assert {policy.rewards for policy in private} == {"bounded", "real"}
    world = bl.environment("bernoulli", means=DEMO_MEANS)
    for policy in (baseline, *private):
        require_compatible(policy.name, policy, world, DEMO_HORIZON)


def test_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two policies for speed: which are chosen is tested above."""
    few = {"imed": {}, "ldp-ucb-bernoulli": {"epsilon": 1.0}}
    monkeypatch.setattr("balaclava.cli.commands.demo_command._DEMO_POLICIES", few)
    out = tmp_path / "pictures"
    answer = invoke("demo", "--out", out)
    assert answer.exit_code == 0, answer.output
    assert "ldp-ucb-bernoulli  ε=1 per report  consistent  0." in answer.output
    assert answer.output.endswith(
        f"wrote {out / 'demo.png'}\nwrote {out / 'report.html'}: open it in a browser\n"
    )
    assert "winners named at 0.95 confidence" in answer.output
    assert "balaclava plan --arms 5 --rate" in answer.output
    assert (out / "demo.png").stat().st_size > 10_000
    assert "ldp-ucb-bernoulli" in (out / "report.html").read_text(encoding="utf-8")
