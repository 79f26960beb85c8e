"""Saves can be read in any language: they fit their JSON Schema, and Node.js reads one."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import balaclava as bl
from balaclava.agents import saving
from balaclava.policies.contextual.dp_kernel_ucb import DPKernelUCB
from balaclava.policies.contextual.with_values import WithValues
from balaclava.testing.conformance import played
from balaclava.testing.examples import examples

SCHEMA = json.loads(Path(saving.__file__).with_name("save.schema.json").read_text("utf-8"))
READER = Path(__file__).with_name("read_save.mjs")
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
Saved = dict[str, Any]


def saved_after(policy: bl.Policy, rounds: int = 40, **settings: Any) -> Saved:
    agent = policy.agent(**settings)
    for _ in played(policy, agent, rounds, delay=3):
        pass
    return json.loads(json.dumps(agent.save()))


def faults(saved: Saved) -> list[str]:
    return [f"{list(error.path)}: {error.message[:200]}" for error in VALIDATOR.iter_errors(saved)]


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(
    "policy", [entry.policy for entry in bl.list_policies()], ids=lambda p: p.name
)
def test_every_policys_save_fits_the_schema(policy: type[bl.Policy]) -> None:
    for example in examples(policy):
        assert faults(saved_after(example)) == []
        assert faults(saved_after(example, seed=1)) == []


def full_save() -> Saved:
    """An agent with named arms, windows, changed arms, a prior, and a second restore."""
    policy = bl.policy("dp-imed", arms=["a", "b", "ü\t😀"], epsilon=1.0)
    agent = policy.agent(
        patience=5, settle="window", missing=0.0, prior={"a": (0.9, 30), "b": (0.1, 30)}
    )
    agent.add_arm("new")
    agent.set_shares({"b": 0.1})
    for i in range(200):
        decision = agent.ask(available=["a", "b"]) if i % 7 == 0 else agent.ask()
        agent.tell(decision, 0.25)
    agent.retire_arm("a")
    for _ in range(40):
        agent.tell(agent.ask(), 0.5)
    return json.loads(json.dumps(agent.save()))


def test_everything_that_a_save_may_hold_fits_the_schema() -> None:
    saved = full_save()
    assert {"roster", "order"} <= set(saved)
    assert saved["reception"]["held"]
    assert faults(saved) == []
    agent = bl.policy("kl-ucb", arms=2).agent(seed=1)
    agent.tell(agent.ask(), 0.5)
    agent.finish()
    assert faults(json.loads(json.dumps(agent.save()))) == []


def test_the_restores_of_a_file_fit_the_schema(tmp_path: Path) -> None:
    path = tmp_path / "agent.json"
    agent = bl.policy("dp-imed", arms=2, epsilon=1.0).agent()
    agent.save(path)
    bl.restore(path)
    again = json.loads(json.dumps(bl.restore(path, again=True).save()))
    assert again["restores"] == 1
    assert faults(again) == []


def change(*path: Any, to: Any) -> Callable[[Saved], None]:
    def apply(saved: Saved) -> None:
        part: Any = saved
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = to

    return apply


@pytest.mark.parametrize(
    "damage",
    [
        change("schema", to=3),
        change("clock", to=-1),
        change("clock", to=1.5),
        change("agent", to="x"),
        change("extra", to=1),
        change("settling", "settle", to="later"),
        change("state", "means", "dtype", to="<f4"),
        change("state", "means", "data", to=7),
        change("open", to=[["0" * 32 + "-1", 1, 0]]),
        change("closed", to=[["0" * 32 + "-1", "lost"]]),
        change("generator", to={"bit_generator": "PCG64"}),
        change("reception", to={}),
        lambda saved: saved["state"]["means"].pop("data"),
        lambda saved: saved.pop("digest"),
    ],
)
def test_a_damaged_save_does_not_fit(damage: Callable[[Saved], None]) -> None:
    saved = saved_after(bl.policy("dp-imed", arms=2, epsilon=1.0))
    assert faults(saved) == []
    damage(saved)
    assert faults(saved)


def read_by_node(path: Path) -> dict[str, Any]:
    done = subprocess.run(["node", READER, path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(shutil.which("node") is None, reason="no Node.js on this machine")
def test_a_program_in_another_language_reads_saves(tmp_path: Path) -> None:
    saves = [
        full_save(),
        saved_after(bl.policy("dp-imed", arms=3, epsilon=1e-5), seed=2**60),
        saved_after(
            bl.policy(
                "prae-central", arms=2, epsilon=1.0, moment_order=2, mean_range=3_000, horizon=600
            )
        ),
        saved_after(bl.policy("dp-imed", arms=2, epsilon=1.0, trust="split")),
        saved_after(
            bl.policy("linucb", arms=3, features=2, catalogue=[[1, 0], [0, 1], [0.5, 0.5]])
        ),
        *(saved_after(example) for example in (*examples(DPKernelUCB), *examples(WithValues))),
    ]
    deflated = False
    for number, saved in enumerate(saves):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(saved), encoding="utf-8")
        read = read_by_node(path)
        assert read["intact"] is True
        assert set(read["arrays"]) == set(saved["state"])
        for name, array in saved["state"].items():
            deflated = deflated or "deflated" in array
            numbers = np.array(
                [float(text.replace("Infinity", "inf")) for text in read["arrays"][name]]
            )
            data = saving._unpacked(array, 8 * max(numbers.size, 1))
            expected = np.frombuffer(data, dtype=array["dtype"]).astype(float)
            np.testing.assert_array_equal(numbers, expected)
        damaged = copy.deepcopy(saved)
        damaged["clock"] += 1
        path.write_text(json.dumps(damaged), encoding="utf-8")
        assert read_by_node(path)["intact"] is False
    assert deflated
