"""A decider and two aggregators, without processes: late, lost, restored, refused."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from balaclava.privacy.secret_shares import reward_steps, share_text, split
from balaclava.service import share_messages as messages
from balaclava.service.aggregation.collector import (
    AggregatorClient,
    ApplyRelease,
    ShareCollector,
    UnreachableError,
    complete_batches,
)
from balaclava.service.engine import jobs
from balaclava.service.engine.definition import ExperimentDefinition
from balaclava.service.problems import Problem
from balaclava.service.service import Service
from tests.service.aggregation.share_pair import PEER_KEY, Pair
from tests.service.manual_service import CloseAll

WINDOW = 100.0
EXPERIMENT: dict[str, Any] = {
    "name": "shop",
    "policy": "dp-imed",
    # Next to no noise, so that sums can be compared.
    "parameters": {"epsilon": 1e6, "first_batch": 4, "trust": "split"},
    "arms": ["plain", "map"],
    "reward_window": WINDOW,
    "default_reward": 0.0,
    "aggregators": ["http://127.0.0.1:1", "http://localhost:2"],
}


Lie = Callable[[str, str, list[str]], dict[str, Any]]  # of task, batch and decisions


class Decider:
    """A service whose time the test sets, and its collector, with both aggregators."""

    def __init__(self, folder: Path) -> None:
        self.service = Service.open(str(folder / "decider.db"))
        self.pair = Pair(folder)
        self.collector = ShareCollector(self.service)
        self.collector._http = httpx.Client(transport=httpx.MockTransport(self.request))
        self.down: set[int] = set()  # aggregators that do not answer
        self.requests = self.lost = 0  # of a pass, and which answer is lost
        self.hostile: bytes | None = None  # what the second aggregator answers instead
        self.lie: Lie | None = None  # what it makes of its honest answers
        self.silent = "no task", threading.Event()  # what it does not answer, until when
        self.uid = self.create("shop")

    def create(self, name: str) -> str:
        """An experiment with both aggregators; its uid."""
        definition = ExperimentDefinition.checked(**EXPERIMENT | {"name": name})
        asyncio.run(self.service.create(definition))
        tasks = self.service.share_tasks(name)
        for each, client in zip(tasks, self.pair.clients, strict=True):
            task = each["task"] | {"peer_key": PEER_KEY}
            added = client.put(f"/v1/tasks/{each['uid']}", json=task)
            assert added.status_code == 201, added.text
        return str(tasks[0]["uid"])

    def request(self, request: httpx.Request) -> httpx.Response:
        """A request of the collector, to the aggregator of its address."""
        side = int(request.url.host == "localhost")
        if side in self.down:
            raise httpx.ConnectError("down")
        if side and self.hostile is not None:
            return httpx.Response(200, stream=httpx.ByteStream(self.hostile))
        if side and self.silent[0] in str(request.url):
            self.silent[1].wait()
        path = "/v1/" + str(request.url).partition("/v1/")[2]
        headers = {name: request.headers[name] for name in ("authorization", "content-type")}
        answer = self.pair.clients[side].request(
            request.method, path, content=request.content, headers=headers
        )
        self.requests += 1
        if self.requests == self.lost:
            raise httpx.ReadTimeout("lost")
        content = answer.content
        if side and self.lie is not None and answer.is_success:
            uid, label, ids = *path.split("/")[3:6:2], json.loads(request.content)["ids"]
            content = json.dumps(answer.json() | self.lie(uid, label, ids)).encode()
        return httpx.Response(answer.status_code, stream=httpx.ByteStream(content))

    def decide(self, count: int, name: str = "shop") -> list[dict[str, Any]]:
        text = self.service.run_job(jobs.MakeDecisions(self.service.vault, name, count))
        return json.loads(text)["decisions"]

    def share(
        self,
        decision: dict[str, Any],
        reward: float,
        sides: Any = (0, 1),
        shares: Any = None,
        uid: str | None = None,
    ) -> None:
        shares = shares or split(reward_steps(reward), self.pair.bits)
        for side in sides:
            body = self.pair.share_body(shares[side], decision["ticket"])
            path = f"/v1/tasks/{uid or self.uid}/shares/{decision['decision_id']}"
            assert self.pair.clients[side].put(path, json=body).json() == {"recorded": True}

    def end_windows(self) -> None:
        self.service.clock.catch_up(self.service.clock.now() + WINDOW + 1)
        self.service.run_job(CloseAll())

    def collect(self) -> None:
        """A pass, as if the last failure was long ago."""
        self.collector._later.clear()
        self.requests = 0
        self.collector.run_once()
        for thread in self.collector._working.values():
            thread.join()

    @property
    def pools(self) -> Any:
        return self.service.committed("shop").runner.state

    def close(self) -> None:
        self.service.close()
        self.pair.close()


@pytest.fixture
def decider(tmp_path: Path) -> Iterator[Decider]:
    made = Decider(tmp_path)
    yield made
    made.close()


def test_a_batch_is_played_learned_and_restored(decider: Decider) -> None:
    made = decider.decide(8)
    assert {each["arm"] for each in made} == {0, 1}
    for each in made:
        decider.share(each, float(each["arm"]))
    decider.collect()  # no window is over
    assert list(decider.pools.rewards) == [0, 0]
    decider.end_windows()
    decider.collect()
    pools = decider.pools
    assert list(pools.rewards) == [4, 4]
    assert pools.means == pytest.approx([0.0, 1.0], abs=1e-3)
    assert not list(pools.faults(8))
    states = {decider.service.decision(each["decision_id"])["state"] for each in made}
    assert states == {"rewarded"}
    assert {each["arm"] for each in decider.decide(4)} == {1}  # it learned
    results = decider.service.results("shop")
    assert [arm["rewards"] for arm in results["arms"]] == [4, 4]
    path = str(decider.service.storage.engine.url.database)
    decider.service.close()
    decider.service = Service.open(path)  # a valid state was saved
    assert decider.pools.means == pytest.approx([0.0, 1.0], abs=1e-3)


def test_devices_that_never_send_are_given_up(decider: Decider) -> None:
    made = decider.decide(8)
    of_arm = [[each for each in made if each["arm"] == arm] for arm in (0, 1)]
    for each in of_arm[1][:2]:
        decider.share(each, 1.0)
    decider.share(of_arm[1][2], 1.0, sides=(0,))  # one aggregator did not get it
    decider.end_windows()
    decider.collect()
    pools = decider.pools
    assert list(pools.rewards) == [0, 2]
    assert pools.means[1] == pytest.approx(1.0, abs=1e-3)
    assert list(pools.empty) == [1, 0]
    assert not list(pools.faults(8))
    states = [decider.service.decision(each["decision_id"])["state"] for each in of_arm[1]]
    assert states == ["rewarded", "rewarded", "given up", "given up"]
    decider.decide(30)  # and nothing jams


def test_an_aggregator_that_is_down_for_a_day_and_lost_answers(decider: Decider) -> None:
    made = decider.decide(8)
    for each in made:
        decider.share(each, 1.0)
    decider.end_windows()
    for down in (0, 1):
        decider.down = {down}
        decider.collect()
        assert list(decider.pools.rewards) == [0, 0]
        assert len(decider.decide(10)) == 10  # meanwhile
    decider.down = set()
    for decider.lost in (1, 2, 3, 4, 0):  # each request of a batch: done, but not answered
        decider.collect()
    assert list(decider.pools.rewards)[:2] == [4, 4]
    assert decider.pools.pooled == pytest.approx([1.0, 1.0], abs=1e-3)
    for service in decider.pair.services:  # each batch once
        notes = [each["note"] for each in service.ledger.entries() if each["event"] == "released"]
        assert len(notes) == len(set(notes))


def test_a_release_is_applied_once(decider: Decider) -> None:
    for each in decider.decide(8):
        decider.share(each, 1.0)
    decider.end_windows()
    experiment = decider.service.committed("shop")
    first, _ = complete_batches(decider.service, experiment)
    decider.collect()
    again = ApplyRelease("shop", first, [], 1e6)
    assert decider.service.run_job(again) is False
    assert decider.pools.pooled == pytest.approx([1.0, 1.0], abs=1e-3)


def test_a_batch_that_is_refused_is_given_up(decider: Decider) -> None:
    """As after a restore of the decider: the aggregators know the label with other decisions."""
    made = decider.decide(8)
    for each in made:
        decider.share(each, 1.0)
    (_, other) = decider.service.share_tasks("shop")
    key = {"authorization": f"Bearer {other['task']['decider_key']}"}
    body = {"ids": [each["decision_id"] for each in made if each["arm"] == 0][:1]}
    known = decider.pair.clients[1].put(
        f"/v1/tasks/{decider.uid}/batches/0.1", json=body, headers=key
    )
    assert known.status_code == 200
    decider.end_windows()
    decider.collect()
    assert list(decider.pools.rewards) == [0, 4]
    assert list(decider.pools.empty) == [1, 0]


@pytest.mark.parametrize(
    "answer",
    [
        b"[]",
        b"null",
        b"7",
        b"{}",
        b'{"missing": 7, "statement": "x"}',
        b'{"missing": [[]], "statement": "x"}',
        b'{"missing": [], "statement": {}}',
        b'{"missing": [], "statement": "x", "ids": []}',
        b"\xff",
        b"[" * 100_000,
    ],
    ids=range(10),
)
def test_a_hostile_answer_lets_the_batch_wait(decider: Decider, answer: bytes) -> None:
    """Other experiments are collected meanwhile: nothing is raised."""
    for each in decider.decide(8):
        decider.share(each, 1.0)
    decider.end_windows()
    decider.hostile = answer
    decider.collect()
    assert list(decider.collector._later) == [decider.uid]  # asked again later
    assert list(decider.pools.rewards) == [0, 0]
    decider.hostile = None
    decider.collect()
    assert list(decider.pools.rewards) == [4, 4]


def lacks(count: int) -> Lie:
    """It states that it has no share of the first decisions; with its own key."""

    def lie(uid: str, label: str, ids: list[str]) -> dict[str, Any]:
        missing = sorted(ids)[:count]
        word = messages.statement(PEER_KEY, uid, 1, label, ids, missing)
        return {"missing": missing, "statement": word}

    return lie


BITS = messages.task_bits(1e6)
WAITS, IS_LOST, COUNTS = "waits", "is lost", "counts"
LIES: dict[str, tuple[Lie, str]] = {
    "another set than it summed": (lacks(1), IS_LOST),
    "no share at all": (lacks(8), IS_LOST),
    "another set without its key": (lambda uid, label, ids: {"missing": ids[:1]}, WAITS),
    "another word": (lambda uid, label, ids: {"statement": "0" * 64}, WAITS),
    "a set that it did not agree on": (lambda uid, label, ids: {"agreed": "0" * 64}, IS_LOST),
    "another size": (lambda uid, label, ids: {"size": 10**9}, COUNTS),
    "a release of another batch": (
        lambda uid, label, ids: {"noisy_sum": share_text(2 ** (BITS - 2), BITS)},
        IS_LOST,
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_costs_its_batch_and_no_second_release(decider: Decider, lie: str) -> None:
    """The honest aggregator releases each batch once; the policy's state stays sound."""
    for each in decider.decide(8):
        decider.share(each, 1.0)
    decider.end_windows()
    decider.lie, expected = LIES[lie]
    for _ in range(2):
        decider.collect()
    rewards = {WAITS: [0, 0], IS_LOST: [0, 0], COUNTS: [4, 4]}[expected]
    assert list(decider.pools.rewards) == rewards
    assert list(decider.pools.empty) == ([1, 1] if expected is IS_LOST else [0, 0])
    decider.lie = None
    decider.collect()
    assert sum(decider.pools.rewards) == (0 if expected is IS_LOST else 8)
    assert not list(decider.pools.faults(8))
    ledger = decider.pair.services[0].ledger
    notes = [each["note"] for each in ledger.entries() if each["event"] == "released"]
    assert len(notes) == len(set(notes))


