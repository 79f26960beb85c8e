"""Finishing: open windows still close, and what no release holds yet is released, once."""

from __future__ import annotations

import re
from typing import Any

import pytest

from balaclava.service.documents import results_document
from balaclava.service.engine.jobs import SetExperimentState
from balaclava.service.engine.unit_of_work import UnitOfWork
from balaclava.service.problems import Problem
from tests.service.engine.test_cleanup import Shop

TRIAL: dict[str, Any] = {
    "policy": "dp-even",
    "parameters": {"epsilon": 1.0, "horizon": 400},
    "arms": ["a", "b"],
}
RATES = (0.3, 0.8)


def recruit(shop: Shop, participants: int) -> None:
    """Each arm's rewards have exactly its rate, to within one."""
    made = shop.decide(count=participants)
    seen = [0, 0]
    for each in made:
        arm = each["arm"]
        seen[arm] += 1
        value = int(seen[arm] * RATES[arm]) - int((seen[arm] - 1) * RATES[arm])
        shop.reward(each["decision_id"], float(value))


def finish(shop: Shop, arm: str | None = None) -> None:
    ledger = shop.service.ledger
    shop.service.run_job(SetExperimentState(ledger, "shop", "finish", arm=arm))


def read(shop: Shop) -> dict[str, Any]:
    return results_document(shop.service.committed("shop"))


def released(shop: Shop) -> list[tuple[int, float]]:
    return [(each["rewards"], each["mean"]) for each in read(shop)["arms"]]


def test_a_trial_with_too_few_participants_gets_its_answer(shop: Shop) -> None:
    shop.create(**TRIAL)
    recruit(shop, 360)
    shop.wait(61.0)
    finish(shop)
    answer = read(shop)
    assert (answer["winner"], answer["leader"]) == ("b", "b")
    assert [each["rewards"] for each in answer["arms"]] == [180, 180]
    assert "'b' is the best" in answer["sentence"]
    ((low, high),) = [(each["low"], each["high"]) for each in answer["differences"]]
    assert 0.3 < low < 0.5 < high < 0.7
    (by,) = re.findall(r"by at least ([\d.]+),", answer["sentence"])
    assert low - 0.001 < float(by) <= low
    assert shop.decide()[0]["label"] == "b"
    assert shop.service.history("shop")["means"][-1] == [each["mean"] for each in answer["arms"]]


def test_rewards_of_open_windows_count_and_then_all_is_released_once(shop: Shop) -> None:
    shop.create(**TRIAL)
    recruit(shop, 300)
    (late,) = shop.decide()
    finish(shop)
    assert released(shop) == [(0, None), (0, None)]
    assert "when the last reward window is over" in read(shop)["sentence"]
    assert "without evidence" in read(shop)["sentence"]
    assert not shop.decide()[0]["learns"]
    assert shop.reward(late["decision_id"]) == {"recorded": True}
    shop.wait(61.0)
    first = released(shop)
    assert sum(rewards for rewards, _ in first) == 301
    assert "window" not in read(shop)["sentence"]
    finish(shop)  # again
    shop.wait(61.0)
    assert released(shop) == first
    assert shop.rows()["values"] == 0
    assert isinstance(shop.reward(late["decision_id"]), Problem)


def test_with_arrivals_the_last_window_is_awaited(shop: Shop) -> None:
    shop.create(**TRIAL, settle="arrival", default_reward=None)
    recruit(shop, 300)
    shop.decide(count=20)
    finish(shop)
    assert released(shop) == [(0, None), (0, None)]
    shop.wait(61.0)
    assert sum(rewards for rewards, _ in released(shop)) == 300
    assert read(shop)["winner"] == "b"


def test_batches_of_other_policies_too_and_a_chosen_arm_stays(shop: Shop) -> None:
    shop.create()
    made = shop.decide(count=37)
    for each in made:
        shop.reward(each["decision_id"], float(each["arm"] == 1))
    finish(shop, "plain")
    shop.wait(61.0)
    assert sum(each["rewards"] for each in read(shop)["arms"]) == 37
    assert shop.decide()[0]["label"] == "plain"


def test_no_evidence_is_said_so(shop: Shop) -> None:
    shop.create(**TRIAL, default_reward=None, settle="arrival")
    shop.decide(count=10)
    finish(shop)
    shop.wait(61.0)
    sentence = read(shop)["sentence"]
    assert "No arm is named" in sentence
    assert "without evidence" in sentence


def test_a_release_whose_commit_fails_is_drawn_again_and_was_never_seen(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.create(**TRIAL)
    recruit(shop, 300)
    shop.wait(61.0)
    broken = True
    store = UnitOfWork.store

    def fail(work: UnitOfWork) -> bool:
        if broken and "shop" in work.by_name and work.by_name["shop"].state == "finished":
            raise OSError("the disk is full")
        return store(work)

    monkeypatch.setattr(UnitOfWork, "store", fail)
    with pytest.raises(Problem, match="nothing was recorded"):
        finish(shop)
    assert released(shop) == [(0, None), (0, None)]
    assert shop.service.committed("shop").state == "running"
    broken = False
    finish(shop)
    assert sum(rewards for rewards, _ in released(shop)) == 300
