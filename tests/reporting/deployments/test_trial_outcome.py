"""What happened in a trial, beside what was planned: from a save, and from the service's export."""

from __future__ import annotations

import dataclasses
import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import balaclava as bl
from balaclava.cli import main
from balaclava.errors import ResultsFileError, SavedStateError
from balaclava.reporting.assessment_input import AssessmentInput, PlanInput
from balaclava.reporting.assessment_page import assessment_page
from balaclava.reporting.deployments.trial_outcome import NOT_NAMED, read_outcome
from balaclava.service.service import Service
from tests.service.http.test_app import client_of, create, decide

TEXTS, RATES = ["plain", "friendly", "map"], (0.1, 0.2, 0.9)  # so far apart that any run says so
POLICY = bl.policy("dp-even", arms=TEXTS, epsilon=1.0, horizon=300, longest_block=3)
GIVEN = AssessmentInput(
    POLICY,
    bl.environment("bernoulli", means=list(RATES)),
    horizon=300,
    title="Reminders",
    repetitions=20,
    planned=PlanInput(0.3, 0.3),
)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service.open(str(tmp_path / "service.db"))
    yield service
    service.close()


def trial(policy: bl.Policy = POLICY, participants: int = 300, flip: bool = False) -> bl.Agent:
    """One in ten outcomes never comes; with `flip` the others are exchanged."""
    agent, rng = policy.agent(), np.random.default_rng(1)
    for number in range(participants):
        decision = agent.ask()
        came = bool(rng.random() < RATES[decision.arm])
        if number % 10:
            agent.tell(decision, float(came != flip))
    return agent


def page_of(outcome: Any, given: AssessmentInput = GIVEN, **more: Any) -> str:
    text = assessment_page(given, outcome=outcome, **more)
    return html.unescape(" ".join(re.sub("<[^>]+>", " ", text.partition("<body>")[2]).split()))


def test_a_trial_that_ended_stands_beside_its_plan(tmp_path: Path) -> None:
    agent = trial()
    final = agent.finish(give_up_open=True)
    agent.save(tmp_path / "agent.json")
    before = (tmp_path / "agent.json").read_bytes()
    outcome = read_outcome(tmp_path / "agent.json")
    assert outcome.finished
    assert outcome.winner == "map"
    assert final.winner == 2
    assert sum(arm.rewards or 0 for arm in outcome.arms) == 270
    for lead in outcome.leads:
        other = TEXTS.index(lead.label)
        assert (lead.low, lead.high) == final.difference("map", other)
        assert lead.difference == final[2].mean - final[other].mean  # type: ignore[operator]
    page = page_of(outcome, plan=GIVEN.plan())
    assert (
        "The trial has ended, after 300 decisions, 30 (10.0 %) of them without an outcome: the "
        "best arm is 'map', at 95 % confidence" in page
    )
    assert "It has spent ε=1 per trajectory." in page
    assert "Before the trial: dp-even gives each person" in page
    assert "30 (10.0 %): lost, late, or in no release" in page
    assert "Participants with another arm than the best 200 200 (66.7 %)" in page
    assert re.search(r"Arm named the best in \d+ % of such trials the best arm is 'map'", page)
    assert re.search(r"its interval 0\.\d+ wide 0\.\d+ \(0\.\d+ to 0\.\d+\): 0\.\d+ wide", page)
    # The save is as it was, and another agent may still continue from it.
    assert (tmp_path / "agent.json").read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["agent.json"]


def test_a_trial_that_goes_on_shows_releases_only(tmp_path: Path) -> None:
    """Exchanged outcomes that are in no release change nothing on the page."""
    pages, equal = set(), bl.policy("dp-even", arms=TEXTS, epsilon=1.0, horizon=300)
    for name, flip in (("one", False), ("other", True)):
        trial(equal, 150, flip).save(tmp_path / name)
        outcome = read_outcome(tmp_path / name)
        assert outcome.leads == ()
        pages.add(page_of(outcome, dataclasses.replace(GIVEN, policy=equal)))
    (page,) = pages
    assert "The trial has not ended. So far, after 150 of 300 decisions" in page
    assert NOT_NAMED in page
    agent = bl.restore(tmp_path / "one")  # it was read before
    assert agent.ask().label in TEXTS


def test_a_trial_that_was_not_run_as_assessed_says_so(tmp_path: Path) -> None:
    looser = bl.policy("dp-even", arms=TEXTS, epsilon=2.0, horizon=300)
    agent = trial(looser)
    agent.finish(give_up_open=True)
    agent.save(tmp_path / "agent.json")
    outcome = read_outcome(tmp_path / "agent.json")
    sentence, good = outcome.conclusion(GIVEN)
    assert not good
    assert "epsilon was 2.0, not 1.0" in sentence
    assert "longest_block was 1, not 3" in sentence
    assert "the guarantee of a reward was ε=2 per trajectory, not ε=1 per trajectory" in sentence
    other = dataclasses.replace(GIVEN, policy=bl.policy("dp-imed", arms=2, epsilon=3.0))
    assert outcome.departures(other) == ["the policy was dp-even, not dp-imed"]
    seeded = bl.policy("dp-even", arms=TEXTS, epsilon=1.0, horizon=300, longest_block=3)
    seeded.agent(seed=1).save(tmp_path / "seeded")
    (why,) = read_outcome(tmp_path / "seeded").departures(GIVEN)
    assert why.startswith("the guarantee of a reward was not private, not ε=1")


