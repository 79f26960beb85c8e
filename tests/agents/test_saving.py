"""Intact saves are restored; damaged ones raise an error of the package, never another one."""

from __future__ import annotations

import base64
import copy
import json
import math
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import balaclava as bl
from balaclava.agents.saving import (
    DamageError,
    content_digest,
    fill_state,
    finite_number,
    pack_state,
    plain_generator,
    set_generator,
)
from balaclava.errors import BalaclavaError, PolicyError, SavedStateError
from balaclava.frames.tally import begin_tally
from balaclava.testing.examples import examples

Saved = dict[str, Any]


def saved_agent(**settings: Any) -> Saved:
    """An agent with open, told, cancelled and given up decisions."""
    agent = bl.policy("dp-ucb", arms=3, epsilon=1.0).agent(seed=3, **settings)
    decisions = [agent.ask() for _ in range(12)]
    for decision in decisions[::2]:
        agent.tell(decision, 0.5)
    agent.cancel(decisions[11])
    for _ in range(8):
        agent.ask()
    return json.loads(json.dumps(agent.save()))


SAVES = {
    "arrival": saved_agent(patience=12),
    "window": saved_agent(patience=15, settle="window", missing=0.0),
}


def continues_as_before(agent: bl.Agent) -> bool:
    """Whether a restored agent makes the decisions that the saved one makes."""
    restored = bl.restore(json.loads(json.dumps(agent.save())))
    return all(restored.ask()[1:] == agent.ask()[1:] for _ in range(20))


EVEN = [entry.policy for entry in bl.list_policies() if "explore" in entry.policy.annotations]


@pytest.mark.parametrize("policy", EVEN, ids=lambda policy: policy.name)
def test_arms_drawn_evenly_survive_a_save(policy):
    example = examples(policy)[0]
    agent = policy.create({**example.parameters, "explore": 0.4, "holdout": 0.1}).agent(seed=1)
    low = example.accepts[0]
    for turn in range(60):
        decision = agent.ask()
        if turn % 5:
            agent.tell(decision, low if math.isfinite(low) else 0.5)
        else:
            agent.cancel(decision)
    assert continues_as_before(agent)


def test_a_batch_without_end_survives_a_save():
    """The batch after the last one within the horizon never ends."""
    policy = bl.policy(
        "dpr-batch-ucb", arms=2, epsilon=5.0, horizon=100, moment_order=2.0, moment_bound=1.0
    )
    agent = policy.agent(seed=1)
    for _ in range(130):
        decision = agent.ask()
        agent.tell(decision, float(decision.arm))
    assert policy.pools_of(agent._runner.state).size.max() > 10**18
    assert continues_as_before(agent)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to all values inside."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from places(inner, (*path, key))


