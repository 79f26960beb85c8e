"""Sweeps: grids in experiment files, cells on disk, runs that are stopped and go on, clusters."""

from __future__ import annotations

import errno
import hashlib
import importlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import balaclava as bl
from balaclava.cli import main
from balaclava.errors import (
    ClusterError,
    DamageWarning,
    DeviceError,
    ExperimentFileError,
    IncompatibleError,
    MissingPartError,
    ParameterError,
    PolicyError,
    ResultsFileError,
    UnknownNameError,
)
from balaclava.experiments import sweep
from balaclava.experiments.experiment_file import (
    ExperimentPlan,
    SimulationSetting,
    read_plan,
)
from balaclava.experiments.grids import expand, range_values
from balaclava.experiments.sweep import open_sweep, plan_sweep
from balaclava.experiments.sweep_runner import run_sweep
from balaclava.policies.base import POLICIES
from balaclava.simulation import engine, results_file
from balaclava.simulation.gpu.device import gpu_fault
from tests.experiments.settings import simulated

SWEEP = """
horizon = [300, 1000]
repetitions = 4
seed = 1
checkpoints = 5

[environments.close]
name = "bernoulli"
means = [0.5, 0.55]

[environments.wide]
name = "bernoulli"
means = { grid = [[0.1, 0.9], [0.2, 0.5, 0.8]] }

[policies.ucb1]

[policies.bold]
name = "ucb1"
radius_scale = { grid = [0.25, 0.5] }
"""
FIRST, SECOND = "wide(means=[0.1, 0.9])", "wide(means=[0.2, 0.5, 0.8])"


def written(folder: Path, text: str = SWEEP, name: str = "small.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def plan(tmp_path: Path) -> ExperimentPlan:
    return read_plan(written(tmp_path))


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# Grids


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ({"grid": [0.1, 1, 10]}, [0.1, 1, 10]),
        ({"grid": ["a"]}, ["a"]),
        ({"log": [0.01, 10, 4]}, [0.01, 0.1, 1, 10]),
        ({"log": [1, 10, 3]}, [1, 3.16227766017, 10]),
        ({"linear": [0, 1, 6]}, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        ({"linear": [-1, 1, 2]}, [-1, 1]),
        ([1, 2], None),
        ({"grid": [1], "log": [1, 2, 3]}, None),
        ({"name": "pareto"}, None),
    ],
)
def test_ranges(given: Any, values: list[Any] | None) -> None:
    assert range_values("x", given) == values


@pytest.mark.parametrize(
    "given",
    [
        {"grid": []},
        {"grid": 3},
        {"log": [0, 1, 5]},
        {"log": [1, 1, 5]},
        {"log": [0.1, 1, 1]},
        {"log": [0.1, 1]},
        {"linear": [0, 1, 2.5]},
        {"linear": ["a", 1, 3]},
    ],
)
def test_odd_ranges_are_refused(given: Any) -> None:
    with pytest.raises(ExperimentFileError, match=r"x = \{ \w+ = .* \} is not a "):
        range_values("x", given)


def test_a_section_with_grids_stands_for_every_combination() -> None:
    table = {"a": {"grid": [1, 2]}, "inner": {"b": {"linear": [0, 1, 3]}, "name": "x"}, "c": 5}
    found = expand("p", table)
    assert list(found)[:2] == ["p(a=1, inner.b=0)", "p(a=1, inner.b=0.5)"]
    assert len(found) == 6
    assert found["p(a=2, inner.b=0.5)"] == {"a": 2, "inner": {"b": 0.5, "name": "x"}, "c": 5}
    assert table["a"] == {"grid": [1, 2]}
    assert expand("p", {"c": 5}) == {"p": {"c": 5}}
    long = expand("p", {"means": {"grid": [[0.123456] * 9, [0.5] * 90]}})
    assert list(long) == ["p(means=#1)", "p(means=#2)"]
    with pytest.raises(ExperimentFileError, match="twice"):
        expand("p", {"a": {"grid": [1, 1]}})
    with pytest.raises(ExperimentFileError, match="did you mean 'grid'"):
        expand("p", {"a": {"gird": [1, 2]}})
    assert expand("p", {"a": {"kind": [1, 2]}}) == {"p": {"a": {"kind": [1, 2]}}}


def test_a_list_for_one_number_is_told_of_grids(tmp_path: Path) -> None:
    text = SWEEP + "[policies.dp-se]\nepsilon = [1, 2]"
    with pytest.raises(ExperimentFileError, match=r"write epsilon = { grid = \[1, 2\] }"):
        read_plan(written(tmp_path, text))