def test_an_aggregator_that_never_answers_holds_up_its_own_experiments_alone(
    decider: Decider,
) -> None:
    uid = decider.create("other")
    for each in decider.decide(8):
        decider.share(each, 1.0)
    for each in decider.decide(8, "other"):
        decider.share(each, 1.0, uid=uid)
    decider.end_windows()
    decider.silent = decider.uid, threading.Event()
    try:
        decider.collector.run_once()
        decider.collector._working[uid].join()
        decider.collector.run_once()  # the first request is left alone
        other = decider.service.committed("other").runner.state
        assert list(other.rewards) == [4, 4]
        assert list(decider.pools.rewards) == [0, 0]
        (late,) = (each for each in decider.collector._working.values() if each.is_alive())
    finally:
        decider.silent[1].set()
    late.join()
    assert list(decider.pools.rewards) == [4, 4]


def test_an_answer_that_would_fill_the_memory_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "LARGEST_MESSAGE", 1_000)
    packed = gzip.compress(b'{"missing": []}' + b" " * 10**6)
    answers = iter([b"[" * 1_001, b'{"missing": []}' + b" " * 1_000, packed, b'{"size": 1}'])

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.headers["accept-encoding"] == "identity"
        return httpx.Response(200, stream=httpx.ByteStream(next(answers)))

    http = httpx.Client(transport=httpx.MockTransport(answer))
    client = AggregatorClient(http, "https://one.example.org", "5" * 64, "key")
    for reason in ("too large", "too large", "too large|DecodeError"):
        with pytest.raises(UnreachableError, match=reason):
            client.call("PUT", "0.1", {})
    assert client.call("PUT", "0.1", {}) == {"size": 1}