def changed(saved: Saved, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Saved:
    damaged = copy.deepcopy(saved)
    inner: Any = damaged
    for key in path[:-1]:
        inner = inner[key]
    change(inner, path[-1])
    return damaged


def setter(value: Any) -> Callable[[Any, Any], None]:
    return lambda inner, key: inner.__setitem__(key, value)


def drop(inner: Any, key: Any) -> None:
    del inner[key]


WRONG = (None, True, -1, -3, 1.5, "x", "", [], {}, 10**13, 10**400, float("nan"), [[]])


def other_values(value: Any) -> Iterator[Any]:
    yield from (wrong for wrong in WRONG if wrong != value or type(wrong) is not type(value))
    if isinstance(value, int) and not isinstance(value, bool):
        yield from (value + 1, value - 1, value + 1_000)


@pytest.mark.parametrize("kind", SAVES)
def test_every_change_breaks_the_seal(kind):
    """Each part is dropped or changed; the digest is not."""
    saved, count = SAVES[kind], 0
    assert bl.restore(saved).save()["clock"] == 20
    for path in places(saved):
        damages = [changed(saved, path, drop)]
        for value in other_values(_at(saved, path)):
            damages.append(changed(saved, path, setter(value)))
        for damaged in damages:
            count += 1
            with pytest.raises(BalaclavaError):
                bl.restore(damaged)
    assert count > 1_000


def _at(saved: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        saved = saved[key]
    return saved


# What an agent may well have saved: changing it makes another agent, not a damaged one. Only the
# seal shows that it was changed.
FREE = {
    ("generator", "None"),
    ("policy", "parameters"),
    ("settling", "patience"),
    ("settling", "missing"),
    ("generator", "state"),
    ("generator", "has_uint32"),
    ("generator", "uinteger"),
    ("unlearned",),
    ("order", "dropped"),  # as in saves of earlier versions
    ("order", "kept"),
    ("agent",),
    ("reception", "held"),  # a reward may not have come
}
PHASE = 3  # of an open decision: the policy's own business


@pytest.mark.parametrize("kind", SAVES)
def test_invalid_parts_with_a_valid_digest_are_refused(kind):
    """Each part is dropped or made invalid, and the digest is recomputed."""
    saved, accepted, count = SAVES[kind], [], 0
    for path in places(saved):
        damages = [("dropped", changed(saved, path, drop))]
        for value in WRONG:
            damages.append((repr(value)[:20], changed(saved, path, setter(value))))
        for what, damaged in damages:
            count += 1
            try:
                damaged["digest"] = content_digest(damaged)
                bl.restore(damaged)
            except BalaclavaError:
                continue
            if damaged != saved and path[0] != "digest":
                accepted.append((path, what))
    assert count > 500
    odd = [
        (*path, what)
        for path, what in accepted
        if not any((*path, what)[: len(free)] == free for free in FREE)
        and not (path[0] == "open" and path[2:] == (PHASE,))
    ]
    assert odd == []


def array(saved: Saved, name: str) -> np.ndarray:
    packed = saved["state"][name]
    if "deflated" in packed:
        data = zlib.decompress(base64.b64decode(packed["deflated"]))
    else:
        data = base64.b64decode(packed["data"])
    return np.frombuffer(data, dtype=packed["dtype"]).reshape(packed["shape"]).copy()


def put(saved: Saved, name: str, values: np.ndarray) -> None:
    saved["state"][name].pop("deflated", None)  # an earlier version's save
    saved["state"][name]["data"] = base64.b64encode(values.tobytes()).decode()


def test_large_arrays_are_compressed_and_read_as_before() -> None:
    """A save of 65 features and ten arms had 6.7 MB; forged content is refused."""
    policy = bl.policy("dp-linucb", arms=10, features=65, disjoint=True, epsilon=1.0, delta=1e-5)
    agent, rng = policy.agent(seed=1), np.random.default_rng(1)
    for _ in range(40):
        row = rng.normal(size=65)
        agent.tell(agent.ask(row / np.linalg.norm(row)), 1.0)
    saved = json.loads(json.dumps(agent.save()))
    assert len(json.dumps(saved)) < 1_500_000
    before = copy.deepcopy(saved)
    for name in before["state"]:
        put(before, name, array(before, name))  # uncompressed
    before["digest"] = content_digest(before)
    row /= np.linalg.norm(row)
    assert bl.restore(before).ask(row).arm == bl.restore(saved).ask(row).arm == agent.ask(row).arm
    notes = saved["state"]["episodes.pending.notes"]
    for content in (b"", b"x", zlib.compress(b"\0" * 10**8), zlib.compress(b"\0")):
        notes["deflated"] = base64.b64encode(content).decode()
        saved["digest"] = content_digest(saved)
        with pytest.raises(SavedStateError, match="damaged"):
            bl.restore(saved)


def with_value(name: str, value: float) -> Callable[[Saved], None]:
    def change(saved: Saved) -> None:
        values = array(saved, name)
        values.flat[0] = value
        put(saved, name, values)

    return change


def swap(one: str, other: str) -> Callable[[Saved], None]:
    def change(saved: Saved) -> None:
        saved["state"][one], saved["state"][other] = saved["state"][other], saved["state"][one]

    return change


def again(key: str) -> Callable[[Saved], None]:
    return lambda saved: saved[key].append(saved[key][0])


NONSENSE: dict[str, Callable[[Saved], None]] = {
    "negative count": with_value("indices.tally.pulls", -1),
    "more rewards than decisions": with_value("indices.tally.pulls", 1_000),
    "nan in sums": with_value("indices.tally.sums", np.nan),
    "inf in sums": with_value("indices.tally.sums", np.inf),
    "unknown arms": with_value("indices.tally.unknown", 7),
    "swapped arrays": swap("indices.tally.pulls", "indices.tally.sums"),
    "truncated": lambda s: s["state"]["indices.tally.sums"].update(
        data=s["state"]["indices.tally.sums"]["data"][:-4]
    ),
    "not base64": lambda s: s["state"]["indices.tally.sums"].update(data="%%%"),
    "another dtype": lambda s: s["state"]["indices.tally.sums"].update(dtype="<i8"),
    "big endian": lambda s: s["state"]["indices.tally.sums"].update(dtype=">f8"),
    "another shape": lambda s: s["state"]["indices.tally.sums"].update(shape=[1, 3]),
    "an array more": lambda s: s["state"].update(more=s["state"]["indices.tally.sums"]),
    "a key more": lambda s: s.update(more=1),
    "fewer arms": lambda s: s["policy"]["parameters"].update(arms=2),
    "more arms": lambda s: s["policy"]["parameters"].update(arms=4),
    "arms beyond memory": lambda s: s["policy"]["parameters"].update(arms=10**13),
    "arms that would fill it": lambda s: s["policy"]["parameters"].update(arms=10**9),
    "no arms": lambda s: s["policy"]["parameters"].update(arms=0),
    "epsilon below 0": lambda s: s["policy"]["parameters"].update(epsilon=-1.0),
    "another policy": lambda s: s["policy"].update(name="ucb1"),
    "an environment": lambda s: s["policy"].update(name="bernoulli"),
    "clock back": lambda s: s.update(clock=3),
    "clock ahead": lambda s: s.update(clock=10**6),
    "clock beyond counting": lambda s: s.update(clock=10**30),
    "clock of text": lambda s: s.update(clock="20"),
    "open twice": again("open"),
    "closed twice": again("closed"),
    "open and closed": lambda s: s["closed"].append([s["open"][0][0], "told"]),
    "open of another agent": lambda s: s["open"][0].__setitem__(0, "f" * 32 + "-2"),
    "arm that is none": lambda s: s["open"][0].__setitem__(2, 3),
    "open out of order": lambda s: s["open"].reverse(),
    "closed that is no decision": lambda s: s["closed"][0].__setitem__(0, "me"),
    "ended otherwise": lambda s: s["closed"][0].__setitem__(1, "eaten"),
    "rewards that do not add up": lambda s: s["reception"].update(rewards=1, came=1),
    "a wait beyond the clock": lambda s: s["reception"].update(reach=999.0),
    "a wait that is no number": lambda s: s["reception"].update(reach=float("nan")),
    "late and not given up": lambda s: s["reception"].update(late=[1]),
    "a reward out of its range": lambda s: s.update(
        settling={"patience": 25, "settle": "window", "missing": 0.0},
        reception={"held": [[s["open"][0][0], "reward", 1.5]]},
    ),
    "a report of no local policy": lambda s: s.update(
        settling={"patience": 25, "settle": "window", "missing": 0.0},
        reception={"held": [[s["open"][0][0], "report", 0.5]]},
    ),
    "a reward without its value": lambda s: s.update(
        settling={"patience": 25, "settle": "window", "missing": 0.0},
        reception={"held": [[s["open"][0][0], "reward", None]]},
    ),
    "a value without its kind": lambda s: s.update(
        settling={"patience": 25, "settle": "window", "missing": 0.0},
        reception={"held": [[s["open"][0][0], None, "1"]]},
    ),
    "an order of text": lambda s: s["order"].update(kept="no"),
    "a generator with more": lambda s: s["generator"].update(more=1),
    "another generator": lambda s: s["generator"].update(bit_generator="MT19937"),
    "half a generator": lambda s: s["generator"]["state"]["state"].pop(),
    "a window without its value": lambda s: s["settling"].update(settle="window"),
    "patience of nothing": lambda s: s["settling"].update(patience=0),
    "decisions of no arm": lambda s: s["decisions"].append(0),
    "an older schema": lambda s: s.update(schema=1),
    "no name": lambda s: s.update(agent="me"),
}


@pytest.mark.parametrize("what", NONSENSE)
def test_invalid_values_with_a_valid_digest_are_refused(what):
    damaged = copy.deepcopy(SAVES["arrival"])
    NONSENSE[what](damaged)
    assert damaged != SAVES["arrival"]
    damaged["digest"] = content_digest(damaged)
    with pytest.raises(BalaclavaError):
        bl.restore(damaged)


def _pooled() -> Saved:
    agent = bl.policy("dp-imed", arms=2, epsilon=5.0).agent(seed=1)
    for _ in range(200):
        agent.tell(agent.ask(), 0.5)
    agent.ask()
    return json.loads(json.dumps(agent.save()))


POOLED = _pooled()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("left", -1),
        ("left", 10**6),
        ("lost", 10**3),
        ("lost", -1),
        ("placed", 150),
        ("rewards", 10**4),
        ("sums", np.nan),
        ("means", np.inf),
        ("settled", 190),
    ],
)
def test_invalid_pools_are_refused(name, value):
    damaged = copy.deepcopy(POOLED)
    (found,) = (key for key in damaged["state"] if key.rpartition(".")[2] == name)
    with_value(found, value)(damaged)
    damaged["digest"] = content_digest(damaged)
    assert bl.restore(POOLED).status().rewards == 200
    with pytest.raises(SavedStateError, match="damaged"):
        bl.restore(damaged)


