"""A device in Python shares rewards with two aggregators."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest

from balaclava.client import ServiceDecision, ShareSender
from balaclava.errors import ParameterError
from balaclava.privacy.secret_shares import modulus_bits, reward_steps

BITS = modulus_bits(1_000, 2**20, 1.0, 1e-9)
SERVERS = ["https://one.example.org", "https://two.example.net"]
RULE: dict[str, Any] = {
    "kind": "shares",
    "epsilon": 1.0,
    "range": [0.0, 2.0],
    "default": 0.5,
    "grid_bits": 20,
    "modulus_bits": BITS,
    "send_after": 0.05,
    "addresses": [f"{server}/v1/tasks/5/shares" for server in SERVERS],
}
AGREED: dict[str, Any] = {"epsilon": 1.0, "range": (0.0, 2.0), "servers": SERVERS}


def decision(id: str) -> ServiceDecision:
    return ServiceDecision(id, 0, "plain", 1.0, True, None, "t" * 32)


class Aggregators:
    """What both aggregators got, and the answers that they still refuse to give."""

    def __init__(self, sender: ShareSender, *failing: Any) -> None:
        self.failing, self.sent = list(failing), []
        sender._http = httpx.Client(transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if self.failing:
            status = self.failing.pop(0)
            if status is None:
                raise httpx.ConnectError("down")
            return httpx.Response(status)
        self.sent.append((str(request.url), request.content))
        return httpx.Response(200)

    def rewards(self) -> dict[str, int]:
        pairs: dict[str, list[int]] = {}
        for url, content in self.sent:
            share = httpx.Response(200, content=content).json()["share"]
            pairs.setdefault(url.rpartition("/")[2], []).append(int(share, 16))
        assert all(len(pair) == 2 for pair in pairs.values())
        return {id: sum(pair) % 2**BITS for id, pair in pairs.items()}


def test_one_pair_for_each_decision_at_its_time() -> None:
    sender = ShareSender(RULE, **AGREED)
    aggregators = Aggregators(sender)
    given: dict[str, list[float]] = {"none": [], "one": [2.0], "last": [2.0, 1.0], "far": [-9.0]}
    for id, rewards in given.items():
        sender.expect(decision(id))
        for reward in rewards:
            sender.note_reward(decision(id), reward)
    assert sender.send_due()
    assert aggregators.sent == []
    time.sleep(RULE["send_after"])
    sender.note_reward(decision("none"), 2.0)  # too late
    for _ in range(2):
        assert sender.send_due()
    counted = {"none": 0.5, "one": 2.0, "last": 1.0, "far": 0.0}
    steps = {id: reward_steps(reward, 0.0, 2.0) for id, reward in counted.items()}
    assert aggregators.rewards() == steps
    assert len({len(content) for _, content in aggregators.sent}) == 1
    terms = [httpx.Response(200, content=content).json() for _, content in aggregators.sent]
    assert {(each["epsilon"], each["modulus_bits"]) for each in terms} == {(1.0, BITS)}
    assert not sender._known  # no pair is kept: both shares are the reward
    sender.expect(decision("one"))  # asked again: nothing leaves twice
    sender.note_reward(decision("one"), 0.0)
    time.sleep(RULE["send_after"])
    assert sender.send_due()
    assert aggregators.rewards() == steps


def test_a_lost_request_sends_the_same_share_again() -> None:
    sender = ShareSender(RULE, **AGREED)
    aggregators = Aggregators(sender, None, 503, 404)
    sender.expect(decision("x"))
    time.sleep(RULE["send_after"])
    assert not sender.send_due()
    assert not sender.send_due()
    assert sender.send_due()
    assert aggregators.rewards() == {"x": reward_steps(0.5, 0.0, 2.0)}
    sender.close()


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "laplace"},
        {"epsilon": 1.1},
        {"range": [0.0, 1.0]},
        {"addresses": [RULE["addresses"][0]] * 2},
        {"addresses": RULE["addresses"][::-1]},
        # Rewards that could not be sent, such as the default alone: silence reveals them.
        {"default": None},
        {"default": float("nan")},
        {"modulus_bits": 10},
        {"modulus_bits": 21},
        {"modulus_bits": 1000},
        {"send_after": 0.0},
        {"send_after": float("nan")},
    ],
)
def test_a_rule_that_breaks_the_agreement_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        ShareSender(RULE | changes, **AGREED)


def test_a_decision_without_a_ticket_and_no_number_are_refused() -> None:
    sender = ShareSender(RULE, **AGREED)
    with pytest.raises(ParameterError, match="ticket"):
        sender.expect(decision("x")._replace(learns=False))
    sender.expect(decision("x"))
    for reward in (float("nan"), float("inf")):
        with pytest.raises(ParameterError, match="finite"):
            sender.note_reward(decision("x"), reward)