def test_a_sum_that_rewards_do_not_reach_is_given_up(decider: Decider) -> None:
    """One device sends two random numbers: its batch is lost, and the policy stays usable."""
    made = decider.decide(8)
    for each in made[1:]:
        decider.share(each, 1.0)
    decider.share(made[0], 0.0, shares=(3, 2**30))
    decider.end_windows()
    decider.collect()
    pools, arm = decider.pools, made[0]["arm"]
    assert [pools.rewards[arm], pools.rewards[1 - arm]] == [0, 4]
    assert pools.empty[arm] == 1
    assert not list(pools.faults(8))


def test_a_reward_is_refused_with_a_reason(decider: Decider) -> None:
    (made, *_) = decider.decide(1)
    for value in (0.0, 1.0):
        received = jobs.ReceivedReward(made["decision_id"], "reward", value)
        (answer,) = decider.service.run_job(jobs.RecordRewards([received]))
        assert isinstance(answer, Problem)
        assert answer.status == 422
        assert "must not reach the decider" in answer.detail
    assert decider.service.decision(made["decision_id"])["state"] == "open"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"aggregators": None}, "belong together"),
        ({"parameters": {"epsilon": 1.0}}, "belong together"),
        ({"policy": "ucb1", "parameters": {}}, "belong together"),
        ({"aggregators": ["https://a.example", "https://a.example/"]}, "two servers"),
        ({"aggregators": ["http://a.example", "https://b.example"]}, "https"),
        ({"default_reward": None}, "default_reward"),
        ({"exposures": True}, "exposures"),
        ({"deciders": 2}, "aggregators"),
    ],
)
def test_a_definition_that_would_not_protect_is_refused(
    changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Problem, match=reason):
        ExperimentDefinition.checked(**EXPERIMENT | changes)


