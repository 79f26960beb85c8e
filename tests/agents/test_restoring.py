"""Saves of an older version are restored, and the agents continue as they did there.

`saves_v2.json.gz` holds, for a seeded agent of every policy with open decisions, its save, its
estimates, the layout of its stored state, and the decisions that followed.
"""

import gzip
import hashlib
import json
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import balaclava as bl
from balaclava.agents.saving import StateBytes, fill_from_bytes, stored_arrays

SAVES: dict[str, Any] = json.loads(
    gzip.decompress(Path(__file__).with_name("saves_v2.json.gz").read_bytes())
)
ROUNDS_BEFORE, ROUNDS_AFTER = 600, 40


def play(agent: bl.Agent, rounds: int, seed: int) -> list[list[Any]]:
    """Ask, tell late and in any order, cancel some, lose some; returns the decisions."""
    policy, rng = agent.policy, np.random.default_rng(seed)
    low = policy.accepts[0] if math.isfinite(policy.accepts[0]) else -1.0
    high = policy.accepts[1] if math.isfinite(policy.accepts[1]) else 2.0
    late, made = [], []
    for _ in range(rounds):
        decision = agent.ask(policy.practice_context)
        made.append([decision.arm, decision.phase, decision.propensity])
        late.append(decision)
        if len(late) > 5:
            old, draw = late.pop(int(rng.integers(len(late)))), rng.random()
            is_high = rng.random() < 0.3 + 0.4 * old.arm / max(1, policy.arms - 1)
            try:
                if draw < 0.08:
                    agent.cancel(old)
                elif draw < 0.95:
                    agent.tell(old, high if is_high else low)
            except bl.errors.DecisionError:  # its window has ended
                continue
    return made


def estimates(agent: bl.Agent) -> list[list[Any]] | None:
    try:
        return [[each.rewards, each.mean, *each.interval] for each in agent.estimates()]
    except bl.errors.EstimateError:
        return None


@pytest.mark.parametrize("name", SAVES)
def test_a_save_of_version_2_is_restored_and_continues_as_before(name):
    kept = SAVES[name]
    agent = bl.restore(kept["saved"])
    assert estimates(agent) == kept["estimates"]
    made = play(agent, ROUNDS_AFTER, 6)
    assert [each[:2] for each in made] == [each[:2] for each in kept["next"]]
    for (*_, propensity), (*_, before) in zip(made, kept["next"], strict=True):
        # numpy's exp and log differ in the last bit between processors
        assert propensity == pytest.approx(before, rel=1e-12)


@pytest.mark.parametrize("name", [name for name in SAVES if name.endswith("/arrival")])
def test_states_that_a_service_stored_have_the_same_layout(name):
    agent = bl.restore(SAVES[name]["saved"])
    arrays = dict(stored_arrays(agent._runner.state, earlier=True))
    layout = repr([(field, array.dtype.str, array.shape) for field, array in arrays.items()])
    outline = hashlib.sha256(layout.encode()).digest()[:16]
    assert outline.hex() == SAVES[name]["layout"]
    content = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays.values())
    fresh, clock = agent.policy.agent(seed=1)._runner.state, agent._book.clock
    fill_from_bytes(agent.policy, fresh, outline + zlib.compress(content), clock)
    if not hasattr(fresh, "own_levels"):  # whose estimates started again
        assert StateBytes(fresh).read() == StateBytes(agent._runner.state).read()


def test_every_registered_policy_has_a_save():
    entries = bl.list_policies()  # other tests register theirs
    names = {e.name for e in entries if e.policy.__module__.startswith("balaclava.")}
    assert names <= {name.partition("/")[0] for name in SAVES} | AFTER_VERSION_2


# Policies that version 2 did not have.
AFTER_VERSION_2 = {
    *("dp-top-two", "ldp-top-two", "dpr-top-two", "dp-even", "dp-sequential-halving"),
    *("dp-kernel-ucb", "ldp-kernel-ucb"),
    "dp-squarecb",
    "exp3-s",
    "ldp-window-klucb",
    "with-values",
}