# Files


def test_a_file_asks_for_every_combination(plan: ExperimentPlan) -> None:
    settings = [(e.environment_label, e.horizon, e.seed) for e in plan.settings]
    assert settings == [(w, t, 1) for w in ("close", FIRST, SECOND) for t in (300, 1000)]
    for experiment in plan.settings:
        labels = ["ucb1", "bold(radius_scale=0.25)", "bold(radius_scale=0.5)"]
        assert list(experiment.policies) == labels
        assert {policy.arms for policy in experiment.policies.values()} == {
            experiment.environment.arms
        }
    assert plan.name == "small"


def test_a_policy_gets_the_horizon_of_its_cell(tmp_path: Path) -> None:
    plan = read_plan(written(tmp_path, SWEEP + "[policies.dp-se]\nepsilon = { log = [1, 2, 2] }"))
    for experiment in plan.settings:
        policy = experiment.policies["dp-se(epsilon=2)"]
        assert policy.parameters["horizon"] == experiment.horizon
        assert policy.parameters["epsilon"] == 2


def test_checkpoints_of_several_horizons(tmp_path: Path) -> None:
    listed = SWEEP.replace("checkpoints = 5", "checkpoints = [100, 300, 900, 1000]")
    rounds = {e.horizon: e.checkpoints for e in read_plan(written(tmp_path, listed)).settings}
    assert rounds == {300: [100, 300], 1000: [100, 300, 900, 1000]}
    with pytest.raises(ExperimentFileError, match="horizon = 300"):
        read_plan(written(tmp_path, SWEEP.replace("checkpoints = 5", "checkpoints = [100, 1000]")))


def test_the_example_is_readable() -> None:
    plan = read_plan(Path(__file__).parents[2] / "examples" / "sweep.toml")
    assert [len(experiment.policies) for experiment in plan.settings] == [12] * 4


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("horizon = [300, 1000]", "horizon = [300, 300]", r"horizon = \[300, 300\].*once"),
        ("horizon = [300, 1000]", "horizon = []", r"horizon = \[\].*once"),
        ("horizon = [300, 1000]", "horizon = [300, -1]", r"horizon = -1"),
        ("horizon = [300, 1000]", "horizon = { log = [1, 10, 3] }", r"horizon = 3\.16"),
        ("repetitions = 4", "repetitions = [4, 5]", r"repetitions has several"),
        ("[environments.close]", "[environment]", r"both \[environment\] and \[environments\]"),
        ("[policies.ucb1]", '[policies."bold(radius_scale=0.5)"]\nname="ucb1"', r"appears twice"),
        ("[0.25, 0.5]", "[]", r"\[policies.bold\]: radius_scale = \{ grid = \[\] \} is not a grid"),
        ("[[0.1, 0.9], ", "[[0.1, 9], ", r"\[environments.wide\]: bernoulli: means\[1\] = 9"),
    ],
)
def test_file_errors_say_where(tmp_path: Path, before: str, after: str, message: str) -> None:
    assert before in SWEEP
    with pytest.raises(ExperimentFileError, match=message):
        read_plan(written(tmp_path, SWEEP.replace(before, after, 1)))


def test_all_invalid_cells_are_named_before_anything_is_played(tmp_path: Path) -> None:
    text = SWEEP.replace("[0.25, 0.5]", "[0.5, -1, -2]") + "[policies.three]\nname = 'ucb1'\narms=3"
    path = written(tmp_path, text)
    with pytest.raises(ExperimentFileError) as caught:
        read_plan(path)
    told = str(caught.value)
    # Two values in six settings each, and the two environments without three arms at two horizons.
    assert "16 cells cannot be played" in told
    everywhere = f"close, {FIRST}, {SECOND} at horizon 300, 1000"
    for value in (-1, -2):
        assert f"(bold(radius_scale={value}) on {everywhere})" in told
    assert "three: arms = 3, but bernoulli has 2 arms; give" in told
    assert f"(three on close, {FIRST} at horizon" in told
    answer = CliRunner().invoke(main, ["simulate", str(path), "--out", str(tmp_path / "out")])
    assert answer.exit_code == 2
    assert "16 cells" in answer.stderr
    assert answer.stderr.count("\n") == 4  # a line for each fault
    assert not (tmp_path / "out").exists()


# Cells