def _played(name: str, **parameters: Any) -> Saved:
    """A save after 90 decisions; some are open, some cancelled."""
    agent = bl.policy(name, arms=3, **parameters).agent(seed=1)
    for number in range(90):
        decision = agent.ask()
        if number % 10 == 3:
            agent.cancel(decision)
        elif number % 10 != 7:
            agent.tell(decision, 0.5)
    return json.loads(json.dumps(agent.save()))


PLAYED = {
    "dp-se": _played("dp-se", epsilon=5.0, horizon=500, explore=0.5),
    "dp-imed": _played("dp-imed", epsilon=5.0),
    "dp-ucb": _played("dp-ucb", epsilon=1.0),
    "dp-ucb-int": _played("dp-ucb-int", epsilon=1.0, delta=1e-3),
    "dp-htinf": _played("dp-htinf", epsilon=1.0, horizon=500),
    "dpr-batch-ucb": _played(
        "dpr-batch-ucb", epsilon=1.0, horizon=500, moment_order=2.0, moment_bound=1.0, first_batch=4
    ),
}


@pytest.mark.parametrize("name", PLAYED)
def test_a_played_state_is_restored(name):
    """Every value of a played state is in its range."""
    assert bl.restore(PLAYED[name]).save()["state"] == PLAYED[name]["state"]