def test_the_rule_for_devices_and_what_is_not_displayed(decider: Decider) -> None:
    document = decider.service.experiment("shop")
    rule = document["report"]
    assert rule["kind"] == "shares"
    assert rule["modulus_bits"] == decider.pair.bits
    assert [address.endswith(f"/v1/tasks/{decider.uid}/shares") for address in rule["addresses"]]
    (one, other) = decider.service.share_tasks("shop")
    secrets = {
        each["task"][name] for each in (one, other) for name in ("decider_key", "ticket_key")
    }
    assert len(secrets) == 3  # the aggregators do not know each other's key of the decider
    assert not any(secret in json.dumps(document) for secret in secrets)
    assert document["guarantee"]["model"] == "split"


def test_erased_and_old_decisions_of_open_batches_stay_in_them(decider: Decider) -> None:
    """The set of a batch must not change once its release was asked for."""
    job = jobs.MakeDecisions(decider.service.vault, "shop", 8, person="ada")
    made = json.loads(decider.service.run_job(job))["decisions"]
    learning = [each for each in made if each["learns"]]
    made = learning + decider.decide(7)
    for each in made:
        decider.share(each, 1.0)
    decider.end_windows()
    erased = asyncio.run(decider.service.erase("ada", "by the test"))
    assert erased["decisions"] == 8
    decider.collect()
    assert list(decider.pools.rewards) == [4, 4]


def test_a_finished_experiment_collects_what_is_open_and_then_rests(decider: Decider) -> None:
    made = decider.decide(11)  # more than two batches of four
    for each in made:
        decider.share(each, float(each["arm"]))
    job = jobs.SetExperimentState(decider.service.ledger, "shop", "finish")
    decider.service.run_job(job)
    decider.collect()  # no window is over
    assert sum(decider.pools.rewards) == 0
    decider.end_windows()
    decider.down = {1}
    decider.collect()
    assert not decider.service.committed("shop").is_over
    decider.down = set()
    decider.collect()
    assert sum(decider.pools.rewards) == 11
    assert decider.service.committed("shop").is_over
    decider.collect()
    assert decider.requests == 0