def test_a_sweep_is_what_simulate_gives_to_the_last_bit(
    plan: ExperimentPlan, tmp_path: Path
) -> None:
    seen: list[tuple[int, ...]] = []
    run_sweep(plan, tmp_path / "out", progress=lambda *told: seen.append(told))
    found = open_sweep(tmp_path / "out")
    assert found.name == "small"
    assert len(found.cells) == 18
    assert all(cell.done and cell.path.is_file() for cell in found.cells)
    for experiment in plan.settings:
        results = found.results(experiment.environment_label, experiment.horizon)
        plain = simulated(experiment)
        assert results.labels == plain.labels
        assert results.policies == plain.policies
        assert results.environment == plain.environment
        np.testing.assert_array_equal(results.checkpoints, plain.checkpoints)
        for label in plain.labels:
            assert results.regret(label).tobytes() == plain.regret(label).tobytes()
            assert results.pulls(label).tobytes() == plain.pulls(label).tobytes()
    rounds = 3 * 3 * 4 * 1300
    assert seen[-1] == (rounds, rounds, 18, 18)
    assert [told[2] for told in seen] == sorted(told[2] for told in seen)


def test_a_cell_is_a_results_file(plan: ExperimentPlan, tmp_path: Path) -> None:
    run_sweep(plan, tmp_path / "out")
    cell = open_sweep(tmp_path / "out").cells[1]
    loaded = bl.load(cell.path)
    assert loaded.labels == ["ucb1"]
    assert loaded.policies["ucb1"] == cell.policy
    assert (cell.setting.environment_label, cell.policy_label) == (
        "close",
        "bold(radius_scale=0.25)",
    )
    assert str(cell) == "bold(radius_scale=0.25) on close at horizon 300"