@pytest.mark.parametrize(
    ("policy", "name", "value"),
    [
        ("dp-se", "came", -1),
        ("dp-se", "lost", -1_000),
        ("dp-se", "radii", np.nan),
        ("dp-se", "alone", 3),
        ("dp-se", "phase", 10**6),
        ("dp-se", "sums", -1.0),
        ("dp-se", "blocks.order", 3),
        ("dp-imed", "number", 10**6),
        ("dp-imed", "planned", -1),
        ("dp-imed", "lead", 3),
        ("dp-imed", "chance", 1.5),
        ("dp-imed", "sums", 1e300),
        ("dp-imed", "blocks.full_size", 10**6),
        ("dp-ucb", "counters.since.items", -1),  # on which its tree went on for ever
        ("dp-ucb", "counters.whole.items", 2**61),
        ("dp-ucb-int", "best", -1),
        ("dp-ucb-int", "indices", np.nan),
        ("dp-htinf", "left", -1),
        ("dp-htinf", "number", 2**61),
        ("dp-htinf", "base.pending.count", -1),
        ("dp-htinf", "base.chances", -1.0),
        ("dpr-batch-ucb", "grades", 10**6),
        ("dpr-batch-ucb", "shares", -1.0),
        ("dpr-batch-ucb", "widths", -1.0),
    ],
)
def test_invalid_states_are_refused(policy, name, value):
    damaged = copy.deepcopy(PLAYED[policy])
    with_value(name, value)(damaged)
    damaged["digest"] = content_digest(damaged)
    with pytest.raises(SavedStateError, match="damaged"):
        bl.restore(damaged)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s["policy"]["parameters"].update(epsilon=0.01),
        lambda s: s.update(generator=None),
        lambda s: s["settling"].update(settle="arrival", missing=None),
    ],
    ids=["a smaller epsilon", "no seed", "no window"],
)
def test_changes_that_flatter_the_agent_break_the_seal(change):
    damaged = copy.deepcopy(SAVES["window"])
    change(damaged)
    with pytest.raises(SavedStateError, match="digest does not match"):
        bl.restore(damaged)