def test_an_export_of_the_service_is_read(service: Service, tmp_path: Path) -> None:
    client = client_of(service)
    parameters = {name: POLICY.parameters[name] for name in ("epsilon", "horizon", "longest_block")}
    trial = {"policy": "dp-even", "parameters": parameters, "arms": TEXTS, "default_reward": None}
    create(client, **trial, settle="arrival")
    rng = np.random.default_rng(1)
    rewards = [
        {"decision_id": each["decision_id"], "value": float(rng.random() < RATES[each["arm"]])}
        for each in decide(client, count=300)
    ]
    client.post("/v1/rewards", json=rewards)
    client.post("/v1/experiments/shop/finish")
    export = client.get("/v1/experiments/shop/export?format=jsonl")
    (tmp_path / "shop.jsonl").write_bytes(export.content)
    outcome = read_outcome(tmp_path / "shop.jsonl")
    results = client.get("/v1/experiments/shop/results").json()
    assert outcome.winner == results["winner"] == "map"
    assert [lead._asdict() for lead in outcome.leads] == [
        {name: each[name] for name in ("label", "difference", "low", "high")}
        for each in results["differences"]
    ]
    assert outcome.departures(GIVEN) == []
    page = page_of(outcome)
    assert "The trial has ended, after 300 decisions: the best arm is 'map'" in page
    assert "does not depend on the value of any reward" in page


def test_before_the_last_window_the_page_says_that_the_result_is_not_in(
    service: Service, tmp_path: Path
) -> None:
    """For two weeks it read "The trial has ended: no arm is known to be the best"."""
    client = client_of(service)
    parameters = {"epsilon": 1.0, "horizon": 300}
    trial = {"policy": "dp-even", "parameters": parameters, "arms": TEXTS, "default_reward": None}
    create(client, **trial, settle="arrival", reward_window=14 * 86_400)
    rng = np.random.default_rng(1)
    for _ in range(2):
        rewards = [
            {"decision_id": each["decision_id"], "value": float(rng.random() < RATES[each["arm"]])}
            for each in decide(client, count=150)
        ]
        client.post("/v1/rewards", json=rewards[:100])
        service.clock.catch_up(service.clock.now() + 86_400)
    client.post("/v1/experiments/shop/finish")

    def page() -> str:
        export = client.get("/v1/experiments/shop/export?format=jsonl")
        (tmp_path / "shop.jsonl").write_bytes(export.content)
        equal = bl.policy("dp-even", arms=TEXTS, epsilon=1.0, horizon=300)
        return page_of(
            read_outcome(tmp_path / "shop.jsonl"), dataclasses.replace(GIVEN, policy=equal)
        )

    early = page()
    assert "The result is not in yet, after 300 decisions: " in early
    assert re.search(
        r"windows of outcomes are open, the last until 20\d\d-[-0-9]+ [0-9:]+ UTC", early
    )
    assert "has ended" not in early
    assert "Without an outcome none planned not known yet" in early
    service.clock.catch_up(service.clock.now() + 15 * 86_400)
    decide(client, count=1)  # the next commit closes windows
    late = page()
    assert "The trial has ended, after 301 of 300 decisions, 100 (33.3 %) of them without" in late


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultsFileError, match="cannot be read"):
        read_outcome(tmp_path / "nothing.json")
    for text in ("", "[1, 2]", '{"type": "results"}', "arm,reward\na,1\n"):
        (tmp_path / "file").write_text(text)
        with pytest.raises(SavedStateError, match=r"takes a file of agent.save\(path\)"):
            read_outcome(tmp_path / "file")


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    toml = tmp_path / "trial.toml"
    toml.write_text(
        """title = "Reminders"
[policy]
name = "dp-even"
arms = ["plain", "friendly", "map"]
epsilon = 1.0
longest_block = 3
[environment]
name = "bernoulli"
means = [0.3, 0.3, 0.6]
[simulation]
horizon = 300
repetitions = 20
"""
    )
    agent = trial()
    agent.finish(give_up_open=True)
    agent.save(tmp_path / "agent.json")
    asked = ["report", "--assessment", str(toml), "--results", str(tmp_path / "agent.json")]
    done = CliRunner().invoke(main, [*asked, "--no-audit"])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "trial.html").read_text(encoding="utf-8")
    assert "What was planned, and what happened" in page
    assert "<script" not in page
    alone = CliRunner().invoke(main, ["report", "--results", str(toml), str(tmp_path)])
    assert alone.exit_code == 2
    assert "--results is for --assessment" in alone.output


def test_json_of_a_save_in_lines_is_read_too(tmp_path: Path) -> None:
    agent = trial()
    agent.finish(give_up_open=True)
    (tmp_path / "agent.json").write_text(json.dumps(agent.save(), indent=1))
    assert read_outcome(tmp_path / "agent.json").winner == "map"