def test_only_what_is_missing_is_played(
    plan: ExperimentPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    run_sweep(plan, out)
    before = tree(out)
    lost = open_sweep(out).cells[4:6]
    for cell in lost:
        cell.path.unlink()
    assert [cell.done for cell in open_sweep(out).cells].count(False) == 2
    played = []

    def counted(*arguments: Any, **options: Any) -> Any:
        played.append(arguments)
        return player(*arguments, **options)

    player = engine.repetition_player
    monkeypatch.setattr(engine, "repetition_player", counted)
    run_sweep(plan, out)
    assert [arguments[1] for arguments in played] == [cell.policy for cell in lost]
    assert tree(out) == before
    run_sweep(plan, out)
    assert len(played) == 2


def test_equal_cells_under_two_labels_are_played_once(tmp_path: Path) -> None:
    text = SWEEP.replace("[0.25, 0.5]", "[0.25, 1]")  # the second is what ucb1 is
    run_sweep(read_plan(written(tmp_path, text)), tmp_path / "out")
    assert len(tree(tmp_path / "out" / "cells")) == 12
    results = open_sweep(tmp_path / "out").results("close", 300)
    np.testing.assert_array_equal(results.regret("ucb1"), results.regret("bold(radius_scale=1)"))


def test_seeds(tmp_path: Path) -> None:
    plan = read_plan(written(tmp_path, SWEEP.replace("seed = 1", "seed = [1, 2]")))
    run_sweep(plan, tmp_path / "out")
    found = open_sweep(tmp_path / "out")
    one, two = (found.results("close", 300, seed).regret("ucb1") for seed in (1, 2))
    assert (one != two).any()
    with pytest.raises(UnknownNameError, match="no seed None; there are 1, 2"):
        found.results("close", 300)
    with pytest.raises(UnknownNameError, match="did you mean 'close'"):
        found.results("clos", 300, 1)
    with pytest.raises(UnknownNameError, match="no horizon 301; there are 300, 1000"):
        found.results("close", 301, 1)


def only_key(experiment: SimulationSetting) -> str:
    (cell,) = plan_sweep(ExperimentPlan("x", (experiment,)), "nowhere").cells
    return cell.key


def alone(**changes: Any) -> SimulationSetting:
    world = bl.environment("bernoulli", means=changes.pop("means", [0.4, 0.6]))
    policy = bl.policy("ucb1", arms=2, radius_scale=changes.pop("radius_scale", 1.0))
    label = changes.pop("label", "a")
    given: dict[str, Any] = {"horizon": 100, "repetitions": 2, "seed": 1, "checkpoints": 10}
    return SimulationSetting({label: policy}, world, **{**given, **changes})


@pytest.mark.parametrize(
    "change",
    [
        {"means": [0.4, 0.61]},
        {"radius_scale": 0.5},
        {"horizon": 101},
        {"repetitions": 3},
        {"seed": 2},
        {"checkpoints": 11},
        {"device": "cuda"},
    ],
)
def test_a_key_depends_on_all_that_decides(change: dict[str, Any]) -> None:
    assert only_key(alone(**change)) != only_key(alone())


def test_a_key_depends_on_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    key = only_key(alone())
    assert only_key(alone(label="b", workers=3, environment_label="w")) == key
    assert only_key(alone(checkpoints=list(range(10, 101, 10)))) == key
    monkeypatch.setattr(results_file, "versions", lambda *_: {"numpy": "0"})
    assert only_key(alone()) != key
    monkeypatch.undo()
    monkeypatch.setattr(sweep, "sources", lambda: "edited")
    assert only_key(alone()) != key


def test_a_key_of_a_gpu_depends_on_its_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, cuda = alone(device="cpu"), alone(device="cuda")
    keys = only_key(cpu), only_key(cuda)
    assert keys[0] == only_key(alone())
    monkeypatch.setattr(sweep, "numba_cuda_version", lambda: "0.1")
    assert only_key(cpu) == keys[0]
    assert only_key(cuda) != keys[1]


def test_a_device_is_checked_when_a_file_is_read(tmp_path: Path) -> None:
    delayed = f"{SWEEP}[delay]\nmean = 5\n"
    for text, words in (
        ('device = "tpu"' + SWEEP, "'tpu'"),
        ('device = "cuda"' + delayed, "delays"),
    ):
        with pytest.raises(ExperimentFileError, match=rf"small\.toml: device = .*{words}"):
            read_plan(written(tmp_path, text))
    plan = read_plan(written(tmp_path, 'device = "cuda"' + SWEEP))
    assert {cell.setting.device for cell in plan_sweep(plan, "nowhere").cells} == {"cuda"}


@pytest.mark.skipif(not gpu_fault(), reason="there is a GPU")
def test_without_a_gpu_nothing_is_played_or_lost(tmp_path: Path) -> None:
    file, out = written(tmp_path, SWEEP), tmp_path / "out"
    command = ["simulate", str(file), "--out", str(out), "--device"]
    done = CliRunner().invoke(main, [*command, "cuda"])
    assert (done.exit_code, tree(out)) == (2, {})
    assert "device = 'cuda' cannot be used" in done.output
    assert CliRunner().invoke(main, [*command, "auto"]).exit_code == 0
    before = tree(out)
    for more in ([], ["--extend"]):
        assert CliRunner().invoke(main, [*command, "cuda", *more]).exit_code == 2
    assert tree(out) == before
    assert {cell.setting.device for cell in open_sweep(out).cells} == {"cpu"}


def test_a_key_depends_on_the_code_of_ones_own_policy() -> None:
    def make(bonus: float) -> SimulationSetting:
        def index(params: Any, state: Any, t: int, context: Any, rng: Any) -> tuple[int, int]:
            return int(t * bonus) % 2, 0

        class Mine(bl.Policy):
            name = "test-mine"
            kernels = bl.policy("ucb1", arms=2).kernels._replace(choose=bl.kernel(index))

        world = bl.environment("bernoulli", means=[0.4, 0.6])
        return SimulationSetting({"mine": Mine(arms=2)}, world, 100, 2, seed=1)

    assert only_key(make(0.5)) != only_key(make(0.25))
    assert only_key(make(0.5)) == only_key(make(0.5))


def test_rewards_decide_about_a_key_and_are_nowhere_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked = 0.7310585786300049
    (tmp_path / "data").mkdir()
    log = tmp_path / "data" / "log.csv"
    text = SWEEP[: SWEEP.index("[environments.close]")] + (
        '[environment]\nname = "contaminated"\nfraction = 0.0\n'
        'outliers = { kind = "point", value = 0.0 }\n'
        'inner = { name = "empirical", path = "data/log.csv" }\n[policies.ucb1]\n'
    )
    keys = []
    for reward in (0.25, marked):
        log.write_text(f"arm,reward\n0,0.5\n0,0.5\n1,0.25\n1,{reward}\n1,{0.5 + 0.25 - reward}\n")
        plan = read_plan(written(tmp_path, text))
        keys.append([cell.key for cell in plan_sweep(plan, "nowhere").cells])
    assert not set(keys[0]) & set(keys[1])
    out = tmp_path / "out"
    run_sweep(plan, out)
    import pyarrow.parquet as pq

    for path in out.rglob("*.parquet"):
        said = str(pq.read_schema(path).metadata)
        assert "withheld" in said or "log.csv" in said
        assert str(marked) not in said
        assert str(tmp_path) not in said
    assert str(marked) not in (out / "manifest.json").read_text()
    found = open_sweep(out)
    assert found.results("contaminated", 300).regret("ucb1").shape == (4, 5)
    assert np.array(marked).tobytes() not in b"".join(tree(out).values())
    # Wherever the file is run from, it is the same experiment.
    monkeypatch.chdir(tmp_path)
    elsewhere = read_plan("small.toml")
    assert [cell.key for cell in plan_sweep(elsewhere, out).cells] == keys[1]


def test_a_damaged_cell_is_never_read_as_something_else(
    plan: ExperimentPlan, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run_sweep(plan, out)
    found = open_sweep(out)
    cell, other = found.cells[0], found.cells[3]
    good = cell.path.read_bytes()
    right = found.results("close", 300).regret("ucb1")
    refused = []
    for place in range(0, len(good), max(1, len(good) // 200)):
        cell.path.write_bytes(good[:place] + bytes([good[place] ^ 0x55]) + good[place + 1 :])
        try:
            np.testing.assert_array_equal(found.results("close", 300).regret("ucb1"), right)
        except ResultsFileError as error:
            refused.append(str(error))
    assert len(refused) > 50  # the rest are bytes that nothing depends on
    assert all(cell.path.name in text and "run the same" in text for text in refused)
    for content in (b"", good[:-1], other.path.read_bytes()):
        cell.path.write_bytes(content)
        with pytest.raises(ResultsFileError, match="run the same command again"):
            found.results("close", 300)


def test_a_damaged_cell_is_played_again(plan: ExperimentPlan, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_sweep(plan, out)
    before = tree(out)
    cell, other = open_sweep(out).cells[:2]
    for content in (b"", cell.path.read_bytes()[:-9], other.path.read_bytes()):
        cell.path.write_bytes(content)
        with pytest.warns(DamageWarning, match="was damaged; .* is played again"):
            run_sweep(plan, out)
        assert tree(out) == before


@pytest.mark.crash
def test_what_a_killed_writer_leaves_is_ignored_and_removed(
    plan: ExperimentPlan, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run_sweep(plan, out)
    before = tree(out)
    cell = open_sweep(out).cells[0]
    half = cell.path.with_name(f".{cell.key}.123.tmp.parquet")
    half.write_bytes(cell.path.read_bytes()[:100])
    cell.path.unlink()
    assert not open_sweep(out).cells[0].done
    (out / "parts").mkdir()
    (out / "parts" / f"{cell.key}-0.parquet").write_bytes(b"not a results file")
    run_sweep(plan, out)
    assert tree(out) == before


def test_another_experiment_is_refused(plan: ExperimentPlan, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run_sweep(plan, out)
    before = tree(out)
    text = SWEEP.replace("[0.25, 0.5]", "[0.25, 0.75]")
    other = read_plan(written(tmp_path, text, "other.toml"))
    with pytest.raises(ResultsFileError, match=r"another sweep, 'small': .*lacks bold\(rad"):
        run_sweep(other, out)
    assert tree(out) == before
    run_sweep(other, out, extend=True)
    assert len(tree(out / "cells")) == 24
    assert set(before) <= set(tree(out))
    assert open_sweep(out).name == "other"


def test_another_version_is_refused(
    plan: ExperimentPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    run_sweep(plan, out)
    said = {**results_file.versions(), "numpy": "1.0"}
    monkeypatch.setattr(results_file, "versions", lambda *_: said)
    with pytest.raises(ResultsFileError, match=rf"numpy {np.__version__}, and this is numpy 1\.0"):
        run_sweep(plan, out)


def test_a_folder_is_for_one_run_at_a_time(plan: ExperimentPlan, tmp_path: Path) -> None:
    pytest.importorskip("fcntl")

    def second(*_: int) -> None:
        with pytest.raises(ResultsFileError, match="is in use by another run"):
            run_sweep(plan, tmp_path / "out")
        refused.append(True)

    refused: list[bool] = []
    run_sweep(plan, tmp_path / "out", progress=second)
    assert refused


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not a sweep's manifest"),
        ("[]", "is not a sweep's manifest"),
        ('{"schema": 99}', "has format 99, but this version reads 1; upgrade balaclava"),
        ('{"schema": 1, "name": "x"}', "is not a sweep's manifest"),
    ],
)
def test_odd_folders(plan: ExperimentPlan, tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(ResultsFileError, match="does not contain a sweep"):
        open_sweep(tmp_path)
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(ResultsFileError, match=message):
        open_sweep(tmp_path)
    with pytest.raises(ResultsFileError):
        run_sweep(plan, tmp_path)
    with pytest.raises(ResultsFileError, match="cannot be created"):
        run_sweep(plan, tmp_path / "manifest.json")


def test_odd_arguments(plan: ExperimentPlan, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="workers"):
        run_sweep(plan, tmp_path / "out", workers=-1)
    other = bl.environment("bernoulli", means=[0.1, 0.2, 0.3])
    mismatched = SimulationSetting(alone().policies, other, 100, 2, seed=1)
    with pytest.raises(IncompatibleError, match="arms = 2, but bernoulli has 3 arms"):
        run_sweep(ExperimentPlan("x", (mismatched,)), tmp_path / "out")
    with pytest.raises(ParameterError, match="no setting"):
        run_sweep(ExperimentPlan("empty", ()), tmp_path / "out")


# Runs that end early


def test_a_full_disk_loses_nothing(
    plan: ExperimentPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_sweep(plan, tmp_path / "whole")
    write, room = Path.write_bytes, [7]

    def full(self: Path, data: bytes) -> int:
        room[0] -= 1
        if room[0] < 0:
            write(self, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(self, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(
        ResultsFileError, match=r"No space left on device.*finished repetitions are k"
    ):
        run_sweep(plan, tmp_path / "out")
    monkeypatch.undo()
    kept = tree(tmp_path / "out" / "cells")
    assert len(kept) == 7
    assert kept.items() <= tree(tmp_path / "whole" / "cells").items()
    run_sweep(plan, tmp_path / "out")
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


@pytest.mark.crash
@pytest.mark.parametrize("after", [1, 5, 30, 71])
def test_an_interrupted_run_keeps_every_repetition(
    plan: ExperimentPlan, tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = engine.Pool.finished

    def interrupted(self: Any, *arguments: Any) -> Iterator[Any]:
        for i, pair in enumerate(finished(self, *arguments)):
            if i == after:
                raise KeyboardInterrupt
            yield pair

    with monkeypatch.context() as patch:
        patch.setattr(engine.Pool, "finished", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run_sweep(plan, tmp_path / "out")
    found = open_sweep(tmp_path / "out")
    parts = found.parts()
    kept = [4 if c.done else len(found.kept(c, parts)) for c in found.cells]
    assert sum(kept) == after
    sizes = [len(found.results(*s).regret(p)) for s in found.settings() for p in ["ucb1"]]
    assert sizes == kept[::3]
    played = []
    run_sweep(plan, tmp_path / "out", progress=lambda *told: played.append(told))
    assert len(played) <= 72 - after
    run_sweep(plan, tmp_path / "whole")
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


DRIVER = """
import sys
from balaclava.experiments.experiment_file import read_plan
from balaclava.experiments.sweep_runner import run_sweep
run_sweep(read_plan(sys.argv[1]), sys.argv[2], workers=1, keep_every=0.02)
"""


def killed_and_resumed(tmp_path: Path, cells: int, kills: int) -> None:
    """Kill at random moments, some of them right after a file has appeared."""
    grid = json.dumps([i / 100 for i in range(1, cells + 1)])
    text = SWEEP.replace("[300, 1000]", "400000").replace("[0.25, 0.5]", grid)
    text = text.replace('[environments.wide]\nname = "bernoulli"\n', "")
    text = text.replace("means = { grid = [[0.1, 0.9], [0.2, 0.5, 0.8]] }\n", "")
    path = written(tmp_path, text)
    run_sweep(read_plan(path), tmp_path / "whole")
    out, rng = tmp_path / "out", random.Random(1)
    command = [sys.executable, "-c", DRIVER, str(path), str(out)]
    hit = 0
    for kill in range(kills):
        files = len(list(out.rglob("*.parquet")))
        process = subprocess.Popen(command)
        if kill % 4 == 3:
            time.sleep(rng.uniform(0, 2))
        else:
            while process.poll() is None and len(list(out.rglob("*.parquet"))) == files:
                time.sleep(0.002)
            time.sleep(rng.uniform(0, 0.05))
        process.send_signal(signal.SIGKILL)
        hit += process.wait() == -signal.SIGKILL
        for name, content in tree(out / "cells").items():  # never a half-written one
            assert name.startswith(".") or content == tree(tmp_path / "whole" / "cells")[name]
    assert hit > kills // 2
    subprocess.run(command, check=True)
    assert tree(out) == tree(tmp_path / "whole")


@pytest.mark.crash
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_run_that_is_killed_ends_with_the_same_bytes(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path, cells=8, kills=3)


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_run_that_is_killed_twenty_times_ends_with_the_same_bytes(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path, cells=40, kills=20)


# The command line


def invoke(*arguments: Any) -> Any:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out = written(tmp_path), tmp_path / "out"
    answer = invoke("simulate", path, "--out", out, "--list")
    assert answer.stdout.count("\n") == 19
    assert "0 of 18 cells are done; 4.68e+04 rounds are left to play" in answer.stdout
    assert not out.exists()
    answer = invoke("simulate", path, "--out", out)
    assert answer.exit_code == 0, answer.output
    assert "wrote 18 cells, 6 pictures and summary.txt" in answer.stdout
    summary = (out / "summary.txt").read_text(encoding="utf-8")
    assert summary in answer.stdout + "\n"
    assert f"{FIRST}: bernoulli, 2 arms, horizon 1000, seed 1" in summary
    assert (out / "regret-wide-means-0.1-0.9-300-1.png").exists()
    assert (
        "18 of 18 cells are done; 0 rounds"
        in invoke("simulate", path, "--out", out, "--list").stdout
    )
    answer = invoke("simulate", path, "--out", out)
    assert answer.stdout.startswith(summary)
    assert "nothing was played" in answer.stdout
    cell = min((out / "cells").iterdir())
    whole = cell.read_bytes()
    cell.write_bytes(whole[: len(whole) // 2])
    answer = invoke("simulate", path, "--out", out, "--list")
    assert answer.stdout.count("\ndamaged  ") + answer.stdout.startswith("damaged") == 1
    assert "17 of 18 cells are done, 1 damaged, which will be played again; " in answer.stdout
    answer = invoke("simulate", path, "--out", out)
    assert "was damaged" in answer.stderr
    assert "nothing was played" not in answer.stdout
    assert (
        "18 of 18 cells are done; 0 rounds"
        in invoke("simulate", path, "--out", out, "--list").stdout
    )
    other = written(tmp_path, SWEEP.replace("seed = 1", "seed = 2"), "other.toml")
    answer = invoke("simulate", other, "--out", out)
    assert answer.exit_code == 2
    assert "another sweep" in answer.stderr
    assert (
        "the file has other parameters, another seed, another device or edited code for "
        in answer.stderr
    )
    assert "lacks" not in answer.stderr
    assert (out / "summary.txt").read_text(encoding="utf-8") == summary

    def interrupted(self: Any, *_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine.Pool, "finished", interrupted)
    open_sweep(out).cells[0].path.unlink()
    answer = invoke("simulate", path, "--out", out)
    assert answer.exit_code == 130
    assert "after 68 of 72 repetitions; they are kept in" in answer.stderr
    assert "(17 of 18 cells); run the same command again to continue" in answer.stderr


# Clusters

distributed = pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as started:
        yield started


OWN_POLICY = """
import balaclava as bl

@bl.register
class Twin(type(bl.policy("ucb1", arms=2))):
    "UCB1 under another name."
    name = "twin-of-ucb1"
"""


def test_a_module_of_ones_own_travels_to_the_workers(
    tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_twin.py").write_text(OWN_POLICY, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("own_twin")
    file = tmp_path / "twin.toml"
    file.write_text(
        'horizon = 100\nrepetitions = 2\nseed = 1\n[environment]\nname = "bernoulli"\n'
        "means = [0.2, 0.8]\n[policies.twin-of-ucb1]\n[policies.ucb1]\n",
        encoding="utf-8",
    )
    try:
        there = run_sweep(
            read_plan(file), tmp_path / "there", scheduler=cluster.scheduler_address
        ).results("bernoulli", 100)
    finally:
        POLICIES.classes().pop("twin-of-ucb1")
    assert np.array_equal(there.regret("twin-of-ucb1"), there.regret("ucb1"))


def test_a_cluster_gives_the_same_bytes(plan: ExperimentPlan, tmp_path: Path, cluster: Any) -> None:
    seen: list[tuple[int, ...]] = []
    run_sweep(
        plan,
        tmp_path / "there",
        scheduler=cluster.scheduler_address,
        progress=lambda *told: seen.append(told),
    )
    run_sweep(plan, tmp_path / "here")
    assert tree(tmp_path / "there") == tree(tmp_path / "here")
    assert seen[0][:2] == (0, 46800)
    assert seen[-1] == (46800, 46800, 18, 18)


@pytest.mark.crash
def test_a_worker_that_dies_costs_nothing(
    tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SWEEP.replace("[300, 1000]", "[300, 400000]")
    plan = read_plan(written(tmp_path, text))
    monkeypatch.setattr("balaclava.experiments.cluster.TASK_ROUNDS", 800_000)
    killed = []

    def kill_one(played: int, *_: int) -> None:
        if played > 0 and not killed:
            with distributed.Client(cluster, set_as_default=False) as client:
                killed.extend(client.run(os.getpid).values())
            os.kill(killed[0], signal.SIGKILL)

    run_sweep(plan, tmp_path / "there", scheduler=cluster.scheduler_address, progress=kill_one)
    assert killed
    monkeypatch.undo()
    run_sweep(plan, tmp_path / "here")
    assert tree(tmp_path / "there") == tree(tmp_path / "here")


def test_workers_with_other_software_are_refused(
    plan: ExperimentPlan, tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from balaclava.experiments import cluster as module

    said = {**module.software(), "numba": "0.1"}
    monkeypatch.setattr(module, "versions", lambda: said)
    with pytest.raises(
        ClusterError, match=r"the worker at .* has numba .*, but this machine has numba 0\.1"
    ):
        run_sweep(plan, tmp_path / "out", scheduler=cluster.scheduler_address)
    with pytest.raises(ClusterError, match="of this task has numba"):
        module._require_same(said, {**said, "numba": "0.2"})


@pytest.mark.skipif(not gpu_fault(), reason="there is a GPU")
def test_workers_without_a_gpu_are_refused(
    plan: ExperimentPlan, tmp_path: Path, cluster: Any
) -> None:
    there = plan.with_device("cuda")
    with pytest.raises(DeviceError, match=r"the worker at .*(numba-cuda|GPU)"):
        run_sweep(there, tmp_path / "out", scheduler=cluster.scheduler_address)
    assert {cell.setting.device for cell in open_sweep(tmp_path / "out").cells} == {"cuda"}
    assert not tree(tmp_path / "out" / "cells")


def test_errors_of_a_worker_are_reported() -> None:
    from balaclava.experiments.cluster import _result

    class Future:
        def __init__(self, error: Exception) -> None:
            self.error = error

        def result(self) -> None:
            raise self.error

    (cell,) = plan_sweep(ExperimentPlan("x", (alone(),)), "nowhere").cells
    with pytest.raises(PolicyError, match="a on bernoulli at horizon 100: chose badly"):
        _result(Future(PolicyError("chose badly")), cell)
    with pytest.raises(ClusterError, match=r"horizon 100: every worker that played it died.*again"):
        _result(Future(distributed.KilledWorker("task", None, 3)), cell)
    with pytest.raises(ClusterError, match=r"lost the connection to the scheduler.*again"):
        _result(Future(distributed.CancelledError("task")), cell)


def test_no_scheduler_no_worker(plan: ExperimentPlan, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"no scheduler answers at 'tcp://127\.0\.0\.1:1'"):
        run_sweep(plan, tmp_path / "out", scheduler="tcp://127.0.0.1:1", timeout=0.5)
    for address in ("nonsense://", "nonsense", "tcp://nowhere.invalid:8786"):
        with pytest.raises(ClusterError, match=f"'{address}' is not the address of a scheduler"):
            run_sweep(plan, tmp_path / "out", scheduler=address, timeout=0.5)
    with (
        distributed.LocalCluster(
            n_workers=0, processes=False, dashboard_address=":0", silence_logs=50
        ) as empty,
        pytest.raises(ClusterError, match="no worker has joined"),
    ):
        run_sweep(plan, tmp_path / "out", scheduler=empty.scheduler_address, timeout=0.5)
    assert not tree(tmp_path / "out" / "cells")


def test_without_dask(
    plan: ExperimentPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingPartError, match=r"a cluster needs distributed.*balaclava\[sweep\]"):
        run_sweep(plan, tmp_path / "out", scheduler="tcp://127.0.0.1:1")


def test_rewards_cannot_be_tried_out_on_the_keys_of_a_sweep() -> None:
    """A quick digest of eight clicks gives them away; one that costs memory and time is in use."""
    from balaclava._core.cache import value_bytes
    from balaclava.environments.empirical import World

    clicks = [0.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0]
    world = bl.environment("empirical", samples=[clicks, [0.0, 1.0]])
    used = sweep._values(world)

    def quick(guess):
        digest = hashlib.sha256()
        for part in value_bytes(World(np.array([*guess, 0.0, 1.0]), np.array([0, 8, 10]))):
            digest.update(part)
        return digest.digest()

    assert used not in map(quick, itertools.product((0.0, 1.0), repeat=8))
    sweep._slowly.cache_clear()
    assert used == sweep._slowly(quick(clicks))  # and it is still theirs
    assert used == sweep._values(bl.environment("empirical", samples=[clicks, [0.0, 1.0]]))
    other = bl.environment("empirical", samples=[clicks[::-1], [0.0, 1.0]])
    assert used != sweep._values(other)