@bl.kernel
def choose_by_sum(params, state, t, context, rng):
    return (math.nan if t == 3 else 0), 0


@bl.kernel
def learn_by_index(params, state, t, arm, reward, phase, rng):
    state.pulls[int(1e6 * reward)] += 1


class FailsInside(bl.Policy):
    """Kernels that fail with a reward in the text of the error."""

    name = "fails-inside"
    kernels = bl.Kernels(begin_tally, choose_by_sum, learn_by_index)


def test_the_error_of_a_failed_kernel_contains_no_reward():
    agent = FailsInside(arms=2).agent(seed=1)
    first, _ = agent.ask(), agent.ask()
    with pytest.raises(PolicyError, match="failed in round 1 with a IndexError") as error:
        agent.tell(first, 0.123456)
    assert "123456" not in str(error.value)
    assert error.value.__suppress_context__
    with pytest.raises(PolicyError, match="failed in round 3 with a ValueError"):
        agent.ask()


class Numbers(NamedTuple):
    """A state with one array of each kind."""

    flags: np.ndarray
    counts: np.ndarray
    sums: np.ndarray
    radii: np.ndarray


def numbers() -> Numbers:
    flags, counts = np.zeros(2, np.bool_), np.zeros(2, np.int64)
    return Numbers(flags, counts, np.zeros(2), np.full(2, math.inf))


@pytest.mark.parametrize(
    ("name", "values", "refused"),
    [
        ("counts", [0, -1], ""),
        ("counts", [0, -2], "out of its range"),
        ("counts", [-2, 5], "out of its range"),
        ("counts", [2**62, 0], ""),
        ("counts", [0, 2**62 + 1], "out of its range"),
        ("sums", [-1e300, 1e300], ""),
        ("sums", [0.0, math.inf], "not finite"),
        ("sums", [math.nan, 0.0], "not finite"),
        ("radii", [math.inf, 1.0], ""),
    ],
)
def test_each_array_holds_what_its_kind_may_hold(name, values, refused):
    policy, packed = bl.policy("ucb1", arms=2), pack_state(numbers())
    data = np.array(values, getattr(numbers(), name).dtype)
    packed[name]["data"] = base64.b64encode(data.tobytes()).decode()
    state = numbers()
    if refused:
        with pytest.raises(DamageError, match=refused):
            fill_state(policy, state, packed, 0)
    else:
        fill_state(policy, state, packed, 0)
        assert getattr(state, name).tolist() == values


def test_a_flag_is_true_or_false():
    packed = pack_state(numbers())
    for data, refused in ((b"\1\0", False), (b"\0\1", False), (b"\0\2", True), (b"\2\0", True)):
        packed["flags"]["data"] = base64.b64encode(data).decode()
        if refused:
            with pytest.raises(DamageError, match="other than true and false"):
                fill_state(bl.policy("ucb1", arms=2), numbers(), packed, 0)
        else:
            fill_state(bl.policy("ucb1", arms=2), numbers(), packed, 0)


@pytest.mark.parametrize(
    ("part", "least", "most"),
    [("word", 0, 2**64 - 1), ("has_uint32", 0, 1), ("uinteger", 0, 2**32 - 1)],
)
def test_the_state_of_a_generator_is_in_its_range(part, least, most):
    for value in (least - 1, least, most, most + 1):
        generator = np.random.Generator(np.random.SFC64(1))
        saved = plain_generator(generator)
        if part == "word":
            saved["state"]["state"][-1] = value
        else:
            saved[part] = value
        if least <= value <= most:
            set_generator(generator, saved)
            assert plain_generator(generator) == saved
        else:
            with pytest.raises(DamageError):
                set_generator(generator, saved)


def test_a_number_of_a_save_is_a_finite_float():
    assert finite_number(1.5) == 1.5
    for value in (math.nan, math.inf, 1, "1.5", None):
        with pytest.raises(DamageError, match="not finite"):
            finite_number(value)
