"""An honest aggregator, attacked by the other one, the decider, and devices."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scipy import stats
from starlette.testclient import TestClient

from balaclava.privacy.secret_shares import GRID_STEPS, combine, reward_steps, share_text, split
from balaclava.service import share_messages as messages
from balaclava.service.aggregation import aggregator
from balaclava.service.aggregator_app import create_aggregator_app
from balaclava.service.problems import Problem, StartError
from balaclava.service.service import Service
from tests.service.aggregation.share_pair import (
    EPSILON,
    PEER_KEY,
    TASK,
    TICKET_KEY,
    Pair,
    decision_id,
    open_aggregator,
    task_terms,
)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.close()


@pytest.fixture
def ids() -> list[str]:
    rng = random.Random(1)
    return [decision_id(rng) for _ in range(6)]


def forged(side: int, label: str, ids: list[str], missing: list[str]) -> dict[str, Any]:
    """What a dishonest aggregator `side` states, with the key that it has."""
    word = messages.statement(PEER_KEY, TASK, side, label, ids, missing)
    return {"missing": missing, "statement": word}


def test_a_batch_is_summed_over_the_decisions_of_both(pair: Pair, ids: list[str]) -> None:
    pair.share(dict.fromkeys(ids[:3], 1.0))
    pair.share({ids[3]: 1.0}, sides=(0,))
    pair.share({ids[4]: 1.0}, sides=(1,))
    size, total = pair.collect("0.1", ids)
    assert size == 3
    assert total == pytest.approx(3.0, abs=0.01)
    assert pair.collect("0.1", ids) == (size, total)  # repeated, not drawn again


def test_a_repeated_share_gets_the_same_answer_whatever_it_is(pair: Pair, ids: list[str]) -> None:
    """Otherwise the other aggregator, which knows its share, could test a guess of the reward."""
    first, second = split(reward_steps(1.0), pair.bits)
    answers = [pair.send(ids[0], first, 0)]
    guesses = [(reward_steps(x) - second) % 2**pair.bits for x in (1.0, 0.0)]
    assert guesses[0] == first != guesses[1]  # the last one sent is wrong
    answers += [pair.send(ids[0], guess, 0) for guess in guesses]
    assert {(each.status_code, each.text) for each in answers} == {(200, '{"recorded":true}')}
    pair.send(ids[0], second, 1)
    assert pair.collect("0.1", ids[:1])[1] == pytest.approx(1.0, abs=0.01)  # the first one counts


def test_another_set_of_a_batch_is_refused(pair: Pair, ids: list[str]) -> None:
    """The difference of two sums that differ by one decision is its reward."""
    pair.share(dict.fromkeys(ids, 1.0))
    fixed = pair.fix(0, "0.1", ids).json()
    less = ids[1:]
    assert pair.fix(0, "0.1", less).status_code == 409
    assert pair.release(0, "0.1", less, forged(1, "0.1", less, [])).status_code == 409
    released = pair.release(0, "0.1", ids, forged(1, "0.1", ids, []))
    assert released.json()["size"] == 6
    for missing in ([ids[0]], ids[:3], ids):  # a dishonest pair removes one afterwards
        again = pair.release(0, "0.1", ids, forged(1, "0.1", ids, missing))
        assert again.status_code == 409
        assert "noisy_sum" not in again.json()
    assert pair.fix(0, "0.1", less).status_code == 409
    assert pair.fix(0, "0.1", ids).json() == fixed
    assert pair.release(0, "0.1", ids, forged(1, "0.1", ids, [])).json() == released.json()


def test_a_decision_is_in_one_release(pair: Pair, ids: list[str]) -> None:
    """A decider that asks twice with other ids gets each decision once, at most."""
    pair.share(dict.fromkeys(ids, 1.0))
    assert pair.collect("0.1", ids[:4]) == (4, pytest.approx(4.0, abs=0.01))
    size, total = pair.collect("0.2", ids[2:])  # two of them were released
    assert (size, total) == (2, pytest.approx(2.0, abs=0.01))
    assert pair.collect("0.3", ids) == (0, pytest.approx(0.0, abs=0.01))
    # Fixed in a batch that was never released: still never in another.
    rng = random.Random(2)
    more = [decision_id(rng) for _ in range(3)]
    pair.share(dict.fromkeys(more, 1.0))
    pair.fix(0, "0.4", more)
    assert pair.fix(0, "0.5", more).json()["missing"] == sorted(more)


def test_a_share_after_its_batch_was_fixed_is_refused(pair: Pair, ids: list[str]) -> None:
    pair.share(dict.fromkeys(ids[1:], 1.0))
    assert pair.fix(0, "0.1", ids).json()["missing"] == ids[:1]
    late, again = (pair.send(id, 0, 0) for id in ids[:2])  # without a share, and with one
    assert late.status_code == again.status_code == 410
    assert late.text == again.text
    assert pair.fix(0, "0.2", ids[:1]).json()["missing"] == ids[:1]


def test_the_other_set_is_compared_before_noise_is_drawn(pair: Pair, ids: list[str]) -> None:
    pair.share(dict.fromkeys(ids, 1.0))
    assert pair.release(0, "0.1", ids, forged(1, "0.1", ids, [])).status_code == 409  # not fixed
    own = pair.fix(0, "0.1", ids).json()
    true = pair.fix(1, "0.1", ids).json()
    wrong = [
        own,  # its own word instead of the other's
        true | {"missing": ids[:1]},  # other decisions than the other aggregator stated
        true | {"statement": "0" * 64},
        forged(1, "0.2", ids, []),  # of another batch
        forged(1, "0.1", ids[1:], []),
    ]
    for statement in wrong:
        assert pair.release(0, "0.1", ids, statement).status_code == 403
    with pair.services[0].storage.reading() as connection:
        drawn = connection.exec_driver_sql("SELECT noisy_sum FROM share_batches").scalars().all()
    assert drawn == [None]
    assert pair.release(0, "0.1", ids, true).json()["size"] == 6


def test_what_the_other_lacks_cannot_be_renamed(pair: Pair, ids: list[str]) -> None:
    """A dishonest decider joins two ids: the digest stays, and both would be summed here."""
    pair.share(dict.fromkeys(ids[2:], 1.0))
    pair.share(dict.fromkeys(ids[:2], 1.0), sides=(1,))
    stated = pair.fix(0, "0.1", ids).json()
    pair.fix(1, "0.1", ids)
    assert stated["missing"] == sorted(ids[:2])
    for missing in (["\n".join(stated["missing"])], stated["missing"] * 2, ["A" * 22]):
        answer = pair.release(1, "0.1", ids, stated | {"missing": missing})
        assert answer.status_code == 422, answer.text
    assert pair.release(1, "0.1", ids, stated).json()["size"] == 4


def test_only_the_decider_fixes_and_releases(pair: Pair, ids: list[str]) -> None:
    for key in ("", PEER_KEY, TICKET_KEY, "x" * 32):
        assert pair.post(0, "PUT", "0.1", {"ids": ids}, key).status_code == 401
        assert pair.post(0, "POST", "0.1/release", {}, key).status_code == 401


NOT_SENT = [
    ({"ticket": "0" * 32}, 403),
    ({"ticket": "\u00e9"}, 403),
    ({"share": "0"}, 422),  # all shares have one size
    ({"share": "f" * 32}, 422),
    ({"share": "z" * 13}, 422),
    ({"share": 7}, 422),
    ({"more": 1}, 422),
    ({"epsilon": None}, 422),
    ({"epsilon": "1"}, 422),
    ({"ticket": "0" * 2_000}, 413),
]


def test_what_no_device_and_no_decider_sends_is_refused(pair: Pair, ids: list[str]) -> None:
    for changes, status in NOT_SENT:
        answer = pair.send(ids[0], 0, 0, changes)
        assert answer.status_code == status, changes
        assert "fff" not in answer.text
        assert "zzz" not in answer.text
    for wrong in (["x"], ["A" * 22] * 2, "A" * 22, None):
        assert pair.post(0, "PUT", "0.1", {"ids": wrong}).status_code == 422
    assert pair.fix(0, "0.1", ids).json()["missing"] == sorted(ids)


def test_a_request_that_ends_within_its_body_is_no_error_of_the_server(
    pair: Pair, ids: list[str]
) -> None:
    """Anyone can send that: an error would fill the log of the operator."""
    path = f"/v1/tasks/{TASK}/shares/{ids[0]}"
    scope = {"type": "http", "method": "PUT", "path": path, "raw_path": path.encode()}
    scope |= {"query_string": b"", "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1)}
    messages = iter([{"type": "http.request", "body": b"{", "more_body": True}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(messages, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(pair.clients[0].app(scope, receive, send))
    assert sent[0]["status"] == 400


@pytest.mark.parametrize(
    ("agreed", "status"),
    [
        ({}, 200),
        ({"epsilon": 2 * EPSILON}, 200),
        ({"epsilon": 0.5 * EPSILON}, 409),
        ({"modulus_bits": 1}, 409),
    ],
)
def test_a_device_that_agreed_to_other_terms_is_refused(
    pair: Pair, ids: list[str], agreed: dict[str, Any], status: int
) -> None:
    """A dishonest decider promises devices less epsilon than it gives this aggregator."""
    assert pair.send(ids[0], 1, 0, agreed).status_code == status
    missing = [] if status == 200 else ids[:1]
    assert pair.fix(0, "0.1", ids[:1]).json()["missing"] == missing


def test_whether_a_share_is_taken_does_not_depend_on_it(pair: Pair, ids: list[str]) -> None:
    """A device was told two bits more than this task has, in as many digits.

    The other aggregator knows its share b. If only small shares a = x - b were taken, then
    for a b next to the limit the answer would tell a reward of 0 from one of 1.
    """
    told = pair.bits + 2
    assert -(-told // 4) == -(-pair.bits // 4)
    second = -(2**pair.bits - 1) % 2**told
    firsts = [(reward_steps(reward) - second) % 2**told for reward in (0.0, 1.0)]
    answers = [
        pair.send(id, 0, 0, {"share": f"{first:0{-(-told // 4)}x}", "modulus_bits": told})
        for id, first in zip(ids, firsts, strict=False)
    ]
    assert len({(each.status_code, each.text) for each in answers}) == 1


def test_an_unknown_task_and_another_task_of_the_same_id(pair: Pair) -> None:
    client = pair.clients[0]
    assert client.get(f"/v1/tasks/{'0' * 64}").status_code == 404
    known = client.get(f"/v1/tasks/{TASK}").json()
    assert set(known) == {"uid", "side", "epsilon", "range", "default", "modulus_bits"}
    assert client.put(f"/v1/tasks/{TASK}", json=task_terms(0)).status_code == 200
    # An operator who could raise epsilon would break the promise to those who shared already.
    more = client.put(f"/v1/tasks/{TASK}", json=task_terms(0, epsilon=2e6))
    assert more.status_code == 409
    assert client.get(f"/v1/tasks/{TASK}").json() == known


def test_noise_is_drawn_with_the_full_epsilon(tmp_path: Path) -> None:
    """200 releases at epsilon .5 of one server have its discrete Laplace law (level 1e-4)."""
    pair, rng = Pair(tmp_path, epsilon=0.5), random.Random(3)
    service, no_share = pair.services[0], share_text(0, pair.bits)
    drawn = []
    for n in range(200):
        id, label = decision_id(rng), str(n)
        others = messages.statement(PEER_KEY, TASK, 1, label, [id], [])
        service.writer.submit(aggregator.RecordShare(TASK, id, no_share))
        service.writer.submit(aggregator.FixBatch(TASK, label, [id]))
        terms = [id], [], others
        drawn.append(
            service.writer.submit(aggregator.ReleaseBatch(service.ledger, TASK, label, *terms))
        )
    steps = [combine(int(each.result()["noisy_sum"], 16), 0, pair.bits) for each in drawn]
    pair.close()
    assert stats.kstest([n / GRID_STEPS for n in steps], stats.laplace(scale=2.0).cdf).pvalue > 1e-4


def test_a_failed_commit_releases_nothing(
    pair: Pair, ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise that was drawn and not stored is lost; the next draw is the only one seen."""
    pair.share(dict.fromkeys(ids, 1.0))
    pair.fix(0, "0.1", ids)
    service = pair.services[0]

    def fail(*_: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(service.writer, "_checked_versions", fail)  # after the jobs, before commit
        failed = pair.release(0, "0.1", ids, forged(1, "0.1", ids, []))
    assert failed.status_code == 503
    assert "noisy_sum" not in failed.text
    with service.storage.reading() as connection:
        kept = connection.exec_driver_sql("SELECT count(*) FROM shares WHERE share IS NOT NULL")
        assert kept.scalar() == 6
    done = pair.release(0, "0.1", ids, forged(1, "0.1", ids, []))
    assert done.json()["size"] == 6
    assert pair.release(0, "0.1", ids, forged(1, "0.1", ids, [])).json() == done.json()


def test_a_restored_database_releases_nothing(tmp_path: Path, pair: Pair, ids: list[str]) -> None:
    pair.share(dict.fromkeys(ids, 1.0))
    pair.fix(0, "0.1", ids[:3])
    database = Path(str(pair.services[0].storage.engine.url.database))
    pair.services[0].close()
    backup = database.read_bytes()
    with reopened(tmp_path) as client:
        pair.clients[0] = client
        assert pair.release(0, "0.1", ids[:3], forged(1, "0.1", ids[:3], [])).status_code == 200
    for beside in database.parent.glob("aggregator.db-*"):
        beside.unlink()
    database.write_bytes(backup)
    with pytest.raises(StartError, match="--restored"):
        open_aggregator(tmp_path, 0)
    aggregator.end_tasks(str(database))
    with reopened(tmp_path, restored=True) as client:
        pair.clients[0] = client
        answers = [
            pair.release(0, "0.1", ids[:3], forged(1, "0.1", ids[:3], [])),
            pair.fix(0, "0.2", ids[3:]),
        ]
        assert [each.status_code for each in answers] == [410, 410]
    pair.services[0] = open_aggregator(tmp_path, 0)  # for `close`


class reopened:  # noqa: N801  (a context)
    """An aggregator's next process."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.service: Service = open_aggregator(folder, 0, **more)

    def __enter__(self) -> TestClient:
        return TestClient(create_aggregator_app(self.service, keys=False), "http://localhost")

    def __exit__(self, *error: Any) -> None:
        self.service.close()


def test_shares_are_deleted_with_the_release_and_in_the_ledger(pair: Pair, ids: list[str]) -> None:
    pair.share(dict.fromkeys(ids, 1.0))
    pair.collect("0.1", ids)
    with pair.services[0].storage.reading() as connection:
        count = connection.exec_driver_sql("SELECT count(*), count(share) FROM shares").one()
    assert tuple(count) == (6, 0)
    events = [each for each in pair.services[0].ledger.entries() if each["event"] == "released"]
    assert [each["note"] for each in events] == ["batch 0.1 of 6 decisions, epsilon 1000000.0"]


def test_an_ended_task_releases_nothing_and_keeps_no_share(pair: Pair, ids: list[str]) -> None:
    """Of a batch that was released, of one that was only fixed, and of none."""
    pair.share(dict.fromkeys(ids, 1.0))
    pair.collect("0.1", ids[:2])
    known = pair.release(0, "0.1", ids[:2], forged(1, "0.1", ids[:2], [])).json()
    pair.fix(0, "0.2", ids[2:4])
    for _ in range(2):
        assert pair.clients[0].delete(f"/v1/tasks/{TASK}").status_code == 200
    answers = [
        pair.release(0, "0.2", ids[2:4], forged(1, "0.2", ids[2:4], [])),
        pair.fix(0, "0.3", ids[4:]),
        pair.send(ids[5], 1, 0),
        pair.send(decision_id(random.Random(9)), 1, 0),
    ]
    assert [each.status_code for each in answers] == [410] * 4
    assert pair.release(0, "0.1", ids[:2], forged(1, "0.1", ids[:2], [])).json() == known
    with pair.services[0].storage.reading() as connection:
        assert connection.exec_driver_sql("SELECT count(share) FROM shares").scalar() == 0
    events = [each["event"] for each in pair.services[0].ledger.entries()]
    assert events.count("ended") == 1


def test_deleted_shares_are_overwritten_in_the_file(
    tmp_path: Path, pair: Pair, ids: list[str]
) -> None:
    """Otherwise two files that fall into one hand later would show rewards."""
    pair.share(dict.fromkeys(ids, 1.0))
    with pair.services[0].storage.reading() as connection:
        stored = connection.exec_driver_sql("SELECT share FROM shares").scalars().all()
    pair.collect("0.1", ids)
    database = Path(str(pair.services[0].storage.engine.url.database))
    pair.services[0].close()  # the write-ahead log is gone
    content = database.read_bytes()
    assert len(stored) == 6
    assert not [share for share in stored if share.encode() in content]
    pair.services[0] = open_aggregator(tmp_path, 0)  # for `close`


def test_what_an_operator_sees_is_uniform(pair: Pair) -> None:
    """Stored shares of rewards that are all 1: chi-square on the leading hexadecimal digits.

    Both servers, three digits each; at level 1e-4 in all.
    """
    rng = random.Random(4)
    for side in (0, 1):
        for _ in range(2_000):
            share = split(reward_steps(1.0), pair.bits)[side]
            text = share_text(share, pair.bits)
            pair.services[side].writer.submit(aggregator.RecordShare(TASK, decision_id(rng), text))
        pair.services[side].run_job(aggregator.ReadTask(TASK))  # after all of them
        with pair.services[side].storage.reading() as connection:
            stored = connection.exec_driver_sql("SELECT share FROM shares").scalars().all()
        assert len(stored) == 2_000
        for place in (-1, -4, -7):
            counts = [0] * 16
            for text in stored:
                counts[int(text[place], 16)] += 1
            assert stats.chisquare(counts).pvalue > 1e-4 / 6


def test_an_aggregator_has_a_database_of_its_own(tmp_path: Path) -> None:
    service = open_aggregator(tmp_path, 0)
    try:
        definition = {"policy": "ucb1", "arms": ["a", "b"], "reward_window": 1.0}
        from balaclava.service.engine.definition import ExperimentDefinition

        made = ExperimentDefinition.checked(name="x", parameters={}, **definition)
        asyncio.run(service.create(made))
        with pytest.raises(StartError, match="of its own"):
            create_aggregator_app(service)
    finally:
        service.close()


def test_a_problem_of_one_share_leaves_the_others(pair: Pair, ids: list[str]) -> None:
    """Jobs share a commit: one that is refused changes nothing of the rest."""
    pair.fix(0, "0.1", ids[:1])
    writer = pair.services[0].writer
    answers = [
        writer.submit(aggregator.RecordShare(TASK, id, share_text(0, pair.bits))) for id in ids
    ]
    with pytest.raises(Problem, match="is fixed"):
        answers[0].result()
    assert [each.result() for each in answers[1:]] == [{"recorded": True}] * 5
